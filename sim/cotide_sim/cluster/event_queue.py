"""The virtual clock: values in order of their due time, first in first out at the same time.

Called by `world`. Position in the flow: it decides when the next fact happens. Invariant: time never goes back, and
equal inputs give equal order, since ties are broken by the order of insertion.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Due = TypeVar("Due")


@dataclass(slots=True)
class Timeline(Generic[Due]):
    """A queue of values by the second at which they are due."""

    now: float = 0.0
    _heap: list[tuple[float, int, Due]] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, at_seconds: float, value: Due) -> None:
        """Add a value that is due at a time; a time in the past is due now."""
        heapq.heappush(self._heap, (max(self.now, at_seconds), next(self._numbers), value))

    def next_due(self) -> float | None:
        """Return when the next value is due; None when the queue is empty."""
        return self._heap[0][0] if self._heap else None

    def move_to(self, now: float) -> list[Due]:
        """Let time pass up to ``now`` and take out the values due by then, in order.

        Raises
        ------
        ValueError
            When ``now`` lies in the past.
        """
        if now < self.now:
            raise ValueError(f"time would go back from {self.now} to {now}")
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        self.now = now
        return due
