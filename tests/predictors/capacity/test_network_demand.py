"""Requests of access networks: what is planned for is the quantile of their sum, dealt out as each is foreseen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_predictors.capacity.network_demand import NetworkDemand


def taught(table):
    demand = NetworkDemand(networks=len(table[0]), day_steps=24)
    for row in table:
        demand.update(np.asarray(row, dtype=np.float64))
    return demand


def test_shares_of_networks_are_those_of_their_means_and_a_higher_level_of_safety_asks_for_more():
    demand = taught([(30.0, 90.0)] * 10)
    half, sure = demand.predict(3, 0.5), demand.predict(3, 0.95)
    assert half[:, 1] / half[:, 0] == pytest.approx([3.0] * 3)
    assert (sure > half).all()
    assert half.sum(axis=1) == pytest.approx([120.0] * 3, rel=0.02)


def test_what_the_sum_is_foreseen_to_be_goes_to_whoever_had_it_where_all_are_foreseen_to_be_silent():
    """Each network is forecast by its last value, nothing; their sum by its level."""
    demand = taught([(10.0, 30.0)] * 5 + [(0.0, 0.0)])
    demand._rates.errors_[:] = 1.0
    demand._rates.errors_[1, :-1] = 0.0
    demand._rates.errors_[0, -1] = 0.0
    found = demand.predict(1, 0.95)[0]
    assert found.sum() > 10.0
    assert found[1] / found[0] == pytest.approx(3.0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.floats(0.0, 1e9)] * 2), max_size=30))
def test_whatever_came_what_is_foreseen_is_finite_and_not_below_nothing(table):
    found = taught(table or [(0.0, 0.0)]).predict(30, 0.95)
    assert np.isfinite(found).all()
    assert found.min() >= 0.0
