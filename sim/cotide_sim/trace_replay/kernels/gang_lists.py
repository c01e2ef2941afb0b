"""Which machines each job of a replay holds, end to end in two lists, and what that takes from the machines' profiles.

Called by the kernels for gangs. Job j holds ``counts[k]`` pieces on machine ``placed[k]``, for ``used[j]`` places k
from ``first[j]`` on. New entries go behind the others; what no job holds any more is dropped when a list is full.
Invariant: entries of jobs that hold machines are never lost or changed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.compiled import compiled
from cotide_sim.trace_replay.kernels.gangs import fitting_on, lay_gang, take_gang, tidy

Integers = npt.NDArray[np.int64]

SEGMENTS: Final = 8
"""Segments of a machine that there is room for at first; `book_gang` doubles them when that is not enough (chosen)."""


@compiled
def book_gang(
    times: Integers,
    free: Integers,
    sizes: Integers,
    now: int,
    begin: int,
    end: int,
    need: Integers,
    on: Integers,
    of: Integers,
    sign: int,
) -> tuple[Integers, Integers]:
    """Take a gang's amounts (``sign`` 1) or give them back (-1); return the profiles, wider where that was needed."""
    for at in on:
        if sizes[at] + 2 > times.shape[1]:
            sizes[at] = tidy(times[at], free[at], sizes[at], now)
            if 2 * (sizes[at] + 2) > times.shape[1]:
                times, free = _wider(times, free, sizes)
    take_gang(times, free, sizes, begin, end, need, on, of, sign)
    return times, free


@compiled
def _wider(times: Integers, free: Integers, sizes: Integers) -> tuple[Integers, Integers]:
    """Return the profiles with room for twice as many segments."""
    more_times = np.zeros((times.shape[0], 2 * times.shape[1]), np.int64)
    more_free = np.zeros((free.shape[0], 2 * free.shape[1], free.shape[2]), np.int64)
    for at in range(sizes.shape[0]):
        for place in range(sizes[at]):
            more_times[at, place] = times[at, place]
            for resource in range(free.shape[2]):
                more_free[at, place, resource] = free[at, place, resource]
    return more_times, more_free


@compiled
def laid_at(
    times: Integers,
    free: Integers,
    sizes: Integers,
    begin: int,
    length: int,
    need: Integers,
    pieces: int,
    allowed: int,
    kind: Integers,
    job: int,
    arrived: int,
    first: Integers,
    used: Integers,
    filled: int,
    placed: Integers,
    counts: Integers,
) -> tuple[int, Integers, Integers]:
    """Choose the machines of a job that fits at ``begin``; return all jobs' machines and pieces with its own behind."""
    used[job] = 0
    filled, placed, counts = with_room(sizes.shape[0], arrived, first, used, filled, placed, counts)
    first[job] = filled
    used[job] = lay_gang(
        times, free, sizes, begin, length, need, pieces, allowed, kind, placed[filled:], counts[filled:]
    )
    return filled + used[job], placed, counts


@compiled
def laid_now(
    present: Integers,
    need: Integers,
    pieces: int,
    allowed: int,
    kind: Integers,
    job: int,
    arrived: int,
    first: Integers,
    used: Integers,
    filled: int,
    placed: Integers,
    counts: Integers,
) -> tuple[int, Integers, Integers]:
    """Choose the machines of a job that fits into what is free now; return as `laid_at` does."""
    used[job] = 0
    filled, placed, counts = with_room(present.shape[0], arrived, first, used, filled, placed, counts)
    first[job] = filled
    left = pieces
    for at in range(present.shape[0]):
        here = fitting_on(present, at, need, left) if (allowed >> kind[at]) & 1 else 0
        if here > 0:
            placed[filled] = at
            counts[filled] = here
            filled += 1
            left -= here
            if left == 0:
                break
    used[job] = filled - first[job]
    return filled, placed, counts


@compiled
def with_room(
    machines: int, arrived: int, first: Integers, used: Integers, filled: int, placed: Integers, counts: Integers
) -> tuple[int, Integers, Integers]:
    """Return the lists with room for one entry a machine: what no job holds any more is dropped when they are full."""
    if filled + machines <= placed.shape[0]:
        return filled, placed, counts
    live = 0
    for job in range(arrived):
        live += used[job]
    on = np.empty(2 * (live + machines), np.int64)
    of = np.empty(2 * (live + machines), np.int64)
    size = 0
    for job in range(arrived):
        for at in range(used[job]):
            on[size + at] = placed[first[job] + at]
            of[size + at] = counts[first[job] + at]
        first[job] = size
        size += used[job]
    return size, on, of
