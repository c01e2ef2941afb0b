"""Gangs on many machines: the earliest time at which all pieces of a job fit at once, and where they go.

Called by the kernels for gangs. A job is ``pieces`` alike pieces, each of which needs its vector on one machine; they
start and end together, on any machines that are allowed. First fit: machines in order of number, as many pieces on each
as it holds. Arrays as in `machines`. Invariant: what is found fits every machine at every moment of the job's length.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.machines import NEVER, earliest_on, occupy

Integers = npt.NDArray[np.int64]


@compiled
def fitting_on(free: Integers, at: int, need: Integers, most: int) -> int:
    """Return how many pieces fit into row ``at`` of free amounts, ``most`` at most.

    What is not needed is not looked at. Rows are not taken out of their array and seldom divided: each would cost more
    than all the rest.
    """
    count = most
    for resource in range(need.shape[0]):
        if need[resource] > 0 and free[at, resource] < count * need[resource]:
            count = free[at, resource] // need[resource] if free[at, resource] >= need[resource] else 0
    return count


@compiled
def fitting_for(
    times: Integers, free: Integers, sizes: Integers, at: int, begin: int, end: int, need: Integers, most: int
) -> int:
    """Return how many pieces fit on machine ``at`` all through [begin, end), ``most`` at most."""
    size = sizes[at]
    place = 0
    while place + 1 < size and times[at, place + 1] <= begin:
        place += 1
    count = most
    while place < size and count > 0 and times[at, place] < end:
        for resource in range(need.shape[0]):
            if need[resource] > 0 and free[at, place, resource] < count * need[resource]:
                least = free[at, place, resource]
                count = least // need[resource] if least >= need[resource] else 0
        place += 1
    return count


@compiled
def room_of(present: Integers, room: Integers) -> None:
    """Write the most that is free of each resource on one machine, and on all together: (2, R)."""
    for resource in range(room.shape[1]):
        room[0, resource] = 0
        room[1, resource] = 0
        for at in range(present.shape[0]):
            room[0, resource] = max(room[0, resource], present[at, resource])
            room[1, resource] += max(present[at, resource], 0)


@compiled
def fits_through(
    times: Integers,
    free: Integers,
    sizes: Integers,
    begin: int,
    end: int,
    need: Integers,
    pieces: int,
    allowed: int,
    kind: Integers,
) -> bool:
    """Return whether all pieces fit all through [begin, end)."""
    left = pieces
    for at in range(sizes.shape[0]):
        if (allowed >> kind[at]) & 1:
            left -= fitting_for(times, free, sizes, at, begin, end, need, left)
            if left == 0:
                return True
    return False


@compiled
def earliest_gang(
    times: Integers,
    free: Integers,
    sizes: Integers,
    now: int,
    length: int,
    need: Integers,
    pieces: int,
    allowed: int,
    kind: Integers,
    limit: int,
) -> int:
    """Return the earliest time >= now from which all pieces fit for ``length``, or ``limit`` if none lies before it."""
    machines = sizes.shape[0]
    if pieces == 1:
        found = limit
        for at in range(machines):
            if (allowed >> kind[at]) & 1:
                found = min(found, earliest_on(times[at], free[at], sizes[at], now, length, need, found))
                if found == now:
                    break
        return found
    # What fits on each machine, and until when no more can; total: of all, or more where some is known from before.
    fits = np.zeros(machines, np.int64)
    until = np.full(machines, now)
    total = 0
    begin = now
    while begin < limit:
        following = NEVER
        for at in range(machines):
            if not (allowed >> kind[at]) & 1:
                continue
            if until[at] <= begin:
                total -= fits[at]
                fits[at], until[at] = fitting_until(times, free, sizes, at, begin, begin + length, need, pieces)
                total += fits[at]
            following = min(following, until[at])
        if total >= pieces:
            if fits_through(times, free, sizes, begin, begin + length, need, pieces, allowed, kind):
                return begin
            total = 0
            following = NEVER
            for at in range(machines):
                if (allowed >> kind[at]) & 1:
                    fits[at], until[at] = fitting_until(times, free, sizes, at, begin, begin + length, need, pieces)
                    total += fits[at]
                    following = min(following, until[at])
        begin = following
    return limit


@compiled
def fitting_until(
    times: Integers, free: Integers, sizes: Integers, at: int, begin: int, end: int, need: Integers, most: int
) -> tuple[int, int]:
    """Return what `fitting_for` does, and up to which later begin no more can fit for as long."""
    size = sizes[at]
    place = 0
    while place + 1 < size and times[at, place + 1] <= begin:
        place += 1
    count = most
    until = NEVER
    while place < size and times[at, place] < end:
        least = count
        short = False
        for resource in range(need.shape[0]):
            if need[resource] > 0 and free[at, place, resource] < (least + 1) * need[resource]:
                have = free[at, place, resource]
                least = have // need[resource] if have >= need[resource] else 0
                short = True
        if short and least < most:
            count = least
            until = times[at, place + 1] if place + 1 < size else NEVER
        place += 1
    return count, until


@compiled
def lay_gang(
    times: Integers,
    free: Integers,
    sizes: Integers,
    begin: int,
    length: int,
    need: Integers,
    pieces: int,
    allowed: int,
    kind: Integers,
    machine: Integers,
    count: Integers,
) -> int:
    """Write which machines take how many pieces of a gang that fits at ``begin``; return how many machines."""
    left = pieces
    used = 0
    for at in range(sizes.shape[0]):
        if left == 0:
            break
        if (allowed >> kind[at]) & 1:
            here = fitting_for(times, free, sizes, at, begin, begin + length, need, left)
            if here > 0:
                machine[used] = at
                count[used] = here
                used += 1
                left -= here
    return used


@compiled
def take_gang(
    times: Integers,
    free: Integers,
    sizes: Integers,
    begin: int,
    end: int,
    need: Integers,
    machine: Integers,
    count: Integers,
    sign: int,
) -> None:
    """Take a gang's amounts over [begin, end) on its machines (``sign`` 1), or give them back (-1)."""
    for place in range(machine.shape[0]):
        at = machine[place]
        sizes[at] = occupy(times[at], free[at], sizes[at], begin, end, need * count[place], sign)


@compiled
def tidy(times: Integers, free: Integers, size: int, now: int) -> int:
    """Drop what lies before ``now`` and join equal neighbours on one machine; return its new number of segments."""
    first = 0
    while first + 1 < size and times[first + 1] <= now:
        first += 1
    kept = 0
    for place in range(first, size):
        same = kept > 0
        for resource in range(free.shape[1]):
            same = same and free[place, resource] == free[kept - 1, resource]
        if same:
            continue
        times[kept] = times[place]
        for resource in range(free.shape[1]):
            free[kept, resource] = free[place, resource]
        kept += 1
    return kept
