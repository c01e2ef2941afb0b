"""Peak predictors from other systems, measured on the same series as those of this package.

Called by the experiments only. Each takes a matrix of series and returns, for every slot, its forecast from the slots
before. They are: last value, running mean, exponential smoothing, and mean plus N standard deviations over a day. Then
follow a percentile of a histogram with a half-life of a day, and the larger of the last two. N is 1.2816 and 2.3263 at
p90 and p99, the normal quantiles. The larger of the two is the best in "Take It to the Limit" (EuroSys 2021). The point
predictors take part as quantiles, too, since users without quantiles plan with them.

Invariant: column t of an answer depends on columns before t only; a missing record (nan) is skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats

N_SIGMA_SLOTS: Final = 288
PERCENTILE_HALF_LIFE_SLOTS: Final = 288.0
"""A day, as in Crane; half a day, Koordinator's for cpu, is within a few percent of it on every set."""
SMOOTHING: Final = 0.3
PERCENTILE_BINS: Final = 200
NORMAL_QUANTILES: Final = {0.5: 0.0, 0.9: 1.2815515655446004, 0.99: 2.3263478740408408}

POINTS: Final = ("last value", "mean", "exponential smoothing")
QUANTILES: Final = ("N-sigma", "percentile, half-life", "max(N-sigma, percentile)")


def last_value(series: Floats) -> Floats:
    """Return (n, m) the last record before each slot."""
    return _recursion(series, lambda level, value, _count: value + 0.0 * level)


def running_mean(series: Floats) -> Floats:
    """Return (n, m) the mean of all records before each slot."""
    return _recursion(series, lambda level, value, count: level + (value - level) / count)


def exponential_smoothing(series: Floats, *, smoothing: float = SMOOTHING) -> Floats:
    """Return (n, m) the exponentially smoothed level before each slot."""
    return _recursion(series, lambda level, value, _count: level + smoothing * (value - level))


def n_sigma(series: Floats, level: float, *, slots: int = N_SIGMA_SLOTS) -> Floats:
    """Return (n, m) mean + N standard deviations of the records in the window before each slot."""
    present = np.isfinite(series)
    filled = np.where(present, series, 0.0)
    counts, sums, squares = (_windowed(part, slots) for part in (present.astype(np.float64), filled, filled**2))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = sums / counts
        spread = np.sqrt(np.maximum(squares / counts - mean**2, 0.0))
    return np.where(counts > 0, mean + NORMAL_QUANTILES[level] * spread, np.nan)


def decayed_percentile(series: Floats, level: float, *, half_life_slots: float = PERCENTILE_HALF_LIFE_SLOTS) -> Floats:
    """Return (n, m) the percentile of a decaying histogram of bins of half a percent, read at a bin's upper edge."""
    hosts, slots = series.shape
    counts = np.zeros((hosts, PERCENTILE_BINS))
    found = np.full(series.shape, np.nan)
    rows, weight = np.arange(hosts), 1.0
    for slot in range(slots):
        below = np.cumsum(counts, axis=1)
        known = below[:, -1] > 0
        index = np.argmax(below >= level * below[:, -1:], axis=1)
        found[known, slot] = (index[known] + 1) / PERCENTILE_BINS
        present = np.isfinite(series[:, slot])
        weight *= 2 ** (1 / half_life_slots)
        bins = np.clip(series[present, slot] * PERCENTILE_BINS, 0, PERCENTILE_BINS - 1).astype(np.intp)
        counts[rows[present], bins] += weight
        if weight > 1e100:
            counts /= weight
            weight = 1.0
    return found


def _recursion(series: Floats, step: Callable[[Floats, Floats, Floats], Floats]) -> Floats:
    found = np.full(series.shape, np.nan)
    level, count = np.full(len(series), np.nan), np.zeros(len(series))
    for slot in range(series.shape[1]):
        found[:, slot] = level
        value = series[:, slot]
        present = np.isfinite(value)
        count += present
        moved = step(np.where(np.isfinite(level), level, value), value, np.maximum(count, 1))
        level = np.where(present, moved, level)
    return found


def _windowed(values: Floats, slots: int) -> Floats:
    """Return (n, m) the sum of the ``slots`` columns before each."""
    total = np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)
    indices = np.arange(values.shape[1])
    sums: Floats = total[:, indices] - total[:, np.maximum(indices - slots, 0)]
    return sums
