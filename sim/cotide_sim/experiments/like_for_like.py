"""What makes contenders comparable: intervals over seeds, and a knob of each that is chosen on seeds of its own.

Called by the experiments. Each contender has as many settings to choose from as any other; the one that is best on the
tuning seeds is judged on others. Invariant: the same scores, the same choice; of equal ones the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from scipy import stats

from cotide_core.errors import InputError

Knob = TypeVar("Knob")
TUNING_SEEDS: Final = (101, 102)
"""No report runs on these."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over seeds, its 95 % interval (Student's t) and the median; all are the value where there is one seed."""

    mean: float
    low: float
    high: float
    median: float


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of some values with its interval."""
    mean, median = float(np.mean(values)), float(np.median(values))
    if len(values) < 2:
        return Interval(mean, mean, mean, median)
    half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return Interval(mean, mean - half, mean + half, median)


def reported(seeds: Sequence[int]) -> tuple[int, ...]:
    """Return the seeds of a report.

    Raises
    ------
    InputError
        When a knob is chosen on one of them.
    """
    shared = sorted({*seeds} & {*TUNING_SEEDS})
    if shared:
        raise InputError(f"settings are chosen on seed {shared[0]}: report others", field="--seed")
    return tuple(seeds)


def best_knob(knobs: Sequence[Knob], score: Callable[[Knob], float]) -> Knob:
    """Return the knob of the least score."""
    return min(knobs, key=score)
