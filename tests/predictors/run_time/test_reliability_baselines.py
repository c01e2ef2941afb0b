"""The rules that estimate how accurate a forecast is: blind to what goes on, and on one scale."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from run_logs import small_log, with_longer_run

from cotide_lab.predictors.run_time.reliability.baselines import (
    BASELINES,
    NEIGHBOURS,
    PRINTED_FEATURES,
    importances,
    nearest_neighbours,
    printed_columns,
)
from cotide_lab.predictors.run_time.reliability.estimation import Completed, rolling_reliability
from cotide_predictors.run_time.history import snapshots
from cotide_predictors.run_time.jobs import RunLog, codes, event_order
from cotide_predictors.run_time.regression import FEATURES, regressed, table_4_1
from cotide_predictors.run_time.scores import accuracy

CHANGED_JOB = 150


def columns_of(log: RunLog) -> tuple[np.ndarray, np.ndarray]:
    """Return the printed columns and the forecasts of the regression."""
    rows = snapshots(codes(log.jobs.user), log.jobs, log.run_seconds, log.finish_seconds)
    table = table_4_1(rows, log.jobs)
    events = event_order(log.jobs.submit_seconds, log.finish_seconds)
    point = regressed(events, table, log.run_seconds, log.jobs.requested_seconds)
    return printed_columns(table, point), point


def estimated(name: str, log: RunLog) -> np.ndarray:
    return rolling_reliability(log, *columns_of(log), learn=BASELINES[name])


@pytest.mark.parametrize("name", BASELINES)
def test_a_job_that_is_not_over_moves_no_estimate(name: str) -> None:
    log = small_log()
    changed, unmoved = with_longer_run(log, CHANGED_JOB)
    before, after = estimated(name, log), estimated(name, changed)
    np.testing.assert_array_equal(before[unmoved], after[unmoved])
    assert np.any(before[~unmoved] != after[~unmoved])
    assert np.all((before >= 0.0) & (before <= 1.0))


@pytest.mark.parametrize("name", BASELINES)
def test_the_law_breaks_where_runs_are_told_before_they_are_over(name: str) -> None:
    log = small_log()
    late = log.finish_seconds.copy()
    late[CHANGED_JOB] += 100_000.0
    log = replace(log, finish_seconds=late)
    changed, unmoved = with_longer_run(log, CHANGED_JOB)
    estimates = [estimated(name, replace(one, finish_seconds=one.jobs.submit_seconds + 1.0)) for one in (log, changed)]
    assert np.any(estimates[0][unmoved] != estimates[1][unmoved])


@pytest.mark.parametrize("name", BASELINES)
def test_an_estimate_tells_a_steady_user_from_a_wild_one(name: str) -> None:
    generator = np.random.default_rng(2)
    wild = generator.integers(0, 2, 800)
    run = np.where(wild == 1, np.exp(generator.uniform(3, 9, 800)), 600.0)
    forecast = np.full(800, 600.0)
    columns = np.column_stack([wild * 5.0, generator.normal(size=800)])
    estimate = BASELINES[name](Completed(columns[:600], forecast[:600], run[:600]), 0)(columns[600:], forecast[600:])
    assert estimate[wild[600:] == 0].mean() > estimate[wild[600:] == 1].mean() + 0.1


def test_cnk_compares_the_forecast_with_the_mean_of_the_nearest_runs() -> None:
    """Five neighbours at the origin run 100 to 140 s, 120 on average, of a forecast of 60 s: a half."""
    far = np.full((10, 2), 50.0)
    columns = np.vstack([np.zeros((NEIGHBOURS, 2)), far])
    runs = np.concatenate([[100.0, 110.0, 120.0, 130.0, 140.0], np.full(10, 9000.0)])
    found = nearest_neighbours(Completed(columns, runs, runs), 0)(np.zeros((1, 2)), np.array([60.0]))
    assert found == pytest.approx([0.5])


def test_the_trees_go_by_what_decides_and_the_most_important_counts_as_100() -> None:
    generator = np.random.default_rng(3)
    columns = generator.normal(size=(2000, len(PRINTED_FEATURES)))
    run = np.where(columns[:, FEATURES.index("last")] > 0, 100.0, 400.0)
    forecast = np.full(2000, 100.0)
    assert accuracy(forecast, run).mean() == pytest.approx(0.625, abs=0.03)
    found = importances(Completed(columns, forecast, run), 0)
    assert next(iter(found)) == "last"
    assert found["last"] == 100.0
    assert set(found) == set(PRINTED_FEATURES)
    assert max(value for name, value in found.items() if name != "last") < 5.0
