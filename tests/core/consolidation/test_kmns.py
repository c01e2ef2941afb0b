"""KMNS by hand, against the obvious program, and what it never does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packing_cases import instance_of, obvious_kmns, uniform_instances, vector_instances

from cotide_core.errors import InputError
from cotide_lab.consolidation.bfd import bfd
from cotide_lab.consolidation.ffd import ffd
from cotide_lab.consolidation.instance import Instance, first_overfull
from cotide_lab.consolidation.kmns import by_load, kmns


def test_the_least_loaded_node_is_emptied_into_the_fullest_that_has_room() -> None:
    # Loads 20, 60, 70: the 20 fits beside 70 (90) and beside 60 (80); best fit takes the fuller.
    found = kmns(instance_of([20], [60], [70]), 1)
    assert found.targets.tolist() == [2, 1, 2]
    assert (found.nodes_used, found.transfer) == (2, 20)


def test_an_added_node_becomes_the_one_that_gave_it_most() -> None:
    # All three emptied: 40 opens a node, 35 joins (75), 30 does not fit and opens another, 25 joins the fuller (100).
    # The first new node holds 40 of node 2, 35 of node 1 and 25 of node 0: it becomes node 2. The second becomes 0.
    found = kmns(instance_of([30, 25], [35], [40]), 3)
    assert found.targets.tolist() == [0, 2, 2, 2]
    assert found.transfer == 25 + 35


def test_emptying_nothing_moves_nothing() -> None:
    found = kmns(instance_of([10], [20]), 0)
    assert (found.nodes_used, found.transfer) == (2, 0)


def test_empty_nodes_are_not_used_and_take_what_fits_nowhere_else() -> None:
    # Loads 0, 50, 90. K = 2 empties the 0 and the 50, which does not fit beside 90 and so stays where it is.
    found = kmns(instance_of([], [50], [90]), 2)
    assert (found.nodes_used, found.transfer) == (2, 0)


def test_a_number_of_nodes_that_there_is_not_is_refused() -> None:
    with pytest.raises(InputError, match="K: wants a number of nodes from 0 to 2, not 3"):
        kmns(instance_of([1], [1]), 3)


def test_an_application_larger_than_its_node_is_refused() -> None:
    with pytest.raises(InputError, match="larger than its own node"):
        instance_of([101])


@given(uniform_instances(), st.data())
@settings(max_examples=300, deadline=None)
def test_each_k_agrees_with_the_obvious_program(instance: Instance, data: st.DataObject) -> None:
    drained = data.draw(st.integers(0, instance.nodes))
    found = kmns(instance, drained)
    assert found.cost == obvious_kmns(instance, drained, by_load(instance))
    assert first_overfull(instance, found.targets) == -1


@given(vector_instances(), st.data())
@settings(max_examples=200, deadline=None)
def test_vectors_never_overfill_a_node_and_only_emptied_nodes_lose(instance: Instance, data: st.DataObject) -> None:
    drained = data.draw(st.integers(0, instance.nodes))
    found = kmns(instance, drained)
    assert first_overfull(instance, found.targets) == -1
    kept = by_load(instance)[drained:]
    stays = np.isin(instance.homes, kept)
    assert (found.targets[stays] == instance.homes[stays]).all()


@given(uniform_instances())
@settings(deadline=None)
def test_repacking_by_first_and_best_fit_overfills_nothing_and_never_beats_the_volume(instance: Instance) -> None:
    for found in (bfd(instance), ffd(instance)):
        assert first_overfull(instance, found.targets) == -1
        assert found.nodes_used >= instance.fewest_by_volume
        if instance.applications:
            # Johnson et al. 1974: at most 11/9 of the optimum and 4 more.
            assert found.nodes_used <= 11 / 9 * max(instance.nodes_used, 1) + 4


@given(vector_instances())
@settings(deadline=None)
def test_first_fit_on_unequal_nodes_overfills_nothing(instance: Instance) -> None:
    assert first_overfull(instance, ffd(instance).targets) == -1
