"""Room that is kept for the gang that has waited longest, under policies that plan nothing.

Owned by `cycle.Scheduler`; read by the policy's capacity (`reclaiming.requested_capacity`), which keeps others off. A
gang that could start but for room is overtaken by whatever fits into a part of it, for ever where small pods keep
coming. So one that has waited `SchedulerConfig.gang_reserve_seconds` gets what EASY gives the first of its queue: the
earliest start of all its pods, by the machinery of plans (`earliest_start`, `kernels.machine_gangs`), from the expected
ends of what runs. Until it starts, nobody takes the nodes of that start but pods that are expected to end before it,
or that fit beside it::

    waits --gang_reserve_seconds--> reserved --it starts, or may not start any more--> (free for the next)
                                     |  ^
           (a node goes, or can't     v  |  hold it any more: a start anew)

Start and nodes stay as they were planned, also when the start has passed: then nobody passes but beside it, so that
the nodes empty as their pods end. One gang at a time, of higher class and priority first, then the one that has waited
longest: each starts in bounded time where pods end. A gang whose nodes are all free and which yet does not start, since
a latency guard or a slack forecast says no, rests as long as it had to wait. Not kept off: online pods, and pods of a
higher class or priority. Without a plan are gangs with an online pod, and those with rules about other pods. Pods of
other namespaces are not kept off for more than `OTHERS_SHARE` of what the nodes have: nobody who asks for a whole
cluster stops all others with it.

Invariant: nothing is worked out, and nobody is kept off, while no gang has waited so long.
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
from cotide_core.kernels.machine_plan import stretched
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
from cotide_core.planning.planner import PlannerContext
from cotide_core.planning.problem import PlanProblem
from cotide_core.queueing.gangs import GangNeed, GangStanding
from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.state.namespace_use import namespace_of
from cotide_core.state.shapes import Shape
from cotide_core.state.snapshot import Snapshot

UNUSED_SECONDS: Final = 30.0
"""For which all nodes of a reservation may be free without its gang starting: twice the longest back-off, and some
time to be decided in. Chosen."""

OTHERS_SHARE: Final = 0.5
"""Of each resource of all nodes that a gang may keep from pods of other namespaces. Chosen: at least half of a cluster
stays open to the others, whatever one namespace asks for."""


@dataclass(slots=True)
class _Reservation:
    key: str
    namespace: str
    large: bool
    """Whether it is more than may be kept from other namespaces."""
    outranks: tuple[float, ...]
    """Class and priority of its first pod, as in the order: what sorts before it is not kept off."""
    members: tuple[Shape, ...]
    start: int
    rows: Integers
    """(K,) nodes of that start."""
    holds: Integers
    """(K, R + 2) what its pods take of them."""
    specs: int
    """State of the nodes' own fields when it was made."""
    free_since: float | None = None
    """Since when all of it is free."""


