"""The controllers' work queue: keys of objects to look at again, now or later.

Fed by the cache's and the decision store's listeners, by kopf's thread (through `controllers`) and by the controllers
themselves; drained by a few workers. Level-triggered: a key says "look", never what happened, so that ten changes
cost one look. Namespaces take turns, and of one namespace only so many keys are looked at at a time: a tenant whose
ten Jobs make ten thousand pods each does not hold up another's first pod. A key whose look is long rests after it: one
of ten thousand pods, each of which changes, would else be looked at without end.
Invariants: a key is in one worker's hands at most; a key that is added meanwhile is looked at once more; the queue
never holds a key twice, which bounds it by the number of objects.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from cotide_operator.cache.fair_queue import FairQueue

RETRY_BASE_SECONDS: Final = 0.1
"""Wall seconds before a look that failed is repeated; doubled each time. Chosen."""
RETRY_MAX_SECONDS: Final = 30.0
"""Chosen: an API server that is back is noticed within half a minute."""

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Keys to look at, each once, with delays; lives in one event loop. Times are the loop's seconds.

    Parameters
    ----------
    namespace_of : callable
        Namespace of a key.
    slots, slots_each : int
        Keys that are looked at at a time: of all namespaces, and of one at most; see `FairQueue`.
    """

    def __init__(self, namespace_of: Callable[[K], str], *, slots: int, slots_each: int) -> None:
        self._namespace_of = namespace_of
        self._ready: FairQueue[K] = FairQueue(slots=slots, slots_each=slots_each)
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._resting: dict[K, float] = {}
        """Before these moments a key is not looked at again."""
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
            if key in self._resting:
                rest = self._resting[key] - asyncio.get_running_loop().time()
                if rest > 0:
                    self.add_after(key, rest)
                    return
            self._ready.add(key, self._namespace_of(key))
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

    def take(self) -> K | None:
        """Return the next key, which is the caller's until `done`; None when nobody may be looked at now."""
        self._promote()
        return self._next()

    async def get(self) -> K:
        """Return the next key, which is the caller's until `done`."""
        while True:
            wait = self._promote()
            key = self._next()
            if key is not None:
                return key
            self._wake.clear()  # nothing came since: what `_promote` made ready would have been returned
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _next(self) -> K | None:
        key = self._ready.pop()
        if key is not None:
            self._working.add(key)
        return key

    def done(self, key: K, rest_seconds: float = 0.0) -> None:
        """Give a key back after a look that went well; it is not looked at again before its rest is over."""
        self._failures.pop(key, None)
        self._give_back(key, rest_seconds)

    def failed(self, key: K, rest_seconds: float = 0.0) -> float:
        """Give a key back after a look that failed; return the seconds until it is tried again.

        Who adds it may have it looked at sooner, but not before its rest is over: a look that fails may be as long as
        one that goes well.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        seconds = min(RETRY_MAX_SECONDS, RETRY_BASE_SECONDS * 2.0 ** min(failures - 1, 20))
        seconds = max(seconds, rest_seconds)
        self._give_back(key, rest_seconds)
        self.add_after(key, seconds)
        return seconds

    def _give_back(self, key: K, rest_seconds: float) -> None:
        if rest_seconds > 0:
            self._resting[key] = asyncio.get_running_loop().time() + rest_seconds
        else:
            self._resting.pop(key, None)
        if key in self._working:
            self._working.remove(key)
            self._ready.release(self._namespace_of(key))
            if self._ready:  # another key of the namespace may have waited for this one's room
                self._wake.set()
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
