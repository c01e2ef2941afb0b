"""Requests of access networks: what is planned for is the quantile of their sum, dealt out as each is foreseen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_predictors.capacity.network_demand import SCORED_STEPS, NetworkDemand, forecast


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


def test_forecasts_are_scored_beside_the_last_value_on_the_last_steps():
    """100, 100, 140, 140 over and over: half of the steps are a third off by the last value, none by the regression."""
    history = np.array([[140.0 if step // 2 % 2 else 100.0] for step in range(300)])
    _, score = forecast(history, day_steps=24, steps=1, quantile=0.95)
    assert score.steps == SCORED_STEPS
    assert score.last_value_error == pytest.approx(20.0 / 120.0)
    assert score.error < 0.01
    assert score.coverage == 1.0


def test_what_was_not_foreseen_was_not_covered():
    """Ten steps of ten requests; then a hundred."""
    _, score = forecast(np.array([[10.0]] * 10 + [[100.0]]), day_steps=24, steps=1, quantile=0.95)
    assert score.steps == 10
    assert score.coverage == pytest.approx(0.9)
    assert score.last_value_error == pytest.approx(9.0 / 19.0), "90 in ten steps, whose mean is 19"


def test_a_forecast_is_that_of_the_demand_that_was_taught_the_same():
    history = np.random.default_rng(3).uniform(10.0, 20.0, (60, 3))
    found, _ = forecast(history, day_steps=24, steps=5, quantile=0.9)
    assert np.array_equal(found, taught(history).predict(5, 0.9))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.floats(0.0, 1e9)] * 2), max_size=30))
def test_whatever_came_what_is_foreseen_is_finite_and_not_below_nothing(table):
    found = taught(table or [(0.0, 0.0)]).predict(30, 0.95)
    assert np.isfinite(found).all()
    assert found.min() >= 0.0
