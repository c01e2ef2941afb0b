"""Which machines each job of a replay holds, end to end in two lists, and what that takes from the machines' profiles.

Called by the kernels for gangs. Job j holds ``counts[k]`` pieces on machine ``placed[k]``, for ``used[j]`` places k
from ``first[j]`` on. New entries go behind the others; what no job holds any more is dropped when a list is full.
Invariant: entries of jobs that hold machines are never lost or changed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled, inlined, uncounted
from cotide_core.kernels.machines import Profiles, has_room
from cotide_sim.trace_replay.kernels.gangs import Gangs, fitting_for, fitting_on, may_use, take_gang, tidy
from cotide_sim.trace_replay.kernels.kept import ARRIVED, ROUNDS, SPARE, Kept

SEGMENTS: Final = 8
"""Segments of a machine that there is room for at first; `book_gang` doubles them when that is not enough (chosen)."""
FILLED: Final = SPARE
"""Place of the number of entries of the lists."""
LIMIT: Final = SPARE + 1
"""Place of the number of entries from which on what no job holds is dropped."""


class Held(NamedTuple):
    """Which machines each of n jobs holds, see above.

    Attributes
    ----------
    first, used : (n,) where a job's machines begin in the lists, and how many there are.
    placed, counts : (S,) machines and pieces; S is enough for all jobs and one more. Memory is touched as far as
        entries were written.
    moved : (2, S) where they stand while what no job holds is dropped.
    """

    first: Integers
    used: Integers
    placed: Integers
    counts: Integers
    moved: Integers


def held_of(gangs: Gangs) -> Held:
    """Return the lists before any job holds anything."""
    first, used = np.zeros((2, len(gangs.pieces)), np.int64)
    machines = len(gangs.kind)
    size = int(np.minimum(gangs.pieces, machines).sum()) + machines
    return Held(first, used, np.empty(size, np.int64), np.empty(size, np.int64), np.empty((2, size), np.int64))


def profiles_of(gangs: Gangs) -> Profiles:
    """Return the profiles of empty machines."""
    machines, resources = gangs.capacity.shape
    free = np.zeros((machines, SEGMENTS, resources), np.int64)
    free[:, 0] = gangs.capacity
    return Profiles(np.zeros((machines, SEGMENTS), np.int64), free, np.ones(machines, np.int64))


@inlined
def begin_lists(gangs: Gangs, kept: Kept) -> None:
    """Make the lists ready before the first round."""
    if kept.counts[ROUNDS] == 0:
        kept.counts[LIMIT] = 4 * gangs.kind.shape[0]


@compiled
def book_gang(
    profiles: Profiles, now: int, begin: int, end: int, job: int, gangs: Gangs, held: Held, sign: int
) -> Profiles:
    """Take a gang's amounts (``sign`` 1) or give them back (-1); return the profiles, wider where that was needed."""
    on = held.placed[held.first[job] : held.first[job] + held.used[job]]
    of = held.counts[held.first[job] : held.first[job] + held.used[job]]
    for at in on:
        if not has_room(profiles, at):
            profiles.sizes[at] = tidy(profiles.times[at], profiles.free[at], profiles.sizes[at], now)
            if 2 * (profiles.sizes[at] + 2) > profiles.times.shape[1]:
                profiles = _wider(profiles)
    take_gang(profiles, begin, end, gangs.need[job], on, of, sign)
    return profiles


@compiled
def _wider(profiles: Profiles) -> Profiles:
    """Return the profiles with room for twice as many segments."""
    times, free, sizes = profiles.times, profiles.free, profiles.sizes
    more_times = np.zeros((times.shape[0], 2 * times.shape[1]), np.int64)
    more_free = np.zeros((free.shape[0], 2 * free.shape[1], free.shape[2]), np.int64)
    for at in range(sizes.shape[0]):
        for place in range(sizes[at]):
            more_times[at, place] = times[at, place]
            for resource in range(free.shape[2]):
                more_free[at, place, resource] = free[at, place, resource]
    return Profiles(more_times, more_free, sizes)


@uncounted
def lay_at(profiles: Profiles, begin: int, length: int, job: int, gangs: Gangs, kept: Kept, held: Held) -> None:
    """Choose the machines of a job that fits at ``begin`` for ``length``."""
    open_entry(job, gangs, kept, held)
    filled, left = kept.counts[FILLED], gangs.pieces[job]
    for at in range(profiles.sizes.shape[0]):
        if left == 0:
            break
        if may_use(gangs, job, at):
            here = fitting_for(profiles, at, begin, begin + length, gangs.need[job], left)
            if here > 0:
                held.placed[filled] = at
                held.counts[filled] = here
                filled += 1
                left -= here
    held.used[job] = filled - held.first[job]
    kept.counts[FILLED] = filled


@uncounted
def lay_now(present: Integers, job: int, gangs: Gangs, kept: Kept, held: Held) -> None:
    """Choose the machines of a job that fits into what is free now, (N, R)."""
    open_entry(job, gangs, kept, held)
    filled, left = kept.counts[FILLED], gangs.pieces[job]
    for at in range(present.shape[0]):
        here = fitting_on(present, at, gangs.need[job], left) if may_use(gangs, job, at) else 0
        if here > 0:
            held.placed[filled] = at
            held.counts[filled] = here
            filled += 1
            left -= here
            if left == 0:
                break
    held.used[job] = filled - held.first[job]
    kept.counts[FILLED] = filled


@inlined
def open_entry(job: int, gangs: Gangs, kept: Kept, held: Held) -> None:
    """Let a job hold nothing, and its entries begin behind the others, where there is room for one a machine."""
    held.used[job] = 0
    if kept.counts[FILLED] + gangs.kind.shape[0] > kept.counts[LIMIT]:
        _drop_unheld(gangs.kind.shape[0], kept, held)
    held.first[job] = kept.counts[FILLED]


@uncounted
def _drop_unheld(machines: int, kept: Kept, held: Held) -> None:
    """Drop what no job holds any more; set the number of entries from which on that is done again."""
    first, used, placed, counts = held.first, held.used, held.placed, held.counts
    size = 0
    for job in range(kept.counts[ARRIVED]):
        for at in range(used[job]):
            held.moved[0, size + at] = placed[first[job] + at]
            held.moved[1, size + at] = counts[first[job] + at]
        first[job] = size
        size += used[job]
    for at in range(size):
        placed[at] = held.moved[0, at]
        counts[at] = held.moved[1, at]
    kept.counts[FILLED] = size
    kept.counts[LIMIT] = min(2 * (size + machines), placed.shape[0])
