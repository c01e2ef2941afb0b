"""Live host load, from readings of pods to events and outlooks: the flow through this package.

Two tasks share it. The usage feed calls `take` after each reading of its source; `run` ends a slot when it is over::

    readings -> PodUsages -> NodeSampler -> EventPublisher: NodeUsageSampled   every reading
                                   `------> SlotAccumulator -> Forecasters     every slot, in a thread
                                                                   |-> EventPublisher: NodeForecasted, ForecastScored
                                                                   `-> OutlookMaker -> Outlooks

Invariants: all data comes from one engine's nodes and pods and goes back as events only. While a source is down nothing
is published, so that the engine's own staleness ends its samples. A node that has fallen back gets no forecast. An
error here costs a slot or the history, and never the operator.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.events import Pod
from cotide_core.kernels.array_types import Floats
from cotide_core.phases.progress import Usage
from cotide_core.state.cluster_state import ClusterState
from cotide_operator.clock import Clock
from cotide_operator.host_load.contenders import DEFAULT, LEVELS, Predictor, sentence_of
from cotide_operator.host_load.event_publisher import EventPublisher, Loop
from cotide_operator.host_load.forecasters import Flags, Forecasters, Made, SlotScore
from cotide_operator.host_load.history_replay import HistoryReplay
from cotide_operator.host_load.node_rows import NodeRows
from cotide_operator.host_load.outlook_maker import OutlookMaker, Standing
from cotide_operator.host_load.pod_usage import PodUsages
from cotide_operator.host_load.sampler import NodeSampler, NodeTable
from cotide_operator.host_load.score_metrics import write_ahead, write_contest, write_outlooks, write_slot, write_window
from cotide_operator.host_load.slot_accumulator import ClosedSlot, SlotAccumulator
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reclaimed.node_outlook import Outlooks
from cotide_operator.usage.measurement_faults import MeasurementFaults
from cotide_operator.usage.sources import UsageReading
from cotide_predictors.host_load.scoring import LoadScores
from cotide_predictors.host_load.slot_ring import slots_of_day

_LOG = logging.getLogger(__name__)

LAG_SHARE: Final = 0.1
"""A slot is closed late by at most this share of it, so that its last samples are in (chosen)."""
GRACE_WALL_SECONDS: Final = 1.0
"""A forecast holds at least this long after its slot, so that the next one comes before it runs out (chosen)."""
GRACE_SHARE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Knobs:
    """Configuration; seconds of the operator's clock unless the name contains wall.

    Attributes
    ----------
    quantile : 0.5, 0.9 or 0.99: the peak that plans use.
    settling_wall_seconds : see `metric_sources.Source`.
    tells_scores : whether a ledger keeps the `ForecastScored` events.
    ahead_slots : additional, longer horizons of the forecasts.
    predictor, challenger : see `Forecasters`.
    """

    slot_seconds: float
    quantile: float
    stale_seconds: float
    stale_wall_seconds: float
    interval_wall_seconds: float
    capacity_share: float
    settling_wall_seconds: float
    tells_scores: bool
    ahead_slots: tuple[int, ...] = ()
    predictor: Predictor = DEFAULT
    challenger: Predictor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Learnt:
    """Result of a slot's end, from the forecasters' thread."""

    scored: list[tuple[int, SlotScore]]
    made: Made
    usable: Flags
    trusts: Flags
    standing: Standing


class LiveHostLoad:
    """Live host load of one operator.

    Parameters
    ----------
    state, pods : of the engine, read only. loop : receives the events.
    rebuilding : provides the history; None where the source keeps none.

    Attributes
    ----------
    forecasters, lock : shared with the refits; the forecasters are accessed under the lock only.
    rebuilt : set once the available history was rebuilt.
    """

    def __init__(
        self, knobs: Knobs, *, state: ClusterState, pods: Mapping[str, Pod], clock: Clock, loop: Loop,
        metrics: Metrics, outlooks: Outlooks, rebuilding: HistoryReplay | None,
        wall: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._knobs = knobs
        self._state = state
        self._pods = pods
        self._clock = clock
        self._loop = loop
        self._metrics = metrics
        self._left_out = MeasurementFaults(metrics)
        self._rebuilding = rebuilding
        self._wall = wall
        self._usages = PodUsages(pods.get, knobs.stale_wall_seconds, metrics)
        self._sampler = NodeSampler(state, pods, self._usages, metrics)
        self._roster = NodeRows(knobs.slot_seconds)
        self._book = SlotAccumulator(self._roster, knobs.slot_seconds)
        self._publisher = EventPublisher(loop, knobs.stale_seconds)
        self.forecasters = Forecasters(
            self._roster.capacity,
            predictor=knobs.predictor,
            challenger=knobs.challenger,
            quantile=knobs.quantile,
            ahead_slots=knobs.ahead_slots,
            day_slots=slots_of_day(knobs.slot_seconds),
        )
        self.lock = asyncio.Lock()
        self.rebuilt = asyncio.Event()
        self._standing = Standing.of(self.forecasters.fallen_back(), self.forecasters.scores())
        self._maker = OutlookMaker(
            state, self._roster, outlooks, slot_seconds=knobs.slot_seconds, stale_seconds=knobs.stale_seconds,
            capacity_share=knobs.capacity_share, ever_sampled=self._publisher.ever_sampled,
        )  # fmt: skip
        self._lag = min(knobs.interval_wall_seconds * clock.speed, LAG_SHARE * knobs.slot_seconds)

    async def take(self, readings: list[UsageReading]) -> None:
        """Take in one reading of the source; an empty reading publishes no usage."""
        wall = self._wall()
        if await self._usages.take(readings, wall):
            settled_since = self._clock.now() - self._knobs.settling_wall_seconds * self._clock.speed
            samples = await self._sampler.sample(wall, settled_since)
            now, table = self._clock.now(), samples.table
            rows = self._follow(table, now)
            at_seconds = now - samples.age_seconds * self._clock.speed
            self._book.usage(rows, at_seconds, _shares(samples.online, table.physical))
            self._book.held(rows, now, _shares(table.batch, table.physical))
            await self._publisher.samples(samples, at_seconds)
        else:
            table, now = NodeTable.of(self._state), self._clock.now()
            rows = self._follow(table, now)
            self._book.held(rows, now, _shares(table.batch, table.physical))
        await self._revise(rows)
        await self._publish(everything=False)

    def usage_of(self, pod_key: str) -> Usage | None:
        """Return the last fresh reading of a pod, by the operator's clock; None when there is none."""
        return self._usages.usage_of(pod_key, self._wall(), self._clock.from_wall)

    async def run(self) -> None:
        """Rebuild the history, then end slots until cancelled."""
        await self._loop.caught_up()
        await self.rebuild()
        while True:
            await asyncio.sleep(self._wall_seconds_to_look())
            try:
                await self.end_slots()
            except Exception as error:  # noqa: BLE001 - forecasts run out and nodes offer requests; the loop goes on
                self._left_out.leave_out("host load", "the end of a slot", error)
                await asyncio.sleep(self._knobs.interval_wall_seconds)

    async def end_slots(self) -> bool:
        """Learn from the closed slots and forecast the open one; return whether any slot was closed."""
        now = self._clock.now()
        if self._book.open_slot is not None and now >= self._due():
            self._book.close(now)
        if not self._book.waiting:
            return False
        await self._learn_and_forecast()
        return True

    async def rebuild(self) -> None:
        """Learn from the available history, and make the first forecasts."""
        if self._rebuilding is not None:
            try:
                await self._relive(self._rebuilding)
            except Exception as error:  # noqa: BLE001 - a past that trips us is no past; what was learnt of it stays
                self._left_out.leave_out("host load", "the past", error)
        self.rebuilt.set()
        try:
            await self._learn_and_forecast()
        except Exception as error:  # noqa: BLE001 - the next slot's end may do better
            self._left_out.leave_out("host load", "the first forecast", error)

    async def _relive(self, rebuilding: HistoryReplay) -> None:
        now = self._clock.now()
        table = NodeTable.of(self._state)
        rows = self._follow(table, now)
        past = rebuilding.slots(self._open_slot(), table, self._pods, self._state, give_up=lambda: self._book.waiting)
        async for past_slot in past:
            async with self.lock:
                self.forecasters.grow(self._roster.capacity)
                values = np.full((4, self.forecasters.rows), np.nan)
                values[:2, rows] = _shares(past_slot.online, table.physical)
                await asyncio.to_thread(self.forecasters.record, values, batch=False)

    def _due(self) -> float:
        """Return the time when the open slot is over and its last samples had time to arrive."""
        return (self._open_slot() + 1) * self._knobs.slot_seconds + self._lag

    def _wall_seconds_to_look(self) -> float:
        interval = self._knobs.interval_wall_seconds
        if self._book.waiting:
            return 0.0
        return max(0.0, min(interval, (self._due() - self._clock.now()) / self._clock.speed))

    async def _learn_and_forecast(self) -> None:
        """Learn from the closed slots, forecast the open one, and publish."""
        now = self._clock.now()
        table = NodeTable.of(self._state)
        rows = self._follow(table, now)
        held = _shares(table.batch, table.physical)
        closed, vacated = self._book.take_closed(rows, held)
        physical = self._roster.physical.copy()
        async with self.lock:
            learnt = await asyncio.to_thread(self._learn, closed, vacated, rows, held, physical)
        self._standing = learnt.standing
        names = dict(self._roster.row_of)
        await self._emit_forecasts(names, learnt.made, learnt.usable)
        if self._knobs.tells_scores:
            for number, score in learnt.scored:
                until = (number + 1) * self._knobs.slot_seconds
                scores = tuple(learnt.standing.scores)
                await self._publisher.scored(names, score, scores, learnt.trusts, physical, until)
        await self._publish(everything=True)

    def _learn(
        self, closed: list[ClosedSlot], vacated: list[int], rows: NDArray[np.intp], held: Floats, physical: Floats
    ) -> _Learnt:
        """In a thread, under the lock."""
        forecasters = self.forecasters
        if closed:  # before the first closed slot, nodes beyond the first rows need no state
            forecasters.grow(physical.shape[1])
        inside = rows < forecasters.rows
        rows, held = rows[inside], held[:, inside]
        forecasters.reset([row for row in vacated if row < forecasters.rows])
        scored = []
        for slot in closed:
            score = forecasters.record(slot.values)
            write_slot(self._metrics, score, physical, LEVELS[self._knobs.quantile])
            scored.append((slot.number, score))
        forecasters.revise(rows, held)
        made, known = forecasters.made()
        scores: tuple[LoadScores, ...] = forecasters.scores()
        if closed:
            write_window(self._metrics, scores)
            write_ahead(self._metrics, forecasters.ahead_scores())
        contest, verdicts = forecasters.contest(), forecasters.take_verdicts()
        write_contest(self._metrics, contest, verdicts)
        for name, verdict in verdicts:
            _LOG.info("load forecasts: %s", sentence_of(name, verdict))
        fallen = forecasters.fallen_back()
        standing = Standing.of(fallen, scores, contest.sentence())
        return _Learnt(scored, made, known & ~fallen, forecasters.trusts(), standing)

    async def _revise(self, rows: NDArray[np.intp]) -> None:
        """Forecast again where placements raised the batch load (the feedback of Jiang et al., section IV.B)."""
        inside = rows[rows < self.forecasters.rows]
        moved, held = self._book.moved(inside)
        if not len(moved):
            return
        async with self.lock:
            made, usable = await asyncio.to_thread(self._revised, moved, held)
        chosen = set(moved.tolist())
        await self._emit_forecasts({n: row for n, row in self._roster.row_of.items() if row in chosen}, made, usable)

    def _revised(self, rows: NDArray[np.intp], held: Floats) -> tuple[Made, Flags]:
        self.forecasters.revise(rows, held)
        made, known = self.forecasters.made()
        return made, known & ~self.forecasters.fallen_back()

    async def _emit_forecasts(self, names: dict[str, int], made: Made, usable: Flags) -> None:
        knobs = self._knobs
        grace = self._lag + max(GRACE_SHARE * knobs.slot_seconds, GRACE_WALL_SECONDS * self._clock.speed)
        until = (self._open_slot() + 1) * knobs.slot_seconds + grace
        level, physical = LEVELS[knobs.quantile], self._roster.physical
        here = physical[:, : len(usable)]
        await self._publisher.forecasts(names, made, level, usable, here, until, knobs.slot_seconds)

    async def _publish(self, *, everything: bool) -> None:
        reasons = await self._maker.put(self._standing, self._clock.now(), everything=everything)
        write_outlooks(self._metrics, self._maker.outlooks, reasons, self._state)

    def _open_slot(self) -> int:
        """Return the number of the open slot."""
        slot = self._book.open_slot
        return int(self._clock.now() // self._knobs.slot_seconds) if slot is None else slot

    def _follow(self, table: NodeTable, now: float) -> NDArray[np.intp]:
        rows = self._roster.follow(table, now)
        self._book.fit_roster()
        return rows


def _shares(amounts: Floats, physical: Floats) -> Floats:
    """Return amounts (2, N) as shares of the capacity; nan where the capacity is zero."""
    found: Floats = np.where(physical > 0, amounts / np.maximum(physical, 1.0), np.nan)
    return found
