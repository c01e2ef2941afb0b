"""Gangs on many machines: the earliest time at which all pieces of a job fit at once, and where they go.

Called by the kernels for gangs. A job has ``pieces`` equal pieces, and each piece needs its vector on one machine. They
start and end together, on any machines that are allowed. First fit: machines in order of number, as many pieces on each
as it holds. Arrays as in `machines`. Invariant: what is found fits every machine at every moment of the job's length.
"""

from __future__ import annotations

from typing import NamedTuple

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import inlined, uncounted
from cotide_core.kernels.machines import NEVER, Profiles, segment_on
from cotide_lab.trace_replay.kernels.on_machines.devices import (
    EACH,
    MANY,
    devices_through,
    earliest_with_devices,
    first_devices,
    open_devices,
)


class Gangs(NamedTuple):
    """What n jobs ask of N machines.

    Attributes
    ----------
    pieces, need : (n,) and (n, R): the number of pieces of a job, and the need of each piece on one machine.
    shape : (n,) jobs of one number need the same on the same kinds of machines; numbered from 0.
    allowed, kind : (n,) and (N,): bit k of a job's number is set when it may use machines of kind k, k < 62.
    capacity : (N, R + D): amounts, then those of each of D devices, 0 where a machine has fewer. Every job must fit the
        empty machines.
    devices : (n, 2) how many devices a piece takes, and how much of each, see `devices`; a job that takes any has one
        piece.
    """

    pieces: Integers
    need: Integers
    shape: Integers
    allowed: Integers
    kind: Integers
    capacity: Integers
    devices: Integers


@uncounted
def fitting_on(free: Integers, at: int, need: Integers, devices: Integers, most: int) -> int:
    """Return how many pieces fit into row ``at`` of free amounts, ``most`` at most.

    What is not needed is not looked at. Rows are not taken out of their array and seldom divided: each would cost more
    than all the rest.
    """
    count = most
    for resource in range(need.shape[0]):
        if need[resource] > 0 and free[at, resource] < count * need[resource]:
            count = free[at, resource] // need[resource] if free[at, resource] >= need[resource] else 0
    if count > 0 and devices[MANY] > 0:
        there = open_devices(free, at, need.shape[0], devices[EACH])
        count = 1 if first_devices(there, devices[MANY]) != 0 else 0
    return count


@uncounted
def fitting_for(profiles: Profiles, at: int, begin: int, end: int, need: Integers, devices: Integers, most: int) -> int:
    """Return how many pieces fit on machine ``at`` all through [begin, end), ``most`` at most."""
    times, free, size = profiles.times, profiles.free, profiles.sizes[at]
    index = segment_on(times[at], size, begin)
    count = most
    while index < size and count > 0 and times[at, index] < end:
        for resource in range(need.shape[0]):
            if need[resource] > 0 and free[at, index, resource] < count * need[resource]:
                least = free[at, index, resource]
                count = least // need[resource] if least >= need[resource] else 0
        index += 1
    if count > 0 and devices[MANY] > 0:
        through = devices_through(profiles, at, begin, end, need.shape[0], devices[EACH])
        count = 1 if first_devices(through, devices[MANY]) != 0 else 0
    return count


@uncounted
def room_of(present: Integers, room: Integers) -> None:
    """Write the most that is free of each resource on one machine, and on all together: (2, R)."""
    for resource in range(room.shape[1]):
        room[0, resource] = 0
        room[1, resource] = 0
        for at in range(present.shape[0]):
            room[0, resource] = max(room[0, resource], present[at, resource])
            room[1, resource] += max(present[at, resource], 0)


@inlined
def may_use(gangs: Gangs, job: int, at: int) -> bool:
    """Return whether a job may use a machine."""
    found: bool = (gangs.allowed[job] >> gangs.kind[at]) & 1 == 1
    return found


@inlined
def amount_of(gangs: Gangs, job: int, devices: int, count: int, column: int) -> int:
    """Return what so many pieces of a job take of one column of a machine, on these devices."""
    resources = gangs.need.shape[1]
    if column < resources:
        amount: int = gangs.need[job, column] * count
        return amount
    share: int = gangs.devices[job, EACH] * ((devices >> (column - resources)) & 1)
    return share


