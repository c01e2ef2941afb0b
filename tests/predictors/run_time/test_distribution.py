"""Distributions of run times: their points, the trees that make them, coverage kept, and no look ahead of any of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.kernels.array_types import Floats
from cotide_lab.predictors.run_time.coverage import kept_quantile
from cotide_lab.predictors.run_time.hazard import HazardTrees
from cotide_lab.predictors.run_time.reliability.estimation import reliability_features, rolling_reliability
from cotide_lab.predictors.run_time.rolling import rebuilds, rolling_distributions
from cotide_predictors.run_time.distributions import Distributions
from cotide_predictors.run_time.jobs import JobTable, RunLog, event_order
from cotide_predictors.run_time.scores import accuracy
from cotide_predictors.run_time.tree_features import ANCHORS, CONTEXT, DAY_SECONDS, tree_features

TINY = HazardTrees(bins=24, trees=8, depth=4, least_weight=2.0)


def log_of(count: int, seed: int, *, days: float = 4.0) -> RunLog:
    """Users 0 and 1 of habit: their runs are near 60 s and near 3,000 s; user 2 runs anything."""
    generator = np.random.default_rng(seed)
    submit = np.sort(generator.uniform(0, days * DAY_SECONDS, count)).round()
    user = generator.integers(0, 3, count)
    habit = np.array([60.0, 3000.0, 1.0])[user] * np.exp(generator.normal(0, 0.05, count))
    run = np.where(user == 2, np.exp(generator.uniform(1, 9, count)), habit).round().clip(1)
    same = np.ones(count, dtype=np.int64)
    jobs = JobTable(submit, np.full(count, 10_000.0), np.full(count, 8.0), user, same, same, same)
    return RunLog(jobs, run, submit + run + generator.integers(0, 600, count))


def with_run(log: RunLog, job: int, longer: float) -> RunLog:
    run, finish = log.run_seconds.copy(), log.finish_seconds.copy()
    run[job] += longer
    finish[job] += longer
    return RunLog(log.jobs, run, finish)


def masses(seed: int, rows: int, bins: int) -> Distributions:
    drawn = np.random.default_rng(seed).dirichlet(np.full(bins, 0.3), rows)
    return Distributions(np.linspace(0, np.log(1e5), bins + 1), drawn)


def test_points_of_a_distribution_of_two_bins() -> None:
    edges = np.log([1.0, 10.0, 100.0])
    found = Distributions(edges, np.array([[0.8, 0.2]]))
    # Even over the log: the median lies at 5/8 of the first bin, p90 half way into the second.
    assert found.median()[0] == pytest.approx(10 ** (5 / 8))
    assert found.quantile(0.9)[0] == pytest.approx(10**1.5)
    assert found.mean()[0] == pytest.approx(0.8 * 9 / np.log(10) + 0.2 * 90 / np.log(10))


@given(seed=st.integers(0, 10_000))
def test_no_candidate_has_a_higher_expected_accuracy_than_the_chosen_one(seed: int) -> None:
    forecast = masses(seed, 1, 12)
    generator = np.random.default_rng(seed)
    drawn = generator.choice(12, 4000, p=forecast.masses[0])
    step = forecast.edges[1]
    runs = np.exp(forecast.edges[drawn] + step * (np.tile((np.arange(1000) + 0.5) / 1000, 4)))
    best = accuracy(forecast.most_accurate(), runs).mean()
    for rival in (forecast.median()[0], forecast.mean()[0], forecast.quantile(0.2)[0]):
        assert best >= accuracy(np.array([rival]), runs).mean() - 0.03  # 4,000 draws, steps of a third of a bin


@given(seed=st.integers(0, 10_000), one=st.floats(0.01, 0.99), other=st.floats(0.01, 0.99))
def test_quantiles_rise_with_their_level(seed: int, one: float, other: float) -> None:
    forecast = masses(seed, 5, 20)
    low, high = sorted((one, other))
    assert np.all(forecast.quantile(low) <= forecast.quantile(high) * (1 + 1e-12))


def test_each_level_may_be_a_jobs_own() -> None:
    forecast = masses(3, 2, 20)
    both = forecast.quantile(np.array([0.2, 0.9]))
    assert both.tolist() == [forecast.quantile(0.2)[0], forecast.quantile(0.9)[1]]


def test_features_are_named_and_of_the_past() -> None:
    log = log_of(200, seed=1)
    features = tree_features(log)
    assert features.anchors.shape == (200, len(ANCHORS))
    assert features.context.shape == (200, len(CONTEXT))
    first = features.anchors[0]
    assert first[0] == pytest.approx(np.log(10_000))
    assert np.isnan(first[1:]).all()


def test_the_trees_learn_the_habits_of_users() -> None:
    log = log_of(900, seed=2)
    features = tree_features(log)
    learned, asked = slice(0, 700), slice(700, 900)
    model = HazardTrees(trees=30).fit(features.rows(learned), log.run_seconds[learned])
    forecast = model.predict(features.rows(asked))
    np.testing.assert_allclose(forecast.masses.sum(axis=1), 1.0)
    assert forecast.masses.min() >= 0
    user, run = log.jobs.user[asked], log.run_seconds[asked]
    found = accuracy(forecast.most_accurate(), run)
    assert found[user == 0].mean() > 0.8
    assert found[user == 1].mean() > 0.8
    assert found[user == 2].mean() < 0.5
    spread = forecast.quantile(0.9) / forecast.quantile(0.1)
    assert np.median(spread[user == 2]) > 5 * np.median(spread[user == 0])


def test_a_model_learns_from_finished_jobs_and_answers_for_the_next_day() -> None:
    log = log_of(600, seed=3)
    found = list(rebuilds(log, recent=50, older=30))
    assert [rebuild.at_seconds for rebuild in found] == [log.jobs.submit_seconds[0] + day * 86_400 for day in (1, 2, 3)]
    for rebuild in found:
        assert len(rebuild.learned) == 80
        assert len(set(rebuild.learned.tolist())) == 80
        assert log.finish_seconds[rebuild.learned].max() < rebuild.at_seconds
        assert log.jobs.submit_seconds[rebuild.answered].min() >= rebuild.at_seconds
    assert [one.answered.stop for one in found[:-1]] == [one.answered.start for one in found[1:]]


def test_before_the_first_model_a_forecast_is_even_up_to_the_request() -> None:
    log = log_of(60, seed=4)
    found = rolling_distributions(log, tree_features(log), model=TINY)
    np.testing.assert_allclose(found.masses.sum(axis=1), 1.0)
    np.testing.assert_allclose(found.median(), 100.0, rtol=1e-6)  # half of log(10,000)


def all_forecasts(log: RunLog) -> Floats:
    """Everything that is forecast of each job: (n, columns)."""
    features = tree_features(log)
    trees = rolling_distributions(log, features, model=TINY)
    point = trees.most_accurate()
    events = event_order(log.jobs.submit_seconds, log.finish_seconds)
    upper = kept_quantile(events, trees, log.run_seconds, 0.8)
    estimate = rolling_reliability(log, reliability_features(features, point, trees), point)
    return np.column_stack([trees.masses, point, upper, estimate])


@settings(max_examples=6, deadline=None)
@given(changed=st.integers(0, 399), longer=st.floats(1, 3e5))
def test_a_run_time_moves_no_forecast_before_it_is_over(changed: int, longer: float) -> None:
    log = log_of(400, seed=5)
    other = with_run(log, changed, longer)
    unaware = log.jobs.submit_seconds <= log.finish_seconds[changed]
    np.testing.assert_array_equal(all_forecasts(log)[unaware], all_forecasts(other)[unaware])


def test_a_run_time_moves_forecasts_once_it_is_over() -> None:
    # The other half of the test above: it would also pass if nothing were learned at all.
    log = log_of(400, seed=5)
    moved = np.any(all_forecasts(log) != all_forecasts(with_run(log, 20, 40.0)), axis=1)
    assert moved.any()


def test_the_same_log_gives_the_same_forecasts() -> None:
    log = log_of(300, seed=6)
    np.testing.assert_array_equal(all_forecasts(log), all_forecasts(log))


@pytest.mark.parametrize("target", [0.5, 0.8, 0.95])
def test_a_kept_level_covers_where_the_distribution_is_far_too_short(target: float) -> None:
    generator = np.random.default_rng(7)
    count = 6000
    run = np.exp(generator.normal(5, 1, count))
    edges = np.linspace(0, 12, 121)
    narrow = np.exp(-0.5 * ((edges[:-1] - 4.4) / 0.8) ** 2)
    forecast = Distributions(edges, np.tile(narrow / narrow.sum(), (count, 1)))
    submit = np.arange(count) * 10.0
    kept = kept_quantile(event_order(submit, submit + 5), forecast, run, target)
    tail = slice(2000, None)
    assert abs((run <= kept)[tail].mean() - target) < 0.02
    assert (run <= forecast.quantile(target))[tail].mean() < target - 0.05


def test_reliability_tells_the_users_of_habit_from_the_other() -> None:
    log = log_of(1500, seed=8)
    features = tree_features(log)
    trees = rolling_distributions(log, features, model=TINY)
    point = trees.most_accurate()
    estimate = rolling_reliability(log, reliability_features(features, point, trees), point)
    late = log.jobs.submit_seconds > 2 * DAY_SECONDS
    assert estimate.min() >= 0
    assert estimate.max() <= 1
    assert np.corrcoef(estimate[late], accuracy(point, log.run_seconds)[late])[0, 1] > 0.6
    assert (estimate[late & (log.jobs.user == 2)] >= 0.6).mean() < 0.2
    assert (estimate[late & (log.jobs.user < 2)] >= 0.6).mean() > 0.8
