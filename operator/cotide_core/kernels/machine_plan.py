"""Plans of waiting pods on many machines with vector demands: who starts now, who is reserved where and when.

Called by `planning` in each cycle that may let a pod start. One kernel serves EASY (one reservation), conservative
(all, kept from call to call) and smallest volume first (all, made anew), as in Mu'alem and Feitelson 2001 and
Naghshnejad 2019, section 4.2.1; on one machine with one resource the starts are those of `easy`, `conservative` and
`plan` where no job outlives its forecast.

Each pod in turn gets the machine with the earliest feasible start; then the one with fewest soft objections, then the
lowest number (first fit leaves whole machines to large pods). Within one call reservations only consume, so a start
found once bounds all later ones of like pods from below: most machines are not looked at again. Invariants: no start
or reservation of a call overfills a machine at any time; a kept reservation never moves back while it is feasible.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.machines import NEVER, earliest_on, is_enough, occupy

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]

NO_ROOM: Final = -1
"""Returned when a machine needs more segments than its arrays hold: call again with more."""


@compiled
def stretched(length: int, factor: float) -> int:
    """Return how long something takes where it is slowed down, rounded up."""
    return math.ceil(length * factor)


@cache
def compile_ahead() -> None:
    """Have the kernel compiled, once in a process: no cycle shall wait for it, some seconds without a cache on disk."""
    one, table = np.zeros(1, np.int64), np.zeros((1, 1), np.int64)
    plan_machines(
        table.copy(), np.zeros((1, 1, 1), np.int64), np.ones(1, np.int64), 0, one, one, table, table, one, one,
        np.ones((1, 1)), one, np.zeros((1, 1), np.bool_), table, one, table.copy(), 1, 1, np.zeros(1, np.bool_),
        one - 1, one - 1,
    )  # fmt: skip


@compiled
def plan_machines(  # noqa: PLR0912, PLR0915  one compiled loop: a call for each step would pass all its arrays
    times: Integers,
    free: Integers,
    sizes: Integers,
    now: int,
    group: Integers,
    second: Integers,
    need: Integers,
    take: Integers,
    length: Integers,
    kind: Integers,
    stretch: Floats,
    fit: Integers,
    may: Booleans,
    soft: Integers,
    slot: Integers,
    bound: Integers,
    most_reserved: int,
    most_starts: int,
    opened: Booleans,
    machine: Integers,
    start: Integers,
) -> int:
    """Plan n pods on N machines; return how many start now, or `NO_ROOM`.

    Parameters
    ----------
    times, free, sizes : see `machines`; used up by the call. Times in any one unit.
    group : (n,) like pods share a number; the pods are in the order in which they are served.
    second : (n,) the order in which pods are tried behind the reservations; a permutation.
    need, take : (G, R) what must be free (0: is not looked at), and what is then occupied.
    length, kind : (G,) how long on an undisturbed machine, and which row of ``stretch`` applies.
    stretch : (T, N) factors on the length.
    fit, may, soft : (G,) row of the next two; (F, N) whether a machine may be used, and its soft objections.
    slot, bound : (G,) row of the next for a group, 0 for a group of one pod; (S, N) filled with ``now``, used up.
    most_reserved : reservations at most; pods behind them start now or not at all.
    most_starts : starts at most; nothing is planned after the last.
    opened : (N,) in: machines on which something is free earlier than it was; kept reservations move forward to the
        earliest start now open to each on one of them, one after another. Out: machines that reservations left.
    machine, start : (n,) in: kept reservations, or -1; out: the plan, -1 for none.
    """
    starts = 0
    reserved = 0
    left = np.zeros(opened.shape[0], np.bool_)
    for pod in range(group.shape[0]):
        if machine[pod] < 0:
            continue
        at = machine[pod]
        of = group[pod]
        begin = max(now, start[pod])
        lasts = stretched(length[of], stretch[kind[of], at])
        kept = may[fit[of], at] and (
            earliest_on(times[at], free[at], sizes[at], begin, lasts, need[of], begin + 1) == begin
        )
        if not kept:
            left[at] = True
            opened[at] = True
            machine[pod] = -1
            start[pod] = -1
            continue
        if sizes[at] + 2 > times.shape[1]:
            return NO_ROOM
        start[pod] = begin
        sizes[at] = occupy(times[at], free[at], sizes[at], begin, begin + lasts, take[of], 1)
    served = np.zeros(group.shape[0], np.bool_)
    place = 0
    while place < group.shape[0] and reserved < most_reserved and starts < most_starts:
        pod = place
        place += 1
        served[pod] = True
        of = group[pod]
        held = machine[pod]
        limit = NEVER
        if held >= 0:
            limit = start[pod]
            lasts = stretched(length[of], stretch[kind[of], held])
            sizes[held] = occupy(times[held], free[held], sizes[held], limit, limit + lasts, take[of], -1)
            if opened[held]:
                limit = earliest_on(times[held], free[held], sizes[held], now, lasts, need[of], limit)
        found, begin = first_machine(
            times, free, sizes, now, length[of], stretch[kind[of]], need[of], may[fit[of]], soft[fit[of]],
            bound[slot[of]], limit, held, slot[of] == 0, opened,
        )  # fmt: skip
        if found < 0:
            machine[pod] = -1
            start[pod] = -1
            continue
        if sizes[found] + 2 > times.shape[1]:
            return NO_ROOM
        if held >= 0 and (found != held or begin != start[pod]):
            for other in range(bound.shape[0]):  # what it leaves may be open to anybody
                bound[other, held] = now
            left[held] = True
            opened[held] = True
        lasts = stretched(length[of], stretch[kind[of], found])
        sizes[found] = occupy(times[found], free[found], sizes[found], begin, begin + lasts, take[of], 1)
        machine[pod] = found
        start[pod] = begin
        if begin == now:
            starts += 1
        else:
            reserved += 1
    present = present_on(times, free, sizes, now)
    for pod in second:
        if starts >= most_starts or most_reserved > group.shape[0]:
            break
        if served[pod]:
            continue
        of = group[pod]
        if not fits_somewhere(present, may[fit[of]], need[of]):
            continue
        found, begin = first_machine(
            times, free, sizes, now, length[of], stretch[kind[of]], need[of], may[fit[of]], soft[fit[of]],
            bound[slot[of]], now + 1, -1, slot[of] == 0, opened,
        )  # fmt: skip
        if found < 0:
            continue
        if sizes[found] + 2 > times.shape[1]:
            return NO_ROOM
        lasts = stretched(length[of], stretch[kind[of], found])
        sizes[found] = occupy(times[found], free[found], sizes[found], now, now + lasts, take[of], 1)
        machine[pod] = found
        for resource in range(take.shape[1]):
            present[found, resource] -= take[of, resource]
        start[pod] = now
        starts += 1
    opened[:] = left
    return starts


@compiled
def present_on(times: Integers, free: Integers, sizes: Integers, now: int) -> Integers:
    """Return (N, R) what is free at this moment: a quick look, before a machine's future is looked at."""
    found = np.empty((sizes.shape[0], free.shape[2]), np.int64)
    for at in range(sizes.shape[0]):
        place = 0
        while place + 1 < sizes[at] and times[at, place + 1] <= now:
            place += 1
        for resource in range(free.shape[2]):
            found[at, resource] = free[at, place, resource]
    return found


@compiled
def fits_somewhere(present: Integers, may: Booleans, need: Integers) -> bool:
    """Whether a machine that may be used has all that is needed at this moment."""
    at = 0
    while at < present.shape[0] and not (may[at] and is_enough(present, at, need)):
        at += 1
    found: bool = at < present.shape[0]
    return found


@compiled
def first_machine(
    times: Integers,
    free: Integers,
    sizes: Integers,
    now: int,
    length: int,
    stretch: Floats,
    need: Integers,
    may: Booleans,
    soft: Integers,
    bound: Integers,
    limit: int,
    held: int,
    alone: bool,
    opened: Booleans,
) -> tuple[int, int]:
    """Return the machine with the earliest start before ``limit`` and that start; ``held`` and the limit for none."""
    best = held
    begin = limit
    objections = 0
    if alone:
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
