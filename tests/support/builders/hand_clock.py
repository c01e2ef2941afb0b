"""The operator's clock, moved by hand; it fulfils `cotide_operator.clock.Clock`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class HandClock:
    """Runs ``speed`` times as fast as ``wall``, which the test moves; both agree at ``origin``."""

    wall: float
    speed: float = 1.0
    origin: float = 0.0
    held: float = float("-inf")

    def now(self) -> float:
        self.held = max(self.held, self.from_wall(self.wall))
        return self.held

    def from_wall(self, wall_seconds: float) -> float:
        return self.origin + (wall_seconds - self.origin) * self.speed

    def to_wall(self, clock_seconds: float) -> float:
        return self.origin + (clock_seconds - self.origin) / self.speed
