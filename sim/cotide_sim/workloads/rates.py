"""Request rates, or any other course, over time: a polyline that repeats.

Called by `machine` for each online pod. Invariant: pure; between two steps the value is linear, after the last step it
goes on to the first again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise


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


class Course:
    """A polyline and the area under it.

    Parameters
    ----------
    values : at each step, in any unit; empty for nothing at all.
    step_seconds : length of a step, > 0.
    """

    __slots__ = ("_areas", "_step", "_values")

    def __init__(self, values: Sequence[float], step_seconds: float) -> None:
        self._values = values
        self._step = step_seconds
        around = pairwise((*values, *values[:1]))
        self._areas = tuple(accumulate((0.5 * (low + high) for low, high in around), initial=0.0))

    def at(self, elapsed_seconds: float) -> float:
        """Return the value ``elapsed_seconds`` after the first step."""
        return rate_at(self._values, self._step, elapsed_seconds)

    def area(self, from_seconds: float, to_seconds: float) -> float:
        """Return the integral between two moments after the first step, in units times seconds.

        >>> Course((100.0, 200.0), 60.0).area(0.0, 60.0)
        9000.0
        >>> Course((100.0, 200.0), 60.0).area(30.0, 150.0)  # a whole round, wherever it begins
        18000.0
        """
        if not self._values:
            return 0.0
        return (self._up_to(to_seconds) - self._up_to(from_seconds)) * self._step

    def _up_to(self, seconds: float) -> float:
        """Return the area from the first step on, in units times steps."""
        steps = len(self._values)
        rounds, position = divmod(seconds / self._step, steps)
        before = min(int(position), steps - 1)
        part = position - before
        low, high = self._values[before], self._values[(before + 1) % steps]
        return rounds * self._areas[-1] + self._areas[before] + part * (low + 0.5 * part * (high - low))
