"""The operator's time: the real clock, or a faster one shared with fake nodes.

The assembly, the loop, the controllers and the feed call it; the engine receives only ``now``. Simulated time is
``origin + (wall - origin) * speed`` with the same origin and speed as the fake nodes, so that both agree without
communication. Invariant: whatever the machine's time does, a clock never runs backwards, stands still or jumps: a wait
of ten seconds takes nine to eleven. After the machine's clock was set, it approaches the new time slowly. A jump ahead
would end every back-off and give up every binding in flight, and one back would stop both.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, Protocol

SLEW: Final = 0.1
"""Largest change of a clock's speed while it approaches a machine's clock that was set, as a share. Chosen: an hour
is made up in ten, and no wait is wrong by more than a tenth."""


class Clock(Protocol):
    """The interface of a clock. Its seconds are epoch seconds, possibly sped up."""

    @property
    def speed(self) -> float:
        """Clock seconds per wall second; 1 in a real cluster."""
        ...

    def now(self) -> float:
        """Return the clock's seconds; never less than the last result."""
        ...

    def from_wall(self, wall_seconds: float) -> float:
        """Map an epoch second of the machine (an API timestamp) to the clock."""
        ...

    def to_wall(self, clock_seconds: float) -> float:
        """Map the clock back to an epoch second of the machine (to write a timestamp)."""
        ...


@dataclass
class ScaledClock:
    """A clock that runs ``speed`` times as fast as the wall since ``origin_seconds``; speed 1 is the real clock.

    Parameters
    ----------
    origin_seconds : epoch second of the wall at which both clocks agree.
    speed : clock seconds per wall second, > 0.
    """

    origin_seconds: float = 0.0
    speed: float = 1.0
    _wall: float = 0.0
    _monotonic: float | None = None
    """Monotonic second of the last `now`, and the followed time of the machine then."""

    def now(self) -> float:
        """Return the clock's seconds."""
        wall, monotonic = time.time(), time.monotonic()
        if self._monotonic is None:
            self._wall = wall
        else:
            passed = monotonic - self._monotonic
            most = passed * SLEW
            self._wall += passed + min(most, max(-most, wall - self._wall - passed))
        self._monotonic = monotonic
        return self.from_wall(self._wall)

    def from_wall(self, wall_seconds: float) -> float:
        """Map an epoch second of the machine to the clock."""
        if self.speed == 1.0:  # exact: no rounding through the origin
            return wall_seconds
        return self.origin_seconds + (wall_seconds - self.origin_seconds) * self.speed

    def to_wall(self, clock_seconds: float) -> float:
        """Map the clock back to an epoch second of the machine."""
        if self.speed == 1.0:
            return clock_seconds
        return self.origin_seconds + (clock_seconds - self.origin_seconds) / self.speed


def real_clock() -> ScaledClock:
    """Return the machine's own time."""
    return ScaledClock()
