"""Which machines each job of a replay holds, end to end in two lists, and what that takes from the machines' profiles.

Called by the kernels for gangs. Job j holds ``counts[k]`` pieces on machine ``placed[k]``, for ``used[j]`` entries k
from ``first[j]`` on. New entries go behind the others; what no job holds any more is dropped when a list is full.
Invariant: entries of jobs that hold machines are never lost or changed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled, inlined, uncounted
from cotide_core.kernels.machines import Profiles, has_room, occupy
from cotide_lab.trace_replay.kernels.on_machines.devices import (
    EACH,
    MANY,
    devices_through,
    first_devices,
    open_devices,
)
from cotide_lab.trace_replay.kernels.on_machines.gang_counts import Fitting, change_machine
from cotide_lab.trace_replay.kernels.on_machines.gangs import (
    Gangs,
    amount_of,
    fitting_for,
    fitting_on,
    may_use,
    tidy,
)
from cotide_lab.trace_replay.kernels.replay_state import ARRIVED, ROUNDS, SPARE, ReplayState

SEGMENTS: Final = 8
"""Segments of a machine that there is room for at first; `book_gang` doubles them when that is not enough (chosen)."""
FILLED: Final = SPARE
"""Index of the number of entries of the lists."""
LIMIT: Final = SPARE + 1
"""Index of the number of entries at which entries without a job are dropped."""
WIDTH: Final = SPARE + 2
"""Index of the segments of a machine that there is room for now."""
MOST_SEGMENTS: Final = 1 << 26
"""Segments of all machines that there is room for at most, if not `SEGMENTS` of each (chosen: half a gigabyte of
addresses for times, which become memory where they are used)."""


class Held(NamedTuple):
    """Which machines each of n jobs holds, see above.

    Attributes
    ----------
    first, used : (n,) where a job's machines begin in the lists, and how many there are.
    devices : (n,) the devices that a job takes of its machine.
    placed, counts : (S,) machines and pieces; S is enough for all jobs and one more. Memory is touched as far as
        entries were written.
    moved : (2, S) where they stand while what no job holds is dropped.
    """

    first: Integers
    used: Integers
    devices: Integers
    placed: Integers
    counts: Integers
    moved: Integers


def held_of(gangs: Gangs) -> Held:
    """Return the lists before any job holds anything."""
    first, used, devices = np.zeros((3, len(gangs.pieces)), np.int64)
    machines = len(gangs.kind)
    size = int(np.minimum(gangs.pieces, machines).sum()) + machines
    moved = np.empty((2, size), np.int64)
    return Held(first, used, devices, np.empty(size, np.int64), np.empty(size, np.int64), moved)


class Storage(NamedTuple):
    """Where the profiles of N machines are kept, C columns of resources and devices each: room for more segments.

    Nothing is allocated while a replay runs; memory is touched as far as segments were written.

    Attributes
    ----------
    times, free : (N * K,) and (N * K * C,) for K segments a machine at most.
    sizes : (N,) segments of each.
    search : (2, N) used up by `gangs.earliest_gang`.
    """

    times: Integers
    free: Integers
    sizes: Integers
    search: Integers


def storage_of(gangs: Gangs) -> Storage:
    """Return the profiles of empty machines."""
    machines, columns = gangs.capacity.shape
    # Every job on a machine adds two segments at most once equal neighbours are joined.
    segments = max(SEGMENTS, min(2 * len(gangs.pieces) + 4, MOST_SEGMENTS // machines))
    times, free = np.empty(machines * segments, np.int64), np.empty(machines * segments * columns, np.int64)
    times[: machines * SEGMENTS] = 0
    free[: machines * SEGMENTS * columns].reshape(machines, SEGMENTS, columns)[:, 0] = gangs.capacity
    return Storage(times, free, np.ones(machines, np.int64), np.empty((2, machines), np.int64))


class Holding(NamedTuple):
    """What jobs hold, and what that leaves of the machines over time."""

    held: Held
    storage: Storage


def holding_of(gangs: Gangs) -> Holding:
    """Return both before any job holds anything."""
    return Holding(held_of(gangs), storage_of(gangs))


@inlined
def profiles_in(storage: Storage, state: ReplayState) -> Profiles:
    """Return the profiles as they are laid out now."""
    width, machines = state.counts[WIDTH], storage.sizes.shape[0]
    resources = storage.free.shape[0] // storage.times.shape[0]
    times = storage.times[: machines * width].reshape((machines, width))
    free = storage.free[: machines * width * resources].reshape((machines, width, resources))
    return Profiles(times, free, storage.sizes)


@inlined
def begin_lists(gangs: Gangs, state: ReplayState, held: Held) -> None:
    """Make the lists and the profiles ready before the first round."""
    if state.counts[ROUNDS] == 0:
        state.counts[LIMIT] = min(4 * gangs.kind.shape[0], held.placed.shape[0])
        state.counts[WIDTH] = SEGMENTS


@uncounted
def book_gang(
    now: int, begin: int, end: int, job: int, gangs: Gangs, state: ReplayState, holding: Holding, sign: int
) -> None:
    """Take a gang's amounts over [begin, end) (``sign`` 1), or give them back (-1)."""
    held, storage = holding.held, holding.storage
    first, last = held.first[job], held.first[job] + held.used[job]
    profiles = profiles_in(storage, state)
    widest = storage.times.shape[0] // storage.sizes.shape[0]
    for index in range(first, last):
        at = held.placed[index]
        if not has_room(profiles, at):
            profiles.sizes[at] = tidy(profiles.times[at], profiles.free[at], profiles.sizes[at], now)
            is_crowded = 2 * (profiles.sizes[at] + 2) > state.counts[WIDTH] < widest
            if is_crowded or not has_room(profiles, at):
                _widen(storage, state)
                profiles = profiles_in(storage, state)
    take_gang(profiles, begin, end, job, gangs, held, sign)


