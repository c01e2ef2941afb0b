"""Means over blocks of time, their intervals, and ranks of predictors with a critical difference.

Called by the tasks and by `report`. Errors of neighbouring jobs and slots are correlated. Blocks (a week of jobs, a day
of slots) are therefore drawn with replacement instead of single errors: a percentile interval over `RESAMPLES` draws.
Predictors of one data set are drawn with the same blocks, so their differences are paired. Invariant: pure; one seed,
one interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.stats import studentized_range
from scipy.stats import t as student_t

from cotide_core.kernels.array_types import Floats, Integers

RESAMPLES: Final = 2000
"""Draws of blocks; chosen, the ends of a 95 % interval then rest on 50 draws each."""
LEAST_BLOCKS: Final = 4
"""Fewer blocks give no interval; chosen, as for replays."""

Blocks = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with the ends of its 95 % interval, or None where there are too few blocks."""

    value: float
    low: float | None
    high: float | None


def sums_by_block(block: Integers, values: Floats) -> Blocks:
    """Return the sum and the count of each block; nan values count in none.

    Parameters
    ----------
    block, values : (n,) numbers from 0, and the values to sum.
    """
    known = np.isfinite(values)
    most = int(block.max(initial=0)) + 1
    sums = np.bincount(block[known], values[known], minlength=most)
    counts = np.bincount(block[known], minlength=most)
    return tuple(sums.tolist()), tuple(counts.astype(np.float64).tolist())


def mean_interval(blocks: Blocks, *, seed: int = 0) -> Interval:
    """Return the mean over all blocks with its interval."""
    return difference_interval(blocks, ((0.0,) * len(blocks[0]), blocks[1]), seed=seed)


def difference_interval(one: Blocks, other: Blocks, *, seed: int = 0) -> Interval:
    """Return the mean of one minus the mean of the other, both drawn with the same blocks."""
    (above, below), (minus, under) = (np.array(one), np.array(other))
    value = float(above.sum() / below.sum() - minus.sum() / under.sum())
    count = len(below)
    if count < LEAST_BLOCKS or len(under) != count:
        return Interval(value, None, None)
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1.0 / count), size=RESAMPLES).astype(float)
    first, second = draws @ below, draws @ under
    kept = (first > 0) & (second > 0)
    means = (draws @ above)[kept] / first[kept] - (draws @ minus)[kept] / second[kept]
    low, high = np.quantile(means, (0.025, 0.975))
    return Interval(value, float(low), float(high))


def paired_interval(one: Blocks, other: Blocks, level: float) -> Interval:
    """Return the mean difference of one and the other with Student's interval over blocks, each with the same weight.

    For levels far out, where draws of a few blocks have no tail: with five blocks it is wide, as it should be.

    Parameters
    ----------
    level : of the interval, below 1.
    """
    (above, below), (minus, under) = (np.array(one), np.array(other))
    value = float(above.sum() / below.sum() - minus.sum() / under.sum())
    if len(below) != len(under):
        return Interval(value, None, None)
    known = (below > 0) & (under > 0)
    count = int(known.sum())
    if count < LEAST_BLOCKS:
        return Interval(value, None, None)
    apart = above[known] / below[known] - minus[known] / under[known]
    reach = float(student_t.ppf((1 + level) / 2, count - 1)) * float(apart.std(ddof=1)) / np.sqrt(count)
    return Interval(value, float(apart.mean()) - reach, float(apart.mean()) + reach)


def mean_ranks(scores: Mapping[str, Mapping[str, float]], *, higher_is_better: bool) -> dict[str, float]:
    """Return each predictor's mean rank, 1 the best, over the data sets that all predictors were run on.

    Parameters
    ----------
    scores : by data set, then by predictor; ties share their ranks.
    """
    names = sorted(set.intersection(*(set(found) for found in scores.values()))) if scores else []
    if not names:
        return {}
    table = np.array([[found[name] for name in names] for found in scores.values()])
    table = -table if higher_is_better else table
    ranks = (table[:, :, None] > table[:, None, :]).sum(axis=2) + 0.5 * (
        (table[:, :, None] == table[:, None, :]).sum(axis=2) + 1
    )
    return dict(zip(names, ranks.mean(axis=0).tolist(), strict=True))


def critical_difference(predictors: int, sets: int) -> float:
    """Return the smallest significant difference of mean ranks at 5 % (Nemenyi's test; Demsar 2006)."""
    quantile = float(studentized_range.ppf(0.95, predictors, np.inf)) / np.sqrt(2.0)
    return float(quantile * np.sqrt(predictors * (predictors + 1) / (6.0 * sets)))
