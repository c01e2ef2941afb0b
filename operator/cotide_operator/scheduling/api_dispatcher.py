"""The low-priority dispatcher: writes that explain decisions give way to those that carry decisions out.

Fed by the recorder (events) and the annotator (labels, notes, conditions). Work is keyed: a newer write for the
same key replaces the older, so that a crowd of waiting pods costs one write each, not one per attempt; one that is on
its way is waited for, since what was sent first may be carried out last. Namespaces take turns and share the workers,
as `fair_queue` describes it: neither what one of them writes about its ten thousand pods nor a webhook that answers its
writes slowly delays what another writes about one pod.

First refusals of pods go first: an autoscaler waits for them, and one that comes behind ten thousand repeats is written
next but few. They are not held while bindings are asked for. Of `RUN` + 1 writes one is another, if any may go.

While bindings are asked for, each such write would take a server's time from them, and so a crowd of them waits for a
calm moment, but no longer than `HOLD_SECONDS`; then the dispatcher writes as fast as it takes to catch up with what
waits. The few words of a namespace that says little are written meanwhile: they need not wait for what others bind.
Invariant: at most the given rate of writes is sent, and while bindings are asked for nothing of a namespace with more
than `SMALL_BACKLOG` that waited for less than `HOLD_SECONDS`, unless something waits longer. A namespace may have as
much waiting as there is room left (the dynamic threshold of Choudhury and Hahne 1998), so that none fills the
dispatcher for the others; work beyond that is refused to the caller, never silently lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVarTuple

import msgspec

from cotide_core.errors import CotideError
from cotide_operator.cache.fair_queue import FairQueue

_LOG = logging.getLogger(__name__)

HOLD_SECONDS: Final = 10.0
"""Longest that a write waits for a calm moment; chosen: a reader's patience, and most bursts are bound by then."""
BUSY_PER_SECOND: Final = 20.0
"""Least rate once that is over, and of who has few until then. Chosen: about 2 % of the bindings per second that an API
server on 2 cores takes."""
SMALL_BACKLOG: Final = 16
"""Keys of a namespace that are no crowd; chosen: what one person reads, and few of a burst's events."""
URGENT_PER_SECOND: Final = 1000.0
"""Highest rate of first refusals; chosen: more than an API server on 2 cores takes."""
URGENT_BUSY_PER_SECOND: Final = 100.0
"""Least rate of first refusals while bindings are asked for; chosen: about 10 % of the same bindings per second."""
URGENT_SECONDS: Final = 5.0
"""In which all first refusals that wait then would be written; chosen: half of an autoscaler's interval (10 s)."""
RUN: Final = 8
"""First refusals in a row while others wait; chosen: their rate is hardly less, and nothing waits for ever."""
CATCH_UP_SECONDS: Final = 30.0
"""In which what waits then would be written, were nothing added; chosen: where pods come for ever at a rate that the
server can bear, their events are half a minute late and none is lost."""
POLL_SECONDS: Final = 0.1
"""Between two looks whether it is calm by now; chosen."""
MOST_WAITING: Final = 100_000
"""Keys of all namespaces; chosen: one alone may have half of that, the events of 50,000 pods, as many as are measured
with. They take 1 kB each, and with the longest messages twice that."""
Arguments = TypeVarTuple("Arguments")


class _Waiting(msgspec.Struct, frozen=True, gc=False):
    """A write that waits; two for each pod that is bound, so that the collector need not look at them."""

    since: float
    urgent: bool
    work: Callable[..., Awaitable[None]]
    arguments: tuple[Any, ...]


