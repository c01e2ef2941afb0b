"""KMNS(K) with any number of resources and unequal nodes; see `kmns` for how it differs from the paper's form.

Called by `kmns` and `dmns`. Best fit looks at every open node for every application: a trial takes time in proportion
to moved applications times nodes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled
from cotide_lab.consolidation.instance import Instance, Outcome

NO_LIMIT: Final = 2**62
"""A cost that no trial reaches."""


@compiled
def trial_of_vectors(  # noqa: PLR0912  one compiled loop over the applications
    sizes: Integers,
    homes: Integers,
    moving: Integers,
    ranks: Integers,
    capacities: Integers,
    rooms: Integers,
    targets: Integers,
    limits: Integers,
) -> Integers:
    """Empty the first nodes in order, with any number of resources.

    Parameters
    ----------
    sizes, homes, moving : (M, R), (M,), (M,) of the applications, largest first.
    ranks : (N,) position of each node in the order of emptying.
    capacities, rooms : (N, R); rooms are written: the free amounts of the nodes, before anything is emptied.
    targets : (M,) written: the node of each application afterwards.
    limits : (4,) drained, fewest nodes possible, best nodes used, best transfer.

    Returns
    -------
    (2,) nodes used, or -1 when it gave up or found no room, and transfer.
    """
    drained, fewest, best_used, best_transfer = limits[0], limits[1], limits[2], limits[3]
    nodes, resources = capacities.shape
    is_open = np.zeros(nodes, np.bool_)
    holds = np.zeros(nodes, np.bool_)
    answer = np.array([-1, 0])
    for item in range(homes.shape[0]):
        holds[homes[item]] = True
    used = 0
    for node in range(nodes):
        is_open[node] = ranks[node] >= drained
        if is_open[node]:
            used += holds[node]
        else:
            holds[node] = False
            rooms[node] = capacities[node]
    for item in range(homes.shape[0]):
        home = homes[item]
        targets[item] = home
        if ranks[home] >= drained:
            continue
        best, best_left = -1, 2.0
        for node in range(nodes):
            if is_open[node]:
                left = _left_after(rooms[node], sizes[item], capacities[node], resources)
                if 0 <= left < best_left:
                    best, best_left = node, left
        if best < 0 and not is_open[home]:
            best = home
        if best < 0:
            for node in range(nodes):
                if not is_open[node]:
                    left = _left_after(rooms[node], sizes[item], capacities[node], resources)
                    if 0 <= left < best_left:
                        best, best_left = node, left
        if best < 0:
            return answer
        is_open[best] = True
        used += not holds[best]
        holds[best] = True
        targets[item] = best
        for resource in range(resources):
            rooms[best, resource] -= sizes[item, resource]
        if best != home:
            answer[1] += moving[item]
        if used > best_used or (max(used, fewest) == best_used and answer[1] >= best_transfer):
            return answer
    answer[0] = used
    return answer


@compiled
def _left_after(room: Integers, size: Integers, capacity: Integers, resources: int) -> float:
    """Return the share that is left of a node's fullest resource once an application is on it; -1 if it has no room."""
    least = 1.0
    for resource in range(resources):
        left = room[resource] - size[resource]
        if left < 0:
            # A resource that the application does not request may be overfull already.
            if size[resource] > 0:
                return -1.0
            left = 0
        least = min(least, left / capacity[resource])
    return least


class VectorTrials:
    """The vector form of one instance in one order of emptying; `run` tries one K."""

    def __init__(self, instance: Instance, order: Integers) -> None:
        self._instance = instance
        self._items = np.lexsort((np.arange(instance.applications), -instance.size_shares))
        self._ranks = np.empty(instance.nodes, np.int64)
        self._ranks[order] = np.arange(instance.nodes)
        items = self._items
        self._arrays = (instance.sizes[items], instance.homes[items], instance.moving[items], self._ranks)
        self._targets = np.zeros(instance.applications, np.int64)

    def run(self, drained: int, best_used: int = NO_LIMIT, best_transfer: int = NO_LIMIT) -> Outcome | None:
        """Return the outcome of emptying the first `drained` nodes; None when it can't be below the best."""
        instance = self._instance
        rooms = instance.capacities - instance.loads
        limits = np.array([drained, instance.fewest_by_volume, best_used, best_transfer])
        used, _ = trial_of_vectors(*self._arrays, instance.capacities, rooms, self._targets, limits)
        if used < 0:
            return None
        targets = np.empty_like(self._targets)
        targets[self._items] = self._targets
        return instance.outcome(targets, drained)
