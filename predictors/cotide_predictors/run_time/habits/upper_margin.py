"""The upper end of a point forecast: the factor that keeps nine in ten runs below it.

Used by the live forecasters that return points only. The margin, a log of seconds, follows the misses (the quantile
recursion of Robbins and Monro 1951). A run that outlives the upper end raises it; one that does not lowers it a ninth
as much, so that it settles where one in ten outlives it. Invariant: pure.
"""

from __future__ import annotations

from typing import Final

import numpy as np

OUTLIVED_SHARE: Final = 0.1
FIRST_MARGIN: Final = float(np.log(2.0))
"""Twice the point, as in the request-based heuristic (chosen)."""
STEP: Final = 0.2
"""Step of the margin for an outlived upper end, less its share (chosen: a fifth of a log second)."""
MARGINS: Final = (0.0, 5.0)
"""Ends between which it moves: up to 150 times the point (chosen)."""


def upper_seconds(seconds: float, margin: float) -> float:
    """Return the upper end of a forecast."""
    return seconds * float(np.exp(margin))


def moved(margin: float, outlived: bool) -> float:
    """Return the margin after a run."""
    step = STEP * (1.0 - OUTLIVED_SHARE) if outlived else -STEP * OUTLIVED_SHARE
    return min(max(margin + step, MARGINS[0]), MARGINS[1])
