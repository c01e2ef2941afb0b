"""Plans of waiting pods on many machines with vector demands: which start now, and which get a reservation.

Called by `planning` in each cycle that may let a pod start. One kernel serves EASY (one reservation), conservative
(all, kept from call to call) and smallest volume first (all, recomputed). The sources are Mu'alem and Feitelson 2001
and Naghshnejad 2019, section 4.2.1. On one machine with one resource the starts are those of `easy`, `conservative` and
`plan` if every job keeps its forecast.

Each pod in turn gets the machine with the earliest feasible start. Among equals it gets the one with fewest soft
objections, then the lowest number (first fit leaves whole machines to large pods). Within one call reservations only
consume. So a start found once bounds all later ones of like pods from below, and most machines are not looked at again.
Invariants: no start or reservation of a call overfills a machine at any time; a kept reservation never moves back while
it is feasible.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Booleans, Floats, Integers
from cotide_core.kernels.compiled import compiled, inlined, uncounted
from cotide_core.kernels.machines import NEVER, Profiles, earliest_on, has_room, hold, is_enough, segment_on

NO_ROOM: Final = -1
"""Returned when a machine needs more segments than its arrays hold: call again with more."""
NOWHERE: Final = 0
STARTS: Final = 1
RESERVED: Final = 2
"""The outcome for one pod, or for one gang."""


class Demands(NamedTuple):
    """The demands of n pods in G groups on N machines.

    Attributes
    ----------
    group : (n,) like pods share a number; the pods are in the order of service.
    need, take : (G, R) what must be free (0: not checked), and what is then occupied.
    length, kind : (G,) how long on an undisturbed machine, and which row of ``stretch`` applies.
    stretch : (T, N) factors on the length.
    fit, may, soft : (G,) row of the next two; (F, N) whether a machine may be used, and its soft objections.
    slot, bound : (G,) row of ``bound`` for a group, 0 for a group of one pod; (S, N) filled with ``now``, used up.
    """

    group: Integers
    need: Integers
    take: Integers
    length: Integers
    kind: Integers
    stretch: Floats
    fit: Integers
    may: Booleans
    soft: Integers
    slot: Integers
    bound: Integers


class Plan(NamedTuple):
    """Starts and reservations of n pods on N machines.

    Attributes
    ----------
    machine, start : (n,) in: kept reservations, or -1; out: the plan, -1 for none.
    opened : (N,) in: machines with something free earlier than before; kept reservations move forward to the
        earliest start now open to each on one of them, one after another. Out: machines that reservations left.
    """

    machine: Integers
    start: Integers
    opened: Booleans


def smallest() -> tuple[Profiles, Demands, Plan]:
    """Return one pod and one machine: enough to have a kernel compiled before it is needed."""
    zero, none, table = np.zeros(1, np.int64), np.full(1, -1), np.zeros((1, 1), np.int64)
    profiles = Profiles(table.copy(), np.zeros((1, 1, 1), np.int64), np.ones(1, np.int64))
    may = np.zeros((1, 1), np.bool_)
    demands = Demands(zero, table, table, zero, zero, np.ones((1, 1)), zero, may, table, zero, table.copy())
    return profiles, demands, Plan(none, none.copy(), np.zeros(1, np.bool_))


@cache
def compile_ahead() -> None:
    """Have the kernel compiled, once in a process: no cycle waits for it, which takes some seconds without a cache on
    disk.
    """
    profiles, demands, plan = smallest()
    plan_machines(profiles, 0, demands, np.zeros(1, np.int64), 1, 1, plan)


@uncounted
def stretched(length: int, factor: float) -> int:
    """Return how long something takes with a slowdown, rounded up."""
    return math.ceil(length * factor)


@inlined
def lasts_on(demands: Demands, of: int, at: int) -> int:
    """Return how long a pod of a group takes on a machine."""
    return stretched(demands.length[of], demands.stretch[demands.kind[of], at])


@compiled
def plan_machines(
    profiles: Profiles, now: int, demands: Demands, second: Integers, most_reserved: int, most_starts: int, plan: Plan
) -> int:
    """Plan n pods on N machines; return how many start now, or `NO_ROOM`.

    Parameters
    ----------
    profiles : used up by the call.
    second : (n,) the order of the pods that are tried behind the reservations; a permutation.
    most_reserved : most reservations; pods behind them start now or not at all.
    most_starts : most starts; nothing is planned after the last.
    """
    pods = demands.group.shape[0]
    left = np.zeros(plan.opened.shape[0], np.bool_)
    if not keep_promised(profiles, now, demands, left, plan):
        return NO_ROOM
    served, starts = _in_order(profiles, now, demands, most_reserved, most_starts, left, plan)
    if starts != NO_ROOM and starts < most_starts and most_reserved <= pods:
        present = present_on(profiles, now)
        starts = _behind(profiles, now, demands, second, most_starts, starts, served, present, plan)
    if starts != NO_ROOM:
        plan.opened[:] = left
    return starts


@inlined
def keep_promised(profiles: Profiles, now: int, demands: Demands, left: Booleans, plan: Plan) -> bool:
    """Take the kept reservations into the profiles where they still fit; return whether there was room."""
    machine, start, group, need = plan.machine, plan.start, demands.group, demands.need
    for pod in range(group.shape[0]):
        at = machine[pod]
        if at < 0:
            continue
        of = group[pod]
        begin = max(now, start[pod])
        lasts = lasts_on(demands, of, at)
        times, free, size = profiles.times[at], profiles.free[at], profiles.sizes[at]
        if not (
            demands.may[demands.fit[of], at]
            and earliest_on(times, free, size, begin, lasts, need[of], begin + 1) == begin
        ):
            left[at] = True
            plan.opened[at] = True
            machine[pod] = -1
            start[pod] = -1
            continue
        if not has_room(profiles, at):
            return False
        start[pod] = begin
        hold(profiles, at, begin, lasts, demands.take[of], 1)
    return True


@inlined
def _in_order(
    profiles: Profiles, now: int, demands: Demands, most_reserved: int, most_starts: int, left: Booleans, plan: Plan
) -> tuple[int, int]:
    """Plan one pod after another; return how many were planned or skipped, and the starts or `NO_ROOM`."""
    starts = 0
    reserved = 0
    pod = 0
    while pod < demands.group.shape[0] and reserved < most_reserved and starts < most_starts:
        done = plan_next(profiles, now, demands, pod, left, plan)
        if done == NO_ROOM:
            return pod, NO_ROOM
        starts += done == STARTS
        reserved += done == RESERVED
        pod += 1
    return pod, starts


@inlined
def plan_next(profiles: Profiles, now: int, demands: Demands, pod: int, left: Booleans, plan: Plan) -> int:
    """Give one pod the earliest start, or an earlier one than it holds; return its outcome, or `NO_ROOM`."""
    machine, start, opened = plan.machine, plan.start, plan.opened
    need, take = demands.need, demands.take
    of = demands.group[pod]
    held = machine[pod]
    limit = NEVER
    if held >= 0:
        limit = start[pod]
        lasts = lasts_on(demands, of, held)
        hold(profiles, held, limit, lasts, take[of], -1)
        if opened[held]:
            times, free, size = profiles.times[held], profiles.free[held], profiles.sizes[held]
            limit = earliest_on(times, free, size, now, lasts, need[of], limit)
    found, begin = first_machine(profiles, now, demands, of, limit, held, opened)
    if found < 0:
        machine[pod] = -1
        start[pod] = -1
        return NOWHERE
    if not has_room(profiles, found):
        return NO_ROOM
    if held >= 0 and (found != held or begin != start[pod]):
        for other in range(demands.bound.shape[0]):  # its former machine may be open to any pod
            demands.bound[other, held] = now
        left[held] = True
        opened[held] = True
    hold(profiles, found, begin, lasts_on(demands, of, found), take[of], 1)
    machine[pod] = found
    start[pod] = begin
    return STARTS if begin == now else RESERVED


@inlined
def _behind(
    profiles: Profiles,
    now: int,
    demands: Demands,
    second: Integers,
    most_starts: int,
    starts: int,
    served: int,
    present: Integers,
    plan: Plan,
) -> int:
    """Start the pods from ``served`` on that fit next to the reservations; return all starts or `NO_ROOM`."""
    for pod in second:
        if starts >= most_starts:
            break
        if pod < served:
            continue
        done = start_beside(profiles, now, demands, pod, present, plan)
        if done == NO_ROOM:
            return NO_ROOM
        starts += done == STARTS
    return starts


@inlined
def start_beside(profiles: Profiles, now: int, demands: Demands, pod: int, present: Integers, plan: Plan) -> int:
    """Start one pod now if it fits next to all reservations; return its outcome, or `NO_ROOM`."""
    need, take = demands.need, demands.take
    of = demands.group[pod]
    if not fits_somewhere(present, demands.may[demands.fit[of]], need[of]):
        return NOWHERE
    found, _ = first_machine(profiles, now, demands, of, now + 1, -1, plan.opened)
    if found < 0:
        return NOWHERE
    if not has_room(profiles, found):
        return NO_ROOM
    hold(profiles, found, now, lasts_on(demands, of, found), take[of], 1)
    plan.machine[pod] = found
    for resource in range(take.shape[1]):
        present[found, resource] -= take[of, resource]
    plan.start[pod] = now
    return STARTS


@compiled
def present_on(profiles: Profiles, now: int) -> Integers:
    """Return (N, R) the free amounts at this moment: a quick look, before a machine's future is looked at."""
    times, free, sizes = profiles.times, profiles.free, profiles.sizes
    found = np.empty((sizes.shape[0], free.shape[2]), np.int64)
    for at in range(sizes.shape[0]):
        index = segment_on(times[at], sizes[at], now)
        for resource in range(free.shape[2]):
            found[at, resource] = free[at, index, resource]
    return found


