"""The live loop: the one task that owns the engine.

::

    cache -> event source --events--> Scheduler.handle --instructions--> outcomes --notes--> binder -> API server
                ^                                                   (decisions, events)    |
                |                                                       ^------- report ---|
                `--- watch                                                                 |
    service samples, new models --inbox--> next cycle <--- what was refused ---------------'

Woken by changes, by its inbox and by the engine's own timers; between two cycles it leaves the process at least as
much time as the last cycle took, so that changes gather and one cycle serves many of them. Invariants: nothing is
decided before everything was listed once, nor after `stop`; each instruction leads to exactly one outcome; every
call of the engine can be recorded and replayed; an object that the engine fails over is left out, and ends nothing.
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
"""Shortest wall pause between two cycles; chosen: a few changes of a burst gather, nobody notices the delay."""
GATHER_MOST_SECONDS: Final = 0.05
"""Longest such pause."""
AHEAD_PODS: Final = 200
"""Pods that are translated ahead in one go; chosen: 2 ms, between which pages of lists are taken."""
AHEAD_SECONDS: Final = 0.02
"""Wall seconds after which it is looked for more of them; chosen: two or three times a page of a list."""
RESUMED_TOGETHER: Final = 200
"""Pods whose notes are read in one go at the start; chosen: about 3 ms."""
PUBLISH_SECONDS: Final = 1.0
"""Wall seconds between two publications of queue positions and predicted starts; chosen for a reader."""
MAX_RECOVERIES: Final = 100
"""New engines in a row of which each fails at once; chosen: so many bad objects at the same moment are a defect."""
RETRY_SECONDS: Final = 1.0
"""Wall seconds after which an object that the engine failed over is tried once more; chosen: an innocent one is placed
within 2 s, and the new engine has taken in what else there is."""
RETRIED_KEPT: Final = 1000
"""Objects of which it is kept that they were tried again; chosen."""
PUBLISH_SHARE: Final = 50.0
"""A publication may take at most one part in this many of the time: a long queue is published less often."""


class Outcomes(Protocol):
    """Who publishes decisions (the reporter): events, annotations, statuses and metrics."""

    def events(self, events: Sequence[Event], arrivals: Sequence[Pod]) -> None:
        """Follow pods that changed or went."""
        ...

    def decided(self, instructions: Sequence[Instruction], now: float, cycle_seconds: float) -> Mapping[str, BindNote]:
        """Take the instructions of one cycle; return what goes with its bindings, by the uid of the pod."""
        ...

    def alarmed(self, alarms: Alarms, now: float) -> None:
        """Take what the overload monitor saw in one cycle."""
        ...

    def resumed(self, decisions: Iterable[Decision]) -> None:
        """Take over what an earlier run noted on pods."""
        ...

    async def publish_queue(self, scheduler: Scheduler, now: float) -> None:
        """Publish queue sizes, positions and predicted starts."""
        ...


class Record(Protocol):
    """Who keeps what went into the engine and what came out (the ledger)."""

    def entry(self, now: float, events: Sequence[Event], instructions: Sequence[Instruction]) -> None:
        """Keep one call of `Scheduler.handle`."""
        ...

    def renew(self) -> None:
        """Begin another record: a new engine follows, which does not know what went before."""
        ...


class _Records:
    """Several records that are kept alike."""

    def __init__(self, *kept: Record) -> None:
        self._kept = kept

    def entry(self, now: float, events: Sequence[Event], instructions: Sequence[Instruction]) -> None:
        for record in self._kept:
            record.entry(now, events, instructions)

    def renew(self) -> None:
        for record in self._kept:
            record.renew()


def records(*kept: Record | None) -> Record | None:
    """Return what keeps all of the records that there are."""
    there = [record for record in kept if record is not None]
    if len(there) < 2:
        return there[0] if there else None
    return _Records(*there)


class Watcher(Protocol):
    """Who learns from what the engine saw (the sample collector)."""

    def feed(self, state: ClusterState, events: Sequence[Event], now: float) -> None:
        """Look at the events of one cycle and at the state after them."""
        ...

    def decided(self, instructions: Sequence[Instruction], now: float) -> None:
        """Take the instructions of that cycle."""
        ...


class EventForecaster(Protocol):
    """Adds forecasts to the events of a cycle, beside those of the engine's own models."""

    def ahead(self, events: Sequence[Event], forecaster: CompletionForecaster) -> list[Event]:
        """Return the events that follow the events of a cycle."""
        ...

    def decided(self, instructions: Sequence[Instruction]) -> None:
        """Take the instructions of a cycle."""
        ...

    def begin_anew(self) -> None:
        """Prepare for a new engine, which starts without state."""
        ...


class Growing(Protocol):
    """Who gives room to pods that run, before anybody new has it (the resizer of phases)."""

    def wants(self) -> bool:
        """Whether there is anything to look at."""
        ...

    def take_room(self) -> None:
        """Say what pods ask for from now on; the event source keeps them as requested sizes."""
        ...