class GangReservation:
    """Keeps room for one gang at a time.

    Parameters
    ----------
    config : its ``gang_reserve_seconds``; None keeps nothing for anybody.
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
        self._resting: dict[str, float] = {}
        """Until when a gang gets no reservation, by key."""
        self._kept_back: dict[Shape, None] = {}
        """Shapes of which a pod was kept off."""
        self._now = 0.0

    def change_forecasts(self, run_times: RunTimes) -> None:
        """Expect ends by another forecaster from now on: what was planned by the one before is planned anew."""
        self._run_times = run_times
        self._availability = None
        self._made = None
        self._kept_back.clear()  # whoever waits is woken for the forecasts

    def renew(self, snapshot: Snapshot, now: float) -> list[Shape]:
        """Bring the reservation up to ``now``; returns the shapes that are to be tried again for it."""
        self._now = now
        if self._seconds is None or not (self._gangs.waits or self._made):
            return []
        before = self._made
        standing = self._first(now)
        if standing is None:
            self._made = self._availability = None
        elif before is None or not self._stands(before, standing):
            self._made = self._planned(standing, snapshot, now)
        if self._made is not None and self._is_free(self._made, now):
            return self._try_again(self._made, now)
        if before is None or self._made is before:
            return []
        kept_back, self._kept_back = list(self._kept_back), {}
        return kept_back

    def keeps_back(self, shape: Shape) -> bool:
        """Whether a pod of a shape was kept off: another one of it, which ends sooner, may pass."""
        return shape in self._kept_back

    def kept_off(self, entry: QueuedPod) -> Booleans | None:
        """Return (N,) the nodes that are kept from a waiting pod; None where none is."""
        made, availability = self._made, self._availability
        shape = entry.shape
        if made is None or availability is None or shape.online or shape.gang == made.key:
            return None
        if self._queue.key_of(entry, self._now)[:2] < made.outranks:
            return None
        if made.large and namespace_of(entry.pod) != made.namespace:
            return None
        self._refresh(availability)
        take = availability.vector(entry.pod.requests)
        need = take > 0
        if availability.capacity.by_requests and shape.fit.physical is None:
            need[-PHYSICAL:] = False
        beside = self._at_start(made, availability) - made.holds
        passes = (beside >= take)[:, need].all(axis=1)
        length = planned_length(self._quantile.seconds(entry.seconds_p50, entry.seconds_p90) or LONGEST_SECONDS)
        rates = self._state.columns.service_rates[made.rows]
        factors = availability.stretches.of_rows(availability.stretches.type_of(entry.pod), rates)
        lasts = np.array([stretched(length, float(factor)) for factor in factors])
        passes |= microseconds(self._now) + lasts <= made.start
        if passes.all():
            return None
        self._kept_back[shape] = None
        kept = np.zeros(self._state.columns.size, np.bool_)
        kept[made.rows[~passes]] = True
        return kept

    def starts(self) -> dict[str, float]:
        """Return when the pods that room is kept for are expected to start, by key, in seconds of the driver's
        clock."""
        if self._made is None:
            return {}
        start = max(self._now, self._made.start / MICROSECONDS)
        return {one.pod.key: start for one in self._members(self._gangs.standing(self._made.key))}

    def next_change(self, now: float) -> float:
        """Return when `renew` has something to do by itself, not before ``now``; infinite for never."""
        if self._seconds is None or not self._gangs.waits:
            return math.inf
        moments = [
            max(one.since_seconds + self._seconds, self._resting.get(key, -math.inf))
            for key, one in self._gangs.waits.items()
            if one.need is GangNeed.ROOM
        ]
        future = [moment for moment in moments if moment > self._now]
        if self._made is not None and self._made.free_since is not None:
            future.append(self._made.free_since + UNUSED_SECONDS)
        return max(now, min(future, default=math.inf))

    def _first(self, now: float) -> GangStanding | None:
        """Return the gang that is to have a reservation: the one that has it, as long as it may; else the next."""
        self._resting = {key: until for key, until in self._resting.items() if until > now and key in self._gangs.waits}
        late = [
            (one.since_seconds, key)
            for key, one in self._gangs.waits.items()
            if one.need is GangNeed.ROOM
            and one.since_seconds + (self._seconds or 0.0) <= now
            and key not in self._resting
        ]
        if self._made is not None and any(key == self._made.key for _, key in late):
            standing = self._gangs.standing(self._made.key)
            if self._may_have(standing):
                return standing
        found = []
        for since, key in late:
            standing = self._gangs.standing(key)
            if self._may_have(standing):
                found.append((self._rank(standing, now), since, key, standing))
        return min(found, key=lambda one: one[:3])[3] if found else None

    def _may_have(self, standing: GangStanding) -> bool:
        members = self._members(standing)
        return (
            standing.need is GangNeed.ROOM
            and not standing.leaves
            and not any(one.shape.online or one.shape.fit.peers is not None for one in members)
        )

    def _rank(self, standing: GangStanding, now: float) -> tuple[float, ...]:
        return min(self._queue.key_of(one, now)[:2] for one in self._members(standing))

    def _members(self, standing: GangStanding) -> Sequence[QueuedPod]:
        """Return as many of its waiting pods as it lacks, like ones beside one another."""
        waiting = sorted(standing.waiting, key=lambda one: self._queue.key_of(one, self._now))[: standing.lacks]
        return sorted(
            waiting, key=lambda one: (-one.shape.fit.millicores, one.shape.order, one.seconds_p50, one.sequence)
        )

    def _stands(self, made: _Reservation, standing: GangStanding) -> bool:
        """Whether a reservation is that of this gang as it is now, and its nodes can hold it still."""
        availability = self._availability
        if availability is None or made.key != standing.gang.key:
            return False
        if made.members != tuple(one.shape for one in self._members(standing)):
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
        """Plan the earliest start of a gang; None, and a rest, where it has none whatever ends."""
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
        method.earliest(Profiles(availability.times, free, availability.sizes), request)
        if (request.machine < 0).any():
            self._resting[standing.gang.key] = now + (self._seconds or 0.0)
            return None
        rows, index = np.unique(request.machine, return_inverse=True)
        holds = np.zeros((len(rows), availability.free.shape[2]), np.int64)
        for one, row in zip(members, index.tolist(), strict=True):
            taken = availability.vector(one.pod.requests).copy()
            if availability.capacity.by_requests and one.shape.fit.physical is None:
                taken[-PHYSICAL:] = 0
            holds[row] += taken
        shapes = tuple(one.shape for one in members)
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
        """Whether pods ask for more of any resource than may be kept from other namespaces."""
        physical = self._state.host_load.physical().sum(axis=1)
        columns = self._state.columns
        named = availability.free.shape[2] - PHYSICAL
        had = np.concatenate([columns.allocatable[:named, : columns.size].sum(axis=1, dtype=np.float64), physical])
        asked = np.sum([availability.vector(one.pod.requests) for one in members], axis=0, dtype=np.float64)
        return bool((asked > OTHERS_SHARE * had)[asked > 0].any())

    def _refresh(self, availability: Availability) -> None:
        availability.refresh(microseconds(self._now))

    def _at_start(self, made: _Reservation, availability: Availability) -> Integers:
        """Return (K, R + 2) what its nodes are expected to have free at its start, or now where that has passed."""
        moment = max(made.start, microseconds(self._now))
        times = availability.times[made.rows]
        known = np.arange(times.shape[1]) < availability.sizes[made.rows, np.newaxis]
        segment = np.maximum(1, (known & (times <= moment)).sum(axis=1)) - 1
        return np.asarray(availability.free[made.rows, segment])

    def _is_free(self, made: _Reservation, now: float) -> bool:
        """Whether all that is kept is free now."""
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
        """Let the gang try once more; after a while give the room back."""
        since = now if made.free_since is None else made.free_since
        if now < since + UNUSED_SECONDS:
            return list(dict.fromkeys(made.members)) if since == now else []
        self._resting[made.key] = now + (self._seconds or 0.0)
        self._made = self._availability = None
        kept_back, self._kept_back = list(self._kept_back), {}
        return kept_back