@uncounted
def fits_somewhere(present: Integers, may: Booleans, need: Integers) -> bool:
    """Whether a machine that may be used has all that is needed at this moment."""
    at = 0
    while at < present.shape[0] and not (may[at] and is_enough(present, at, need)):
        at += 1
    found: bool = at < present.shape[0]
    return found


@uncounted
def first_machine(
    profiles: Profiles, now: int, demands: Demands, of: int, limit: int, held: int, opened: Booleans
) -> tuple[int, int]:
    """Return the machine with the earliest start before ``limit`` and that start; ``held`` and the limit for none.

    Parameters
    ----------
    of : group of the pod.
    held : machine of its reservation, -1 without; then only ``opened`` machines are searched.
    """
    times, free, sizes = profiles.times, profiles.free, profiles.sizes
    need, bound = demands.need[of], demands.bound[demands.slot[of]]
    may, soft = demands.may[demands.fit[of]], demands.soft[demands.fit[of]]
    length, stretch = demands.length[of], demands.stretch[demands.kind[of]]
    best = held
    begin = limit
    objections = 0
    if demands.slot[of] == 0:
        bound[:] = now
    for at in range(may.shape[0]):
        softer = best != held and soft[at] < objections
        last = begin + 1 if softer else begin
        if bound[at] >= last or not may[at] or at == held or (held >= 0 and not opened[at]):
            continue
        if sizes[at] == 1 and not is_enough(free[at], 0, need):
            bound[at] = NEVER
            continue
        lasts = stretched(length, stretch[at])
        bound[at] = earliest_on(times[at], free[at], sizes[at], bound[at], lasts, need, last)
        if bound[at] < last:
            best = at
            begin = bound[at]
            objections = soft[at]
            if begin == now and objections == 0:
                break
    return best, begin
