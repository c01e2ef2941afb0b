"""The low-priority dispatcher: writes that explain decisions yield to those that carry decisions out.

The recorder (events) and the annotator (labels, annotations, conditions) submit the writes. Work is keyed: a newer
write replaces the waiting one of the same key, so that many waiting pods cost one write each, not one per attempt. A
newer write waits for the answer to one in flight, since the server may apply the first one last. Namespaces take turns
and share the workers, as `fair_queue` describes. Ten thousand writes of one namespace, or a webhook that answers
slowly, do not delay another namespace's write.

First refusals of pods go first: an autoscaler waits for them. They pass ten thousand waiting repeats, and bindings do
not hold them back. One of `RUN` + 1 writes is of another kind, if one is allowed.

While bindings are requested, such writes would take a server's time from them. A large backlog therefore waits for a
calm moment, but at most `HOLD_SECONDS`; then the dispatcher writes fast enough to catch up. The few writes of a
namespace with a small backlog go out meanwhile: they do not wait for the bindings of others.

Invariant: writes stay within the given rate. While bindings are requested, a namespace with more than `SMALL_BACKLOG`
writes sends none that waited for less than `HOLD_SECONDS`, unless another write waits longer. A namespace may have as
many waiting writes as there is room left (the dynamic threshold of Choudhury and Hahne 1998), so that none fills the
dispatcher for the others. Work beyond that is refused to the caller, never silently lost.
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
"""Longest wait of a write for a calm moment; chosen: a reader's patience, and most bursts are bound by then."""
BUSY_PER_SECOND: Final = 20.0
"""Least rate after that, and before it for namespaces with a small backlog. Chosen: about 2 % of the bindings per
second of an API server on 2 cores."""
SMALL_BACKLOG: Final = 16
"""Most keys of a small backlog; chosen: as many as one person reads, and few of a burst's events."""
URGENT_PER_SECOND: Final = 1000.0
"""Highest rate of first refusals; chosen: more than an API server on 2 cores takes."""
URGENT_BUSY_PER_SECOND: Final = 100.0
"""Least rate of first refusals while bindings are requested; chosen: about 10 % of the same bindings per second."""
URGENT_SECONDS: Final = 5.0
"""Time to write all waiting first refusals at the rate then; chosen: half of an autoscaler's interval (10 s)."""
RUN: Final = 8
"""First refusals in a row while others wait; chosen: their rate is hardly less, and no write waits for ever."""
CATCH_UP_SECONDS: Final = 30.0
"""Time to write the waiting backlog if nothing is added; chosen: with a steady flow of pods that the server can bear,
their events are half a minute late and none is lost."""
POLL_SECONDS: Final = 0.1
"""Seconds between two checks for a calm moment; chosen."""
MOST_WAITING: Final = 100_000
"""Keys of all namespaces; chosen: one alone may have half of that, the events of 50,000 pods, which is the largest
measured number. They take 1 kB each, and twice that with the longest messages."""
Arguments = TypeVarTuple("Arguments")


class _Waiting(msgspec.Struct, frozen=True, gc=False):
    """A waiting write. Each bound pod has two, so that they are exempt from garbage collection."""

    since: float
    urgent: bool
    work: Callable[..., Awaitable[None]]
    arguments: tuple[Any, ...]


class ApiDispatcher:
    """A bounded, keyed, rate-limited queue of writes with a few workers.

    Parameters
    ----------
    busy : callable
        Whether bindings are requested.
    per_second : float
        Highest rate of writes per second, except first refusals; reached while the server is otherwise idle.
    bound : int
        Most waiting keys; one namespace may have as many as are then still free.
    workers : int
        Most writes in flight; a namespace may have as many as are free, which is half of them if it is alone.
    now : callable
        Seconds of a monotonic clock.
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
        """The newest write for each key, in the order of the start of the wait."""
        self._turns: FairQueue[Hashable] = FairQueue(slots=workers)
        self._urgent: FairQueue[Hashable] = FairQueue(shares_with=self._turns)
        self._run = 0
        """Urgent writes since the last of another kind."""
        self._on_their_way: set[Hashable] = set()
        """Keys of writes in flight; a newer write of the same key waits for the answer."""
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
        """Queue a write, or replace the waiting one of this key; False if there is no room.

        ``namespace`` is that of the object that the write is about; empty for an object of the cluster. ``work`` is
        called with the arguments. ``urgent``: a first refusal; a write that replaces it keeps its place.
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
        """Drop the waiting write of a key, if there is one, since it is obsolete."""
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            self._turns_of(urgent=waiting.urgent).drop(key)

    def rate(self) -> float:
        """Writes per second that may be sent now; 0 while the backlog should wait."""
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
        """Work until cancelled; each worker takes the oldest key of the namespace that has its turn."""
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
            # Bindings may have been requested meanwhile, and another worker may have taken the last key.
            found = self._next()
            if found is not None:
                namespace, key, waiting = found
                self._on_their_way.add(key)
                try:
                    await waiting.work(*waiting.arguments)
                except CotideError as error:
                    _LOG.debug("%s was not written: %s", key, error)
                except Exception:  # noqa: BLE001 - one faulty write must not stop all others
                    _LOG.exception("%s could not be written", key)
                finally:
                    self._ended(namespace, key)

    def _holds(self) -> bool:
        """Whether a large backlog has to wait."""
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
        """Take the oldest key of the namespace that has its turn: a first refusal, or else another write.

        After `RUN` first refusals another write goes. While large backlogs wait, it comes from a namespace with a small
        one.
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
        """Wait for the next free instant of the rate; computed again when bindings end or begin."""
        now = time.monotonic()
        slot = max(now, min(self._next_free, now + 1.0 / rate * self._workers))
        self._next_free = slot + 1.0 / rate
        if slot > now:
            await asyncio.sleep(slot - now)
