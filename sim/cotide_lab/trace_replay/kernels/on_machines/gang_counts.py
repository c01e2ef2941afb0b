"""How many pieces of each shape of job fit, kept up to date where something changed.

Called by the replays of gangs, which ask that of every waiting job in every round. Machines stand in blocks; each shape
remembers how many of its pieces fit into each block, and when it last looked. A block is looked at again only when it
has changed since. Invariant: what is counted is the sum of `gangs.fitting_on` over the machines allowed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import inlined, uncounted
from cotide_lab.trace_replay.kernels.on_machines.gangs import Gangs, fitting_on, may_use, room_of

BLOCK_BITS: Final = 3
"""A block is two to this power machines: few are looked at in vain, and a shape's counts stay small (chosen)."""
GAINED: Final = 0
"""Index in ``moments`` of when something became free last: in between less and less is."""
ROOMED: Final = 1
"""Index in ``moments`` of when ``room`` was worked out last."""


class Fitting(NamedTuple):
    """How many pieces of each shape fit into what is free.

    Attributes
    ----------
    free : (N, R + D) amounts, and those of devices.
    room : (2, R) of `room_of` when something became free last, or later: at least what is free on one machine, and on
        all.
    most : (shapes,) of `most_pieces`.
    inside : (shapes, blocks) pieces that fit into each block when a shape was counted last.
    changed : (blocks,) the moment at which each changed last.
    seen, total : (shapes,) the moment at which a shape was counted last, and the sum of its ``inside``.
    moments : (2,) at the indices above.
    clock : (1,) the moment that it is.
    """

    free: Integers
    room: Integers
    most: Integers
    inside: Integers
    changed: Integers
    seen: Integers
    total: Integers
    moments: Integers
    clock: Integers


def fitting_of(gangs: Gangs, clock: Integers) -> Fitting:
    """Return the counts on empty machines, all of them still to be made."""
    most = most_pieces(gangs.shape, gangs.pieces)
    machines, resources = len(gangs.capacity), gangs.need.shape[1]
    inside = np.zeros((len(most), blocks_of(machines)), np.int64)
    seen, total = np.zeros((2, len(most)), np.int64)
    changed = np.ones(blocks_of(machines), np.int64)
    room = np.zeros((2, resources), np.int64)
    return Fitting(gangs.capacity.copy(), room, most, inside, changed, seen, total, np.array([1, 0]), clock)


@uncounted
def blocks_of(machines: int) -> int:
    """Return how many blocks so many machines make."""
    return ((machines - 1) >> BLOCK_BITS) + 1


def most_pieces(shape: Integers, pieces: Integers) -> Integers:
    """Return the most pieces that a job of each shape has: more than that need not be counted on a machine."""
    most = np.zeros(int(shape.max(initial=-1)) + 1, np.int64)
    np.maximum.at(most, shape, pieces)
    return most


@inlined
def gained(fitting: Fitting) -> None:
    """Take note that something becomes free at the moment that it is."""
    fitting.moments[GAINED] = fitting.clock[0]


@inlined
def change_machine(fitting: Fitting, at: int) -> None:
    """Take note that what is free on a machine changes at the moment that it is."""
    fitting.changed[at >> BLOCK_BITS] = fitting.clock[0]


@inlined
def work_out_room(fitting: Fitting) -> None:
    """Bring ``room`` up to date if something became free since."""
    if fitting.moments[GAINED] > fitting.moments[ROOMED]:
        room_of(fitting.free, fitting.room)
        fitting.moments[ROOMED] = fitting.clock[0]


@uncounted
def all_fit(fitting: Fitting, job: int, gangs: Gangs) -> bool:
    """Return whether all pieces of a job fit."""
    like, pieces, room = gangs.shape[job], gangs.pieces[job], fitting.room
    total, seen = fitting.total, fitting.seen
    if total[like] < pieces and seen[like] >= fitting.moments[GAINED]:
        return False
    for resource in range(room.shape[1]):
        needs = gangs.need[job, resource]
        if needs > room[0, resource] or needs * pieces > room[1, resource]:
            return False
    if seen[like] < fitting.clock[0]:
        count_again(fitting, job, gangs)
    fits: bool = total[like] >= pieces
    return fits


@uncounted
def count_again(fitting: Fitting, job: int, gangs: Gangs) -> None:
    """Count how many pieces of a job's shape fit now, on any one machine `most_pieces` at most."""
    like, free, need, devices = gangs.shape[job], fitting.free, gangs.need[job], gangs.devices[job]
    most, seen, total = fitting.most[like], fitting.seen[like], fitting.total[like]
    for block in range(fitting.changed.shape[0]):
        if fitting.changed[block] <= seen:
            continue
        fits = 0
        begin = block << BLOCK_BITS
        for at in range(begin, min(begin + (1 << BLOCK_BITS), free.shape[0])):
            if may_use(gangs, job, at):
                fits += fitting_on(free, at, need, devices, most)
        total += fits - fitting.inside[like, block]
        fitting.inside[like, block] = fits
    fitting.total[like] = total
    fitting.seen[like] = fitting.clock[0]