class SchedulingLoop:
    """Owns the engine and drives it.

    Parameters
    ----------
    scheduler : Scheduler
        Nobody else may call its `handle`.
    cache, event_source, binder, outcomes, clock :
        See their modules.
    record, watcher, event_forecaster : optional
        Ledger, sample collector and run times.
    remake : callable, optional
        Makes the engine that follows one which failed; without it such a failure is the loop's.
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
        """Whether events were taken that the engine has not handled yet, or whose outcome is not carried out."""
        self._awaited: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()
        self._stopped = False
        self._remake = remake
        self._gang_kernels = GangKernels()
        self._failures = 0
        self._retried: dict[tuple[Kind, str], tuple[str, str]] = {}
        """Uid and version of each object that got its second try, by kind and key."""
        self._models: ModelsChanged | None = None
        self._now = float("-inf")
        self._cycle_seconds = 0.0
        self.cycles = 0
        self.fully_synced = False
        """Whether the engine was told of all that there was when it was made."""
        self.started_monotonic: float | None = None
        cache.subscribe(lambda _kind, _key: self._wake.set())

    def emit(self, event: Event) -> None:
        """Put an event into the next cycle (a sample, other models)."""
        if isinstance(event, ModelsChanged):
            self._models = event
        self._inbox.append(event)
        self._wake.set()

    def nudge(self) -> None:
        """Look again whether there is anything to do."""
        self._wake.set()

    async def caught_up(self) -> None:
        """Wait until all that was told so far is handled, and at first until anything was."""
        if self._inbox or self._in_hand or not self.cycles:
            handled = asyncio.get_running_loop().create_future()
            self._awaited.append(handled)
            await handled

    def refused(self, report: Report) -> None:
        """Take what was not carried out into the next cycle; every report of the binder comes here."""
        if isinstance(report, BindReport) and not report.bound:
            bind, answer = report.bind, report.answer
            self.emit(BindRefused(bind.key, bind.uid, bind.node, answer.code, answer.reason, report.retry))
        elif isinstance(report, EvictReport) and not report.answer.ok and report.answer.code != 404:
            evict, answer = report.evict, report.answer
            self.emit(EvictRefused(evict.key, evict.uid, evict.node, answer.code, answer.reason, report.retry))

    def stop(self) -> None:
        """Decide nothing from now on; what was handed to the binder is the binder's to finish."""
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
            Awaited once, when everything was listed and before the first cycle.
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
                while (
                    self._event_source.is_partial and not self._stopped
                ):  # all that is there, before anything is decided
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
        """Return what the engine knows of nodes that refused pods."""
        return self.scheduler.state.backoffs(self._now)

    def is_calm(self) -> bool:
        """Whether nothing is to be decided now: what keeps everybody waiting for a moment may be done."""
        busy = self._inbox or self._in_hand or self._awaited or self._event_source.waiting
        return not busy and not self.scheduler.pending()["active"]

    async def translate_ahead(self) -> None:
        """Translate pods while there is time for it: while lists come, and while another replica leads."""
        while not self.cycles:
            await asyncio.sleep(0 if self._event_source.translate_ahead(AHEAD_PODS) else AHEAD_SECONDS)

    async def _resume(self) -> None:
        """Take over what an earlier run noted on pods, a few at a time: the first bindings need not wait for it."""
        pods = list(self._cache.pods.values())
        for start in range(0, len(pods), RESUMED_TOGETHER):
            await asyncio.sleep(0)
            self._outcomes.resumed(noted(pods[start : start + RESUMED_TOGETHER]))

    def _due(self) -> bool:
        """Whether the engine has anything to look at; a publication alone is no reason to call it."""
        if self._inbox or self._awaited or self._event_source.waiting or not self.cycles or self._grows():
            return True
        return self._is_time()

    def _is_time(self) -> bool:
        """Whether one of the engine's own timers is due."""
        wakeup = self.scheduler.next_wakeup(self._now)
        return wakeup is not None and wakeup <= self._clock.now()

    async def _cycle(self, binder: Binder) -> None:
        """One call of the engine, and what follows from it; the loop's other work has its turn between the parts.

        A call that tells an engine that knows nothing a part of what there is counts as no cycle: nothing is decided.
        Nothing but this task reads what is in between: what was collected is told, and what was decided is published
        and handed over, before anything more is collected.
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
                return  # objects changed in what does not matter, as by our own notes: there is nothing to decide
            events.append(Tick())
        started = time.perf_counter()
        try:
            instructions = self._decide(events, now)
        except Exception as error:  # noqa: BLE001 - one object that trips us must not stop all others
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
            if not handled.done():  # whoever waited may have been cancelled
                handled.set_result(None)

    def _decide(self, events: list[Event], now: float) -> list[Instruction]:
        """Let the engine decide; where pods that run want room, they have their choice of it first.

        The engine is then told in two calls, of which the first decides nothing. ``events`` has all of them.
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
        """Set aside what the engine failed over, and begin with a new engine, which is told everything else.

        What it had decided and the API server has not carried out yet is decided again; the binder, which still has it
        in hand, refuses the second binding.

        Raises
        ------
        Exception
            What the engine raised, where it names no object, or fails again and again.
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
        # What kubelets refused no watch tells again; at a start some of it may not have been taken in yet.
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
        """Let a new engine try an object once more: the fault may have been the state of the old one."""
        entry = self._cache.quarantine.get(kind, key)
        if entry is None or self._retried.get((kind, key)) == (entry.uid, entry.version):
            return
        if len(self._retried) >= RETRIED_KEPT:
            del self._retried[next(iter(self._retried))]
        self._retried[kind, key] = entry.uid, entry.version

        def retry() -> None:
            if self._cache.quarantine.get(kind, key) is entry:  # else it changed, or is gone
                self._cache.quarantine.forget(kind, key)
                self._event_source.mark(kind, key)
                self._wake.set()

        asyncio.get_running_loop().call_later(RETRY_SECONDS, retry)

    async def _pause(self, binder: Binder, next_publication: float) -> None:
        # Before the wait and not after it: changes of a burst gather, and one that comes alone is not held up.
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