class ApiDispatcher:
    """A bounded, keyed, rate-limited queue of writes with a few workers.

    Parameters
    ----------
    busy : callable
        Whether bindings are asked for.
    per_second : float
        Writes per second, but for first refusals, while nothing else is to do, and at most.
    bound : int
        Most keys that may wait; of one namespace as many as then are still free.
    workers : int
        Most writes in flight; a namespace has as many as are free, which is half of them where it is alone.
    now : callable
        Seconds of a clock that nobody sets.
    """

    def __init__(
        self,
        busy: Callable[[], bool],
        *,
        per_second: float = 200.0,
        bound: int = MOST_WAITING,
        workers: int = 16,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._busy = busy
        self._per_second = per_second
        self._bound = bound
        self._workers = workers
        self._now = now
        self._waiting: OrderedDict[Hashable, _Waiting] = OrderedDict()
        """The newest write for each key, by since when that waits."""
        self._turns: FairQueue[Hashable] = FairQueue(slots=workers)
        self._urgent: FairQueue[Hashable] = FairQueue(beside=self._turns)
        self._run = 0
        """Urgent writes since the last of another kind."""
        self._on_their_way: set[Hashable] = set()
        """Keys of writes in flight; a newer write of one takes no turn until the answer is there."""
        self._wake = asyncio.Event()
        self._next_free = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        """Writes that wait for their answer."""
        return self._turns.in_flight

    def submit(
        self,
        key: Hashable,
        work: Callable[[*Arguments], Awaitable[None]],
        namespace: str,
        *arguments: *Arguments,
        urgent: bool = False,
    ) -> bool:
        """Queue a write, or replace the one that waits under this key; False when there is no room.

        ``namespace`` is that of the object that the write is about; empty for the cluster's own. ``work`` is called
        with the arguments. ``urgent``: a first refusal; what replaces it has its place.
        """
        before = self._waiting.get(key)
        if before is not None:
            self._waiting[key] = _Waiting(before.since, before.urgent, work, arguments)
            return True
        free = self._bound - len(self._waiting)
        if len(self._waiting) >= free and self._count(namespace) >= free:
            return False
        self._waiting[key] = _Waiting(self._now(), urgent, work, arguments)
        if key not in self._on_their_way:
            self._turns_of(urgent=urgent).add(key, namespace)
            self._wake.set()
        return True

    def take_back(self, key: Hashable) -> None:
        """Forget what waits under a key, if anything does: it would say nothing any more."""
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            self._turns_of(urgent=waiting.urgent).drop(key)

    def rate(self) -> float:
        """Writes per second that may be sent now; 0 while what waits had better go on waiting."""
        busy = self._busy()
        rates = [0.0]
        if self._urgent.turn() is not None:
            catch_up = max(URGENT_BUSY_PER_SECOND, len(self._urgent) / URGENT_SECONDS)
            rates.append(min(URGENT_PER_SECOND, catch_up) if busy else URGENT_PER_SECOND)
        if not self._waiting or not busy:
            rates.append(self._per_second)
        elif not self._holds():
            rates.append(min(self._per_second, max(BUSY_PER_SECOND, len(self._waiting) / CATCH_UP_SECONDS)))
        elif self._turns.turn(self._has_few) is not None:
            rates.append(min(self._per_second, BUSY_PER_SECOND))
        return max(rates)

    async def run(self) -> None:
        """Work until cancelled; each worker takes the oldest key of the namespace whose turn it is."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            while self._urgent.turn() is None and self._turns.turn() is None:
                self._wake.clear()
                await self._wake.wait()
            rate = self.rate()
            if rate == 0.0:
                await asyncio.sleep(POLL_SECONDS)
                continue
            await self._pace(rate)
            # Bindings may have been asked for meanwhile, and another worker may have taken the last key.
            found = self._next()
            if found is not None:
                namespace, key, waiting = found
                self._on_their_way.add(key)
                try:
                    await waiting.work(*waiting.arguments)
                except CotideError as error:
                    _LOG.debug("%s was not written: %s", key, error)
                except Exception:  # noqa: BLE001 - one write that trips us must not stop all others
                    _LOG.exception("%s could not be written", key)
                finally:
                    self._ended(namespace, key)

    def _holds(self) -> bool:
        """Whether a crowd has to wait."""
        return self._busy() and self._now() - next(iter(self._waiting.values())).since < HOLD_SECONDS

    def _ended(self, namespace: str, key: Hashable) -> None:
        self._on_their_way.discard(key)
        waiting = self._waiting.get(key)
        if waiting is not None:
            self._turns_of(urgent=waiting.urgent).add(key, namespace)
        self._turns.release(namespace)
        self._wake.set()  # another write may have waited for this one's slot

    def _turns_of(self, *, urgent: bool) -> FairQueue[Hashable]:
        return self._urgent if urgent else self._turns

    def _count(self, namespace: str) -> int:
        return self._turns.count(namespace) + self._urgent.count(namespace)

    def _has_few(self, namespace: str) -> bool:
        return self._turns.count(namespace) <= SMALL_BACKLOG

    def _next(self) -> tuple[str, Hashable, _Waiting] | None:
        """Take the oldest key of the namespace whose turn it is: a first refusal, or else another write.

        After `RUN` first refusals another write goes. While a crowd waits, that is one of a namespace that has few.
        """
        urgent = self._urgent.turn()
        other = None
        if urgent is None or self._run >= RUN:
            other = self._turns.turn(self._has_few if self._waiting and self._holds() else None)
        namespace, turns = (urgent, self._urgent) if other is None else (other, self._turns)
        if namespace is None:
            return None
        self._run = self._run + 1 if turns is self._urgent else 0
        key = turns.take(namespace)
        return namespace, key, self._waiting.pop(key)

    async def _pace(self, rate: float) -> None:
        """Take the next free instant of the rate; re-considered when bindings end or begin."""
        now = time.monotonic()
        slot = max(now, min(self._next_free, now + 1.0 / rate * self._workers))
        self._next_free = slot + 1.0 / rate
        if slot > now:
            await asyncio.sleep(slot - now)
