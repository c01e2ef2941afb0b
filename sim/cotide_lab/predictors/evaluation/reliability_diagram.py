"""Reliability diagrams: of the rows with a 30 % forecast of breaking, do three in ten break?

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
    """Rows with a probability in [low, high); the last bin includes its end.

    Attributes
    ----------
    rows : their number.
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
            forecast, seen = float(probability[inside].mean()), float(violated[inside].mean())
            found.append(Bin(number / BINS, (number + 1) / BINS, int(inside.sum()), forecast, seen))
    return found


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the mean difference of forecast and outcome over rows (Naeini and others 2015: expected error)."""
    return sum(cell.rows * abs(cell.said - cell.seen) for cell in bins) / sum(cell.rows for cell in bins)
