"""Request rates over time: a polyline that repeats.

Called by `machine` for each online pod. Invariant: pure; between two steps the rate is linear, after the last step it
goes on to the first again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def rate_at(rates: Sequence[float], step_seconds: float, elapsed_seconds: float) -> float:
    """Return the rate in requests/s ``elapsed_seconds`` after the first step.

    >>> rate_at((100.0, 200.0), 60.0, 30.0)
    150.0
    >>> rate_at((100.0, 200.0), 60.0, 90.0)  # on the way back to the first
    150.0
    """
    if not rates:
        return 0.0
    position = math.fmod(elapsed_seconds / step_seconds, len(rates))
    if position < 0.0:
        position += len(rates)
    before = int(position)
    part = position - before
    low, high = rates[before % len(rates)], rates[(before + 1) % len(rates)]
    return low + part * (high - low)
