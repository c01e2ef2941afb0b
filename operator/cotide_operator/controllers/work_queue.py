"""The controllers' work queue: keys of objects to reconcile again, now or later.

The cache's and the decision store's listeners, kopf's thread (through `controllers`) and the controllers themselves add
keys; a few workers take them. The queue is level-triggered: a key only requests a reconciliation, so that ten changes
cost one. Namespaces take turns, and the number of concurrent keys of one namespace is limited. So a tenant with ten
Jobs of ten thousand pods each does not delay another's first pod. A key rests after a long reconciliation: without
rest, an object of ten thousand changing pods would be reconciled without end.

Invariants: at most one worker has a key. A key that is added meanwhile is reconciled once more. The queue never holds a
key twice, which bounds it by the number of objects.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from cotide_operator.cache.fair_queue import FairQueue

RETRY_BASE_SECONDS: Final = 0.1
"""Wall seconds before a failed reconciliation is repeated; doubled each time. Chosen."""
RETRY_MAX_SECONDS: Final = 30.0
"""Chosen: a recovered API server is noticed within half a minute."""

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Keys to reconcile, each once, with delays; lives in one event loop. Times are the loop's seconds.

    Parameters
    ----------
    namespace_of : callable
        Namespace of a key.
    slots, slots_each : int
        Keys that are reconciled at a time: of all namespaces, and of a single one; see `FairQueue`.
    """

    def __init__(self, namespace_of: Callable[[K], str], *, slots: int, slots_each: int) -> None:
        self._namespace_of = namespace_of
        self._ready: FairQueue[K] = FairQueue(slots=slots, slots_each=slots_each)
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._resting: dict[K, float] = {}
        """Earliest moment of the next reconciliation by key."""
        self._delayed: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._failures: dict[K, int] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready) + len(self._working)

    def add(self, key: K) -> None:
        """Reconcile a key as soon as possible."""
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
        """Reconcile a key in some seconds, or earlier if an earlier time was requested before."""
        if seconds <= 0:
            self.add(key)
            return
        due = asyncio.get_running_loop().time() + seconds
        if due < self._delayed.get(key, float("inf")):
            self._delayed[key] = due
            heapq.heappush(self._heap, (due, next(self._order), key))
            self._wake.set()

    def take(self) -> K | None:
        """Return the next key, which belongs to the caller until `done`; None when no key may be reconciled now."""
        self._promote()
        return self._next()

    async def get(self) -> K:
        """Return the next key, which belongs to the caller until `done`."""
        while True:
            wait = self._promote()
            key = self._next()
            if key is not None:
                return key
            self._wake.clear()  # `_promote` found no key, and none was added since
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
        """Return a key after a successful reconciliation; the next one starts after its rest."""
        self._failures.pop(key, None)
        self._give_back(key, rest_seconds)

    def failed(self, key: K, rest_seconds: float = 0.0) -> float:
        """Return a key after a failed reconciliation; return the seconds until the next try.

        Another `add` brings the next try forward, but not before the rest is over: a failure may take as long as a
        success.
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
            if self._ready:  # another key of the namespace may wait for this slot
                self._wake.set()
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _promote(self) -> float | None:
        """Move the due keys to the ready ones; return the seconds until the next is due."""
        now = asyncio.get_running_loop().time()
        while self._heap:
            due, _, key = self._heap[0]
            if self._delayed.get(key) != due:  # replaced by an earlier time
                heapq.heappop(self._heap)
                continue
            if due > now:
                return due - now
            heapq.heappop(self._heap)
            del self._delayed[key]
            self.add(key)
        return None
