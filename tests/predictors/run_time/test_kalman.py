"""The Kalman filters agree with statsmodels, mix by probability, and learn at completions only."""

from __future__ import annotations

import numpy as np
import pytest
from run_logs import small_log, with_longer_run
from statsmodels.tsa.statespace.mlemodel import MLEModel

from cotide_predictors.run_time.jobs import event_order
from cotide_predictors.run_time.kalman.fixed_multiple import FLOOR, FixedMultipleKalman, mixtures_of
from cotide_predictors.run_time.kalman.forecasts import kalman_forecasts
from cotide_predictors.run_time.kalman.multi_layer import MultiLayerKalman
from cotide_predictors.run_time.kalman.recursion import level_step, regression_forecast, regression_step
from cotide_predictors.run_time.kalman.regressors import regressors_of

OBSERVED, DRIFT = 0.7, 0.2


def random_walk_model(values: np.ndarray, rows: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> MLEModel:
    """The same state space in statsmodels: a design that changes, a state that walks."""
    states = rows.shape[1]
    model = MLEModel(values, k_states=states, k_posdef=states)
    model["design"] = rows.T[None, :, :]
    model["obs_cov"] = np.array([[OBSERVED]])
    model["transition"] = model["selection"] = np.eye(states)
    model["state_cov"] = DRIFT * np.eye(states)
    model.ssm.initialize_known(mean, covariance)
    return model


def test_the_level_filter_is_the_filter_of_statsmodels() -> None:
    values = np.random.default_rng(1).normal(5.0, 1.0, 40)
    level = np.array([6.0, 2.0])
    likelihood = sum(level_step(level, value, OBSERVED, DRIFT) for value in values)
    found = random_walk_model(values, np.ones((40, 1)), np.array([6.0]), np.array([[2.0]])).ssm.filter()
    assert likelihood == pytest.approx(found.llf_obs.sum(), rel=1e-10)
    assert level == pytest.approx([found.predicted_state[0, -1], found.predicted_state_cov[0, 0, -1]], rel=1e-10)


def test_the_regression_filter_is_the_filter_of_statsmodels() -> None:
    generator = np.random.default_rng(2)
    rows = generator.normal(size=(60, 3))
    values = rows @ [1.0, -2.0, 0.5] + generator.normal(0.0, 0.3, 60)
    mean, covariance = np.zeros(3), np.eye(3)
    likelihood = sum(
        regression_step(mean, covariance, row, value, OBSERVED, DRIFT) for row, value in zip(rows, values, strict=True)
    )
    found = random_walk_model(values, rows, np.zeros(3), np.eye(3)).ssm.filter()
    assert likelihood == pytest.approx(found.llf_obs.sum(), rel=1e-9)
    np.testing.assert_allclose(mean, found.predicted_state[:, -1], rtol=1e-9)
    np.testing.assert_allclose(covariance, found.predicted_state_cov[:, :, -1], rtol=1e-9, atol=1e-12)
    centre, spread = regression_forecast(mean, covariance, rows[0])
    assert centre == pytest.approx(rows[0] @ mean)
    assert spread == pytest.approx(rows[0] @ covariance @ rows[0])


def test_the_model_that_foretells_a_user_takes_over_and_can_lose_again() -> None:
    """The user runs what the request says, then a constant: first the regression is probable, then the level."""
    count = 400
    request = np.tile([-1.0, 1.0], count // 2)
    rows = np.column_stack([np.ones(count), request])
    logs = np.where(np.arange(count) < 200, 6.0 + 3.0 * request, 6.0)
    events = np.column_stack([np.arange(count), ~np.arange(count)]).ravel()
    filters = FixedMultipleKalman(noise=(0.5, 0.05, 0.5, 0.001)).begin(1, 2)
    out = np.empty((count, 6))
    filters.walk(events, np.zeros(count, np.int64), rows, logs, out)
    chances = mixtures_of(out).weights
    assert chances[199] == pytest.approx([FLOOR, 1 - FLOOR])
    assert chances[200:, 0].max() > 0.5


def test_the_first_layer_sends_long_jobs_to_the_long_filter() -> None:
    count = 300
    request = np.random.default_rng(4).choice([-1.0, 1.0], count)
    rows = np.column_stack([np.ones(count), request])
    logs = 5.0 + 3.0 * request
    events = np.column_stack([np.arange(count), ~np.arange(count)]).ravel()
    out = np.empty((count, 6))
    MultiLayerKalman().begin(1, 2).walk(events, np.zeros(count, np.int64), rows, logs, out)
    mixtures = mixtures_of(out)
    likelier = mixtures.means[np.arange(count), mixtures.weights.argmax(axis=1)]
    np.testing.assert_allclose(likelier[-50:], logs[-50:], atol=0.1)


@pytest.mark.parametrize("kind", ["fmkf", "mlkf"])
def test_a_filter_sees_only_what_was_over_before_the_submission(kind: str) -> None:
    log = small_log()
    changed, unmoved = with_longer_run(log, 20)
    before, after = kalman_forecasts(log, kind), kalman_forecasts(changed, kind)  # type: ignore[arg-type]  # of the literal
    for name in ("weights", "means", "deviations"):
        np.testing.assert_array_equal(getattr(before, name)[unmoved], getattr(after, name)[unmoved])
    assert np.any(before.means[~unmoved] != after.means[~unmoved])


def test_a_walk_in_pieces_gives_the_bits_of_one() -> None:
    log = small_log()
    events = event_order(log.jobs.submit_seconds, log.finish_seconds)
    rows, logs = regressors_of(log.jobs), np.log(log.run_seconds)
    outs = [np.empty((len(log), 6)) for _ in range(2)]
    for out, pieces in zip(outs, ([events], np.array_split(events, 7)), strict=True):
        filters = FixedMultipleKalman().begin(4, rows.shape[1])
        for piece in pieces:
            filters.walk(piece, log.jobs.user, rows, logs, out)
    np.testing.assert_array_equal(*outs)
