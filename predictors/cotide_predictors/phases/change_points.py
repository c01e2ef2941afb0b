"""Where the level of a path changes: the best cut into stretches of a steady mean.

Called by `learned_phases`. It returns the cut with the least squared distance from the means of its stretches, plus a
penalty for each change. Dynamic programming over the last change finds it exactly (Jackson et al. 2005). Pure.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats

PENALTY: Final = 5.0
"""Of a change, in noise variances times the logarithm of the length, for each column. Chosen: of 300 paths of noise
alone 16 % are cut at 2 (Schwarz 1978), 7 % at 3 and .7 % at 5, which still finds all changes of six deviations.
"""
LEAST_NOISE: Final = 0.03
"""Smallest standard deviation of a path; paths are scaled to 1. Chosen."""


def change_points(path: Floats, *, most: int, shortest: int = 2) -> tuple[int, ...]:
    """Return the indices at which a new stretch begins, rising, without 0.

    Parameters
    ----------
    path : (n, r) of about 1 in size, n >= 1, finite.
    most : largest number of stretches, >= 1; where the best cut has more, the penalty rises until it fits.
    shortest : smallest number of steps of a stretch, >= 1.
    """
    penalty = PENALTY * path.shape[1] * np.log(max(2, len(path)))
    while True:
        found = _best_cut(path / _noise(path), penalty, shortest)
        if len(found) < most:
            return found
        penalty *= 1.5


def _noise(path: Floats) -> Floats:
    """Return the noise of each column, (r,): the median step between neighbours, which a few changes do not move."""
    if len(path) < 3:
        return np.full(path.shape[1], LEAST_NOISE)
    steps = np.median(np.abs(np.diff(path, axis=0)), axis=0)
    return np.maximum(steps / 0.954, LEAST_NOISE)  # of normal noise: 0.6745 times the square root of 2


def _best_cut(path: Floats, penalty: float, shortest: int) -> tuple[int, ...]:
    length = len(path)
    sums = np.vstack([np.zeros(path.shape[1]), np.cumsum(path, axis=0)])
    squares = np.concatenate([[0.0], np.cumsum((path * path).sum(axis=1))])
    best = np.full(length + 1, np.inf)
    best[0] = -penalty
    last = np.zeros(length + 1, np.intp)
    for end in range(min(shortest, length), length + 1):
        begins = np.arange(max(1, end - shortest + 1))
        total = sums[end] - sums[begins]
        cost = squares[end] - squares[begins] - (total * total).sum(axis=1) / (end - begins)
        value = best[begins] + cost + penalty
        last[end] = begins[int(np.argmin(value))]
        best[end] = value.min()
    found = []
    cut = int(last[length])
    while cut > 0:
        found.append(cut)
        cut = int(last[cut])
    return tuple(reversed(found))
