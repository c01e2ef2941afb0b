"""The common comparison of experiments: settings chosen on other seeds, means with intervals, ratios by seed.

Called by the experiments. Every contender has as many settings of its knob as the others, and where a goal bounds the
choice as many refinements. The one that is chosen on the tuning seeds is judged on the reported ones. Invariant: no
measurement on a reported seed takes part in the choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import InputError

Setting = TypeVar("Setting")

TUNING_SEEDS: Final = (101, 102)
"""Settings are chosen on these seeds; no report runs on them."""
CONFIDENCE: Final = 0.95
REFINEMENTS: Final = 3
"""Each contender may halve the step of its knob as many times (chosen: a step of .25 becomes .03)."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over the seeds."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return mean, least and most; nan for no value."""
        if not len(values):
            return cls(float("nan"), float("nan"), float("nan"))
        return cls(float(np.mean(values)), float(np.min(values)), float(np.max(values)))


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over seeds, its 95 % interval by Student's t, and the median; of one seed all are its value."""

    mean: float
    low: float
    high: float
    median: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Return the mean of at least one value with its interval."""
        mean, median = float(np.mean(values)), float(np.median(values))
        if len(values) < 2:
            return cls(mean, mean, mean, median)
        wide = _half_width(np.asarray(values, dtype=np.float64))
        return cls(mean, mean - wide, mean + wide, median)


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours over another's, by seed: the geometric mean and its 95 % interval by Student's t; nan of a single seed."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
        """Return the ratio of figures > 0 of the same seeds; 0 over a figure without bound."""
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(np.asarray(ours, dtype=np.float64)) - np.log(np.asarray(theirs, dtype=np.float64))
        if not len(logs) or not np.isfinite(logs).all():
            mean = float(np.exp(logs.mean())) if len(logs) else float("nan")
            return cls(mean, float("nan"), float("nan"))
        mean = float(logs.mean())
        if len(logs) == 1:
            return cls(float(np.exp(mean)), float("nan"), float("nan"))
        wide = _half_width(logs)
        return cls(float(np.exp(mean)), float(np.exp(mean - wide)), float(np.exp(mean + wide)))

    @property
    def beyond_noise(self) -> bool:
        """Whether the interval lies on one side of 1."""
        return bool(self.low > 1.0 or self.high < 1.0)


def chosen(cost: Mapping[Setting, float], excess: Mapping[Setting, float]) -> Setting:
    """Return the cheapest setting that keeps its goal, or else the one that is nearest to it.

    Parameters
    ----------
    cost : by setting, on the tuning seeds; the first of equal ones is taken.
    excess : by setting, its distance above the goal: kept where <= 0.
    """
    able = [setting for setting in cost if excess[setting] <= 0]
    if able:
        return min(able, key=lambda setting: cost[setting])
    return min(cost, key=lambda setting: (excess[setting], cost[setting]))


def halfway(cost: Mapping[float, float], excess: Mapping[float, float]) -> float | None:
    """Return the setting halfway between the chosen one and its cheaper neighbour; None where no neighbour is cheaper.

    A cheaper neighbour misses the goal. Where cost and excess change steadily with the setting, the cheapest one that
    keeps the goal lies between the two.
    """
    best = chosen(cost, excess)
    if excess[best] > 0:
        return None
    ordered = sorted(cost)
    at = ordered.index(best)
    beside = [*ordered[max(0, at - 1) : at], *ordered[at + 1 : at + 2]]
    cheaper = [setting for setting in beside if cost[setting] < cost[best]]
    return (best + min(cheaper, key=lambda setting: cost[setting])) / 2 if cheaper else None


def reported(seeds: Sequence[int], tuning_seeds: Sequence[int] = TUNING_SEEDS) -> tuple[int, ...]:
    """Return the seeds of a report.

    Raises
    ------
    InputError
        When a setting is chosen on one of them.
    """
    shared = sorted({*seeds} & {*tuning_seeds})
    if shared:
        raise InputError(f"settings are chosen on seed {shared[0]}: report others", field="--seed")
    return tuple(seeds)


def _half_width(values: NDArray[np.float64]) -> float:
    from scipy.stats import t

    return float(t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
