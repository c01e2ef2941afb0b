"""DT_cost with C as the objective of HSA, and what KMNS does when best fit wants more nodes than were emptied."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from packing_cases import uniform_instances

from cotide_lab.consolidation.hsa import hsa
from cotide_lab.consolidation.instance import Instance, first_overfull
from cotide_lab.consolidation.kmns import kmns
from cotide_lab.consolidation.metrics import weighted_transfer
from cotide_lab.consolidation.switch_tree import SwitchTree


def instance(sizes: list[int], homes: list[int], nodes: int) -> Instance:
    return Instance(np.array(sizes).reshape(-1, 1), np.array(homes), np.full((nodes, 1), 100))


def test_the_plan_of_the_least_transfer_is_not_the_one_of_the_least_distance() -> None:
    # Nodes of 80 and 70 under one switch, of 60 and 70 under another: no pair fits into one node, all fit into three.
    four = instance([50, 30, 30, 40, 50, 10, 20, 50], [0, 0, 1, 1, 2, 2, 3, 3], 4)
    tree = SwitchTree.of_ports(4, 2)
    plain, near = hsa(four, tree).outcome, hsa(four, tree, by_distance=True).outcome
    # Plain: 30 and 40 leave node 1 for the other switch: 70 moved, 70 x 2.
    assert (plain.nodes_used, plain.transfer, weighted_transfer(four, plain, tree)) == (3, 70, 140)
    # By distance: 50 of node 3 stays under its switch, 20 of it and 10 of node 2 leave it: 50 + 20 x 2 + 10 x 2.
    assert (near.nodes_used, near.transfer, weighted_transfer(four, near, tree)) == (3, 80, 110)


@settings(max_examples=30, deadline=None)
@given(uniform_instances())
def test_a_plan_by_distance_overfills_no_node(drawn: Instance) -> None:
    found = hsa(drawn, SwitchTree.of_ports(drawn.nodes, 2), by_distance=True).outcome
    assert first_overfull(drawn, found.targets) == -1


def test_nothing_moves_when_best_fit_wants_more_nodes_than_were_emptied() -> None:
    # 100 and 100, both emptied: 50 + 40, then 40 + 30 + 20, and the second 20 fits into neither.
    two = instance([50, 30, 20, 40, 40, 20], [0, 0, 0, 1, 1, 1], 2)
    found = kmns(two, 2)
    assert found.targets.tolist() == [0, 0, 0, 1, 1, 1]
    assert (found.nodes_used, found.transfer) == (2, 0)
