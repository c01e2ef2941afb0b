"""A forecaster beside a queue gives what its function gives for the whole log, and sees only what is over."""

from __future__ import annotations

import numpy as np
import pytest
from run_logs import small_log, with_longer_run

from cotide_lab.predictors.run_time.mixture_density.density_network import DensityNetwork
from cotide_lab.predictors.run_time.mixture_density.rolling_density import past_inputs, rolling_mixtures
from cotide_lab.predictors.run_time.sequential.catalogue import SEQUENTIAL, Sequential, sequential_forecaster
from cotide_predictors.run_time.heuristics import bounded
from cotide_predictors.run_time.history import snapshots
from cotide_predictors.run_time.jobs import RunLog, codes, event_order
from cotide_predictors.run_time.kalman.forecasts import kalman_forecasts
from cotide_predictors.run_time.kalman.smoothing import exponentially_smoothed
from cotide_predictors.run_time.regression import regressed, table_4_1
from cotide_predictors.run_time.sequential.forecaster import Answers, UserTrust, answers_of, points_only

CHANGED_JOB = 150
"""Submitted after the first fits of a log of 600 jobs over six days, with a day of forecasts before its new end."""


def walked(name: Sequential, log: RunLog) -> Answers:
    """Ask and tell, one job at a time, in the order of events."""
    forecaster = sequential_forecaster(name, log.jobs)
    point, upper = np.empty((2, len(log)))
    for event in event_order(log.jobs.submit_seconds, log.finish_seconds).tolist():
        if event >= 0:
            found = forecaster.submitted(slice(event, event + 1))
            point[event], upper[event] = found.point[0], found.upper[0]
        else:
            ended = np.array([~event])
            forecaster.finished(ended, log.run_seconds[ended], log.finish_seconds[ended])
    return Answers(point, upper)


def of_whole_log(name: Sequential, log: RunLog) -> Answers:
    asked = log.jobs.requested_seconds
    if name == "mdn":
        return answers_of(rolling_mixtures(log, past_inputs(log), model=DensityNetwork(random_state=0)), asked)
    if name == "regression":
        rows = snapshots(codes(log.jobs.user), log.jobs, log.run_seconds, log.finish_seconds)
        events = event_order(log.jobs.submit_seconds, log.finish_seconds)
        return points_only(regressed(events, table_4_1(rows, log.jobs), log.run_seconds, asked))
    if name == "exponential-smoothing":
        return points_only(bounded(exponentially_smoothed(log), asked))
    return answers_of(kalman_forecasts(log, name), asked)


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_job_by_job_gives_what_the_whole_log_gives(name: Sequential) -> None:
    log = small_log()
    found, expected = walked(name, log), of_whole_log(name, log)
    np.testing.assert_allclose(found.point, expected.point, rtol=1e-6)
    np.testing.assert_allclose(found.upper, expected.upper, rtol=1e-6)


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_what_is_not_over_moves_no_forecast(name: Sequential) -> None:
    log = small_log()
    changed, unmoved = with_longer_run(log, CHANGED_JOB)
    one, other = walked(name, log), walked(name, changed)
    np.testing.assert_array_equal(one.point[unmoved], other.point[unmoved])
    np.testing.assert_array_equal(one.upper[unmoved], other.upper[unmoved])
    assert np.any(one.point[~unmoved] != other.point[~unmoved])


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_jobs_of_one_second_are_answered_together_as_one_by_one(name: Sequential) -> None:
    log = small_log(40)
    together = sequential_forecaster(name, log.jobs).submitted(slice(0, 3))
    alone = sequential_forecaster(name, log.jobs)
    one_by_one = [float(alone.submitted(slice(row, row + 1)).point[0]) for row in range(3)]
    np.testing.assert_allclose(together.point, one_by_one)


def test_a_users_trust_is_the_running_mean_of_their_forecasts_accuracies() -> None:
    """Of 10 said and 20 run the accuracy is 0.5, of 20 and 20 it is 1: 0.5, then 0.5 + 0.2 x 0.5 = 0.6."""
    trust = UserTrust(2)
    assert trust.of(np.array([0, 1])).tolist() == [0.0, 0.0]
    trust.learn(np.array([0, 0]), np.array([10.0, 20.0]), np.array([20.0, 20.0]))
    np.testing.assert_allclose(trust.of(np.array([0, 1])), [0.6, 0.0])
