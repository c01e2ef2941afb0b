"""Prices of the next steps, from those that came: they go back to the mean of the last days.

Called by `cotide place` and by the placement experiment. Not the day before again: one day's peaks come again at other
hours, and servers moved for them move back. Invariant: without a history, or with a price that never changed, the price
of now holds.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MEMORY: Final = 0.9
"""What is left after `MEMORY_SECONDS` of the distance between a price and the mean of the last days (chosen on seeds
101 to 103 of the experiment)."""
MEMORY_SECONDS: Final = 900.0


def foreseen_prices(history: Floats, steps: int, step_seconds: float, age_seconds: float = 0.0) -> Floats:
    """Return (steps, ...) prices, of which the first is of now.

    Parameters
    ----------
    history : (H, ...) prices, H >= 1, the latest last.
    age_seconds : since the latest of them was the price, >= 0.
    """
    mean = history.mean(axis=0)
    later = (age_seconds + step_seconds * np.arange(steps)) / MEMORY_SECONDS
    left = (MEMORY**later).reshape(-1, *[1] * mean.ndim)
    foreseen: Floats = mean + left * (history[-1] - mean)
    return foreseen
