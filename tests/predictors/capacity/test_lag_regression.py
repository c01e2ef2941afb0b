"""Rates by their lags: what a regression learns that no simple forecast can, and that nothing that came breaks it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_predictors.capacity.arrival_rates import ArrivalRates
from cotide_predictors.capacity.lag_regression import LagRegression


def taught(table, *, groups=(0,), day_steps=24, leads=3):
    regression = LagRegression(groups, day_steps=day_steps, leads=leads)
    for row in table:
        regression.update(np.asarray(row, dtype=np.float64))
    return regression


def test_with_nothing_learned_now_holds_beyond_the_last_lead_too():
    assert taught([(5.0, 70.0)], groups=(0, 1)).predict(5).tolist() == [[5.0, 70.0]] * 5


def test_what_comes_back_after_two_steps_is_foreseen_and_neither_the_last_value_nor_a_trend_has_it():
    """100, 100, 140, 140 over and over: after two equal values comes the other one."""
    table = [(140.0 if step // 2 % 2 else 100.0,) for step in range(200)]
    assert taught(table).predict(3)[:, 0] == pytest.approx([100.0, 100.0, 140.0], abs=1.0)


def test_columns_of_a_group_teach_each_other():
    """One swings by two fifths all the time; the other has just begun to, and next is back, near 100."""
    swing = [1.4 if step // 2 % 2 else 1.0 for step in range(60)]
    table = [(1e4 * wave, 100.0 * (wave if step >= 56 else 1.0)) for step, wave in enumerate(swing)]
    assert taught(table, groups=(0, 0)).predict(1)[0, 1] < 110.0
    assert taught(table, groups=(0, 1)).predict(1)[0, 1] > 130.0


def test_the_day_before_tells_how_a_rate_changes():
    """Each noon it jumps from 50 to 150, each midnight back; heights drift. The step before, the jump is foreseen."""
    rng = np.random.default_rng(3)
    days = 12
    table = [(rng.normal(0.0, 1.0) + (150.0 if step % 24 >= 12 else 50.0),) for step in range(24 * days + 12)]
    assert taught(table).predict(1)[0, 0] == pytest.approx(150.0, abs=10.0)


def test_a_jump_from_nothing_teaches_no_more_than_tenfold():
    """A rate of nothing that is 1e9 for a step, and then 100: what was learned of the jump does not move the rest."""
    table = [(0.0,)] * 30 + [(1e9,)] + [(100.0,)] * 100
    assert taught(table).predict(3)[:, 0] == pytest.approx([100.0] * 3, rel=0.2)


def test_a_day_of_a_step_and_more_leads_than_a_day_has_steps_are_no_matter():
    assert np.isfinite(taught([(float(step),) for step in range(40)], day_steps=1, leads=24).predict(30)).all()


def test_a_history_longer_than_what_is_kept_says_the_same_as_its_last_part_would():
    """Seven days of 4 steps are kept, twice; 200 steps go round that several times."""
    rng = np.random.default_rng(5)
    table = rng.uniform(10.0, 20.0, (200, 1))
    regression = taught(table, day_steps=4)
    assert np.array_equal(regression._remembered()[-12:], table[-12:])
    assert regression._remembered().shape == (30, 1)


def test_forecasts_are_weighted_by_how_good_they_were_where_there_is_a_regression():
    """One is three times as wrong as the best: its weight is 3^-12, two millionths."""
    regression = LagRegression((0,), day_steps=24, leads=1)
    rates = ArrivalRates(classes=1, day_steps=24, regression=regression)
    rates.errors_[:] = 3.0
    rates.errors_[1] = 1.0
    offered = np.arange(7.0)[:, None]
    assert rates._choose(offered)[0] == pytest.approx(1.0, abs=1e-4)
    rates.errors_[:] = 0.0
    assert rates._choose(offered)[0] == pytest.approx(3.0), "all are as good: their mean"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.floats(0.0, 1e9)] * 2), min_size=1, max_size=60), st.integers(1, 30))
def test_whatever_came_rates_are_finite_and_not_below_nothing(table, leads):
    found = taught(table, groups=(0, 1), day_steps=5, leads=leads).predict(26)
    assert np.isfinite(found).all()
    assert found.min() >= 0.0
    assert (found.max(axis=0) <= 5.0 * np.array(table).max(axis=0) + 1e-9).all()
