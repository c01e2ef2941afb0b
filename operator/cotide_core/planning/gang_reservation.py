"""Room that is kept for the gang that has waited longest, under policies without a plan.

Owned by `cycle.Scheduler`; read by the policy's capacity (`reclaiming.requested_capacity`), which keeps other pods off.
A gang that lacks only room loses it to each pod that fits into a part of it, for ever while small pods keep coming. A
gang that has waited `SchedulerConfig.gang_reserve_seconds` therefore gets a reservation as EASY gives it to the first
pod of its queue. It is the earliest start of all its pods, computed by the code of plans (`earliest_start`,
`kernels.machine_gangs`) from the expected ends of running pods. Until then, its nodes accept only pods that are
expected to end before that start, or that fit next to the gang::

    waits --gang_reserve_seconds--> reserved --it starts, or may not start any more--> (free for the next)
                                     |  ^
           (a node goes, or can't     v  |  hold it any more: a new start)

Start and nodes stay as they were planned, even after the start has passed. Then only pods that fit next to the gang
pass, so that the nodes empty as their pods end. One gang at a time has a reservation: higher class and priority first,
then the longest wait. Each gang therefore starts in bounded time if pods end. A latency guard or a slack forecast may
refuse a gang although all its nodes are free. The gang then rests as long as it had to wait.

Online pods and pods of a higher class or priority are not kept off. A gang gets no plan if it has an online pod, rules
about other pods or more than `MAX_GANG_KINDS` kinds of pods. The same holds if its namespace may not hold all of it. A
gang that requests more than `OTHERS_SHARE` of the nodes' resources keeps off only pods of its own namespace. A request
for a whole cluster therefore does not stop the other namespaces.

Invariant: while no gang has waited that long, nothing is computed and no pod is kept off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.config import PlansConfig, SchedulerConfig
from cotide_core.forecasting.run_time_cache import RunTimes
from cotide_core.forecasting.run_time_quantile import PlanQuantile
from cotide_core.forecasting.slowdown_cache import SlowdownCache
from cotide_core.kernels.array_types import Booleans, Integers
from cotide_core.kernels.machine_gangs import plan_among_ends
from cotide_core.kernels.machine_plan import Plan, stretched
from cotide_core.kernels.machines import Profiles
from cotide_core.placement.plan_rule import PlanRule
from cotide_core.planning.availability import (
    LONGEST_SECONDS,
    MICROSECONDS,
    PHYSICAL,
    Availability,
    microseconds,
    planned_length,
)
from cotide_core.planning.earliest_start import PlanContext, PlanMethod, PlanRequest
from cotide_core.planning.gang_start import has_few_kinds
from cotide_core.planning.planner import PlannerContext
from cotide_core.planning.problem import PlanProblem
from cotide_core.queueing.gangs import GangNeed, GangStanding
from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.state.namespace_use import namespace_of
from cotide_core.state.shapes import Shape
from cotide_core.state.snapshot import Snapshot

UNUSED_SECONDS: Final = 30.0
"""The time that all nodes of a reservation may be free without a start of the gang: twice the longest back-off, and
some time for decisions. Chosen.
"""

APART_SECONDS: Final = 1.0
"""Minimum time between two computations of a start, for all gangs. Chosen: one takes some 50 ms among 5,000 nodes, and
a gang with frequent changes could otherwise use all of the time. The free amounts are kept from one to the next.
"""

OTHERS_SHARE: Final = 0.5
"""Share of each resource of all nodes that a gang may keep from pods of other namespaces. Chosen: at least half of a
cluster stays open to the others, however much one namespace requests.
"""


@dataclass(slots=True)
class _Reservation:
    key: str
    namespace: str
    large: bool
    """Whether it needs more than may be kept from other namespaces."""
    outranks: tuple[float, ...]
    """Class and priority of its first pod, as in the order: pods that sort before it are not kept off."""
    members: tuple[Shape, ...]
    start: int
    rows: Integers
    """(K,) nodes of that start."""
    holds: Integers
    """(K, R + 2) the amounts that its pods take."""
    specs: int
    """State of the nodes' own fields at the time of planning."""
    free_since: float | None = None
    """Since when all its room is free."""


