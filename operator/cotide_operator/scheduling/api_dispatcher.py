"""The low-priority lane: writes that explain decisions give way to those that carry decisions out.

Fed by the recorder (events) and the annotator (labels, notes, conditions). Work is keyed: a newer write for the
same key replaces the older, so that a crowd of waiting pods costs one write each, not one per attempt.

While bindings are asked for, each such write would take a server's time from them, and so it waits for a calm moment,
but no longer than `HOLD_SECONDS`; then the lane writes as fast as it takes to catch up with what waits.
Invariant: at most the given rate of writes is sent, and while bindings are asked for nothing that waited for less than
`HOLD_SECONDS`, unless something waits longer. Work beyond the bound is refused to the caller, never silently lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Final

from cotide_core.errors import CotideError

_LOG = logging.getLogger(__name__)

HOLD_SECONDS: Final = 10.0
"""Longest that a write waits for a calm moment; chosen: a reader's patience, and most bursts are bound by then."""
BUSY_PER_SECOND: Final = 20.0
"""Least rate once that is over. Chosen: about 2 % of the bindings per second that an API server on 2 cores takes."""
CATCH_UP_SECONDS: Final = 30.0
"""In which what waits then would be written, were nothing added; chosen: where pods come for ever at a rate that the
server can bear, their events are half a minute late and none is lost."""
POLL_SECONDS: Final = 0.1
"""Between two looks whether it is calm by now; chosen."""

Work = Callable[[], Awaitable[None]]


class ApiDispatcher:
    """A bounded, keyed, rate-limited queue of writes with a few workers.

    Parameters
    ----------
    busy : callable
        Whether bindings are asked for.
    per_second : float
        Writes per second while nothing else is to do, and at most.
    bound : int
        Most keys that may wait.
    workers : int
        Most writes in flight.
    now : callable
        Seconds of a clock that nobody sets.
    """

    def __init__(
        self,
        busy: Callable[[], bool],
        *,
        per_second: float = 200.0,
        bound: int = 20_000,
        workers: int = 4,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._busy = busy
        self._per_second = per_second
        self._bound = bound
        self._workers = workers
        self._now = now
        self._waiting: dict[Hashable, tuple[float, Work]] = {}
        """Since when each key waits, and the newest write for it; the oldest first."""
        self._wake = asyncio.Event()
        self._next_free = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, key: Hashable, work: Work) -> bool:
        """Queue a write, or replace the one that waits under this key; False when the lane is full."""
        before = self._waiting.get(key)
        if before is None and len(self._waiting) >= self._bound:
            return False
        self._waiting[key] = (self._now() if before is None else before[0], work)
        self._wake.set()
        return True

    def take_back(self, key: Hashable) -> None:
        """Forget what waits under a key, if anything does: it would say nothing any more."""
        self._waiting.pop(key, None)

    def rate(self) -> float:
        """Writes per second that may be sent now; 0 while what waits had better go on waiting."""
        if not self._waiting or not self._busy():
            return self._per_second
        since, _ = next(iter(self._waiting.values()))
        if self._now() - since < HOLD_SECONDS:
            return 0.0
        return min(self._per_second, max(BUSY_PER_SECOND, len(self._waiting) / CATCH_UP_SECONDS))

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
            rate = self.rate()
            if rate == 0.0:
                await asyncio.sleep(POLL_SECONDS)
                continue
            await self._pace(rate)
            # Bindings may have been asked for meanwhile, and another worker may have taken the last key.
            if self._waiting and self.rate() > 0.0:
                key = next(iter(self._waiting))
                _, work = self._waiting.pop(key)
                try:
                    await work()
                except CotideError as error:
                    _LOG.debug("%s was not written: %s", key, error)
                except Exception:  # noqa: BLE001 - one write that trips us must not stop all others
                    _LOG.exception("%s could not be written", key)

    async def _pace(self, rate: float) -> None:
        """Take the next free instant of the rate; re-considered when bindings end or begin."""
        now = time.monotonic()
        slot = max(now, min(self._next_free, now + 1.0 / rate * self._workers))
        self._next_free = slot + 1.0 / rate
        if slot > now:
            await asyncio.sleep(slot - now)
