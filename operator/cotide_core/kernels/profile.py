"""The availability profile of one pool: free processors over time, and the earliest feasible start in it.

Called by the conservative and the plan kernels. Two int64 arrays: from ``times[k]`` to ``times[k + 1]`` exactly
``free[k]`` processors are free, and from the last time on without end. Invariant: times rise strictly; the last segment
has everything free, as every job ends; an array has room for the segments that a change adds (at most two).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.compiled import compiled

Integers = npt.NDArray[np.int64]


@compiled
def segment_at(times: Integers, size: int, time: int) -> int:
    """Return the last segment that begins at or before ``time``, or 0 when all begin later."""
    low = 0
    high = size
    while low < high:
        middle = (low + high) >> 1
        if times[middle] <= time:
            low = middle + 1
        else:
            high = middle
    return max(0, low - 1)


@compiled
def change(times: Integers, free: Integers, size: int, begin: int, end: int, amount: int) -> int:
    """Add ``amount`` free processors over [begin, end), negative to occupy; return the new number of segments."""
    if begin >= end:
        return size
    place = segment_at(times, size, begin)
    if times[place] != begin:
        size = _split(times, free, size, place, begin)
        place += 1
    stop = segment_at(times, size, end)
    if times[stop] != end:
        size = _split(times, free, size, stop, end)
        stop += 1
    for at in range(place, stop):
        free[at] += amount
    if free[stop] == free[stop - 1]:
        size = _drop(times, free, size, stop)
    if place > 0 and free[place] == free[place - 1]:
        size = _drop(times, free, size, place)
    return size


@compiled
def _split(times: Integers, free: Integers, size: int, place: int, time: int) -> int:
    for at in range(size, place + 1, -1):
        times[at] = times[at - 1]
        free[at] = free[at - 1]
    times[place + 1] = time
    free[place + 1] = free[place]
    return size + 1


@compiled
def _drop(times: Integers, free: Integers, size: int, place: int) -> int:
    for at in range(place, size - 1):
        times[at] = times[at + 1]
        free[at] = free[at + 1]
    return size - 1


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
    """Return the earliest time >= now from which ``demand`` processors are free for ``seconds``.

    The answer is now or the beginning of a segment; there always is one, since the last segment is all free.
    """
    place = segment_at(times, size, now)
    begin: int = max(now, times[place])
    while place < size:
        if free[place] < demand:
            place += 1
            if place < size:
                begin = times[place]
            continue
        place += 1
        if place == size or times[place] >= begin + seconds:
            return begin
    return begin


@compiled
def earlier_start(times: Integers, free: Integers, size: int, now: int, seconds: int, demand: int, held: int) -> int:
    """Return the earliest feasible start of a job that already occupies [held, held + seconds) of the profile.

    Its own room counts as free to it; so only what lies before ``held`` has to be looked at. Never later than held.
    """
    place = segment_at(times, size, now)
    begin: int = max(now, times[place])
    while place < size and begin < held:
        if free[place] < demand:
            place += 1
            begin = times[place] if place < size else held
            continue
        place += 1
        if place == size or times[place] >= held or times[place] >= begin + seconds:
            return begin
    return held
