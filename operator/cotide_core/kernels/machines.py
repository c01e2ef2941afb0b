"""The availability of many machines over time, with vector demands, and the earliest feasible start on one of them.

Called by `machine_plan`. ``times`` is (N, K) int64 and ``free`` (N, K, R) int64. On machine n, from ``times[n, k]`` to
``times[n, k + 1]`` exactly ``free[n, k]`` of the R resources is free. The last of the ``sizes[n]`` segments has no end.
Free amounts may be negative where a machine shrank. Invariant: the times of a machine rise strictly. Neighbouring
segments may be equal, which changes no answer, as only a segment that is too small moves a start.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import inlined, uncounted

NEVER: Final = 1 << 62
"""A time that does not come."""


class Profiles(NamedTuple):
    """What N machines have free over time.

    Attributes
    ----------
    times, free : (N, K) and (N, K, R), see above; times in any one unit.
    sizes : (N,) segments of each.
    """

    times: Integers
    free: Integers
    sizes: Integers


@uncounted
def is_enough(free: Integers, index: int, need: Integers) -> bool:
    """Whether a segment of a machine has all that is needed; resources without a need are skipped."""
    short = False
    for resource in range(need.shape[0]):
        short = short or (need[resource] > 0 and free[index, resource] < need[resource])
    return not short


@uncounted
def earliest_on(times: Integers, free: Integers, size: int, now: int, length: int, need: Integers, limit: int) -> int:
    """Return the earliest time >= now at which ``need`` becomes free on one machine for ``length``.

    Parameters
    ----------
    times, free : (K,) and (K, R) of the machine.
    limit : returned if there is no such time before it.
    """
    index = segment_on(times, size, now)
    begin: int = max(now, times[index])
    while index < size and begin < limit:
        if not is_enough(free, index, need):
            index += 1
            if index < size:
                begin = times[index]
            continue
        index += 1
        if index == size or times[index] >= begin + length:
            return begin
    return limit


@uncounted
def occupy(times: Integers, free: Integers, size: int, begin: int, end: int, take: Integers, sign: int) -> int:
    """Take amounts over [begin, end) on one machine, or give them back; return its new number of segments.

    Parameters
    ----------
    sign : 1 takes, -1 gives back.
    """
    first = 0
    while first + 1 < size and times[first + 1] <= begin:
        first += 1
    if times[first] < begin:
        size = _split(times, free, size, first, begin)
        first += 1
    stop = first
    while stop < size and times[stop] < end:
        stop += 1
    if stop == size or times[stop] > end:
        size = _split(times, free, size, stop - 1, end)
    for index in range(first, stop):
        for resource in range(take.shape[0]):
            free[index, resource] -= sign * take[resource]
    return size


@inlined
def segment_on(times: Integers, size: int, now: int) -> int:
    """Return the segment of a machine, given (K,) times, that contains a moment; the first if it lies before all."""
    index = 0
    while index + 1 < size and times[index + 1] <= now:
        index += 1
    return index


@inlined
def has_room(profiles: Profiles, at: int) -> bool:
    """Return whether a machine's arrays have room for one more change."""
    enough: bool = profiles.sizes[at] + 2 <= profiles.times.shape[1]
    return enough


@inlined
def hold(profiles: Profiles, at: int, begin: int, length: int, take: Integers, sign: int) -> None:
    """Take amounts on a machine for ``length`` (``sign`` 1), or give them back (-1); `has_room` must hold."""
    times, free, sizes = profiles.times, profiles.free, profiles.sizes
    sizes[at] = occupy(times[at], free[at], sizes[at], begin, begin + length, take, sign)


@uncounted
def _split(times: Integers, free: Integers, size: int, index: int, time: int) -> int:
    for at in range(size, index + 1, -1):
        times[at] = times[at - 1]
        for resource in range(free.shape[1]):
            free[at, resource] = free[at - 1, resource]
    times[index + 1] = time
    for resource in range(free.shape[1]):
        free[index + 1, resource] = free[index, resource]
    return size + 1
