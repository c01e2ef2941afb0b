"""Plans with gangs, all pods of a gang starting together or not at all: `machine_plan` with gangs.

Called by `planning` where a gang waits. The pods of a gang are one after another in the line and get one start. It is
the earliest moment, now or when something becomes free, at which all of them fit at once. Machines are taken in the
order of `machine_plan.first_machine`. For like pods that is exact, since the pods that a machine takes are counted.
Unlike pods are filled in greedily, so a moment may be missed. After `TRIALS` moments at which they did not fit, the
gang has no start in this plan. A gang is never kept: it is planned again in its turn, next to the promises of others.
Invariant: all pods of a gang have the same start, or none has one. Without a gang the plan is that of
`machine_plan.plan_machines`.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Booleans, Integers
from cotide_core.kernels.compiled import compiled, inlined, uncounted
from cotide_core.kernels.machine_plan import (
    NO_ROOM,
    NOWHERE,
    RESERVED,
    STARTS,
    Demands,
    Plan,
    first_machine,
    keep_promised,
    lasts_on,
    plan_next,
    present_on,
    smallest,
    start_beside,
)
from cotide_core.kernels.machines import NEVER, Profiles, has_room, hold, segment_on

TRIALS: Final = 256
"""Failed trials of a gang of unlike pods before it has no start in a plan (chosen: a few ms each)."""


@cache
def compile_gangs() -> None:
    """Have the kernel compiled, once in a process."""
    profiles, demands, plan = smallest()
    zero = np.zeros(1, np.int64)
    plan_gangs(profiles, 0, demands, zero - 1, zero, 1, 1, plan)
    plan_among_ends(profiles, 0, demands, plan)


@compiled
def plan_gangs(
    profiles: Profiles,
    now: int,
    demands: Demands,
    gang: Integers,
    second: Integers,
    most_reserved: int,
    most_starts: int,
    plan: Plan,
) -> int:
    """Plan n pods on N machines; return how many start now, or `NO_ROOM`.

    Parameters
    ----------
    gang : (n,) number of the gang of a pod, -1 for none; the pods of one are adjacent, hold nothing, and have slot 0.
    profiles, second, most_reserved, most_starts : see `machine_plan.plan_machines`; a gang counts as one reservation,
        and the last gang may start more pods than ``most_starts``.
    """
    pods = gang.shape[0]
    left = np.zeros(plan.opened.shape[0], np.bool_)
    if not keep_promised(profiles, now, demands, left, plan):
        return NO_ROOM
    served, starts = _in_turn(profiles, now, demands, gang, most_reserved, most_starts, left, plan)
    if starts != NO_ROOM and starts < most_starts and most_reserved <= pods:
        present = present_on(profiles, now)
        only_now = np.full(1, now, np.int64)
        starts = _beside(profiles, now, demands, gang, second, most_starts, starts, served, present, only_now, plan)
    if starts != NO_ROOM:
        plan.opened[:] = left
    return starts


@compiled
def plan_among_ends(profiles: Profiles, now: int, demands: Demands, plan: Plan) -> int:
    """Plan one gang, all n pods, on machines without any plan; return its outcome, or `NO_ROOM`.

    Things only end on such a machine, so its free amounts never fall. Where a gang fits at one moment, it fits later
    too, and the first such moment is found by halving. For unlike pods, which are filled in greedily, an earlier one
    may be missed.
    """
    pods = plan.machine.shape[0]
    moments = _moments(profiles, now, _earliest_of_each(profiles, now, demands, 0, pods, plan))
    low = 0
    high = moments.shape[0]
    while low < high:
        middle = (low + high) // 2
        done = NOWHERE
        if _counts(profiles, moments[middle], demands, 0, pods):
            done = _fill(profiles, moments[middle], demands, 0, pods, plan)
        if done == NO_ROOM:
            return NO_ROOM
        if done == STARTS:
            _empty(profiles, moments[middle], demands, 0, pods, plan)
            high = middle
        else:
            low = middle + 1
    if low == moments.shape[0]:
        return NOWHERE
    done = _fill(profiles, moments[low], demands, 0, pods, plan)
    return RESERVED if done == STARTS and moments[low] > now else done


@inlined
def _in_turn(
    profiles: Profiles,
    now: int,
    demands: Demands,
    gang: Integers,
    most_reserved: int,
    most_starts: int,
    left: Booleans,
    plan: Plan,
) -> tuple[int, int]:
    """Plan one pod or gang after another; return how many pods were planned or skipped, and starts or `NO_ROOM`."""
    starts = 0
    reserved = 0
    pod = 0
    while pod < gang.shape[0] and reserved < most_reserved and starts < most_starts:
        stop = _end_of(gang, pod)
        if gang[pod] < 0:
            done = plan_next(profiles, now, demands, pod, left, plan)
        else:
            moments = _moments(profiles, now, _earliest_of_each(profiles, now, demands, pod, stop, plan))
            done = _place(profiles, now, demands, pod, stop, moments, plan)
        if done == NO_ROOM:
            return pod, NO_ROOM
        starts += (stop - pod) * (done == STARTS)
        reserved += done == RESERVED
        pod = stop
    return pod, starts


@inlined
def _beside(
    profiles: Profiles,
    now: int,
    demands: Demands,
    gang: Integers,
    second: Integers,
    most_starts: int,
    starts: int,
    served: int,
    present: Integers,
    only_now: Integers,
    plan: Plan,
) -> int:
    """Start the pods and gangs from ``served`` on that fit next to the reservations; return starts or `NO_ROOM`."""
    for pod in second:
        if starts >= most_starts:
            break
        if pod < served or (gang[pod] >= 0 and pod > 0 and gang[pod - 1] == gang[pod]):
            continue
        stop = _end_of(gang, pod)
        if gang[pod] < 0:
            done = start_beside(profiles, now, demands, pod, present, plan)
        else:
            done = _place(profiles, now, demands, pod, stop, only_now, plan)
            if done == STARTS:
                _take_present(present, demands, pod, stop, plan)
        if done == NO_ROOM:
            return NO_ROOM
        starts += (stop - pod) * (done == STARTS)
    return starts


@inlined
def _take_present(present: Integers, demands: Demands, first: int, stop: int, plan: Plan) -> None:
    """Subtract what a gang holds from the free amounts at this moment."""
    for pod in range(first, stop):
        for resource in range(demands.take.shape[1]):
            present[plan.machine[pod], resource] -= demands.take[demands.group[pod], resource]


@inlined
def _end_of(gang: Integers, pod: int) -> int:
    """Return the first pod behind a gang, or behind a pod without one."""
    stop = pod + 1
    while gang[pod] >= 0 and stop < gang.shape[0] and gang[stop] == gang[pod]:
        stop += 1
    return stop


@inlined
def _earliest_of_each(profiles: Profiles, now: int, demands: Demands, first: int, stop: int, plan: Plan) -> int:
    """Return a moment before which some pod of a gang cannot start even alone."""
    earliest = now
    for pod in range(first, stop):
        of = demands.group[pod]
        if pod > first and demands.group[pod - 1] == of:
            continue
        found, begin = first_machine(profiles, now, demands, of, NEVER, -1, plan.opened)
        earliest = NEVER if found < 0 else max(earliest, begin)
    return earliest


@compiled
def _moments(profiles: Profiles, now: int, earliest: int) -> Integers:
    """Return the sorted moments from one on at which something begins to be free; none if it is `NEVER`."""
    times, sizes = profiles.times, profiles.sizes
    count = 0
    found = np.empty(1 + sizes.sum(), np.int64)
    if earliest < NEVER:
        found[0] = max(now, earliest)
        count = 1
        for at in range(sizes.shape[0]):
            for index in range(sizes[at]):
                if times[at, index] > earliest:
                    found[count] = times[at, index]
                    count += 1
    listed = found[:count]
    listed.sort()
    return listed


@uncounted
def _place(profiles: Profiles, now: int, demands: Demands, first: int, stop: int, moments: Integers, plan: Plan) -> int:
    """Give a gang the first of some moments at which all of it fits; return its outcome, or `NO_ROOM`."""
    trials = 0
    for index in range(moments.shape[0]):
        moment = moments[index]
        if (index > 0 and moment == moments[index - 1]) or not _counts(profiles, moment, demands, first, stop):
            continue
        done = _fill(profiles, moment, demands, first, stop, plan)
        if done == NO_ROOM:
            return NO_ROOM
        if done == STARTS:
            return STARTS if moment == now else RESERVED
        trials += 1
        if trials >= TRIALS:
            return NOWHERE
    return NOWHERE


@inlined
def _counts(profiles: Profiles, moment: int, demands: Demands, first: int, stop: int) -> bool:
    """Whether all machines together have room at a moment for the pods of each group of a gang, were it alone."""
    pod = first
    while pod < stop:
        of = demands.group[pod]
        behind = pod
        while behind < stop and demands.group[behind] == of:
            behind += 1
        wanted = behind - pod
        at = 0
        while wanted > 0 and at < profiles.sizes.shape[0]:
            if demands.may[demands.fit[of], at]:
                wanted -= _takes(profiles, moment, demands, of, at, wanted)
            at += 1
        if wanted > 0:
            return False
        pod = behind
    return True


@uncounted
def _takes(profiles: Profiles, moment: int, demands: Demands, of: int, at: int, most: int) -> int:
    """Return how many pods of a group, up to a number, fit on a machine from a moment on."""
    times, free, size = profiles.times[at], profiles.free[at], profiles.sizes[at]
    need = demands.need[of]
    end = moment + lasts_on(demands, of, at)
    index = segment_on(times, size, moment)
    while index < size and times[index] < end and most > 0:
        for resource in range(need.shape[0]):
            if need[resource] > 0:
                most = max(0, min(most, free[index, resource] // need[resource]))
        index += 1
    return most


@compiled
def _fill(profiles: Profiles, moment: int, demands: Demands, first: int, stop: int, plan: Plan) -> int:
    """Put all pods of a gang on machines from a moment on, or none; return `STARTS`, `NOWHERE` or `NO_ROOM`.

    Like pods are put one after another on the machines in the order of `machine_plan.first_machine`. A machine without
    room for one has none for the next, so each machine is looked at once for all of them.
    """
    pod = first
    while pod < stop:
        of = demands.group[pod]
        behind = pod
        while behind < stop and demands.group[behind] == of:
            behind += 1
        fit = demands.fit[of]
        order = _order_of(demands.soft[fit])
        index = 0
        while index < order.shape[0] and pod < behind:
            at = order[index]
            index += 1
            if not demands.may[fit, at]:
                continue
            for _ in range(_takes(profiles, moment, demands, of, at, behind - pod)):
                if not has_room(profiles, at):
                    return NO_ROOM
                hold(profiles, at, moment, lasts_on(demands, of, at), demands.take[of], 1)
                plan.machine[pod] = at
                plan.start[pod] = moment
                pod += 1
        if pod < behind:
            _empty(profiles, moment, demands, first, pod, plan)
            return NOWHERE
    return STARTS


@compiled
def _order_of(soft: Integers) -> Integers:
    """Return machines by the objections to them, equal ones in their given order."""
    for at in range(1, soft.shape[0]):
        if soft[at] != soft[0]:
            return np.argsort(soft, kind="mergesort")
    return np.arange(soft.shape[0])


@uncounted
def _empty(profiles: Profiles, moment: int, demands: Demands, first: int, stop: int, plan: Plan) -> None:
    """Take pods of a gang off the machines that a trial gave them."""
    for back in range(first, stop):
        of = demands.group[back]
        hold(profiles, plan.machine[back], moment, lasts_on(demands, of, plan.machine[back]), demands.take[of], -1)
        plan.machine[back] = -1
        plan.start[back] = -1
