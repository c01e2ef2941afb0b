"""Batch and gratis pods planned over time: reservations, backfilling, planned starts.

Called by `cycle.Scheduler` for policies with a `PlanRule`. Online pods are placed before, as under every policy, and
never wait for a reservation. The first `DEPTH` other pods, in the policy's order, then go through the kernel
`machine_plan` on what nodes will have free (`availability`); those that start now are checked once more against the
filters of every policy and bound. Run times are the p90 of the forecast, stretched by the services on the node
(`stretches`): a promise holds while pods stay below it, no online pod takes the room and no node goes.

A plan is made when an event may have changed it, when a pod outlives what was expected of it, and when a planned start
has come. Invariant: the same events at the same times give the same plans; asking for what is planned changes none.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.availability import MICROSECONDS, PHYSICAL, Availability, microseconds, planned_length
from cotide_core.columns import Booleans, Integers
from cotide_core.events import Event, NodeForecasted, NodeUsageSampled, ServiceSampled, Tick
from cotide_core.feasibility import FITS
from cotide_core.instructions import Wait, WaitReason
from cotide_core.kernels.machine_plan import NO_ROOM, compile_ahead, plan_machines, stretched
from cotide_core.kernels.machines import NEVER
from cotide_core.orders import Key, full_key
from cotide_core.placement import Placement, Placer
from cotide_core.plan_rule import PlanRule
from cotide_core.queued import Place, QueuedPod
from cotide_core.queueing import SchedulingQueue
from cotide_core.run_times import RunTimes
from cotide_core.shapes import FitShape
from cotide_core.snapshot import Snapshot
from cotide_core.state import ClusterState
from cotide_core.stretches import Stretches
from cotide_core.verdicts import overall, sentence
from cotide_core.waits import wait

DEPTH: Final = 2048
"""Waiting pods that are planned, the first in the policy's order (chosen: some 20 ms on 1,000 nodes)."""
_IRRELEVANT: Final = (ServiceSampled, NodeUsageSampled, NodeForecasted, Tick)


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """What is planned for one waiting pod; times in seconds of the driver's clock."""

    node: str
    start_seconds: float
    finish_seconds: float
    """End of what is kept for it: its p90."""
    ends: int
    """Pods that run on the node now and are expected to end before."""
    reserved: bool
    """Whether others may not delay it; else it is only what would come about if nothing else happened."""


class _Problem:
    """What the kernel is asked: pods by group, groups by fit."""

    def __init__(self, waiting: list[QueuedPod], snapshot: Snapshot, placer: Placer, availability: Availability):
        groups: dict[tuple[object, float], int] = {}
        firsts: list[QueuedPod] = []
        members: list[int] = []
        for entry in waiting:
            key = (entry.shape, entry.seconds_p90)
            number = groups.setdefault(key, len(groups))
            if number == len(firsts):
                firsts.append(entry)
            members.append(number)
        fits: dict[FitShape, int] = {}
        kinds: dict[str, int] = {}
        self.group = np.array(members, np.int64)
        self.fit = np.array([fits.setdefault(one.shape.fit, len(fits)) for one in firsts], np.int64)
        self.kind = np.array([kinds.setdefault(one.pod.type, len(kinds)) for one in firsts], np.int64)
        self.take = np.array([availability.vector(one.pod.requests) for one in firsts])
        self.need = self.take.copy()
        plain = [one.shape.fit.physical is None for one in firsts]
        self.need[plain, -PHYSICAL:] = 0
        self.used = np.flatnonzero(self.need.any(axis=0))
        """Resources that somebody needs: the others refuse nobody."""
        # In rows: the kernel is compiled once for each layout of its arrays.
        self.need, self.take = (np.ascontiguousarray(one[:, self.used]) for one in (self.need, self.take))
        lasts = [planned_length(one.seconds_p90) for one in firsts]
        self.length = np.array(lasts, np.int64)
        rates = snapshot.service_rates
        self.stretch = np.array([availability.stretches.of_rows(kind, rates) for kind in kinds])
        self.may = np.array([placer.feasibility.allowed(fit, snapshot) for fit in fits])
        self.soft = np.array([placer.feasibility.matches(fit, snapshot).soft for fit in fits])
        several = np.bincount(self.group) > 1
        self.slot = np.where(several, np.cumsum(several), 0)
        self.slots = 1 + int(several.sum())

    def lasts(self, index: int, row: int) -> int:
        """Return for how long a pod is planned to run on a row."""
        of = self.group[index]
        return stretched(int(self.length[of]), float(self.stretch[self.kind[of], row]))


