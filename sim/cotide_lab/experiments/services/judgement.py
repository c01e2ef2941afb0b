"""The figures of experiment services, and its missed bars.

Called by `guard_by_service`. Invariant: every figure is of rows that no contender learned from. A difference counts as
beyond noise where its interval over seeds leaves out zero; intervals are widened for the number of comparisons
(Bonferroni).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats
from cotide_lab.experiments.services.population import Service

SETTLED: Final = 200
"""From this many samples on, a service's model is compared with the strongest baseline; before, with the heuristic."""
JUDGED: Final = 20
"""A service is judged by F1 where at least this many of its rows break and as many hold, in every seed."""
CONFIDENCE: Final = 0.95
ACCEPTANCE_FLOOR: Final = 0.5
"""Least share of the holding rows that ours must accept at every age, mean over services. A guard that refuses
everything breaks no limit and sells nothing (chosen: half)."""
LEAST: Final = 1e-6
"""Differences below count as none."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One contender about one service at one age, in one seed: counts of rows at the guard's threshold.

    Attributes
    ----------
    rows, broken : judged, and those with a broken limit.
    refused, caught : above the threshold, and the broken ones among these.
    f1_even : F1 at even odds instead of the threshold; nan without a violation.
    brier : mean squared error of the probability.
    """

    seed: int
    service: str
    age: int
    contender: str
    rows: int
    broken: int
    refused: int
    caught: int
    f1_even: float
    brier: float

    @classmethod
    def of(
        cls,
        seed: int,
        service: str,
        age: int,
        contender: str,
        probability: Floats,
        broken: NDArray[np.bool_],
        threshold: float,
    ) -> Outcome:
        """Return the outcome of (n,) probabilities."""
        refused, even = probability > threshold, probability > 0.5
        counted = int(even.sum() + broken.sum())
        return cls(
            seed,
            service,
            age,
            contender,
            len(broken),
            int(broken.sum()),
            int(refused.sum()),
            int((refused & broken).sum()),
            2.0 * float((even & broken).sum()) / counted if broken.any() else float("nan"),
            float(((probability - broken) ** 2).mean()),
        )

    @property
    def precision(self) -> float:
        """Share of the refused that would have broken; nan where nothing was refused."""
        return self.caught / self.refused if self.refused else float("nan")

    @property
    def recall(self) -> float:
        """Refused share of the rows that would have broken; nan without such rows."""
        return self.caught / self.broken if self.broken else float("nan")

    @property
    def f1(self) -> float:
        """F1 at the threshold; nan where nothing would have broken."""
        return 2.0 * self.caught / (self.refused + self.broken) if self.broken else float("nan")

    @property
    def accepted(self) -> float:
        """Accepted share of the holding rows; nan where nothing holds."""
        holds = self.rows - self.broken
        return (holds - (self.refused - self.caught)) / holds if holds else float("nan")

    @property
    def breaks(self) -> float:
        """Accepted rows that broke, of a thousand."""
        return 1000.0 * (self.broken - self.caught) / self.rows


@dataclass(frozen=True, slots=True)
class Row:
    """One contender at one age.

    Means over seeds of the figures of services. F1, precision and recall are medians over the judged services. Breaks
    in a thousand rows, the share refused and the accepted share of holding rows are means over all; ``deviation`` is of
    the median F1 over seeds.
    """

    age: int
    contender: str
    precision: float
    recall: float
    f1: float
    deviation: float
    f1_even: float
    breaks: float
    refused: float
    accepted: float
    brier: float


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """One service at one age: means over seeds, and our F1 minus that of its strongest baseline with its interval.

    The strongest ``baseline`` is the one with the highest mean F1 there."""

    service: str
    age: int
    limit_milliseconds: float
    lone_milliseconds: float
    broken_share: float
    judged: bool
    f1: dict[str, float]
    precision: dict[str, float]
    recall: dict[str, float]
    breaks: dict[str, float]
    refused: dict[str, float]
    baseline: str
    ahead: float
    ahead_low: float
    ahead_high: float


@dataclass(frozen=True, slots=True)
class Report:
    """All rows, and the missed bars in words."""

    threshold: float
    seeds: int
    rows: tuple[Row, ...]
    services: tuple[ServiceRow, ...]
    missed: tuple[str, ...]


def judge(
    outcomes: Sequence[Outcome],
    services: Sequence[Service],
    threshold: float,
    *,
    ours: str,
    baselines: Sequence[str],
    heuristic: str,
) -> Report:
    """Return the figures, by age and by service, and the missed bars.

    Intervals are widened for all baselines, because the strongest is picked after the fact.
    """
    seeds = sorted({outcome.seed for outcome in outcomes})
    ages = sorted({outcome.age for outcome in outcomes})
    names = list(dict.fromkeys(outcome.contender for outcome in outcomes))
    at = {(outcome.seed, outcome.service, outcome.age, outcome.contender): outcome for outcome in outcomes}
    judged = {
        service.name
        for service in services
        if all(
            JUDGED <= outcome.broken <= outcome.rows - JUDGED for outcome in outcomes if outcome.service == service.name
        )
    }
    comparisons = len(baselines) * len(judged) * sum(age >= SETTLED for age in ages)
    rows = [
        _row(age, name, [[at[seed, service.name, age, name] for service in services] for seed in seeds], judged)
        for age in ages
        for name in names
    ]
    by_service = []
    for service in services:
        for age in ages:
            mine = {name: [at[seed, service.name, age, name] for seed in seeds] for name in names}
            f1 = _means(mine, "f1")
            strongest = max(baselines, key=lambda name: _comparable(f1[name]))
            ahead = np.array([a.f1 - b.f1 for a, b in zip(mine[ours], mine[strongest], strict=True)])
            mean, low, high = interval(ahead, max(1, comparisons))
            by_service.append(
                ServiceRow(
                    service.name,
                    age,
                    service.limit_milliseconds,
                    service.base_milliseconds,
                    float(np.mean([outcome.broken / outcome.rows for outcome in mine[ours]])),
                    service.name in judged,
                    f1,
                    _means(mine, "precision"),
                    _means(mine, "recall"),
                    _means(mine, "breaks"),
                    {
                        name: float(np.mean([outcome.refused / outcome.rows for outcome in ones]))
                        for name, ones in mine.items()
                    },
                    strongest,
                    mean,
                    low,
                    high,
                )
            )
    missed = _missed(rows, by_service, outcomes, ours, baselines, heuristic)
    return Report(threshold, len(seeds), tuple(rows), tuple(by_service), tuple(missed))


