"""A heap that removes stale items lazily: when they reach the top, or when there are too many.

Owned by `scheduling_queue`, `active_pods` and `capped_pods`. An item goes stale when its pod leaves or moves on. The
second rule bounds memory: without it a pod that stays at the top would keep all stale items below it. Invariants:
returned items are valid and in order. The heap holds at most as many stale items as there were valid ones at the last
clearing, plus `SPARE`. Pushing is O(log n) on average.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

SPARE: Final = 64
"""Stale items that are not worth a clearing (chosen: 64 KB of pods)."""
STALE_SHARE: Final = 8
"""Share of the items that must be stale before a clearing checks all items. Chosen: a check is about thirty times
cheaper than a pop.
"""
T = TypeVar("T", bound=tuple[Any, ...])
"""Tuples that differ in a ticket before any element without an order."""


class LazyHeap(Generic[T]):
    """Items in order.

    Parameters
    ----------
    is_valid : whether an item is not stale; none that was stale ever is valid again.

    Attributes
    ----------
    held : all items, including stale ones; read only.
    """

    __slots__ = ("_is_valid", "_most", "held")

    def __init__(self, is_valid: Callable[[T], bool]) -> None:
        self._is_valid = is_valid
        self.held: list[T] = []
        self._most = SPARE

    def push(self, item: T) -> None:
        """Add an item."""
        heapq.heappush(self.held, item)
        if len(self.held) > self._most:
            self._clear()
            self._most = 2 * len(self.held) + SPARE

    def first(self) -> T | None:
        """Return the first valid item; None if there is none."""
        stale = 0
        while self.held:
            if self._is_valid(self.held[0]):
                return self.held[0]
            heapq.heappop(self.held)
            stale += 1
            self._clear_after(stale)
        return None

    def pop(self) -> T | None:
        """Remove and return the first valid item."""
        stale = 0
        while self.held:
            item = heapq.heappop(self.held)
            if self._is_valid(item):
                return item
            stale += 1
            self._clear_after(stale)
        return None

    def _clear(self) -> None:
        self.held = [item for item in self.held if self._is_valid(item)]
        heapq.heapify(self.held)

    def _clear_after(self, stale: int) -> None:
        """Drop all stale items after a long row of them: ten thousand pods that leave together would otherwise cost as
        many pops.
        """
        if stale > SPARE and stale * STALE_SHARE > len(self.held):
            self._clear()

    def __len__(self) -> int:
        """Return how many items are held, including stale ones."""
        return len(self.held)
