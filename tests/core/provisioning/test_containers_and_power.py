"""Container sizes, power curves, weighted round-robin and the learned factor."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.errors import InputError
from cotide_core.provisioning.containers import container_sizes, groups_per_machine
from cotide_core.provisioning.overprovisioning import PAPER, LearnedFactor
from cotide_core.provisioning.power import PowerCurve
from cotide_lab.provisioning.round_robin import turns, type_shares


def test_a_group_of_containers_holds_its_tasks_as_often_as_stated():
    rng = np.random.default_rng(1)
    tasks = rng.gamma(4.0, 0.25, size=(20_000, 16))  # mean 1, deviation 0.5, groups of 16
    size = container_sizes(np.array([[1.0]]), np.array([[0.5]]), np.array([[tasks.max()]]), np.array([16.0]), 0.95)[
        0, 0
    ]
    assert size == pytest.approx(1 + 1.645 * 0.5 / 4, abs=1e-3)
    # The sum of gammas is a little skewed: 0.945 comes out.
    assert (tasks.sum(axis=1) <= 16 * size).mean() == pytest.approx(0.95, abs=0.01)


def test_a_container_is_no_larger_than_the_largest_task_and_no_smaller_than_the_mean():
    sizes = container_sizes(np.array([[1.0, 2.0]]), np.array([[9.0, 0.0]]), np.array([[1.5, 2.0]]), np.ones(1), 0.99)
    assert sizes.tolist() == [[1.5, 2.0]]
    with pytest.raises(InputError, match="not in"):
        container_sizes(np.ones((1, 1)), np.ones((1, 1)), np.ones((1, 1)), np.ones(1), 1.0)


def test_a_group_is_what_the_smallest_machine_that_hosts_it_holds():
    # n x 0.02 + 1.2816 x 0.02 x sqrt(n) = 0.25 at n = 8.717; the machine of 1 would hold 42.
    mean = np.array([[0.02]])
    group = groups_per_machine(mean, mean, np.array([[1.0], [0.25]]), 0.9)
    assert group == pytest.approx([8.717], abs=1e-3)
    assert groups_per_machine(mean, mean, np.array([[1.0], [0.25]]), 0.9, np.array([[True], [False]]))[0] > 40
    for capacity in (1.0, 0.25):
        size = container_sizes(mean, mean, np.array([[0.1]]), group, 0.9)[0, 0]
        tasks = capacity / size
        assert NormalDist(0.02 * tasks, 0.02 * tasks**0.5).cdf(capacity) >= 0.9 - 1e-9


def test_a_machine_that_holds_no_task_of_a_class_for_sure_sets_no_group():
    mean, deviation = np.array([[0.2, 0.1], [5.0, 5.0], [0.0, 0.0]]), np.zeros((3, 2))
    groups = groups_per_machine(mean, deviation, np.array([[1.0, 1.0], [0.1, 1.0]]), 0.9)
    assert groups == pytest.approx([5.0, 1.0, 1.0])


def test_a_class_without_a_container_goes_to_the_machines_that_are_wanted():
    containers = np.array([[3.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    holds = np.array([[8.0, 2.0, 4.0], [4.0, 2.0, 9.0], [0.0, 0.0, 5.0]])
    # The second class fits 2 x 4 times on the first type and 4 x 2 times on the second; the third fits nowhere.
    shares = type_shares(containers, np.array([2.0, 4.0, 0.0]), holds)
    assert shares.tolist() == [[0.75, 0.25, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]


def test_a_curve_goes_through_its_points_and_its_line_through_both_ends():
    curve = PowerCurve((60.0, 90.0, 100.0))
    assert curve.at(np.array([0.0, 0.25, 0.5, 1.0, 7.0])).tolist() == [60, 75, 90, 100, 100]
    assert (curve.idle, curve.slope) == (60, 40)
    assert curve.scaled(2.0).watts == (120, 180, 200)
    for wrong in ((1.0,), (1.0, float("nan")), (-1.0, 2.0)):
        with pytest.raises(InputError, match="power curve"):
            PowerCurve(wrong)


def test_turns_are_taken_in_proportion_and_spread():
    assert turns(np.array([2 / 3, 1 / 3]), 6) == [0, 1, 0, 0, 1, 0]
    assert turns(np.zeros(2), 2) == [-1, -1]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(any), st.integers(1, 200))
def test_after_any_number_of_turns_no_type_is_off_its_share_by_more_than_the_types(shares, count):
    weights = np.array(shares) / sum(shares)
    taken = np.bincount(turns(weights, count), minlength=len(weights))
    assert np.abs(taken - weights * count).max() <= len(weights)
    assert taken[weights == 0].sum() == 0


def test_the_factor_rises_where_tasks_waited_beside_free_parts_and_falls_slowly_where_they_did_not():
    first = LearnedFactor.start(2)
    assert first.factor.tolist() == [PAPER, PAPER]
    # Waited while only 60 % were filled: 1 / 0.6 = 1.667; a fifth of the way from 1.2 is 1.293.
    after = first.after(np.array([True, False]), np.array([0.6, 0.6]))
    assert after.factor.tolist() == pytest.approx([1.2933, 1.199], abs=1e-3)
    for filled in (0.0, -5.0, np.nan, np.inf, 1e300):
        moved = first.after(np.array([True, True]), np.full(2, filled)).factor
        assert ((moved >= 1.0) & (moved <= first.ceiling)).all()