def interval(values: Floats, comparisons: int = 1) -> tuple[float, float, float]:
    """Return mean and 95 % interval of (k,) values over seeds, widened for the number of comparisons; infinite for
    one."""
    from scipy.stats import t

    mean = float(values.mean())
    if len(values) < 2:
        return mean, float("-inf"), float("inf")
    beyond = (1.0 - CONFIDENCE) / (2.0 * comparisons)
    half = float(t.ppf(1.0 - beyond, len(values) - 1)) * float(values.std(ddof=1)) / float(np.sqrt(len(values)))
    return mean, mean - half, mean + half


def _row(age: int, name: str, by_seed: list[list[Outcome]], judged: set[str]) -> Row:
    def median(attribute: str) -> Floats:
        """Return the median over judged services, by seed."""
        found = [[getattr(outcome, attribute) for outcome in ones if outcome.service in judged] for ones in by_seed]
        return np.array([_median(values) for values in found])

    everything = [outcome for ones in by_seed for outcome in ones]
    f1 = median("f1")
    return Row(
        age,
        name,
        float(np.nanmean(median("precision"))) if judged else float("nan"),
        float(median("recall").mean()),
        float(f1.mean()),
        float(f1.std()),
        float(median("f1_even").mean()),
        float(np.mean([outcome.breaks for outcome in everything])),
        float(np.mean([outcome.refused / outcome.rows for outcome in everything])),
        float(np.nanmean([outcome.accepted for outcome in everything])),
        float(np.mean([outcome.brier for outcome in everything])),
    )


def _median(values: list[float]) -> float:
    """Return the median of the values that are numbers; nan where none is."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.median(known)) if known else float("nan")


def _comparable(value: float) -> float:
    """Return a figure that orders; without a figure the lowest."""
    return -np.inf if np.isnan(value) else value


def _means(mine: dict[str, list[Outcome]], attribute: str) -> dict[str, float]:
    means = {}
    for name, ones in mine.items():
        known = [value for outcome in ones if not np.isnan(value := getattr(outcome, attribute))]
        means[name] = float(np.mean(known)) if known else float("nan")
    return means


def _missed(
    rows: Sequence[Row],
    services: Sequence[ServiceRow],
    outcomes: Sequence[Outcome],
    ours: str,
    baselines: Sequence[str],
    heuristic: str,
) -> list[str]:
    """Return the missed bars.

    From `SETTLED` samples on, F1 is worse than the strongest baseline's beyond noise in no service, and better in the
    median. Before, there are no more breaks than under the heuristic alone. At every age ours accepts
    `ACCEPTANCE_FLOOR` of the holding rows.
    """
    out = [
        f"{service.service} at {service.age} samples: F1 {service.f1[ours]:.3f}, {service.baseline} "
        f"{service.f1[service.baseline]:.3f}"
        f" (difference {service.ahead_low:+.3f} to {service.ahead_high:+.3f})"
        for service in services
        if service.judged and service.age >= SETTLED and service.ahead_high < 0
    ]
    by = {(row.age, row.contender): row for row in rows}
    for age in sorted({row.age for row in rows}):
        mine = by[age, ours]
        if not mine.accepted >= ACCEPTANCE_FLOOR:
            out.append(
                f"accepts {mine.accepted:.1%} of the rows that hold at {age} samples, less than {ACCEPTANCE_FLOOR:.0%}"
            )
        best = max((by[age, name] for name in baselines), key=lambda row: _comparable(row.f1))
        if age >= SETTLED and mine.f1 <= best.f1:
            out.append(f"median F1 at {age} samples: {mine.f1:.3f}, {best.contender} {best.f1:.3f}")
        if age < SETTLED:
            seeds = sorted({outcome.seed for outcome in outcomes})
            pairs = [[_breaks(outcomes, seed, age, name) for name in (ours, heuristic)] for seed in seeds]
            more = float(np.mean([mine - theirs for mine, theirs in pairs]))
            if more > LEAST:
                out.append(f"{more:.1f} breaks in a thousand more than the heuristic at {age} samples")
    return out


def _breaks(outcomes: Sequence[Outcome], seed: int, age: int, contender: str) -> float:
    return float(
        np.mean(
            [
                outcome.breaks
                for outcome in outcomes
                if (outcome.seed, outcome.age, outcome.contender) == (seed, age, contender)
            ]
        )
    )
