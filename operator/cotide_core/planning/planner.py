"""Batch and gratis pods planned over time: reservations, backfilling, planned starts.

Called by `cycle.Scheduler` for policies with a `PlanRule`. Online pods are placed first, as under every policy, and
never wait for a reservation. A method (`earliest_start`) then plans the first of the other pods, in the policy's order,
on the future free amounts of the nodes (`availability`). Pods with a start now are checked again by the filters of
every policy, and by the latency guard if there is one, and bound. Run times are an upper quantile of the forecast,
stretched by the services on the node (`slowdown_cache`). A promise holds while pods stay below that run time, no online
pod takes the room and no node goes.

A plan is made when an event may have changed it, when a pod outlives its expected run time, and when a planned start
has come. Invariant: the same events at the same times give the same plans; reading a plan changes nothing.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from cotide_core.config import PlansConfig, SchedulerConfig
from cotide_core.events import Event, NodeContended, NodeForecasted, NodeUsageSampled, PodRefused, ServiceSampled, Tick
from cotide_core.forecasting.run_time_cache import RunTimes
from cotide_core.forecasting.run_time_quantile import PlanQuantile
from cotide_core.forecasting.slowdown_cache import SlowdownCache
from cotide_core.forecasts import QosForecaster
from cotide_core.instructions import NO_FORECAST, Wait, WaitReason
from cotide_core.kernels.array_types import Booleans, Integers
from cotide_core.kernels.machines import NEVER, Profiles
from cotide_core.placement.assumptions import Assumptions
from cotide_core.placement.bind_instructions import DecidedBind
from cotide_core.placement.capacity import PlannedCapacity
from cotide_core.placement.feasibility import FITS
from cotide_core.placement.placer import Placement, Placer
from cotide_core.placement.plan_rule import PlanRule
from cotide_core.placement.refusal_messages import overall, sentence
from cotide_core.placement.wait_instructions import risk_of, wait
from cotide_core.planning.availability import MICROSECONDS, Availability, microseconds
from cotide_core.planning.earliest_start import PlanContext, PlanMethod, PlanRequest
from cotide_core.planning.gang_plan import fits_at_last, solve_with_gangs, together
from cotide_core.planning.problem import PlanProblem
from cotide_core.planning.qos_exclusions import PlanGuard
from cotide_core.planning.registry import method_of
from cotide_core.queueing.gangs import Gangs
from cotide_core.queueing.ordering import Key, full_key
from cotide_core.queueing.queued_pod import QueuedPod, QueueState
from cotide_core.queueing.scheduling_queue import SchedulingQueue
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.shapes import Shape
from cotide_core.state.snapshot import Snapshot
from cotide_core.units import noun_of

_IRRELEVANT: Final = (ServiceSampled, NodeUsageSampled, NodeContended, NodeForecasted, Tick)
ROUNDS: Final = 8
"""Plans of one cycle with starts that the latency guard may refuse; after them the rest waits for the next cycle.
Chosen: each plan learns about all nodes for the refused shapes.
"""


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """The plan for one waiting pod; times in seconds of the driver's clock."""

    node: str
    start_seconds: float
    finish_seconds: float
    """End of its reserved time: its p90, or the quantile of the plan."""
    ends: int
    """Pods that run on the node now and are expected to end before."""
    reserved: bool
    """Whether others may not delay it; otherwise the plan is only a projection without further events."""
    latest_seconds: float | None = None
    """The latest promised start, while others may delay it; None if they may not."""


class PlannerContext(NamedTuple):
    """The parts of the engine that planning uses."""

    state: ClusterState
    placer: Placer
    queue: SchedulingQueue
    capacity: PlannedCapacity
    assumptions: Assumptions
    gangs: Gangs
    shape_now: Callable[[QueuedPod], Shape]
    """A waiting pod's shape by the rules of all placed pods, including those that this cycle placed."""


class NoPlanner:
    """The planner of a policy that looks at the present only: it never receives a pod."""

    def plans(self, shape: Shape) -> bool:
        """Return False."""
        del shape
        return False

    def take(self, events: Sequence[Event]) -> None:
        """Do nothing."""

    def reopen(self) -> None:
        """Do nothing."""

    def join(self, entry: QueuedPod, now: float) -> None:
        """Refuse: nothing is planned."""
        raise NotImplementedError(f"{entry.pod.key} was to be planned at {now} by a policy without a plan")

    def change_forecasts(self, run_times: RunTimes, now: float) -> None:
        """Do nothing."""

    def next_change(self, now: float) -> float:
        """Return infinity."""
        del now
        return math.inf

    def planned(self, snapshot: Snapshot) -> dict[str, PlannedStart]:
        """Return nothing."""
        del snapshot
        return {}

    def plan(self, snapshot: Snapshot, now: float, most: int, qos: QosForecaster) -> list[DecidedBind]:
        """Return no starts."""
        del snapshot, now, most, qos
        return []

    def waits(self, snapshot: Snapshot) -> Iterator[Wait]:
        """Yield nothing."""
        del snapshot
        return iter(())


