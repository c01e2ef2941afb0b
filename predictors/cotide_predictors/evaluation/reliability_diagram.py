"""Reliability diagrams: of the rows that a classifier calls 30 % likely to break, do three in ten break?

Called by `cotide evaluate --reliability`. Invariant: every row lies in one bin; bins without a row are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats

BINS: Final = 10
"""Of equal width over [0, 1]."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Rows whose probability lies in [low, high), the last bin's end with it.

    Attributes
    ----------
    rows : how many.
    said, seen : the mean probability, and the share that was violated.
    """

    low: float
    high: float
    rows: int
    said: float
    seen: float


def reliability_diagram(probability: Floats, violated: NDArray[np.bool_]) -> list[Bin]:
    """Return the bins that hold any of n rows; (n,) each, probabilities in [0, 1]."""
    which = np.minimum((probability * BINS).astype(np.int64), BINS - 1)
    found = []
    for number in range(BINS):
        inside = which == number
        if inside.any():
            said, seen = float(probability[inside].mean()), float(violated[inside].mean())
            found.append(Bin(number / BINS, (number + 1) / BINS, int(inside.sum()), said, seen))
    return found


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return by how much what is said is off what is seen, mean over rows (Naeini and others 2015: expected error)."""
    return sum(one.rows * abs(one.said - one.seen) for one in bins) / sum(one.rows for one in bins)
