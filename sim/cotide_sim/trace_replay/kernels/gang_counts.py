"""How many pieces of each shape of job fit, kept up to date where something changed.

Called by the replays of gangs, which ask that of every waiting job in every round. Machines stand in blocks; each shape
remembers how many of its pieces fit into each block, and when it last looked. A block is looked at again only when it
has changed since. Invariant: what is counted is the sum of `gangs.fitting_on` over the machines allowed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.compiled import compiled
from cotide_sim.trace_replay.kernels.gangs import fitting_on

Integers = npt.NDArray[np.int64]

BLOCK_BITS: Final = 3
"""A block is two to this power machines: few are looked at in vain, and a shape's counts stay small (chosen)."""


@compiled
def blocks_of(machines: int) -> int:
    """Return how many blocks so many machines make."""
    return ((machines - 1) >> BLOCK_BITS) + 1


@compiled
def most_pieces(shape: Integers, pieces: Integers) -> Integers:
    """Return the most pieces that a job of each shape has: more than that need not be counted on a machine."""
    most = np.zeros(shape.max() + 1, np.int64)
    for job in range(shape.shape[0]):
        most[shape[job]] = max(most[shape[job]], pieces[job])
    return most


@compiled
def all_fit(
    free: Integers,
    room: Integers,
    needs: Integers,
    job: int,
    pieces: int,
    most: int,
    allowed: int,
    kind: Integers,
    like: int,
    inside: Integers,
    changed: Integers,
    seen: Integers,
    total: Integers,
    moment: int,
    gained: int,
) -> bool:
    """Return whether all pieces of a job fit.

    Parameters
    ----------
    free : (N, R) amounts.
    room : (2, R) of `room_of` at ``gained`` or later: at least what is free on one machine, and on all.
    needs : (n, R) of a piece of each job.
    like, most : shape of the job, and `most_pieces` of it.
    inside : (shapes, blocks) pieces that fit into each block when a shape was counted last; kept here.
    changed : (blocks,) the moment at which each changed last.
    seen, total : (shapes,) the moment at which a shape was counted last, and the sum of its ``inside``; kept here.
    moment, gained : now, and when something became free last: in between less and less is.
    """
    if total[like] < pieces and seen[like] >= gained:
        return False
    for resource in range(free.shape[1]):
        if needs[job, resource] > room[0, resource] or needs[job, resource] * pieces > room[1, resource]:
            return False
    if seen[like] < moment:
        total[like] = count_again(free, needs[job], most, allowed, kind, inside[like], changed, seen[like], total[like])
        seen[like] = moment
    fits: bool = total[like] >= pieces
    return fits


@compiled
def count_again(
    free: Integers,
    need: Integers,
    most: int,
    allowed: int,
    kind: Integers,
    inside: Integers,
    changed: Integers,
    seen: int,
    total: int,
) -> int:
    """Return how many pieces of a shape fit now, on any one machine ``most`` at most; parameters as in `all_fit`."""
    for block in range(changed.shape[0]):
        if changed[block] <= seen:
            continue
        fits = 0
        begin = block << BLOCK_BITS
        for at in range(begin, min(begin + (1 << BLOCK_BITS), free.shape[0])):
            if (allowed >> kind[at]) & 1:
                fits += fitting_on(free, at, need, most)
        total += fits - inside[block]
        inside[block] = fits
    return total