@compiled
def take_gang(profiles: Profiles, begin: int, end: int, job: int, gangs: Gangs, held: Held, sign: int) -> None:
    """Take a gang's amounts and devices over [begin, end) on its machines (``sign`` 1), or give them back (-1)."""
    times, free, sizes = profiles.times, profiles.free, profiles.sizes
    take = np.empty(free.shape[2], np.int64)
    for index in range(held.first[job], held.first[job] + held.used[job]):
        at, count = held.placed[index], held.counts[index]
        for column in range(take.shape[0]):
            take[column] = amount_of(gangs, job, held.devices[job], count, column)
        sizes[at] = occupy(times[at], free[at], sizes[at], begin, end, take, sign)


@uncounted
def _widen(storage: Storage, state: ReplayState) -> None:
    """Lay the profiles out with room for twice as many segments, where they stand."""
    machines, old = storage.sizes.shape[0], state.counts[WIDTH]
    width = min(2 * old, storage.times.shape[0] // machines)
    if width == old:
        raise MemoryError("a machine has more jobs planned at once than a replay has room for")
    resources = storage.free.shape[0] // storage.times.shape[0]
    for at in range(machines - 1, 0, -1):
        for index in range(storage.sizes[at] - 1, -1, -1):
            storage.times[at * width + index] = storage.times[at * old + index]
            for resource in range(resources - 1, -1, -1):
                to = (at * width + index) * resources + resource
                storage.free[to] = storage.free[(at * old + index) * resources + resource]
    state.counts[WIDTH] = width


@uncounted
def tidy_machines(now: int, state: ReplayState, holding: Holding) -> None:
    """Forget the past of all machines, and the seams that dropped reservations leave in their profiles."""
    profiles = profiles_in(holding.storage, state)
    times, free, sizes = profiles.times, profiles.free, profiles.sizes
    for on in range(sizes.shape[0]):
        sizes[on] = tidy(times[on], free[on], sizes[on], now)


@inlined
def take_now(job: int, sign: int, gangs: Gangs, held: Held, present: Fitting) -> None:
    """Take what a job holds from what is free now (``sign`` 1), or give it back (-1)."""
    present.clock[0] += 1
    for index in range(held.first[job], held.first[job] + held.used[job]):
        at, count = held.placed[index], held.counts[index]
        change_machine(present, at)
        for column in range(present.free.shape[1]):
            takes = amount_of(gangs, job, held.devices[job], count, column)
            present.free[at, column] -= sign * takes


@uncounted
def lay_at(begin: int, length: int, job: int, gangs: Gangs, state: ReplayState, holding: Holding) -> None:
    """Choose the machines and devices of a job that fits at ``begin`` for ``length``."""
    held, profiles = holding.held, profiles_in(holding.storage, state)
    open_entry(job, gangs, state, held)
    filled, left = state.counts[FILLED], gangs.pieces[job]
    for at in range(profiles.sizes.shape[0]):
        if left == 0:
            break
        if may_use(gangs, job, at):
            here = fitting_for(profiles, at, begin, begin + length, gangs.need[job], gangs.devices[job], left)
            if here > 0:
                held.placed[filled] = at
                held.counts[filled] = here
                filled += 1
                left -= here
    held.used[job] = filled - held.first[job]
    state.counts[FILLED] = filled
    choose_devices(begin, length, job, gangs, state, holding)


@uncounted
def choose_devices(begin: int, length: int, job: int, gangs: Gangs, state: ReplayState, holding: Holding) -> None:
    """Choose the devices of a job that fits on its machine at ``begin`` for ``length``."""
    held, many, each = holding.held, gangs.devices[job, MANY], gangs.devices[job, EACH]
    if many > 0:
        profiles, at = profiles_in(holding.storage, state), held.placed[held.first[job]]
        through = devices_through(profiles, at, begin, begin + length, gangs.need.shape[1], each)
        held.devices[job] = first_devices(through, many)


@uncounted
def lay_now(present: Integers, job: int, gangs: Gangs, state: ReplayState, held: Held) -> None:
    """Choose the machines and devices of a job that fits into what is free now, (N, R + D)."""
    open_entry(job, gangs, state, held)
    filled, left = state.counts[FILLED], gangs.pieces[job]
    need, devices = gangs.need[job], gangs.devices[job]
    for at in range(present.shape[0]):
        here = fitting_on(present, at, need, devices, left) if may_use(gangs, job, at) else 0
        if here > 0:
            held.placed[filled] = at
            held.counts[filled] = here
            filled += 1
            left -= here
            if devices[MANY] > 0:
                held.devices[job] = first_devices(
                    open_devices(present, at, need.shape[0], devices[EACH]), devices[MANY]
                )
            if left == 0:
                break
    held.used[job] = filled - held.first[job]
    state.counts[FILLED] = filled


@inlined
def open_entry(job: int, gangs: Gangs, state: ReplayState, held: Held) -> None:
    """Let a job hold nothing, and its entries begin behind the others, where there is room for one a machine."""
    held.used[job] = 0
    if state.counts[FILLED] + gangs.kind.shape[0] > state.counts[LIMIT]:
        _drop_unheld(gangs.kind.shape[0], state, held)
    held.first[job] = state.counts[FILLED]


@uncounted
def _drop_unheld(machines: int, state: ReplayState, held: Held) -> None:
    """Drop entries that no job holds; set the number of entries at which the next pass is due."""
    first, used, placed, counts = held.first, held.used, held.placed, held.counts
    size = 0
    for job in range(state.counts[ARRIVED]):
        for at in range(used[job]):
            held.moved[0, size + at] = placed[first[job] + at]
            held.moved[1, size + at] = counts[first[job] + at]
        first[job] = size
        size += used[job]
    for at in range(size):
        placed[at] = held.moved[0, at]
        counts[at] = held.moved[1, at]
    state.counts[FILLED] = size
    state.counts[LIMIT] = min(2 * (size + machines), placed.shape[0])
