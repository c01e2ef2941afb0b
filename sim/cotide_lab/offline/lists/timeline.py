"""Timelines of many machines: free capacity over time, and the earliest start that a job can have.

Called by the placing kernels. A timeline is a list of segments (start, free units), the last without end. Segments
stand in blocks of up to `WIDTH`, each with the most and the least free units in it. A search passes in one step over a
block where nothing, or everything, is wide enough. Its cost is a scan of blocks and not of slots; an insertion moves at
most one block's segments. Blocks no remaining job could start in are left behind for good.

Invariant: within a machine the starts rise from block to block; ``most`` and ``least`` are exact; each `reserve` leaves
free >= 0 where the caller took the start from `earliest_start`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled

WIDTH: Final = 64
"""Segments a block holds; chosen."""
NEVER: Final = 1 << 62


class Timelines(NamedTuple):
    """The timelines of all machines; block m is where machine m begins.

    Attributes
    ----------
    time, free : (blocks, WIDTH) start slot and free units of each segment.
    length, most, least, following : (blocks,) segments in use, extremes of ``free``, next block or -1.
    first : (machines,) the first block that can still matter.
    used : (1,) blocks in use.
    """

    time: Integers
    free: Integers
    length: Integers
    most: Integers
    least: Integers
    following: Integers
    first: Integers
    used: Integers


def empty_timelines(machines: int, capacity: int, jobs: int) -> Timelines:
    """Return machines free for ever, with room for a number of reservations.

    A reservation adds two segments at most, and a block splits after at least WIDTH / 2 of them.
    """
    blocks = machines + 4 * jobs // WIDTH + 1
    lines = Timelines(
        time=np.zeros((blocks, WIDTH), np.int64),
        free=np.zeros((blocks, WIDTH), np.int64),
        length=np.ones(blocks, np.int64),
        most=np.full(blocks, capacity, np.int64),
        least=np.full(blocks, capacity, np.int64),
        following=np.full(blocks, -1, np.int64),
        first=np.arange(machines, dtype=np.int64),
        used=np.full(1, machines, np.int64),
    )
    lines.free[:machines, 0] = capacity
    return lines


@compiled
def earliest_start(lines: Timelines, machine: int, demand: int, size: int, before: int) -> int:
    """Return the first slot where ``demand`` units become free for ``size`` slots, ``before`` if none is earlier."""
    block = lines.first[machine]
    begin = -1
    while block >= 0:
        if begin < 0 and lines.most[block] < demand:
            block = lines.following[block]
            continue
        if begin < 0 and lines.time[block, 0] >= before:
            return before
        if begin >= 0 and lines.least[block] >= demand:
            if lines.time[block, 0] - begin >= size:
                return begin
            block = lines.following[block]
            continue
        for index in range(lines.length[block]):
            at = lines.time[block, index]
            if begin >= 0:
                if at - begin >= size:
                    return begin
                if lines.free[block, index] < demand:
                    begin = -1
            elif lines.free[block, index] >= demand:
                if at >= before:
                    return before
                begin = at
        block = lines.following[block]
    return begin


@compiled
def leave_behind(lines: Timelines, machine: int, demand: int) -> None:
    """Drop the leading blocks where a job of ``demand``, the smallest to come, can't start."""
    block = lines.first[machine]
    while lines.most[block] < demand:
        block = lines.following[block]
    lines.first[machine] = block


@compiled
def _measure(lines: Timelines, block: int) -> None:
    most = lines.free[block, 0]
    least = most
    for index in range(1, lines.length[block]):
        most = max(most, lines.free[block, index])
        least = min(least, lines.free[block, index])
    lines.most[block] = most
    lines.least[block] = least


@compiled
def _cut(lines: Timelines, machine: int, at: int) -> tuple[int, int]:
    """Let a segment begin at a slot; return its block and slot."""
    block = lines.first[machine]
    while lines.following[block] >= 0 and lines.time[lines.following[block], 0] <= at:
        block = lines.following[block]
    low = 0
    high = lines.length[block]
    while high - low > 1:
        middle = (low + high) >> 1
        if lines.time[block, middle] <= at:
            low = middle
        else:
            high = middle
    if lines.time[block, low] == at:
        return block, low
    if lines.length[block] == WIDTH:
        half = WIDTH // 2
        fresh = lines.used[0]
        lines.used[0] += 1
        for index in range(half, WIDTH):
            lines.time[fresh, index - half] = lines.time[block, index]
            lines.free[fresh, index - half] = lines.free[block, index]
        lines.length[fresh] = WIDTH - half
        lines.length[block] = half
        lines.following[fresh] = lines.following[block]
        lines.following[block] = fresh
        _measure(lines, block)
        _measure(lines, fresh)
        if low >= half:
            block = fresh
            low -= half
    for index in range(lines.length[block], low + 1, -1):
        lines.time[block, index] = lines.time[block, index - 1]
        lines.free[block, index] = lines.free[block, index - 1]
    lines.time[block, low + 1] = at
    lines.free[block, low + 1] = lines.free[block, low]
    lines.length[block] += 1
    return block, low + 1


@compiled
def reserve(lines: Timelines, machine: int, demand: int, size: int, start: int) -> None:
    """Take ``demand`` units for ``size`` slots from ``start``, which `earliest_start` gave."""
    end = start + size
    # The end first: a split for the start's sake moves segments, and the walk below only goes by time.
    _cut(lines, machine, end)
    block, slot = _cut(lines, machine, start)
    while True:
        while slot < lines.length[block] and lines.time[block, slot] < end:
            lines.free[block, slot] -= demand
            slot += 1
        _measure(lines, block)
        if slot < lines.length[block]:
            return
        block = lines.following[block]
        slot = 0
