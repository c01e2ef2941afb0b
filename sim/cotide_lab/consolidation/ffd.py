"""FFD: packs every application again by first fit, largest first (Johnson et al. 1974).

Called by the experiments. With equal nodes the packing ignores where applications are. Its nodes are matched to the old
ones afterwards, as Wen et al. do for BFD. With unequal nodes the fullest node comes first in the row.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled
from cotide_lab.consolidation.instance import Instance, Outcome
from cotide_lab.consolidation.kmns import by_load


def ffd(instance: Instance) -> Outcome:
    """Return the packing; if unequal nodes leave an application without room, nothing is moved."""
    items = np.lexsort((np.arange(instance.applications), -instance.size_shares))
    nodes = by_load(instance)[::-1]
    rooms = instance.capacities[nodes]
    targets = np.full(instance.applications, -1, np.int64)
    if not _first_fit(instance.sizes[items], rooms, targets):
        return instance.outcome(instance.homes.copy())
    packed = np.empty_like(targets)
    packed[items] = targets
    if not instance.is_uniform:
        return instance.outcome(nodes[packed])
    return instance.outcome(match_nodes(instance, packed)[packed])


def match_nodes(instance: Instance, packed: Integers) -> Integers:
    """Give each new node of a packing an old one: the one that shares most with it, the largest share first.

    Parameters
    ----------
    packed : (M,) number of each application's new node, from 0 to N - 1.

    Returns
    -------
    (N,) the old node for each new one; new nodes without applications take the remaining ones.
    """
    pairs, inverse = np.unique(packed * instance.nodes + instance.homes, return_inverse=True)
    shared = np.zeros(len(pairs), np.int64)
    np.add.at(shared, inverse, instance.moving)
    becomes = np.full(instance.nodes, -1, np.int64)
    taken = np.zeros(instance.nodes, np.bool_)
    for pair in np.lexsort((pairs, -shared)):
        new, old = divmod(int(pairs[pair]), instance.nodes)
        if becomes[new] < 0 and not taken[old]:
            becomes[new], taken[old] = old, True
    becomes[becomes < 0] = np.flatnonzero(~taken)
    return becomes


@compiled
def _first_fit(sizes: Integers, rooms: Integers, targets: Integers) -> bool:
    """Write the node of each item; rooms are used up. Returns whether all items found one."""
    nodes, resources = rooms.shape
    for item in range(sizes.shape[0]):
        for node in range(nodes):
            fits = True
            for resource in range(resources):
                fits = fits and rooms[node, resource] >= sizes[item, resource]
            if fits:
                for resource in range(resources):
                    rooms[node, resource] -= sizes[item, resource]
                targets[item] = node
                break
        if targets[item] < 0:
            return False
    return True
