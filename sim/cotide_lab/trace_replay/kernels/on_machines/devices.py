"""Devices of machines, such as GPUs: which of them a job takes, whole ones or a share of one.

Called by the kernels for gangs. What a machine has free is a row of R resources and, behind them, one column for each
device. A set of devices is a number: bit d stands for device d of its machine, d < 62. A job with devices is one piece.
It takes so much of each of so many devices, first fit in order of number, and holds the same devices from start to end.
Invariant: a share lies on one device.
"""

from __future__ import annotations

from typing import Final

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import uncounted
from cotide_core.kernels.machines import NEVER, Profiles, earliest_on, segment_on

MANY: Final = 0
"""Index, in a job's row, of how many devices it takes."""
EACH: Final = 1
"""Index, in a job's row, of how much of each."""


@uncounted
def open_devices(free: Integers, at: int, resources: int, each: int) -> int:
    """Return the devices of row ``at`` that have so much free."""
    found = 0
    for device in range(free.shape[1] - resources):
        if free[at, resources + device] >= each:
            found |= 1 << device
    return found


@uncounted
def devices_through(profiles: Profiles, at: int, begin: int, end: int, resources: int, each: int) -> int:
    """Return the devices of machine ``at`` that have so much free all through [begin, end)."""
    times, free, size = profiles.times, profiles.free, profiles.sizes[at]
    index = segment_on(times[at], size, begin)
    found = open_devices(free[at], index, resources, each)
    index += 1
    while index < size and found != 0 and times[at, index] < end:
        found &= open_devices(free[at], index, resources, each)
        index += 1
    return found


@uncounted
def first_devices(among: int, many: int) -> int:
    """Return the first so many of some devices; none, 0, where there are fewer."""
    found = 0
    left = many
    rest = among
    while left > 0 and rest != 0:
        device = rest & -rest
        found |= device
        rest ^= device
        left -= 1
    return found if left == 0 else 0


@uncounted
def earliest_with_devices(
    profiles: Profiles, at: int, now: int, length: int, need: Integers, devices: Integers, limit: int
) -> int:
    """Return what `machines.earliest_on` does, for one piece with devices: the same ones for all of its length."""
    times, free, size = profiles.times[at], profiles.free[at], profiles.sizes[at]
    many, each, resources = devices[MANY], devices[EACH], need.shape[0]
    begin: int = earliest_on(times, free, size, now, length, need, limit)
    while many > 0 and begin < limit:
        through = devices_through(profiles, at, begin, begin + length, resources, each)
        if first_devices(through, many) != 0:
            break
        following = segment_on(times, size, begin) + 1
        begin = times[following] if following < size else NEVER
        if begin < limit:
            begin = earliest_on(times, free, size, begin, length, need, limit)
    return min(begin, limit)