class GangReservation:
    """Keeps room for one gang at a time.

    Parameters
    ----------
    config : its ``gang_reserve_seconds``; None keeps nothing.
    """

    def __init__(self, context: PlannerContext, run_times: RunTimes, config: SchedulerConfig) -> None:
        self._state = context.state
        self._placer = context.placer
        self._queue = context.queue
        self._capacity = context.capacity
        self._gangs = context.gangs
        self._run_times = run_times
        self._seconds = config.gang_reserve_seconds if context.placer.policy.plan is None else None
        self._seed = config.seed
        self._quantile = PlanQuantile(PlansConfig().quantile)
        self._made: _Reservation | None = None
        self._availability: Availability | None = None
        self._planned_seconds = -math.inf
        """Time of the latest computation of a start."""
        self._resting: dict[str, float] = {}
        """End of the pause without a reservation, by key of the gang."""
        self._kept_back: dict[Shape, None] = {}
        """Shapes with a pod that was kept off."""
        self._beside: Integers | None = None
        """The room next to the reservation, since the last `renew`; None before the first request for it."""
        self._beside_seen = -1
        self._slowed: dict[str, tuple[list[float], Integers]] = {}
        self._now = 0.0

    def change_forecasts(self, run_times: RunTimes) -> None:
        """Expect ends by another forecaster from now on, and plan again."""
        self._run_times = run_times
        self._availability = None
        self._made = None
        self._kept_back.clear()  # the change of forecasts wakes the waiting pods

    def renew(self, snapshot: Snapshot, now: float) -> list[Shape]:
        """Bring the reservation up to ``now``; returns the shapes that must be tried again for it."""
        self._now = now
        self._beside = None
        if self._seconds is None or not (self._gangs.waits or self._made):
            self._availability = None
            return []
        before = self._made
        if before is not None and not self._stands(before, now):
            self._made = None
        if self._made is None and now >= self._planned_seconds + APART_SECONDS:
            standing = self._next(now)
            if standing is not None:
                self._planned_seconds = now
                self._made = self._planned(standing, snapshot, now)
        if self._made is not None and self._is_free(self._made, now):
            return self._try_again(self._made, now)
        if before is None or self._made is before:
            return []
        kept_back, self._kept_back = list(self._kept_back), {}
        return kept_back

    def keeps_back(self, shape: Shape) -> bool:
        """Whether a pod of a shape was kept off: another pod of the shape, which ends sooner, may pass."""
        return shape in self._kept_back

    def kept_off(self, entry: QueuedPod) -> Booleans | None:
        """Return (N,) the nodes that are kept from a waiting pod; None for none."""
        made, availability = self._made, self._availability
        shape = entry.shape
        if made is None or availability is None or shape.online or shape.gang == made.key:
            return None
        if self._queue.key_of(entry, self._now)[:2] < made.outranks:
            return None
        if made.large and namespace_of(entry.pod) != made.namespace:
            return None
        beside, factors = self._room_beside(made, availability, availability.stretches.type_of(entry.pod))
        take = availability.vector(entry.pod.requests)
        need = take > 0
        if availability.capacity.by_requests and shape.fit.physical is None:
            need[-PHYSICAL:] = False
        passes = (beside >= take)[:, need].all(axis=1)
        length = planned_length(self._quantile.seconds(entry.seconds_p50, entry.seconds_p90) or LONGEST_SECONDS)
        distinct, which = factors
        lasts = np.array([stretched(length, factor) for factor in distinct])[which]
        passes |= microseconds(self._now) + lasts <= made.start
        if passes.all():
            return None
        self._kept_back[shape] = None
        kept = np.zeros(self._state.columns.size, np.bool_)
        kept[made.rows[~passes]] = True
        return kept

    def starts(self) -> dict[str, float]:
        """Return when the pods with reserved room are expected to start, by key, in seconds of the driver's clock."""
        if self._made is None:
            return {}
        start = max(self._now, self._made.start / MICROSECONDS)
        return {member.pod.key: start for member in self._members(self._gangs.standing(self._made.key))}

    def next_change(self, now: float) -> float:
        """Return when `renew` has work without a new event, not before ``now``; infinite for never."""
        if self._seconds is None or not self._gangs.waits:
            return math.inf
        moments = [
            max(wait.since_seconds + self._seconds, self._resting.get(key, -math.inf))
            for key, wait in self._gangs.waits.items()
            if wait.need is GangNeed.ROOM
        ]
        future = [moment for moment in moments if moment > self._now]
        if self._made is None and len(future) < len(moments):
            future.append(self._planned_seconds + APART_SECONDS)
        if self._made is not None and self._made.free_since is not None:
            future.append(self._made.free_since + UNUSED_SECONDS)
        return max(now, min((moment for moment in future if moment > self._now), default=math.inf))

    def _late(self, key: str, now: float) -> bool:
        """Whether a gang has waited for room long enough to get a reservation."""
        found = self._gangs.waits.get(key)
        if found is None or found.need is not GangNeed.ROOM or self._resting.get(key, -math.inf) > now:
            return False
        return found.since_seconds + (self._seconds or 0.0) <= now

    def _next(self, now: float) -> GangStanding | None:
        """Return the gang that gets a reservation; gangs that can have none rest."""
        self._resting = {key: until for key, until in self._resting.items() if until > now and key in self._gangs.waits}
        found = []
        for key, wait in self._gangs.waits.items():
            if not self._late(key, now):
                continue
            standing = self._gangs.standing(key)
            if not self._can_be_planned(standing):
                self._resting[key] = now + (self._seconds or 0.0)
            elif self._may_have(standing):
                found.append((self._rank(standing, now), wait.since_seconds, key, standing))
        return min(found, key=lambda item: item[:3])[3] if found else None

    def _may_have(self, standing: GangStanding) -> bool:
        return standing.need is GangNeed.ROOM and not standing.leaves

    def _can_be_planned(self, standing: GangStanding) -> bool:
        members = self._members(standing)
        special = any(member.shape.online or member.shape.fit.peers is not None for member in members)
        return not special and has_few_kinds(members) and self._queue.over_held_together(members) is None

    def _rank(self, standing: GangStanding, now: float) -> tuple[float, ...]:
        return min(self._queue.key_of(member, now)[:2] for member in self._members(standing))

    def _members(self, standing: GangStanding) -> Sequence[QueuedPod]:
        """Return as many of its waiting pods as it lacks, with equal pods adjacent."""
        waiting = sorted(standing.waiting, key=lambda member: self._queue.key_of(member, self._now))[: standing.lacks]
        return sorted(
            waiting,
            key=lambda member: (-member.shape.fit.millicores, member.shape.order, member.seconds_p50, member.sequence),
        )

    def _stands(self, made: _Reservation, now: float) -> bool:
        """Whether a reservation still matches its gang and its nodes can still hold it."""
        availability = self._availability
        if availability is None or not self._late(made.key, now):
            return False
        standing = self._gangs.standing(made.key)
        members = self._members(standing)
        if not self._may_have(standing) or made.members != tuple(member.shape for member in members):
            return False
        if self._queue.over_held_together(members) is not None:
            return False
        columns = self._state.columns
        self._refresh(availability)
        if availability.free.shape[2] != made.holds.shape[1] or made.rows.max() >= columns.size:
            return False
        if (columns.spec_versions[made.rows] > made.specs).any():
            return False
        at_last = availability.free[made.rows, availability.sizes[made.rows] - 1]
        return bool((at_last >= made.holds)[made.holds > 0].all())

    def _planned(self, standing: GangStanding, snapshot: Snapshot, now: float) -> _Reservation | None:
        """Plan the earliest start of a gang; None, and a rest, if it has none even after all pods end."""
        availability = self._availability
        if availability is None:
            stretches = SlowdownCache(self._run_times.forecaster)
            availability = Availability(self._state, self._run_times, stretches, self._quantile, self._capacity)
            self._availability = availability
        moment = microseconds(now)
        availability.refresh(moment)
        members = self._members(standing)
        method = PlanMethod(PlanContext(PlanRule(), PlansConfig(), self._seed, self._state, availability))
        problem = PlanProblem(members, snapshot, self._placer, availability, method.seconds, None)
        problem.keep_off(self._capacity)
        free = np.ascontiguousarray(availability.free[:, :, problem.used])
        count = len(members)
        request = PlanRequest(
            problem, members, snapshot, moment, None, None, problem.group, np.arange(count),
            np.full(count, -1, np.int64), np.full(count, -1, np.int64), np.zeros(len(availability.sizes), np.bool_),
            np.zeros(count, np.int64),
        )  # fmt: skip

        def step(profiles: Profiles, plan: Plan) -> int:
            demands = problem.demands(request.group, len(profiles.sizes), moment)
            return plan_among_ends(profiles, moment, demands, plan)

        method.run(Profiles(availability.times, free, availability.sizes), request, step)
        if (request.machine < 0).any():
            self._resting[standing.gang.key] = now + (self._seconds or 0.0)
            return None
        rows, index = np.unique(request.machine, return_inverse=True)
        holds = np.zeros((len(rows), availability.free.shape[2]), np.int64)
        for member, row in zip(members, index.tolist(), strict=True):
            taken = availability.vector(member.pod.requests).copy()
            if availability.capacity.by_requests and member.shape.fit.physical is None:
                taken[-PHYSICAL:] = 0
            holds[row] += taken
        shapes = tuple(member.shape for member in members)
        specs = self._state.columns.spec_clock
        namespace = namespace_of(members[0].pod)
        rank = self._rank(standing, now)
        return _Reservation(
            standing.gang.key,
            namespace,
            self._is_large(availability, members),
            rank,
            shapes,
            int(request.start[0]),
            rows,
            holds,
            specs,
        )

    def _is_large(self, availability: Availability, members: Sequence[QueuedPod]) -> bool:
        """Whether pods request more of any resource than may be kept from other namespaces."""
        physical = self._state.host_load.physical().sum(axis=1)
        columns = self._state.columns
        named = availability.free.shape[2] - PHYSICAL
        had = np.concatenate([columns.allocatable[:named, : columns.size].sum(axis=1, dtype=np.float64), physical])
        asked = np.sum([availability.vector(member.pod.requests) for member in members], axis=0, dtype=np.float64)
        return bool((asked > OTHERS_SHARE * had)[asked > 0].any())

    def _refresh(self, availability: Availability) -> None:
        availability.refresh(microseconds(self._now))

    def _at_start(self, made: _Reservation, availability: Availability) -> Integers:
        """Return (K, R + 2) the expected free amounts of its nodes at its start, or now if that has passed."""
        moment = max(made.start, microseconds(self._now))
        times = availability.times[made.rows]
        known = np.arange(times.shape[1]) < availability.sizes[made.rows, np.newaxis]
        segment = np.maximum(1, (known & (times <= moment)).sum(axis=1)) - 1
        return np.asarray(availability.free[made.rows, segment])

    def _room_beside(
        self, made: _Reservation, availability: Availability, kind: str
    ) -> tuple[Integers, tuple[list[float], Integers]]:
        """Return (K, R + 2) the room next to a reservation, and the slowdown of a type of pods on its nodes.

        The slowdown is given as factors, and (K,) the nodes that they concern. Computed once in a cycle, and again
        after a placement on those nodes.
        """
        columns = self._state.columns
        seen = int(columns.versions[made.rows].max())
        if self._beside is None or seen != self._beside_seen:
            self._refresh(availability)
            self._beside = self._at_start(made, availability) - made.holds
            self._beside_seen = seen
            self._slowed.clear()
        slowed = self._slowed.get(kind)
        if slowed is None:
            factors = availability.stretches.of_rows(kind, columns.service_rates[made.rows])
            distinct, which = np.unique(factors, return_inverse=True)
            slowed = self._slowed[kind] = distinct.tolist(), which
        return self._beside, slowed

    def _is_free(self, made: _Reservation, now: float) -> bool:
        """Whether all reserved room is free now."""
        availability = self._availability
        if availability is None:
            return False
        self._refresh(availability)
        present = availability.free[made.rows, 0]
        free = bool((present >= made.holds)[made.holds > 0].all())
        if not free:
            made.free_since = None
        elif made.free_since is None:
            made.free_since = now
        return free

    def _try_again(self, made: _Reservation, now: float) -> list[Shape]:
        """Let the gang try again; after a while release the room."""
        since = now if made.free_since is None else made.free_since
        if now < since + UNUSED_SECONDS:
            return list(dict.fromkeys(made.members)) if since == now else []
        self._resting[made.key] = now + (self._seconds or 0.0)
        self._made = None
        kept_back, self._kept_back = list(self._kept_back), {}
        return kept_back
