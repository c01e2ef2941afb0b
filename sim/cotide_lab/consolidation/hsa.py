"""HSA: consolidation switch by switch and level by level up the tree (Wen et al., Algorithm 3).

Called by the experiments. At each level the nodes under one switch are one subset, where all transfers cost the same. A
method for subsets runs on each: DMNS in the paper, or also DMAS and BFD. Nodes that are then above the threshold leave
as full, and empty nodes leave as freed. The others meet under the next level's switches.

Above the first level the transfers of a subset differ in cost: its nodes hang on different switches below, and an
application may have come from another node. ``by_distance`` counts DT_cost with C (III-B.2), from the first node of
each application, with the level of the lowest common switch as C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_lab.consolidation.dmns import dmns
from cotide_lab.consolidation.instance import Instance, Outcome
from cotide_lab.consolidation.kmns import kmns
from cotide_lab.consolidation.switch_tree import SwitchTree

THRESHOLD: Final = 0.95
"""Load above which a node is full (Wen et al., Algorithm 3)."""

Method = Callable[[Instance], Outcome]


@dataclass(frozen=True)
class HierarchicalOutcome:
    """The result of HSA.

    Attributes
    ----------
    outcome : the final placement; its transfer counts an application once, from its first node to its last.
    level_transfers : (L,) weight moved at each level, from where each was when the level began, as the paper counts.
    level_nodes : (L,) nodes in use after each level.
    """

    outcome: Outcome
    level_transfers: tuple[int, ...]
    level_nodes: tuple[int, ...]


def hsa(
    instance: Instance,
    tree: SwitchTree,
    method: Method = dmns,
    threshold: float = THRESHOLD,
    *,
    by_distance: bool = False,
) -> HierarchicalOutcome:
    """Consolidate up the tree with one method for subsets.

    Parameters
    ----------
    by_distance : takes, among the plans with the fewest nodes, the one of the least DT_cost with C, in place of
    ``method``.
        It tries every K in full.
    """
    targets = instance.homes.copy()
    active = np.arange(instance.nodes)
    transfers, nodes_used = [], []
    for switches in tree.switches:
        before = targets.copy()
        for subset in _subsets(active, switches):
            if by_distance:
                _consolidate_by_distance(instance, targets, subset, tree)
            else:
                _consolidate(instance, targets, subset, method)
        transfers.append(int(instance.moving[before != targets].sum()))
        nodes_used.append(int(np.count_nonzero(np.bincount(targets, minlength=instance.nodes))))
        shares = instance.moved_to(targets).load_shares
        active = active[(shares[active] > 0) & (shares[active] <= threshold)]
    return HierarchicalOutcome(instance.outcome(targets), tuple(transfers), tuple(nodes_used))


def _subsets(active: Integers, switches: Integers) -> list[Integers]:
    if not len(active):
        return []
    over = switches[active]
    order = np.argsort(over, kind="stable")
    edges = np.flatnonzero(np.diff(over[order])) + 1
    return [subset for subset in np.split(active[order], edges) if len(subset) > 1]


def _part_of(instance: Instance, targets: Integers, subset: Integers) -> tuple[Integers, Instance]:
    """Return the applications on a subset of nodes, and the instance that they make."""
    inside = np.zeros(instance.nodes, np.bool_)
    inside[subset] = True
    applications = np.flatnonzero(inside[targets])
    return applications, instance.moved_to(targets).part(applications, subset)


def _consolidate(instance: Instance, targets: Integers, subset: Integers, method: Method) -> None:
    applications, part = _part_of(instance, targets, subset)
    targets[applications] = subset[method(part).targets]


def _consolidate_by_distance(instance: Instance, targets: Integers, subset: Integers, tree: SwitchTree) -> None:
    applications, part = _part_of(instance, targets, subset)
    moving, first = instance.moving[applications], instance.homes[applications]

    def cost(drained: int) -> tuple[int, int]:
        found = kmns(part, drained)
        return found.nodes_used, int(np.sum(moving * tree.distance(first, subset[found.targets])))

    targets[applications] = subset[kmns(part, min(range(len(subset) + 1), key=cost)).targets]
