"""Simulated time for fake nodes: the wall clock, sped up from an origin that the operator shares.

Used by the fleet and the metrics page. ``sim = origin + (wall - origin) * speed``; both sides compute it for
themselves and agree, because they were given the same origin and speed. Times written into API objects are those
of the wall, as every other client of the API expects.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class SimulatedClock:
    """Seconds since the epoch that pass ``speed`` times as fast as those of the wall.

    Parameters
    ----------
    origin_seconds : float, optional
        Wall time at which both clocks agree; now when None.
    speed : float
        Simulated seconds per wall second, > 0; 1 is real time.
    wall : callable
        The wall clock; a test passes its own.
    """

    def __init__(
        self, origin_seconds: float | None = None, speed: float = 1.0, wall: Callable[[], float] = time.time
    ) -> None:
        self.origin_seconds = wall() if origin_seconds is None else origin_seconds
        self.speed = speed
        self._wall = wall
        self._last = float("-inf")

    def now(self) -> float:
        """Return the simulated time; it never goes back, even when the wall clock is set back."""
        self._last = max(self._last, self.from_wall(self._wall()))
        return self._last

    def from_wall(self, wall_seconds: float) -> float:
        """Return the simulated time at a wall time."""
        return self.origin_seconds + (wall_seconds - self.origin_seconds) * self.speed

    def to_wall(self, seconds: float) -> float:
        """Return the wall time at a simulated time."""
        return self.origin_seconds + (seconds - self.origin_seconds) / self.speed

    def wait_seconds(self, until: float) -> float:
        """Return the wall seconds until a simulated time; 0 when it has passed."""
        return max(0.0, self.to_wall(until) - self._wall())
