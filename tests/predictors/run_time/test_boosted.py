"""Boosted trees inside a replay: the library's numbers, no look-ahead, same seed same schedule."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xgboost

from cotide_lab.predictors.run_time.boosted import DAY_SECONDS, forest_of
from cotide_lab.predictors.run_time.event_forecasts import event_forecasts
from cotide_lab.predictors.run_time.hazard import HazardTrees
from cotide_lab.predictors.run_time.kernels.run_forecasts import RATED, TREES, TREES_RATED
from cotide_predictors.run_time.jobs import JobTable, RunLog
from cotide_predictors.run_time.kernels.forest import forest_sum
from cotide_predictors.run_time.kernels.logarithm import exp_of, log_of
from cotide_predictors.run_time.kernels.tree_forecasts import LENGTHS
from cotide_predictors.run_time.tree_features import TreeFeatures


def log_of_habits(count: int = 500, days: int = 8) -> RunLog:
    """Users 0 to 3 run about a minute, ten, an hour and anything up to three, for days."""
    generator = np.random.default_rng(3)
    submit = np.sort(generator.integers(0, days * DAY_SECONDS, count)).astype(np.float64)
    user = generator.integers(0, 4, count)
    run = np.array([60, 600, 3600, 0])[user] * generator.uniform(0.9, 1.1, count)
    run = np.where(user == 3, generator.integers(1, 10_800, count), run).round()
    same = np.ones(count, dtype=np.int64)
    request = np.full(count, 14_400.0)
    jobs = JobTable(submit, request, generator.integers(1, 5, count).astype(np.float64), user, same, same, same)
    return RunLog(jobs, run, submit + run)


@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror"])
def test_a_forest_gives_the_librarys_margins_where_values_are_missing_too(objective: str) -> None:
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(400, 5)).astype(np.float32)
    rows[generator.random(rows.shape) < 0.2] = np.nan
    target = (np.nan_to_num(rows[:, 0]) > 0.3).astype(np.float32)
    data = xgboost.QuantileDMatrix(rows, target, nthread=1)
    booster = xgboost.train({"objective": objective, "max_depth": 4, "nthread": 1}, data, 12)
    forest = forest_of(booster)
    margins = booster.inplace_predict(rows, predict_type="margin")
    np.testing.assert_allclose([forest_sum(forest, row) for row in rows], margins, atol=1e-5)


@pytest.mark.parametrize("value", [1e-9, 0.3, 0.7071, 1.0, 1.5, 2.0, 17.0, 86_400.0, 2.0e6, 3.0e11])
def test_logarithm_and_exponential_are_those_of_the_library_to_fifteen_digits(value: float) -> None:
    assert log_of(value) == pytest.approx(math.log(value), rel=1e-14, abs=1e-15)
    assert exp_of(log_of(value)) == pytest.approx(value, rel=1e-13)


@pytest.mark.parametrize("mode", [RATED, TREES, TREES_RATED])
def test_a_run_time_that_is_not_over_moves_no_forecast_and_no_reliability(mode: int) -> None:
    """Job 250 runs 100 s or 3 days: what is submitted before it may have ended is forecast the same, bit by bit."""
    log = log_of_habits()
    changed, short, long = 250, 100.0, 3.0 * DAY_SECONDS
    made = []
    for length in (short, long):
        run = log.run_seconds.copy()
        run[changed] = length
        made.append(event_forecasts(RunLog(log.jobs, run, log.jobs.submit_seconds + run), mode))
    before = log.jobs.submit_seconds <= log.jobs.submit_seconds[changed] + short
    assert before.sum() > 250
    for name in ("point", "upper", "reliability"):
        one, other = (getattr(forecasts, name) for forecasts in made)
        assert one[before].tobytes() == other[before].tobytes()
        assert one[~before].tobytes() != other[~before].tobytes()


def test_the_trees_learn_whose_jobs_can_be_foreseen() -> None:
    log = log_of_habits()
    found = event_forecasts(log, TREES_RATED)
    late = log.jobs.submit_seconds > 4 * DAY_SECONDS
    habit, whim = late & (log.jobs.user == 1), late & (log.jobs.user == 3)
    assert np.abs(found.point[habit] / 600 - 1).mean() < 0.1
    assert found.reliability[habit].mean() > 0.85
    assert found.reliability[whim].mean() < 0.6
    assert 0.8 < (log.run_seconds <= found.upper)[late].mean() < 0.99


def test_same_seed_same_bits_and_another_seed_others() -> None:
    log = log_of_habits(300, 6)
    one, again, other = (event_forecasts(log, TREES_RATED, seed=seed) for seed in (1, 1, 2))
    assert one.reliability.tobytes() == again.reliability.tobytes()
    assert one.reliability.tobytes() != other.reliability.tobytes()


def test_the_bins_of_the_kernel_are_those_that_the_trees_are_grown_for() -> None:
    model = HazardTrees(bins=LENGTHS, trees=1, least_weight=1.0)
    from cotide_predictors.run_time.kernels.tree_forecasts import edges

    assert model.edges().tobytes() == edges().tobytes()
    features = TreeFeatures(np.zeros((3, 2)), np.zeros((3, 2)))
    assert len(model.fit(features, np.array([1.0, 60.0, 3600.0])).edges_) == LENGTHS + 1
