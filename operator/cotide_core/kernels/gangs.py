"""Gangs on many machines: the earliest time at which all pieces of a job fit at once, and where they go.

Called by `machine_replay`. A job is ``pieces`` alike pieces, each of which needs its vector on one machine; they start
and end together, on any machines that are allowed. First fit: machines in order of number, as many pieces on each as
it holds. Arrays as in `machines`. Invariant: what is found fits every machine at every moment of the job's length.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.machines import NEVER, earliest_on, occupy

Integers = npt.NDArray[np.int64]


@compiled
def fitting(free: Integers, need: Integers, most: int) -> int:
    """Return how many pieces fit into (R,) free amounts, ``most`` at most; what is not needed is not looked at."""
    count = most
    for resource in range(need.shape[0]):
        if need[resource] > 0:
            count = min(count, free[resource] // need[resource])
    return max(count, 0)


@compiled
def fitting_for(times: Integers, free: Integers, size: int, begin: int, end: int, need: Integers, most: int) -> int:
    """Return how many pieces fit on one machine all through [begin, end), ``most`` at most."""
    place = 0
    while place + 1 < size and times[place + 1] <= begin:
        place += 1
    count = most
    while place < size and count > 0 and times[place] < end:
        count = fitting(free[place], need, count)
        place += 1
    return count


@compiled
def fits_now(present: Integers, need: Integers, pieces: int, allowed: int, kind: Integers) -> bool:
    """Return whether a gang fits into the (N, R) amounts that are free at this moment."""
    left = pieces
    for at in range(present.shape[0]):
        if (allowed >> kind[at]) & 1:
            left -= fitting(present[at], need, left)
            if left == 0:
                return True
    return False


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
def still_fits(
    present: Integers,
    need: Integers,
    pieces: int,
    allowed: int,
    kind: Integers,
    shape: int,
    failed: Integers,
    since: Integers,
    version: int,
    room: Integers,
) -> bool:
    """Return what `fits_now` does, without a look at machines where fewer pieces of the same shape have failed already.

    Parameters
    ----------
    failed, since : (shapes,) the fewest pieces that failed, and the version of ``present`` then.
    version : grows whenever something becomes free; between two versions less and less is.
    room : (2, R) of `room_of` since this version began.
    """
    if since[shape] == version and pieces >= failed[shape]:
        return False
    for resource in range(need.shape[0]):
        if need[resource] > room[0, resource] or need[resource] * pieces > room[1, resource]:
            return False
    if fits_now(present, need, pieces, allowed, kind):
        return True
    failed[shape] = pieces
    since[shape] = version
    return False


@compiled
def earliest_unreserved(
    times: Integers,
    free: Integers,
    sizes: Integers,
    length: int,
    need: Integers,
    pieces: int,
    allowed: int,
    kind: Integers,
    ends: Integers,
) -> int:
    """Return the earliest of ``ends``, which rise, from which all pieces fit, where nothing is reserved.

    Then more and more is free as time goes on, so the first end at which they fit is found by halves. At the last all
    machines are empty.
    """
    low = 0
    high = ends.shape[0] - 1
    while low < high:
        middle = (low + high) >> 1
        left = pieces
        for at in range(sizes.shape[0]):
            if left > 0 and (allowed >> kind[at]) & 1:
                begin = ends[middle]
                left -= fitting_for(times[at], free[at], sizes[at], begin, begin + length, need, left)
        if left == 0:
            high = middle
        else:
            low = middle + 1
    found: int = ends[low]
    return found


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
    begin = now
    while begin < limit:
        left = pieces
        following = NEVER
        for at in range(machines):
            if not (allowed >> kind[at]) & 1:
                continue
            left -= fitting_for(times[at], free[at], sizes[at], begin, begin + length, need, left)
            if left == 0:
                return begin
            # Only where a machine's segment begins can more fit than before.
            place = 0
            while place < sizes[at] and times[at, place] <= begin:
                place += 1
            if place < sizes[at]:
                following = min(following, times[at, place])
        begin = following
    return limit


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
            here = fitting_for(times[at], free[at], sizes[at], begin, begin + length, need, left)
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