@uncounted
def fits_through(profiles: Profiles, begin: int, end: int, job: int, gangs: Gangs) -> bool:
    """Return whether all pieces of a job fit all through [begin, end)."""
    left = gangs.pieces[job]
    for at in range(profiles.sizes.shape[0]):
        if may_use(gangs, job, at):
            left -= fitting_for(profiles, at, begin, end, gangs.need[job], gangs.devices[job], left)
            if left == 0:
                return True
    return False


@uncounted
def earliest_gang(
    profiles: Profiles, now: int, length: int, job: int, gangs: Gangs, limit: int, search: Integers
) -> int:
    """Return the earliest time >= now at which all pieces fit for ``length``, or ``limit`` if none lies before it.

    Parameters
    ----------
    search : (2, N) used up by the call.
    """
    if gangs.pieces[job] == 1:
        return _earliest_piece(profiles, now, length, job, gangs, limit)
    # What fits on each machine, and until when no more can; total: of all, or more where some is known from before.
    fits, until = search[0], search[1]
    for at in range(fits.shape[0]):
        fits[at] = 0
        until[at] = now
    return _earliest_gang(profiles, now, length, job, gangs, limit, fits, until)


@inlined
def _earliest_piece(profiles: Profiles, now: int, length: int, job: int, gangs: Gangs, limit: int) -> int:
    found = limit
    for at in range(profiles.sizes.shape[0]):
        if may_use(gangs, job, at):
            need, devices = gangs.need[job], gangs.devices[job]
            found = min(found, earliest_with_devices(profiles, at, now, length, need, devices, found))
            if found == now:
                break
    return found


@inlined
def _earliest_gang(
    profiles: Profiles, now: int, length: int, job: int, gangs: Gangs, limit: int, fits: Integers, until: Integers
) -> int:
    machines, pieces, need = fits.shape[0], gangs.pieces[job], gangs.need[job]
    total = 0
    begin = now
    while begin < limit:
        following = NEVER
        for at in range(machines):
            if not may_use(gangs, job, at):
                continue
            if until[at] <= begin:
                total -= fits[at]
                fits[at], until[at] = fitting_until(profiles, at, begin, begin + length, need, pieces)
                total += fits[at]
            following = min(following, until[at])
        if total >= pieces:
            if fits_through(profiles, begin, begin + length, job, gangs):
                return begin
            total = 0
            following = NEVER
            for at in range(machines):
                if may_use(gangs, job, at):
                    fits[at], until[at] = fitting_until(profiles, at, begin, begin + length, need, pieces)
                    total += fits[at]
                    following = min(following, until[at])
        begin = following
    return limit


@uncounted
def fitting_until(profiles: Profiles, at: int, begin: int, end: int, need: Integers, most: int) -> tuple[int, int]:
    """Return what `fitting_for` does, and up to which later begin no more can fit for as long; without devices."""
    times, free, size = profiles.times, profiles.free, profiles.sizes[at]
    index = segment_on(times[at], size, begin)
    count = most
    until = NEVER
    while index < size and times[at, index] < end:
        least = count
        short = False
        for resource in range(need.shape[0]):
            if need[resource] > 0 and free[at, index, resource] < (least + 1) * need[resource]:
                have = free[at, index, resource]
                least = have // need[resource] if have >= need[resource] else 0
                short = True
        if short and least < most:
            count = least
            until = times[at, index + 1] if index + 1 < size else NEVER
        index += 1
    return count, until


@uncounted
def tidy(times: Integers, free: Integers, size: int, now: int) -> int:
    """Drop what lies before ``now`` and join equal neighbours on one machine; return its new number of segments."""
    first = 0
    while first + 1 < size and times[first + 1] <= now:
        first += 1
    kept = 0
    for index in range(first, size):
        same = kept > 0
        for resource in range(free.shape[1]):
            same = same and free[index, resource] == free[kept - 1, resource]
        if same:
            continue
        times[kept] = times[index]
        for resource in range(free.shape[1]):
            free[kept, resource] = free[index, resource]
        kept += 1
    return kept