class Planner:
    """Plans the pods that it was handed.

    Parameters
    ----------
    rule : of the policy.
    queue, placer : of the engine.
    """

    def __init__(
        self, rule: PlanRule, state: ClusterState, placer: Placer, queue: SchedulingQueue, run_times: RunTimes
    ) -> None:
        compile_ahead()
        self._rule = rule
        self._order = placer.policy.order
        self._state = state
        self._placer = placer
        self._queue = queue
        self._availability = Availability(state, run_times, Stretches(run_times.forecaster))
        self._line: list[tuple[Key, int, QueuedPod]] = []
        self._kept: dict[QueuedPod, tuple[str, int]] = {}
        """Promises: node and start."""
        self._due = False
        self._waiting: list[QueuedPod] = []
        self._planned: dict[str, PlannedStart] = {}
        self._extension: tuple[_Problem, tuple[Integers, Integers, Integers], list[int], int] | None = None
        """What it takes to plan on for those that have no reservation, when somebody asks."""
        self._segments = 0
        self._untold = False
        self._vacated: list[int] = []
        """Rows that reservations left since something was free earlier: a pod that was looked at before may move there
        when the next thing is."""
        self._all_open = False
        self._next_start = math.inf

    def take(self, events: Sequence[Event]) -> None:
        """Note whether one of the events may change the plan."""
        self._due = self._due or not all(isinstance(event, _IRRELEVANT) for event in events)

    def join(self, entry: QueuedPod, now: float) -> None:
        """Take over a pod that the queue gave."""
        self._queue.plan(entry)
        insort(self._line, (full_key(self._order, entry, now), entry.ticket, entry))
        self._due = True

    def change_forecasts(self, run_times: RunTimes, now: float) -> None:
        """Plan by another forecaster from now on; pods that run keep what was expected of them."""
        self._availability.run_times = run_times
        self._availability.stretches = Stretches(run_times.forecaster)
        self._line = sorted((full_key(self._order, entry, now), ticket, entry) for _, ticket, entry in self._line)
        self._due = self._all_open = True

    def next_change(self, now: float) -> float:
        """Return when to plan again without an event; infinite for never."""
        if not self._line:
            return math.inf
        if self._due:
            return now
        end = self._availability.next_end()
        return max(now, min(self._next_start, end / MICROSECONDS if end < NEVER else math.inf))

    def planned(self, snapshot: Snapshot) -> dict[str, PlannedStart]:
        """Return what the latest plan says of waiting pods, by key; who fits nowhere or is too far is absent."""
        if self._extension is not None:
            problem, arrays, left, moment = self._extension
            self._extension = None
            machine = np.full(len(left), -1, np.int64)
            start = np.full(len(left), -1, np.int64)
            nothing = np.zeros(arrays[2].shape[0], np.bool_)
            self._solve(
                problem, arrays, problem.group[left], machine, start, moment, None, None, np.arange(len(left)), nothing
            )
            for place, index in enumerate(left):
                if machine[place] >= 0:
                    key = self._waiting[index].pod.key
                    self._planned[key] = self._told(
                        problem, snapshot, index, int(machine[place]), int(start[place]), reserved=False
                    )
        return {key: one for key, one in self._planned.items() if key in self._still_waiting()}

    def plan(self, snapshot: Snapshot, now: float, most: int) -> Iterator[tuple[QueuedPod, Placement]]:
        """Make the plan if it is due, and yield who starts now and where, at most so many.

        The caller assumes each before it asks for the next.
        """
        moment = microseconds(now)
        if most <= 0 or self.next_change(now) > now:
            return
        self._line = [item for item in self._line if item[2].ticket == item[1] and item[2].place is Place.PLANNED]
        waiting = self._waiting = [entry for _, _, entry in self._line[:DEPTH]]
        self._planned, self._extension, self._due, self._next_start = {}, None, False, math.inf
        self._untold = True
        if not waiting:
            return
        opened = self._opened(self._availability.refresh(moment), snapshot)
        problem = _Problem(waiting, snapshot, self._placer, self._availability)
        machine, start = self._promised(waiting, snapshot)
        free = self._availability.free[:, :, problem.used]
        base = (self._availability.times, free, self._availability.sizes)
        reservations, second = self._rule.reservations, self._second(waiting, now)
        arrays = self._solve(problem, base, problem.group, machine, start, moment, reservations, most, second, opened)
        self._vacated += np.flatnonzero(opened).tolist()
        started = 0
        for index in np.flatnonzero(start == moment).tolist():
            entry, row = waiting[index], int(machine[index])
            if started == most:
                self._due = True
                break
            if self._placer.feasibility.codes(entry.shape.fit, snapshot, slice(row, row + 1))[0] != FITS:
                # Two pods of this plan want the same port there: the next plan knows the first.
                self._due = started > 0
                continue
            started += 1
            self._kept.pop(entry, None)
            yield entry, Placement(row, None, (), why="its planned start has come, and it delays no reserved pod")
            record = self._state.record(entry.pod.key)
            if record is not None and record.row == row:
                self._availability.began(record, moment, problem.lasts(index, row))
        self._due = self._due or started == most or (started > 0 and len(self._line) > DEPTH)
        self._keep(problem, snapshot, machine, start, moment)
        if self._rule.reservations is not None:
            left = [index for index, row in enumerate(machine.tolist()) if row < 0]
            self._extension = (problem, arrays, left, moment) if left else None

    def waits(self, snapshot: Snapshot) -> Iterator[Wait]:
        """Yield what is to be told to the pods of a new plan that stay."""
        waiting = self._waiting if self._untold else []
        self._untold = False
        for entry in waiting:
            if entry.place is not Place.PLANNED:
                continue
            entry.attempts = max(1, entry.attempts)
            planned = self._planned.get(entry.pod.key)
            if planned is not None and planned.reserved:
                told = wait(entry, WaitReason.WAITING_FOR_TURN, f"reserved on {planned.node}")
            elif planned is not None:
                told = wait(entry, WaitReason.WAITING_FOR_TURN, "is planned behind pods of smaller volume")
            elif self._extension is not None and self._planned:
                told = wait(entry, WaitReason.WAITING_FOR_TURN, "starts as soon as that delays no reserved pod")
            else:
                refused = self._placer.refusals(snapshot, entry.shape.fit)
                told = wait(
                    entry,
                    overall(refused),
                    sentence(refused, snapshot.node_count),
                    placement=Placement(-1, None, refused),
                )
            if told is not None:
                yield told
        for _, _, entry in self._line[DEPTH:] if waiting else ():
            if entry.told is None and entry.place is Place.PLANNED:
                entry.attempts = max(1, entry.attempts)
                message = f"waits until it is among the first {DEPTH} pods, which are planned"
                if (told := wait(entry, WaitReason.WAITING_FOR_TURN, message)) is not None:
                    yield told

    def _still_waiting(self) -> set[str]:
        return {entry.pod.key for entry in self._waiting if entry.place is Place.PLANNED}

    def _second(self, waiting: list[QueuedPod], now: float) -> Integers:
        backfill = self._rule.backfill
        if backfill is None:
            return np.arange(len(waiting))
        keys = [full_key(backfill, entry, now) for entry in waiting]
        return np.array(sorted(range(len(waiting)), key=keys.__getitem__), np.int64)

    def _opened(self, gained: Booleans, snapshot: Snapshot) -> Booleans:
        """Return (N,) the rows on which a kept reservation may move forward; drops the promises of who has gone."""
        opened = gained | self._all_open
        self._all_open = False
        for entry in [entry for entry in self._kept if entry.place is not Place.PLANNED]:
            row = snapshot.columns.row_of.get(self._kept.pop(entry)[0])
            if row is not None:
                opened[row] = True
        if opened.any():
            opened[[row for row in self._vacated if row < len(opened)]] = True
            self._vacated = []
        return opened

    def _promised(self, waiting: list[QueuedPod], snapshot: Snapshot) -> tuple[Integers, Integers]:
        machine = np.full(len(waiting), -1, np.int64)
        start = np.full(len(waiting), -1, np.int64)
        if self._kept:
            for index, entry in enumerate(waiting):
                node, moment = self._kept.get(entry, ("", -1))
                machine[index] = snapshot.columns.row_of.get(node, -1)
                start[index] = moment
        return machine, start

    def _solve(
        self,
        problem: _Problem,
        arrays: tuple[Integers, Integers, Integers],
        group: Integers,
        machine: Integers,
        start: Integers,
        moment: int,
        reservations: int | None,
        most: int | None,
        second: Integers,
        opened: Booleans,
    ) -> tuple[Integers, Integers, Integers]:
        """Run the kernel on copies; ``machine`` and ``start`` become the plan. Returns what is free behind it."""
        count, rows = len(group), arrays[2].shape[0]
        reserved = count + 1 if reservations is None else reservations
        starts = count + 1 if most is None else most
        while True:
            self._segments = max(self._segments, arrays[0].shape[1])
            times = np.zeros((rows, self._segments), np.int64)
            free = np.zeros((rows, self._segments, arrays[1].shape[2]), np.int64)
            times[:, : arrays[0].shape[1]], free[:, : arrays[1].shape[1]] = arrays[0], arrays[1]
            sizes, at, begins, vacated = arrays[2].copy(), machine.copy(), start.copy(), opened.copy()
            bound = np.full((problem.slots, rows), moment, np.int64)
            done = plan_machines(
                times, free, sizes, moment, group, second, problem.need, problem.take, problem.length, problem.kind,
                problem.stretch, problem.fit, problem.may, problem.soft, problem.slot, bound, reserved, starts,
                vacated, at, begins,
            )  # fmt: skip
            if done != NO_ROOM:
                machine[:], start[:], opened[:] = at, begins, vacated
                return times, free, sizes
            self._segments *= 2

    def _keep(self, problem: _Problem, snapshot: Snapshot, machine: Integers, start: Integers, moment: int) -> None:
        """Remember the plan of those who stay, for the next plan and for whoever asks."""
        starts = []
        reserved = self._rule.kept or self._rule.reservations is not None
        for index, (row, begin) in enumerate(zip(machine.tolist(), start.tolist(), strict=True)):
            entry = self._waiting[index]
            if row < 0 or entry.place is not Place.PLANNED:
                continue
            starts.append(begin)
            self._planned[entry.pod.key] = self._told(problem, snapshot, index, row, begin, reserved=reserved)
            if self._rule.kept:
                self._kept[entry] = (snapshot.name(row), begin)
        later = [begin for begin in starts if begin > moment]
        self._next_start = min(later) / MICROSECONDS if later else math.inf

    def _told(
        self, problem: _Problem, snapshot: Snapshot, index: int, row: int, begin: int, *, reserved: bool
    ) -> PlannedStart:
        end = begin + problem.lasts(index, row)
        ends = self._availability.ends_until(row, begin)
        return PlannedStart(snapshot.name(row), begin / MICROSECONDS, end / MICROSECONDS, ends, reserved)
