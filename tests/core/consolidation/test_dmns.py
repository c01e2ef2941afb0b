"""DMNS and DMAS against trying every K in full, and HSA up a tree of switches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from packing_cases import instance_of, obvious_kmns, uniform_instances, vector_instances

from cotide_core.errors import InputError
from cotide_lab.consolidation.dmas import by_largest_application, dmas
from cotide_lab.consolidation.dmns import dmns, search
from cotide_lab.consolidation.energy import PowerModel, energy
from cotide_lab.consolidation.hsa import hsa
from cotide_lab.consolidation.instance import Instance, first_overfull
from cotide_lab.consolidation.kmns import by_load, kmns
from cotide_lab.consolidation.metrics import (
    local_transfer_ratio,
    nodes_used_ratio,
    transfer_estimate_ratio,
    transfer_ratio,
    weighted_transfer,
)
from cotide_lab.consolidation.switch_tree import SwitchTree


@given(uniform_instances(12))
@settings(max_examples=300, deadline=None)
def test_what_is_left_out_never_changes_the_answer(instance: Instance) -> None:
    for method, order in ((dmns, by_load(instance)), (dmas, by_largest_application(instance))):
        every = [(*obvious_kmns(instance, drained, order), drained) for drained in range(instance.nodes + 1)]
        found = method(instance)
        assert (*found.cost, found.drained) == min(every)
        assert first_overfull(instance, found.targets) == -1


@given(vector_instances())
@settings(max_examples=200, deadline=None)
def test_the_same_holds_for_vectors(instance: Instance) -> None:
    every = [kmns(instance, drained) for drained in range(instance.nodes + 1)]
    found = dmns(instance)
    assert (*found.cost, found.drained) == min((*one.cost, one.drained) for one in every)
    assert first_overfull(instance, found.targets) == -1


def test_few_packings_are_done_where_sizes_leave_many_holes() -> None:
    generator = np.random.default_rng(3)
    nodes = []
    for _ in range(256):
        held: list[int] = []
        while (size := int(generator.integers(200, 451))) + sum(held) <= 1000:
            held.append(size)
        nodes.append(held)
    instance = instance_of(*nodes, capacity=1000)
    found = search(instance, by_load(instance))
    assert found.items < 0.5 * instance.nodes * instance.applications
    assert found.finished < 0.1 * found.tried


def test_two_packings_do_where_the_lightest_nodes_fit_into_the_others() -> None:
    # 64 nodes of 15 and 64 full ones hold 7,360: 74 nodes. The 54 lightest (810) fit into the 10 others (850).
    instance = instance_of(*[[10, 5]] * 64, *[[25] * 4] * 64)
    found = search(instance, by_load(instance))
    assert found.outcome.cost == (74, 810)
    assert found.items < 3 * instance.applications


def test_nodes_first_and_then_transfer() -> None:
    # Two nodes hold all (160 of 200). K = 2 empties 20 and 40: beside 100 is no room, so both stay on one, and the
    # lesser moves: 20. K = 1 moves 20 as well, and comes first.
    found = dmns(instance_of([20], [40], [100]))
    assert (found.nodes_used, found.transfer, found.drained) == (2, 20, 1)


def test_distances_in_a_tree_of_unequal_switches() -> None:
    tree = SwitchTree.of_ports(8, 2, 4)
    assert tree.levels == 2
    left = np.array([0, 0, 0, 7])
    assert tree.distance(left, np.array([0, 1, 2, 0])).tolist() == [0, 1, 2, 2]


@pytest.mark.parametrize(
    ("switches", "words"),
    [([[0, 0], [0, 1]], "hangs on two switches"), ([[0, 1]], "no single root"), ([[]], "L and N at least 1")],
)
def test_what_is_no_tree_is_refused(switches: list[list[int]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        SwitchTree(np.array(switches, np.int64))


def test_hsa_consolidates_under_each_switch_before_it_crosses() -> None:
    # Switch 0 has 30 and 40, switch 1 has 10 and 15: level 1 moves 30 and 10, level 2 the 25 into the 70: 95 is not
    # above the threshold, but there is nothing left to join.
    instance = instance_of([30], [40], [10], [15])
    tree = SwitchTree.of_ports(4, 2)
    found = hsa(instance, tree)
    assert found.level_transfers == (40, 25)
    assert found.level_nodes == (2, 1)
    assert found.outcome.targets.tolist() == [1, 1, 1, 1]
    assert found.outcome.transfer == 30 + 10 + 15  # the 10 moved twice and counts once
    assert weighted_transfer(instance, found.outcome, tree) == 30 * 1 + (10 + 15) * 2
    assert local_transfer_ratio(instance, found, 2) == pytest.approx((2 * 100 + 25) / 95)


def test_a_node_above_the_threshold_stays_as_it_is_on_higher_levels() -> None:
    instance = instance_of([96], [], [3], [])
    tree = SwitchTree.of_ports(4, 2)
    assert hsa(instance, tree).outcome.nodes_used == 2
    assert hsa(instance, tree, threshold=0.97).outcome.nodes_used == 1


@given(uniform_instances(12))
@settings(deadline=None)
def test_hsa_overfills_nothing_and_uses_no_more_nodes(instance: Instance) -> None:
    found = hsa(instance, SwitchTree.of_ports(instance.nodes, 3))
    assert first_overfull(instance, found.outcome.targets) == -1
    assert found.outcome.nodes_used <= instance.nodes_used
    assert found.outcome.transfer <= sum(found.level_transfers)


def test_the_ratios_of_the_paper() -> None:
    instance = instance_of([20], [40], [100])
    found = dmns(instance)
    assert nodes_used_ratio(instance, found) == pytest.approx(2 / 3)
    assert transfer_ratio(instance, found) == pytest.approx(20 / 160)
    assert transfer_estimate_ratio(instance, found) == pytest.approx(1 / 3)


def test_a_switch_without_used_nodes_draws_nothing() -> None:
    instance = instance_of([50], [100], [], [])
    power = PowerModel(server_idle=100, server_peak=200, switch_base=10, switch_port=1)
    found = energy(instance, instance.outcome(instance.homes.copy()), SwitchTree.of_ports(4, 2), power)
    # Two servers: 2 x 100 idle and 100 x 1.5 of load. One edge switch with 2 ports, and the root with 1.
    assert (found.servers, found.switches, found.switches_on) == (350, 10 + 2 + 10 + 1, 2)
    assert found.total == 373
