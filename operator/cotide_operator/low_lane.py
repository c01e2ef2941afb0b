"""The low-priority lane: writes that explain decisions give way to those that carry decisions out.

Fed by the recorder (events) and the annotator (labels, notes, conditions). Work is keyed: a newer write for the
same key replaces the older, so that a crowd of waiting pods costs one write each, not one per attempt.
Invariant: while bindings are under way, at most `BUSY_PER_SECOND` of these writes are sent; otherwise at most the
given rate. Work beyond the bound is refused to the caller, never silently lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Final

BUSY_PER_SECOND: Final = 20.0
"""Chosen: about 2 % of the bindings per second that an API server on 2 cores takes."""

Work = Callable[[], Awaitable[None]]


class LowLane:
    """A bounded, keyed, rate-limited queue of writes with a few workers.

    Parameters
    ----------
    busy : callable
        Whether bindings are under way.
    per_second : float
        Writes per second while nothing else is to do.
    bound : int
        Most keys that may wait.
    workers : int
        Most writes in flight.
    """

    def __init__(
        self, busy: Callable[[], bool], *, per_second: float = 200.0, bound: int = 20_000, workers: int = 4
    ) -> None:
        self._busy = busy
        self._per_second = per_second
        self._bound = bound
        self._workers = workers
        self._waiting: dict[Hashable, Work] = {}
        self._wake = asyncio.Event()
        self._next_free = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, key: Hashable, work: Work) -> bool:
        """Queue a write, or replace the one that waits under this key; False when the lane is full."""
        if key not in self._waiting and len(self._waiting) >= self._bound:
            return False
        self._waiting[key] = work
        self._wake.set()
        return True

    async def run(self) -> None:
        """Work until cancelled; each worker takes the oldest key."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            while not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            await self._pace()
            if not self._waiting:
                continue
            key = next(iter(self._waiting))
            await self._waiting.pop(key)()

    async def _pace(self) -> None:
        """Take the next free instant of the rate; re-considered when bindings end or begin."""
        now = time.monotonic()
        rate = BUSY_PER_SECOND if self._busy() else self._per_second
        slot = max(now, min(self._next_free, now + 1.0 / rate * self._workers))
        self._next_free = slot + 1.0 / rate
        if slot > now:
            await asyncio.sleep(slot - now)
