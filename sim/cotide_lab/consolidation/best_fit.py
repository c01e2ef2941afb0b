"""Best fit on nodes in order of the room that is left: the inner step of every trial in one dimension.

Called by the kernels of `kmns`. A node is one int64, its room above `NUMBER_BITS` and its number below. So nodes in
order of the keys are in order of (room, number). The best fit is the first key that is large enough, found by halving.
Untouched nodes are in a row that never moves. A node that is taken out is skipped from then on, by links that are
halved at each look. Nodes with room left after an item enter a second row, kept in order by moving neighbours. Nodes
without room for the smallest item are left out. So neither row moves as a whole for an item, and the better of both
firsts is the same node that one row would give.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.compiled import compiled

Integers = NDArray[np.int64]

NUMBER_BITS: Final = 21
"""Bits of a node's number: N nodes and as many added ones, N up to 2**20."""
NUMBER_MASK: Final = 2**NUMBER_BITS - 1
UNTOUCHED, USED = 0, 1
"""Positions in `Rooms.counts`."""


class Rooms(NamedTuple):
    """The nodes of one trial by the room that they have.

    Attributes
    ----------
    untouched : keys in order, (N,) long. links : (N + 1,) the next position, from each, that was not taken out.
    used : keys in order, of nodes that took something, (2N + 1,) long. counts : (2,) keys in each of the two.
    """

    untouched: Integers
    links: Integers
    used: Integers
    counts: Integers


def rooms_of(nodes: int) -> Rooms:
    """Make the arrays for trials on N nodes."""
    return Rooms(
        np.zeros(nodes, np.int64), np.zeros(nodes + 1, np.int64), np.zeros(2 * nodes + 1, np.int64),
        np.zeros(2, np.int64),
    )  # fmt: skip


@compiled
def first_at_least(keys: Integers, low: int, high: int, wanted: int) -> int:
    """Return the first position from `low` with a key of at least `wanted`; `high` when there is none."""
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def put_best(rooms: Rooms, size: int, smallest: int) -> int:
    """Put an item of `size` on the fullest node that has room; return the node's key then, or -1.

    `smallest`: of all items still to come; a node with less room is forgotten.
    """
    wanted = size << NUMBER_BITS
    untouched, links, used = rooms.untouched, rooms.links, rooms.used
    at = first_at_least(untouched, 0, rooms.counts[UNTOUCHED], wanted)
    while links[at] != at:
        links[at] = links[links[at]]
        at = links[at]
    other = first_at_least(used, 0, rooms.counts[USED], wanted)
    if other < rooms.counts[USED] and (at == rooms.counts[UNTOUCHED] or used[other] < untouched[at]):
        lowered = int(used[other]) - wanted
        _lower(rooms, other, lowered, smallest)
        return lowered
    if at == rooms.counts[UNTOUCHED]:
        return -1
    lowered = int(untouched[at]) - wanted
    links[at] = at + 1
    add_room(rooms, lowered, smallest)
    return lowered


@compiled
def _lower(rooms: Rooms, at: int, key: int, smallest: int) -> None:
    """Give a used node another key, below its former one."""
    used = rooms.used
    if key >> NUMBER_BITS < smallest:
        rooms.counts[USED] -= 1
        for slot in range(at, rooms.counts[USED]):
            used[slot] = used[slot + 1]
        return
    to = first_at_least(used, 0, at, key)
    for slot in range(at, to, -1):
        used[slot] = used[slot - 1]
    used[to] = key


@compiled
def add_room(rooms: Rooms, key: int, smallest: int) -> None:
    """Add a node that took something, by its key, unless it has no room for the smallest item."""
    if key >> NUMBER_BITS < smallest:
        return
    used, count = rooms.used, rooms.counts[USED]
    to = first_at_least(used, 0, count, key)
    for slot in range(count, to, -1):
        used[slot] = used[slot - 1]
    used[to] = key
    rooms.counts[USED] += 1
