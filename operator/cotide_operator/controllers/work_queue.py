"""The controllers' work queue: keys of objects to look at again, now or later.

Fed by the mirror's and the board's listeners, by kopf's thread (through `controllers`) and by the controllers
themselves; drained by a few workers. Level-triggered: a key says "look", never what happened, so that ten changes
cost one look. Invariants: a key is in one worker's hands at most; a key that is added meanwhile is looked at
once more; the queue never holds a key twice, which bounds it by the number of objects.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

RETRY_BASE_SECONDS: Final = 0.1
"""Wall seconds before a look that failed is repeated; doubled each time. Chosen."""
RETRY_MAX_SECONDS: Final = 30.0
"""Chosen: an API server that is back is noticed within half a minute."""

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Keys to look at, each once, with delays; lives in one event loop. Times are the loop's seconds."""

    def __init__(self) -> None:
        self._ready: dict[K, None] = {}
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._delayed: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._failures: dict[K, int] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready) + len(self._working)

    def add(self, key: K) -> None:
        """Look at a key as soon as may be."""
        if key in self._working:
            self._again.add(key)
        elif key not in self._ready:
            self._ready[key] = None
            self._wake.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Look at a key in some seconds, or earlier if that was asked for before."""
        if seconds <= 0:
            self.add(key)
            return
        due = asyncio.get_running_loop().time() + seconds
        if due < self._delayed.get(key, float("inf")):
            self._delayed[key] = due
            heapq.heappush(self._heap, (due, next(self._order), key))
            self._wake.set()

    async def get(self) -> K:
        """Return the next key, which is the caller's until `done`."""
        while True:
            wait = self._promote()
            if self._ready:
                key = next(iter(self._ready))
                del self._ready[key]
                self._working.add(key)
                return key
            self._wake.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def done(self, key: K) -> None:
        """Give a key back after a look that went well."""
        self._failures.pop(key, None)
        self._give_back(key)

    def failed(self, key: K) -> float:
        """Give a key back after a look that failed; return the seconds until it is tried again."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        seconds = min(RETRY_MAX_SECONDS, RETRY_BASE_SECONDS * 2.0 ** min(failures - 1, 20))
        self._give_back(key)
        self.add_after(key, seconds)
        return seconds

    def _give_back(self, key: K) -> None:
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _promote(self) -> float | None:
        """Move what is due to the ready ones; return the seconds until the next is due."""
        now = asyncio.get_running_loop().time()
        while self._heap:
            due, _, key = self._heap[0]
            if self._delayed.get(key) != due:  # replaced by an earlier look
                heapq.heappop(self._heap)
                continue
            if due > now:
                return due - now
            heapq.heappop(self._heap)
            del self._delayed[key]
            self.add(key)
        return None
