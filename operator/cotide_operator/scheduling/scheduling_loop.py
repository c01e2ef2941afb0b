"""The live loop: the one task that owns the engine.

::

    cache -> event source --events--> Scheduler.handle --instructions--> outcomes --notes--> binder -> API server
                ^                                                   (decisions, events)    |
                |                                                       ^------- report ---|
                `--- watch                                                                 |
    service samples, new models --inbox--> next cycle <--- what was refused ---------------'

Changes, its inbox and the engine's own timers wake it. Between two cycles it leaves the process at least as much time
as the last cycle took, so that one cycle serves several changes.

Invariants: no decision is made before everything was listed once, nor after `stop`; each instruction leads to exactly
one outcome; every call of the engine can be recorded and replayed; the loop quarantines an object that makes the engine
fail, and continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from cotide_core.cycle import Scheduler
from cotide_core.events import (
    BindRefused,
    Event,
    EvictRefused,
    ModelsChanged,
    MoreToCome,
    NodeBackoffRestored,
    Pod,
    Tick,
)
from cotide_core.forecasts import CompletionForecaster
from cotide_core.instructions import Instruction
from cotide_core.reclaiming.overload_monitor import Alarms
from cotide_core.state.cluster_state import ClusterState
from cotide_kube.turns import Turn
from cotide_operator.cache.decision_store import Decision
from cotide_operator.cache.object_cache import Kind, ObjectCache
from cotide_operator.clock import Clock
from cotide_operator.scheduling.binder import Binder, BindNote, BindReport, Report
from cotide_operator.scheduling.evictor import EvictReport
from cotide_operator.scheduling.gang_kernels import GangKernels
from cotide_operator.translation.event_source import ENGINE, EventSource
from cotide_operator.translation.pod_times import noted

GATHER_SECONDS: Final = 0.002
"""Shortest wall pause between two cycles; chosen: a few changes of a burst gather, and the delay is unnoticeable."""
GATHER_MOST_SECONDS: Final = 0.05
"""Longest such pause."""
AHEAD_PODS: Final = 200
"""Pods that are translated ahead at once; chosen: 2 ms, between which pages of lists arrive."""
AHEAD_SECONDS: Final = 0.02
"""Wall seconds between two such batches; chosen: two or three times a page of a list."""
RESUMED_TOGETHER: Final = 200
"""Pods that are restored at once at the start; chosen: about 3 ms."""
PUBLISH_SECONDS: Final = 1.0
"""Wall seconds between two publications of queue positions and predicted starts; chosen for a reader."""
MAX_RECOVERIES: Final = 100
"""New engines in a row that fail at once; chosen: so many bad objects at the same moment are a defect."""
RETRY_SECONDS: Final = 1.0
"""Wall seconds after which an object that made the engine fail is tried once more; chosen: an innocent pod is placed
within 2 s, and the new engine has received all other objects."""
RETRIED_KEPT: Final = 1000
"""Remembered objects with a second try; chosen."""
PUBLISH_SHARE: Final = 50.0
"""A publication may take at most one part in this many of the time: a long queue is published less often."""


class Outcomes(Protocol):
    """Publishes decisions (the reporter): events, annotations, statuses and metrics."""

    def events(self, events: Sequence[Event], arrivals: Sequence[Pod]) -> None:
        """Process changed and deleted pods."""
        ...

    def decided(self, instructions: Sequence[Instruction], now: float, cycle_seconds: float) -> Mapping[str, BindNote]:
        """Process the instructions of one cycle; return the notes of its bindings, by the uid of the pod."""
        ...

    def alarmed(self, alarms: Alarms, now: float) -> None:
        """Process the alarms of the overload monitor in one cycle."""
        ...

    def resumed(self, decisions: Iterable[Decision]) -> None:
        """Restore the decisions that an earlier run wrote on pods."""
        ...

    async def publish_queue(self, scheduler: Scheduler, now: float) -> None:
        """Publish queue sizes, positions and predicted starts."""
        ...


class Record(Protocol):
    """Records the input and output of the engine (the ledger)."""

    def entry(self, now: float, events: Sequence[Event], instructions: Sequence[Instruction]) -> None:
        """Record one call of `Scheduler.handle`."""
        ...

    def renew(self) -> None:
        """Begin another record: a new engine without state follows."""
        ...


class _Records:
    """Several records with the same entries."""

    def __init__(self, *kept: Record) -> None:
        self._kept = kept

    def entry(self, now: float, events: Sequence[Event], instructions: Sequence[Instruction]) -> None:
        for record in self._kept:
            record.entry(now, events, instructions)

    def renew(self) -> None:
        for record in self._kept:
            record.renew()


def records(*kept: Record | None) -> Record | None:
    """Return one record that writes to all given records, or None without any."""
    present = [record for record in kept if record is not None]
    if len(present) < 2:
        return present[0] if present else None
    return _Records(*present)


class Watcher(Protocol):
    """Learns from the events and the state of the engine (the sample collector)."""

    def feed(self, state: ClusterState, events: Sequence[Event], now: float) -> None:
        """Read the events of one cycle and the state after them."""
        ...

    def decided(self, instructions: Sequence[Instruction], now: float) -> None:
        """Read the instructions of that cycle."""
        ...


class EventForecaster(Protocol):
    """Adds forecasts to the events of a cycle, next to those of the engine's own models."""

    def ahead(self, events: Sequence[Event], forecaster: CompletionForecaster) -> list[Event]:
        """Return the events that follow the events of a cycle."""
        ...

    def decided(self, instructions: Sequence[Instruction]) -> None:
        """Read the instructions of a cycle."""
        ...

    def begin_anew(self) -> None:
        """Prepare for a new engine, which starts without state."""
        ...


