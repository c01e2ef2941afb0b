"""Prices of the next steps, from past prices: they return to the mean of the last days.

Called by `cotide place` and by the placement experiment. The day before is not repeated: its peaks come at other hours,
and servers that moved for them would move back. Invariant: without a history, or with a price that never changed, the
present price holds.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MEMORY: Final = 0.9
"""Share of the distance between a price and the mean of the last days that is left after `MEMORY_SECONDS` (chosen on
seeds 101 to 103 of the experiment).
"""
MEMORY_SECONDS: Final = 900.0


def foreseen_prices(history: Floats, steps: int, step_seconds: float, age_seconds: float = 0.0) -> Floats:
    """Return (steps, ...) prices, the first for now.

    Parameters
    ----------
    history : (H, ...) prices, H >= 1, the latest last.
    age_seconds : since the latest price began, >= 0.
    """
    mean = history.mean(axis=0)
    later = (age_seconds + step_seconds * np.arange(steps)) / MEMORY_SECONDS
    left = (MEMORY**later).reshape(-1, *[1] * mean.ndim)
    foreseen: Floats = mean + left * (history[-1] - mean)
    return foreseen
