"""Best fit on nodes kept in order of the room that is left: the inner step of every trial in one dimension.

Called by the kernels of `kmns`, `dmns`, `bfd`. A node is one int64, its room above `NUMBER_BITS` and its number below,
so that nodes in order of the keys are in order of (room, number): the best fit is the first key that is large enough,
found by halving, and the node then moves to the left over a few neighbours.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.compiled import compiled

Integers = NDArray[np.int64]

NUMBER_BITS: Final = 21
"""Bits of a node's number: N nodes and as many added ones, N up to 2**20."""
NUMBER_MASK: Final = 2**NUMBER_BITS - 1


@compiled
def first_at_least(keys: Integers, low: int, high: int, wanted: int) -> int:
    """Return the first position from `low` whose key is `wanted` or more; `high` when there is none."""
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def put_best(keys: Integers, count: int, size: int) -> int:
    """Put an item of `size` on the fullest of the first `count` nodes that has room; return its key then, or -1."""
    place = first_at_least(keys, 0, count, size << NUMBER_BITS)
    if place == count:
        return -1
    lowered = int(keys[place]) - (size << NUMBER_BITS)
    to = first_at_least(keys, 0, place, lowered)
    for at in range(place, to, -1):
        keys[at] = keys[at - 1]
    keys[to] = lowered
    return lowered


@compiled
def add_node(keys: Integers, count: int, key: int) -> None:
    """Add a node to the first `count`, by its key; there must be space for one more."""
    to = first_at_least(keys, 0, count, key)
    for at in range(count, to, -1):
        keys[at] = keys[at - 1]
    keys[to] = key