def planner_of(
    rule: PlanRule | None, context: PlannerContext, run_times: RunTimes, config: SchedulerConfig
) -> Planner | NoPlanner:
    """Return the planner of one engine."""
    return NoPlanner() if rule is None else Planner(rule, context, run_times, config)


class Planner:
    """Plans the pods that it received.

    Parameters
    ----------
    rule : of the policy.
    context : of the engine.
    """

    def __init__(self, rule: PlanRule, context: PlannerContext, run_times: RunTimes, config: SchedulerConfig) -> None:
        state, placer, queue, self._capacity, self._assumptions, self._gangs, self._shape_now = context
        plans = config.plans or PlansConfig()
        stretches = SlowdownCache(run_times.forecaster)
        quantile = PlanQuantile(plans.quantile)
        self._availability = Availability(state, run_times, stretches, quantile, self._capacity)
        self._method: PlanMethod = method_of(PlanContext(rule, plans, config.seed, state, self._availability))
        self._depth = plans.depth
        self._rule = rule
        self._order = placer.policy.order
        self._state = state
        self._placer = placer
        guard = placer.policy.guard
        self._guard = None if guard is None else PlanGuard(guard, placer.feasibility)
        self._queue = queue
        self._line: list[tuple[Key, int, QueuedPod]] = []
        self._kept: dict[QueuedPod, tuple[str, int]] = {}
        """Promises: node and start."""
        self._due = False
        self._waiting: list[QueuedPod] = []
        self._gang: Integers | None = None
        """(n,) the gangs of those, see `gang_plan.together`; None for no gang."""
        self._planned: dict[str, PlannedStart] = {}
        self._extension: tuple[PlanProblem, Profiles, list[int], int] | None = None
        """The inputs for planning the pods without a reservation, on demand."""
        self._unreported = False
        self._handed_back: set[QueuedPod] = set()
        """Of the latest plan."""
        self._vacated: list[int] = []
        """Rows that reservations left because something was free earlier. A pod that was checked before may move there
        at the next release.
        """
        self._all_open = False
        self._next_start = math.inf
        self._qos_model = ""

    def plans(self, shape: Shape) -> bool:
        """Whether pods of a shape are planned: batch and gratis ones."""
        return not shape.online

    def take(self, events: Sequence[Event]) -> None:
        """Record whether one of the events may change the plan."""
        self._method.take(events)
        self._due = self._due or not all(isinstance(event, _IRRELEVANT) for event in events)
        # A promise on a node that refuses pods must be able to move elsewhere.
        self._all_open = self._all_open or any(isinstance(event, PodRefused) for event in events)

    def reopen(self) -> None:
        """Plan again: nodes that refused pods may be tried again."""
        self._due = self._all_open = True

    def join(self, entry: QueuedPod, now: float) -> None:
        """Take over a pod from the queue."""
        self._queue.plan(entry)
        self._method.joined(entry)
        insort(self._line, (full_key(self._order, entry, now), entry.ticket, entry))
        self._due = True

    def change_forecasts(self, run_times: RunTimes, now: float) -> None:
        """Plan by another forecaster from now on; running pods keep their expected ends."""
        self._availability.run_times = run_times
        self._availability.stretches = SlowdownCache(run_times.forecaster)
        if self._guard is not None:
            self._guard.forget()
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
        """Return the latest plan of waiting pods, by key; pods that fit nowhere or are too far behind are absent."""
        if self._extension is not None:
            problem, profiles, left, moment = self._extension
            self._extension = None
            nothing = np.zeros(len(profiles.sizes), np.bool_)
            none = np.full(len(left), -1, np.int64)
            request = PlanRequest(
                problem, [self._waiting[index] for index in left], snapshot, moment, None, None,
                problem.group[left], np.arange(len(left)), none, none.copy(), nothing,
                None if self._gang is None else self._gang[left],
            )  # fmt: skip
            self._method.earliest(profiles, request)
            for index, row, begin in zip(left, request.machine.tolist(), request.start.tolist(), strict=True):
                if row >= 0:
                    key = self._waiting[index].pod.key
                    self._planned[key] = self._plan_of(problem, snapshot, index, row, begin, reserved=False)
        return {key: planned_start for key, planned_start in self._planned.items() if key in self._still_waiting()}

    def plan(self, snapshot: Snapshot, now: float, most: int, qos: QosForecaster) -> list[DecidedBind]:
        """Make the plan if it is due, and return the pods that start now with their nodes, at most ``most``, each
        assumed.
        """
        moment = microseconds(now)
        self._qos_model = qos.model_id
        if self._guard is not None and self._guard.eased(snapshot):
            self._due = True
        if self._capacity.take_eased():
            self._due = True
        if most <= 0 or self.next_change(now) > now:
            return []
        self._line = [
            item for item in self._line if item[2].ticket == item[1] and item[2].queue_state is QueueState.PLANNED
        ]
        nearest = [entry for _, _, entry in self._line[: self._depth]]
        waiting, self._gang = self._method.arranged(nearest, snapshot, now), None
        if self._gangs.members:
            waiting, self._gang = together(waiting, self._gangs)
        self._waiting = waiting
        self._planned, self._extension, self._due, self._next_start = {}, None, False, math.inf
        self._unreported = True
        if not waiting:
            return []
        request, profiles, settled = self._made(snapshot, moment, now, most, qos)
        if settled is not None:
            self._method.settle(settled)
        problem, machine, start = request.problem, request.machine, request.start
        self._vacated += np.flatnonzero(request.opened).tolist()
        started: list[DecidedBind] = []
        for indexes in self._together(np.flatnonzero(start == moment).tolist()):
            if len(started) >= most:
                self._due = True
                break
            started_together = self._begin(indexes, request, snapshot, qos, now)
            if not started_together:
                # Two pods of this plan need the same port there: the next plan knows the first.
                self._due = self._due or bool(started)
            started += started_together
        self._due = self._due or len(started) >= most or (bool(started) and len(self._line) > self._depth)
        self._keep(problem, snapshot, machine, start, moment)
        self._hand_back(request, now)
        if self._rule.reservations is not None:
            left = [index for index, row in enumerate(machine.tolist()) if row < 0]
            left = self._method.behind(
                [index for index in left if waiting[index].queue_state is QueueState.PLANNED], waiting
            )
            self._extension = (problem, profiles, left, moment) if left else None
        return started

    def waits(self, snapshot: Snapshot) -> Iterator[Wait]:
        """Yield the Wait instructions for the pods of a new plan that stay."""
        waiting = self._waiting if self._unreported else []
        self._unreported = False
        lasting = self._held_at_last() if waiting else []
        for index, entry in enumerate(waiting):
            if entry.queue_state is not QueueState.PLANNED and entry not in self._handed_back:
                continue
            entry.attempts = max(1, entry.attempts)
            planned = self._planned.get(entry.pod.key)
            if entry in self._handed_back and self._gang is not None and self._gang[index] >= 0:
                words = f"gang {entry.shape.gang}: the nodes can't hold all its pods, even after others end"
                instruction = wait(entry, WaitReason.NO_MATCHING_NODE, words)
            elif planned is not None and planned.reserved:
                words = f"gang {entry.shape.gang}: all start together, this one " if entry.shape.gang else ""
                instruction = wait(entry, WaitReason.WAITING_FOR_TURN, f"{words}reserved on {planned.node}")
            elif planned is not None:
                instruction = wait(entry, WaitReason.WAITING_FOR_TURN, self._rule.behind)
            elif self._planned and lasting and lasting[index]:
                instruction = wait(entry, WaitReason.WAITING_FOR_TURN, "starts as soon as that delays no reserved pod")
            else:
                instruction = self._refusal(entry, snapshot)
            if instruction is not None:
                yield instruction
        for _, _, entry in self._line[self._depth :] if waiting else ():
            if entry.last_reason is None and entry.queue_state is QueueState.PLANNED:
                entry.attempts = max(1, entry.attempts)
                first = f"{self._depth} {noun_of(self._depth, 'pod')}"
                message = f"waits until it is among the first {first}, which are planned"
                if (instruction := wait(entry, WaitReason.WAITING_FOR_TURN, message)) is not None:
                    yield instruction

    def _hand_back(self, request: PlanRequest, now: float) -> None:
        """Give pods that no node could hold, even after all pods end, back to the queue, where others wait for their
        share.

        Planned pods count as held by their namespace; a pod that never starts would use up its limit for ever. So would
        a gang with a node for each pod but without room for all of them together.
        """
        self._handed_back = set()
        problem, gang = request.problem, self._gang
        nowhere = np.flatnonzero(request.machine < 0).tolist()
        waiting = [index for index in nowhere if self._queue.keeps_waiting(self._waiting[index])]
        alone = [index for index in waiting if gang is None or gang[index] < 0]
        held = problem.held_at_last(self._availability)[problem.group].tolist() if alone else []
        for entry in [self._waiting[index] for index in alone if not held[index]]:
            self._queue.failed(entry, now)
            self._handed_back.add(entry)
        if gang is None:
            return
        for number in sorted({int(gang[index]) for index in waiting if gang[index] >= 0}):
            indexes = np.flatnonzero(gang == number)
            if not fits_at_last(self._method, request, self._availability, indexes):
                members = [self._waiting[index] for index in indexes.tolist()]
                self._queue.failed(members[0], now)
                for entry in members[1:]:
                    self._queue.leave_to_gang(entry, now)
                self._handed_back.update(members)

    def _held_at_last(self) -> list[bool]:
        """Return of each pod whether it could start after all running pods end; empty if there is no plan to extend."""
        if self._extension is None:
            return []
        problem = self._extension[0]
        held: list[bool] = problem.held_at_last(self._availability)[problem.group].tolist()
        return held

    def _made(
        self, snapshot: Snapshot, moment: int, now: float, most: int, qos: QosForecaster
    ) -> tuple[PlanRequest, Profiles, PlanRequest | None]:
        """Return a plan, the free amounts behind it, and the part that the method must settle. The latency guard admits
        each of its starts by itself.
        """
        waiting, guard = self._waiting, self._guard
        if guard is not None:
            guard.keep(entry.shape for entry in waiting)
        opened = self._opened(self._availability.refresh(moment), snapshot)
        method = self._method
        problem = PlanProblem(
            waiting, snapshot, self._placer, self._availability, method.seconds, guard, method.seconds_beside
        )
        problem.keep_off(self._capacity)
        self._method.restrict(problem, snapshot)
        free = np.ascontiguousarray(self._availability.free[:, :, problem.used])
        base = Profiles(self._availability.times, free, self._availability.sizes)
        second = self._second(waiting, now)
        settled: PlanRequest | None
        for _ in range(ROUNDS):
            if guard is not None:
                problem.refuse(guard, snapshot)
            machine, start = self._promised(waiting, snapshot)
            request = PlanRequest(
                problem, waiting, snapshot, moment, self._rule.reservations, most, problem.group, second, machine,
                start, opened.copy(), self._gang,
            )  # fmt: skip
            if request.gang is None:
                settled = request
                profiles = self._method.solve(base, request)
            else:
                profiles, settled = solve_with_gangs(self._method, base, request)
            starting = np.flatnonzero(start == moment).tolist()
            starts = [(waiting[index].shape, int(machine[index])) for index in starting]
            if guard is None or not guard.refuses(starts, snapshot, qos):
                break
        return request, profiles, settled

    def _together(self, indexes: list[int]) -> Iterator[list[int]]:
        """Yield the pods that start, those of a gang together."""
        gang, number = self._gang, -1
        if gang is None:
            yield from ([index] for index in indexes)
            return
        for index in indexes:
            if gang[index] < 0:
                yield [index]
            elif gang[index] != number:
                number = int(gang[index])
                yield np.flatnonzero(gang == number).tolist()

    def _begin(
        self, indexes: list[int], request: PlanRequest, snapshot: Snapshot, qos: QosForecaster, now: float
    ) -> list[DecidedBind]:
        """Start some pods on their planned nodes, all of them or none."""
        placements: list[Placement] = []
        for index in indexes:
            entry = self._waiting[index]
            placement = self._checked(entry, int(request.machine[index]), snapshot, qos)
            if placement is None:
                for other in indexes[: len(placements)]:
                    self._state.retract(self._waiting[other].pod.key)
                return []
            self._state.assume(entry.pod.key, snapshot.name(placement.row), now)
            placements.append(placement)
        started = []
        for index, placement in zip(indexes, placements, strict=True):
            entry, row = self._waiting[index], placement.row
            self._kept.pop(entry, None)
            self._method.started(entry, request.moment)
            started.append(self._assumptions.settle(entry, placement, snapshot, now))
            self._gangs.touch(entry.pod.key)
            record = self._state.record(entry.pod.key)
            if record is not None and record.row == row:
                beside = request.beside is not None and bool(request.beside[index])
                lasts = request.problem.lasts(index, row, beside=beside)
                self._availability.began(record, request.moment, lasts)
                self._method.begun(entry, row)
        return started

    def _checked(self, entry: QueuedPod, row: int, snapshot: Snapshot, qos: QosForecaster) -> Placement | None:
        """Return the placement of a pod with a planned start that has come, or None if it is not possible."""
        fit = self._shape_now(entry).fit  # a pod that started before it may keep it off
        if self._placer.feasibility.codes(fit, snapshot, slice(row, row + 1))[0] != FITS:
            return None
        if not self._capacity.admits(entry, row):
            return None
        why = "its planned start has come, and it delays no reserved pod"
        if self._guard is None:
            return Placement(row, None, (), why=why)
        admitted, probability, basis = self._guard.admits(entry.shape, row, snapshot, qos)
        if admitted:
            return Placement(row, probability, (), guarded=True, why=why, basis=basis)
        # The service tolerates one pod of this plan, but not both: the next plan knows that the node is refused.
        self._due = True
        return None

    def _refusal(self, entry: QueuedPod, snapshot: Snapshot) -> Wait | None:
        risks = [] if self._guard is None else self._guard.verdicts(entry.shape, snapshot)
        refused = (*risks, *self._placer.refusals(snapshot, entry.shape.fit))
        nearest = None if self._guard is None else self._guard.nearest(entry.shape, snapshot)
        probability = None if nearest is None else nearest[0]
        forecast = NO_FORECAST if nearest is None else risk_of(*nearest, self._qos_model)
        return wait(
            entry,
            overall(refused),
            sentence(refused, snapshot.node_count),
            placement=Placement(-1, probability, refused, guarded=self._guard is not None),
            forecast=forecast,
        )

    def _still_waiting(self) -> set[str]:
        return {entry.pod.key for entry in self._waiting if entry.queue_state is QueueState.PLANNED}

    def _second(self, waiting: list[QueuedPod], now: float) -> Integers:
        backfill = self._rule.backfill
        if backfill is None:
            return np.arange(len(waiting))
        keys = [full_key(backfill, entry, now) for entry in waiting]
        return np.array(sorted(range(len(waiting)), key=keys.__getitem__), np.int64)

    def _opened(self, gained: Booleans, snapshot: Snapshot) -> Booleans:
        """Return (N,) the rows that let a kept reservation move forward; drops the promises of pods that have gone."""
        opened = gained | self._all_open
        self._all_open = False
        for entry in [entry for entry in self._kept if entry.queue_state is not QueueState.PLANNED]:
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
                if self._gang is not None and self._gang[index] >= 0:
                    continue  # a gang is planned again in its turn
                node, moment = self._kept.get(entry, ("", -1))
                machine[index] = snapshot.columns.row_of.get(node, -1)
                start[index] = moment
        return machine, start

    def _keep(self, problem: PlanProblem, snapshot: Snapshot, machine: Integers, start: Integers, moment: int) -> None:
        """Keep the plan of the pods that stay, for the next plan and for readers."""
        starts = []
        reserved = self._rule.kept or self._rule.reservations is not None
        for index, (row, begin) in enumerate(zip(machine.tolist(), start.tolist(), strict=True)):
            entry = self._waiting[index]
            if row < 0 or entry.queue_state is not QueueState.PLANNED:
                continue
            starts.append(begin)
            self._planned[entry.pod.key] = self._plan_of(problem, snapshot, index, row, begin, reserved=reserved)
            if self._rule.kept:
                self._kept[entry] = (snapshot.name(row), begin)
        later = [begin for begin in starts if begin > moment]
        self._next_start = min(later) / MICROSECONDS if later else math.inf

    def _plan_of(
        self, problem: PlanProblem, snapshot: Snapshot, index: int, row: int, begin: int, *, reserved: bool
    ) -> PlannedStart:
        end = begin + problem.lasts(index, row)
        ends = self._availability.ends_until(row, begin)
        latest = self._method.latest(self._waiting[index]) if reserved else None
        return PlannedStart(
            snapshot.name(row),
            begin / MICROSECONDS,
            end / MICROSECONDS,
            ends,
            reserved,
            None if latest is None else latest / MICROSECONDS,
        )