class Growing(Protocol):
    """Gives room to running pods before new pods (the resizer of phases)."""

    def wants(self) -> bool:
        """Whether any pod waits for examination."""
        ...

    def take_room(self) -> None:
        """Request new sizes of pods; the event source keeps them as requested sizes."""
        ...


class SchedulingLoop:
    """Owns the engine and drives it.

    Parameters
    ----------
    scheduler : Scheduler
        Only the loop calls its `handle`.
    cache, event_source, binder, outcomes, clock :
        See their modules.
    record, watcher, event_forecaster : optional
        Ledger, sample collector and run times.
    remake : callable, optional
        Makes the engine that follows a failed one; without it such a failure ends the loop.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        cache: ObjectCache,
        event_source: EventSource,
        outcomes: Outcomes,
        clock: Clock,
        record: Record | None = None,
        watcher: Watcher | None = None,
        event_forecaster: EventForecaster | None = None,
        remake: Callable[[], Scheduler] | None = None,
    ) -> None:
        self.scheduler = scheduler
        self._cache = cache
        self._event_source = event_source
        self._outcomes = outcomes
        self._clock = clock
        self._record = record
        self._watcher = watcher
        self._event_forecaster = event_forecaster
        self.growing: Growing | None = None
        """Set while this replica leads."""
        self._inbox: list[Event] = []
        self._in_hand = False
        """Whether a cycle is under way: its events are collected, and its instructions are not all handed over."""
        self._awaited: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()
        self._stopped = False
        self._remake = remake
        self._gang_kernels = GangKernels()
        self._failures = 0
        self._retried: dict[tuple[Kind, str], tuple[str, str]] = {}
        """Uid and version of each object that had its second try, by kind and key."""
        self._models: ModelsChanged | None = None
        self._now = float("-inf")
        self._cycle_seconds = 0.0
        self.cycles = 0
        self.fully_synced = False
        """Whether the engine has received all objects that existed when it was made."""
        self.started_monotonic: float | None = None
        cache.subscribe(lambda _kind, _key: self._wake.set())

    def emit(self, event: Event) -> None:
        """Put an event into the next cycle (a sample, other models)."""
        if isinstance(event, ModelsChanged):
            self._models = event
        self._inbox.append(event)
        self._wake.set()

    def nudge(self) -> None:
        """Check again for work."""
        self._wake.set()

    async def caught_up(self) -> None:
        """Wait until all events so far are handled, and at first until there were any."""
        if self._inbox or self._in_hand or not self.cycles:
            handled = asyncio.get_running_loop().create_future()
            self._awaited.append(handled)
            await handled

    def refused(self, report: Report) -> None:
        """Put a refused instruction into the next cycle; the binder sends each report here."""
        if isinstance(report, BindReport) and not report.bound:
            bind, answer = report.bind, report.answer
            self.emit(BindRefused(bind.key, bind.uid, bind.node, answer.code, answer.reason, report.retry))
        elif isinstance(report, EvictReport) and not report.answer.ok and report.answer.code != 404:
            evict, answer = report.evict, report.answer
            self.emit(EvictRefused(evict.key, evict.uid, evict.node, answer.code, answer.reason, report.retry))

    def stop(self) -> None:
        """Decide nothing from now on; the binder finishes the instructions that it has."""
        self._stopped = True
        self._wake.set()

    async def run(
        self,
        binder: Binder,
        ready: Callable[[], None] | None = None,
        inheriting: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Decide until `stop`.

        Parameters
        ----------
        binder : Binder
            Carries the instructions out; its reports must come to `refused`.
        ready : callable, optional
            Called once, after the first cycle.
        inheriting : callable, optional
            Awaited once, after everything was listed and before the first cycle.
        """
        while not (self._cache.synced or self._stopped):
            self._wake.clear()
            await self._wake.wait()
        if inheriting is not None:
            await inheriting()
        next_publication = 0.0
        while not self._stopped:
            if self._due():
                await self._cycle(binder)
                while self._event_source.is_partial and not self._stopped:  # all existing objects, before any decision
                    await asyncio.sleep(0)
                    await self._cycle(binder)
            if self.cycles == 1 and self.started_monotonic is None:
                self.started_monotonic = time.monotonic()
                await self._resume()
                if ready is not None:
                    ready()
            if time.monotonic() >= next_publication:
                started = time.monotonic()
                await self._outcomes.publish_queue(self.scheduler, self._now)
                spent = time.monotonic() - started
                next_publication = started + max(PUBLISH_SECONDS, spent * PUBLISH_SHARE)
            await self._pause(binder, next_publication)

    def backoffs(self) -> list[NodeBackoffRestored]:
        """Return the engine's back-offs of nodes that refused pods."""
        return self.scheduler.state.backoffs(self._now)

    def is_calm(self) -> bool:
        """Whether no decision is due, so that work that blocks the loop for a moment may run."""
        busy = self._inbox or self._in_hand or self._awaited or self._event_source.waiting
        return not busy and not self.scheduler.pending()["active"]

    async def translate_ahead(self) -> None:
        """Translate pods in spare time: while lists arrive, and while another replica leads."""
        while not self.cycles:
            await asyncio.sleep(0 if self._event_source.translate_ahead(AHEAD_PODS) else AHEAD_SECONDS)

    async def _resume(self) -> None:
        """Restore what an earlier run wrote on pods, a few at a time, so that the first bindings do not wait for it."""
        pods = list(self._cache.pods.values())
        for start in range(0, len(pods), RESUMED_TOGETHER):
            await asyncio.sleep(0)
            self._outcomes.resumed(noted(pods[start : start + RESUMED_TOGETHER]))

    def _due(self) -> bool:
        """Whether the engine has work; a publication alone does not call it."""
        if self._inbox or self._awaited or self._event_source.waiting or not self.cycles or self._grows():
            return True
        return self._is_time()

    def _is_time(self) -> bool:
        """Whether one of the engine's own timers is due."""
        wakeup = self.scheduler.next_wakeup(self._now)
        return wakeup is not None and wakeup <= self._clock.now()

    async def _cycle(self, binder: Binder) -> None:
        """Call the engine once and process the result; other work of the event loop runs between the parts.

        While a new engine has received a part of the objects only, the call decides nothing and counts as no cycle.
        Only this task collects events. It passes the collected events on, publishes the decisions and hands them over
        before it collects again.
        """
        turn = Turn()
        self._in_hand = True
        events = self._event_source.collect_part()
        is_partial = self._event_source.is_partial
        await turn.give_way()
        if self._stopped:
            return
        events += self._event_source.take_asked_sizes()
        events += self._inbox
        self._inbox = []
        awaited: list[asyncio.Future[None]] = []
        if is_partial:
            events.append(MoreToCome())
        else:
            awaited, self._awaited = self._awaited, awaited
        self._now = now = max(self._now, self._clock.now())
        if self._event_forecaster is not None:
            events += self._event_forecaster.ahead(events, self.scheduler.completion_forecaster)
        if not events:
            if self.cycles and not (awaited or self._grows() or self._is_time()):
                self._in_hand = False
                return  # the changes have no effect, such as our own annotations: no decision is due
            events.append(Tick())
        started = time.perf_counter()
        try:
            instructions = self._decide(events, now)
        except Exception as error:  # noqa: BLE001 - one faulty object must not stop all others
            self._awaited += awaited
            self._recover(error, events)
            return
        self._failures = 0
        self._cycle_seconds = time.perf_counter() - started
        if self._watcher is not None:
            self._watcher.feed(self.scheduler.state, events, now)
            self._watcher.decided(instructions, now)
        if self._event_forecaster is not None:
            self._event_forecaster.decided(instructions)
        self._gang_kernels.follow(self.scheduler)
        if not is_partial:
            self.cycles += 1
            self.fully_synced = True
        await turn.give_way()
        self._outcomes.events(events, self._event_source.take_arrivals())
        await turn.give_way()
        notes = self._outcomes.decided(instructions, now, self._cycle_seconds)
        self._outcomes.alarmed(self.scheduler.alarms, now)
        await turn.give_way()
        binder.carry_out(instructions, notes)
        self._in_hand = False
        for handled in awaited:
            if not handled.done():  # the waiting task may have been cancelled
                handled.set_result(None)

    def _decide(self, events: list[Event], now: float) -> list[Instruction]:
        """Let the engine decide; running pods that need room take it first.

        The engine then receives the events in two calls, and the first decides nothing. ``events`` gets all of them.
        """
        if self.growing is None or not self.fully_synced or not self._grows():
            return self._handle(events, now)
        instructions = self._handle([*events, MoreToCome()], now)
        self.growing.take_room()
        asked = self._event_source.take_asked_sizes()
        events += asked
        return instructions + self._handle(asked or [Tick()], now)

    def _handle(self, events: Sequence[Event], now: float) -> list[Instruction]:
        instructions = self.scheduler.handle(events, now)
        if self._record is not None:
            self._record.entry(now, events, instructions)
        return instructions

    def _grows(self) -> bool:
        return self.growing is not None and self.growing.wants()

    def _recover(self, error: Exception, events: Sequence[Event]) -> None:
        """Quarantine the object that made the engine fail, and start a new engine with everything else.

        The new engine repeats decisions that the API server has not carried out yet; the binder, which still processes
        them, refuses the second binding.

        Raises
        ------
        Exception
            The engine's exception, if it names no object or recurs too often.
        """
        self._failures += 1
        key, cache = self.scheduler.handling, self._cache
        kind: Kind | None = "pods" if key in cache.pods else "nodes" if key in cache.nodes else None
        if kind is None and key in cache.workloads:
            kind = "workloads"
        if self._remake is None or kind is None or self._failures > MAX_RECOVERIES:
            raise error
        cache.quarantine_object(kind, key, ENGINE, error)
        self._retry_once(kind, key)
        # The watch does not repeat refusals of kubelets; at a start some of them may not be applied yet.
        self._inbox += [*self.backoffs(), *(event for event in events if isinstance(event, NodeBackoffRestored))]
        self.scheduler, self.fully_synced = self._remake(), False
        self._event_source.restart()
        if self._event_forecaster is not None:
            self._event_forecaster.begin_anew()
        if self._models is not None:
            self._inbox.insert(0, self._models)
        if self._record is not None:
            self._record.renew()

    def _retry_once(self, kind: Kind, key: str) -> None:
        """Let a new engine try an object once more: the state of the old one may have been the fault."""
        entry = self._cache.quarantine.get(kind, key)
        if entry is None or self._retried.get((kind, key)) == (entry.uid, entry.version):
            return
        if len(self._retried) >= RETRIED_KEPT:
            del self._retried[next(iter(self._retried))]
        self._retried[kind, key] = entry.uid, entry.version

        def retry() -> None:
            if self._cache.quarantine.get(kind, key) is entry:  # otherwise it changed, or is gone
                self._cache.quarantine.forget(kind, key)
                self._event_source.mark(kind, key)
                self._wake.set()

        asyncio.get_running_loop().call_later(RETRY_SECONDS, retry)

    async def _pause(self, binder: Binder, next_publication: float) -> None:
        # Before the wait and not after it: changes of a burst gather, and a single one is not delayed.
        await asyncio.sleep(min(GATHER_MOST_SECONDS, max(GATHER_SECONDS, self._cycle_seconds)))
        if not (self._inbox or self._awaited or self._event_source.waiting or self._grows() or self._stopped):
            wakeup = self.scheduler.next_wakeup(self._now)
            wall = next_publication - time.monotonic()
            if wakeup is not None:
                wall = min(wall, (wakeup - self._clock.now()) / self._clock.speed)
            self._wake.clear()
            if wall > 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), wall)
        if not self._stopped:
            await binder.room()
