"""A heap whose items go stale in place, since their pods went or moved on: dropped when they come up, or are too many.

Owned by `scheduling_queue`, `active_pods` and `capped_pods`. Without the second a pod that stays at the top keeps all
in memory that ever came and went below it. Invariants: what is given out is valid, and in order; at most as many stale
items are held as there were valid ones at the last clearing, and `SPARE` more; pushing is O(log n) in the mean.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

SPARE: Final = 64
"""Stale items that are not worth a clearing (chosen: 64 KB of pods)."""
STALE_SHARE: Final = 8
"""Of the items, the part that must have been stale before all are looked through. Chosen: a look is some thirty times
cheaper than a pop."""
T = TypeVar("T", bound=tuple[Any, ...])
"""Tuples that tell themselves apart before what has no order in them: by a ticket."""


class LazyHeap(Generic[T]):
    """Items in order.

    Parameters
    ----------
    is_valid : whether an item is not stale; none that was stale ever is valid again.

    Attributes
    ----------
    held : what is held, stale items too; read only.
    """

    __slots__ = ("_is_valid", "_most", "held")

    def __init__(self, is_valid: Callable[[T], bool]) -> None:
        self._is_valid = is_valid
        self.held: list[T] = []
        self._most = SPARE

    def push(self, item: T) -> None:
        """Put an item in."""
        heapq.heappush(self.held, item)
        if len(self.held) > self._most:
            self._clear()
            self._most = 2 * len(self.held) + SPARE

    def first(self) -> T | None:
        """Return the first valid item; None where there is none."""
        stale = 0
        while self.held:
            if self._is_valid(self.held[0]):
                return self.held[0]
            heapq.heappop(self.held)
            stale += 1
            self._clear_after(stale)
        return None

    def pop(self) -> T | None:
        """Take the first valid item out."""
        stale = 0
        while self.held:
            item = heapq.heappop(self.held)
            if self._is_valid(item):
                return item
            stale += 1
            self._clear_after(stale)
        return None

    def _clear(self) -> None:
        self.held = [one for one in self.held if self._is_valid(one)]
        heapq.heapify(self.held)

    def _clear_after(self, stale: int) -> None:
        """Drop all that is stale where so many in a row were: ten thousand pods that went at once are as many pops."""
        if stale > SPARE and stale * STALE_SHARE > len(self.held):
            self._clear()

    def __len__(self) -> int:
        """Return how many items are held, stale ones too."""
        return len(self.held)
