"""The bounds against every placement of small instances, and the plan against DMNS and the bounds."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from packing_cases import instance_of, uniform_instances, vector_instances

from cotide_lab.consolidation.dmns import dmns
from cotide_lab.consolidation.instance import Instance, first_overfull
from cotide_lab.consolidation.lower_bound import fewest_nodes, knapsack, least_transfer
from cotide_lab.consolidation.metrics import weighted_transfer
from cotide_lab.consolidation.switch_tree import SwitchTree
from cotide_lab.consolidation.transfer_plan import exchange, fill_in_turn, gap, plan
from cotide_lab.experiments.consolidation.highs_once import Highs


def best_of_all(instance: Instance) -> tuple[int, int]:
    """Nodes and transfer of the best placement, by trying all."""
    best = instance.outcome(instance.homes).cost
    for targets in itertools.product(range(instance.nodes), repeat=instance.applications):
        found = instance.outcome(np.array(targets, np.int64))
        if found.cost < best and first_overfull(instance, found.targets) < 0:
            best = found.cost
    return best


def test_three_halves_need_three_nodes_where_the_volume_says_two() -> None:
    # 3 x 51 = 153 of 100: two nodes by volume; no two of them fit on one node.
    instance = instance_of([51], [51], [51])
    assert instance.fewest_by_volume == 2
    bound = fewest_nodes(instance, Highs(), dmns(instance))
    assert (bound.nodes, bound.method) == (3, "column generation")


def test_the_bound_counts_what_each_kind_of_node_holds() -> None:
    # Two resources: a pair fills one node by cpu, another pair by memory; mixed pairs leave both half empty.
    sizes = np.array([[6, 1], [6, 1], [1, 6], [1, 6]], np.int64)
    instance = Instance(sizes, np.arange(4), np.full((4, 2), 10, np.int64))
    bound = fewest_nodes(instance, Highs(), instance.outcome(instance.homes))
    assert bound.nodes == 2 == plan(instance, solver=Highs()).outcome.nodes_used


def test_the_two_lightest_nodes_are_the_least_that_can_move() -> None:
    instance = instance_of([5], [10], [20], [30])
    assert [least_transfer(instance, nodes) for nodes in (4, 3, 2, 1)] == [0, 5, 15, 35]


@given(uniform_instances(3))
@settings(max_examples=25, deadline=None)
def test_bounds_hold_and_the_plan_meets_the_best_of_all_placements(instance: Instance) -> None:
    if instance.applications > 7:
        return
    nodes, transfer = best_of_all(instance)
    found = plan(instance, solver=Highs())
    assert found.nodes_bound is not None
    assert found.nodes_bound.nodes <= nodes
    assert least_transfer(instance, nodes) <= transfer
    assert found.outcome.cost == (nodes, transfer)


@given(vector_instances())
@settings(max_examples=40, deadline=None)
def test_the_plan_is_never_worse_than_dmns_and_overfills_nothing(instance: Instance) -> None:
    found = plan(instance, tree=SwitchTree.of_ports(instance.nodes, 2))
    assert found.outcome.cost <= dmns(instance).cost
    assert first_overfull(instance, found.outcome.targets) == -1
    assert found.outcome.transfer >= found.transfer_bound


@given(uniform_instances(9))
@settings(max_examples=60, deadline=None)
def test_dealing_anew_crosses_no_more_switches_and_keeps_every_load(instance: Instance) -> None:
    tree = SwitchTree.of_ports(instance.nodes, 2, 3)
    before = dmns(instance)
    after = instance.outcome(exchange(instance, before.targets, tree))
    assert (instance.moved_to(after.targets).loads == instance.moved_to(before.targets).loads).all()
    assert after.transfer <= before.transfer
    assert weighted_transfer(instance, after, tree) <= weighted_transfer(instance, before, tree)


def test_equal_sizes_change_their_targets_to_stay_under_their_switch() -> None:
    # Nodes 0 and 1 under one switch, 2 and 3 under the other; both 10s would cross.
    instance = instance_of([10], [50], [10], [50])
    tree = SwitchTree.of_ports(4, 2)
    assert exchange(instance, np.array([3, 1, 1, 3]), tree).tolist() == [1, 1, 3, 3]


@given(st.lists(st.integers(1, 30), max_size=9), st.lists(st.integers(0, 40), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_filling_in_turn_fills_the_first_room_as_far_as_any_subset_can(sizes: list[int], rooms: list[int]) -> None:
    ordered = np.array(sorted(sizes, reverse=True), np.int64)
    chosen = fill_in_turn(ordered, np.array(rooms, np.int64))
    filled = [int(ordered[chosen == at].sum()) for at in range(len(rooms))]
    assert all(held <= room for held, room in zip(filled, rooms, strict=True))
    sums = {sum(part) for count in range(len(sizes) + 1) for part in itertools.combinations(sizes, count)}
    assert filled[0] == max(one for one in sums if one <= rooms[0])


@given(
    st.lists(st.tuples(st.integers(1, 20), st.floats(0, 1), st.integers(0, 3)), min_size=1, max_size=4),
    st.integers(0, 40),
)
@settings(max_examples=60, deadline=None)
def test_the_knapsack_is_worth_as_much_as_the_best_of_all(things: list[tuple[int, float, int]], room: int) -> None:
    sizes, prices, most = (np.array(column) for column in zip(*things, strict=True))
    parts = sum(int(count).bit_length() for count in most)
    taken = knapsack(sizes, prices, most, room, parts)
    every = itertools.product(*[range(count + 1) for count in most])
    best = max(np.dot(one, prices) for one in every if np.dot(one, sizes) <= room)
    assert taken @ sizes <= room
    assert (taken <= most).all()
    assert abs(taken @ prices - best) < 1e-9


def test_a_gap_is_a_share_of_the_bound() -> None:
    assert gap(110, 100) == 1.1 - 1
    assert gap(5, 5) == 0
    assert gap(1, 0) == float("inf")
