"""The availability profile of one pool: free processors over time, and the earliest feasible start in it.

Called by the conservative and the plan kernels. Two int64 arrays: from ``times[k]`` to ``times[k + 1]`` exactly
``free[k]`` processors are free, and from the last time on without end. Invariant: times rise strictly; the last segment
has everything free, as every job ends; an array has room for the segments that a change adds (at most two).
"""

from __future__ import annotations

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled


@compiled
def profile_of(
    times: Integers,
    free: Integers,
    now: int,
    level: int,
    end_time: Integers,
    end_job: Integers,
    running: int,
    demand: Integers,
) -> int:
    """Write the profile of the running jobs alone, ``level`` processors being free now; return its segments.

    Parameters
    ----------
    end_time, end_job : (running,) the running jobs by planned end, all of which lie ahead.
    """
    size = 1
    times[0] = now
    free[0] = level
    for index in range(running):
        if end_time[index] != times[size - 1]:
            times[size] = end_time[index]
            free[size] = free[size - 1]
            size += 1
        free[size - 1] += demand[end_job[index]]
    return size


@compiled
def segment_at(times: Integers, size: int, time: int) -> int:
    """Return the last segment that begins at or before ``time``, or 0 when all begin later."""
    index = 0
    length = size
    while length > 1:  # the comparison only picks a number, so that no branch is guessed wrong
        half = length >> 1
        index += half if times[index + half] <= time else 0
        length -= half
    return index


@compiled
def change(  # noqa: PLR0912  what moves by one, by two or stays is decided once for both arrays
    times: Integers, free: Integers, size: int, begin: int, end: int, amount: int
) -> int:
    """Add ``amount`` free processors over [begin, end), negative to occupy; return the new number of segments.

    A border is put in or taken out at either end; what lies between moves by the first, what lies behind by both, once.
    """
    if begin >= end:
        return size
    index = segment_at(times, size, begin)
    stop = segment_at(times, size, end)
    level: int = free[index]
    beyond: int = free[stop]
    lead = 1
    if times[index] == begin:
        lead = -1 if index > 0 and free[index - 1] == level + amount else 0
    last = stop
    trail = 1
    if times[stop] == end:
        last = stop - 1
        trail = -1 if free[last] + amount == beyond else 0
    by = lead + trail
    if by > 0:
        for at in range(size - 1, last - min(trail, 0), -1):
            times[at + by] = times[at]
            free[at + by] = free[at]
    if lead > 0:
        for at in range(last, index, -1):
            times[at + 1] = times[at]
            free[at + 1] = free[at] + amount
        times[index + 1] = begin
        free[index + 1] = level + amount
    elif lead < 0:
        for at in range(index + 1, last + 1):
            times[at - 1] = times[at]
            free[at - 1] = free[at] + amount
    else:
        for at in range(index, last + 1):
            free[at] += amount
    if by < 0:
        for at in range(last + 1 - min(trail, 0), size):
            times[at + by] = times[at]
            free[at + by] = free[at]
    if trail > 0:
        times[last + lead + 1] = end
        free[last + lead + 1] = beyond
    return size + by


@compiled
def move(times: Integers, free: Integers, size: int, held: int, begin: int, seconds: int, demand: int) -> int:
    """Move a reservation of ``demand`` processors from ``held`` to an earlier ``begin``; return the number of segments.

    Where the two lie over one another nothing changes.
    """
    size = change(times, free, size, max(held, begin + seconds), held + seconds, demand)
    return change(times, free, size, begin, min(held, begin + seconds), -demand)


@compiled
def forget_past(times: Integers, free: Integers, size: int, now: int) -> int:
    """Drop the segments that lie wholly before ``now``; return the new number."""
    first = segment_at(times, size, now)
    if first == 0:
        return size
    for at in range(first, size):
        times[at - first] = times[at]
        free[at - first] = free[at]
    return size - first


@compiled
def earliest_start(times: Integers, free: Integers, size: int, now: int, seconds: int, demand: int) -> int:
    """Return the earliest time >= now at which ``demand`` processors become free for ``seconds``.

    The answer is now or the beginning of a segment; there always is one, since the last segment is all free.
    """
    index = segment_at(times, size, now)
    begin: int = max(now, times[index])
    while index < size:
        if free[index] < demand:
            index += 1
            if index < size:
                begin = times[index]
            continue
        index += 1
        if index == size or times[index] >= begin + seconds:
            return begin
    return begin


@compiled
def first_room(free: Integers, demand: int) -> int:
    """Return the first segment with ``demand`` processors free; there always is one."""
    index = 0
    while free[index] < demand:
        index += 1
    return index


@compiled
def earlier_start(times: Integers, free: Integers, size: int, now: int, seconds: int, demand: int, held: int) -> int:
    """Return the earliest feasible start of a job that already occupies [held, held + seconds) of the profile.

    Its own room counts as free to it; so only what lies before ``held`` has to be looked at. Never later than held.
    """
    index = segment_at(times, size, now)
    begin: int = max(now, times[index])
    while index < size and begin < held:
        if free[index] < demand:
            index += 1
            begin = times[index] if index < size else held
            continue
        index += 1
        if index == size or times[index] >= held or times[index] >= begin + seconds:
            return begin
    return held
