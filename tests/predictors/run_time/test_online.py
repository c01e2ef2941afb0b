"""Job by job gives what a whole log gives."""

from __future__ import annotations

import numpy as np

from cotide_lab.predictors.run_time.hazard import HazardTrees
from cotide_lab.predictors.run_time.online import OnlineRunTimes
from cotide_lab.predictors.run_time.rolling import rolling_distributions
from cotide_predictors.run_time.heuristics import HEURISTICS, within_request
from cotide_predictors.run_time.history import snapshots
from cotide_predictors.run_time.jobs import JobTable, RunLog, codes, event_order
from cotide_predictors.run_time.regression import regressed, table_4_1
from cotide_predictors.run_time.tree_features import DAY_SECONDS, tree_features


def tiny() -> HazardTrees:
    return HazardTrees(bins=24, trees=5, depth=3, least_weight=2.0)


def log_of(count: int) -> RunLog:
    generator = np.random.default_rng(12)
    submit = np.sort(generator.uniform(0, 3 * DAY_SECONDS, count)).round()
    user = generator.integers(0, 4, count)
    run = np.exp(generator.normal(3.0 + user, 0.4)).round().clip(1)
    same = np.ones(count, dtype=np.int64)
    requested = np.where(user == 3, np.nan, 5000.0)
    jobs = JobTable(submit, requested, generator.integers(1, 5, count).astype(np.float64), user, same, same, same)
    return RunLog(jobs, run, submit + run + generator.integers(0, 100, count))


def test_job_by_job_gives_what_the_whole_log_gives() -> None:
    log = log_of(400)
    jobs = log.jobs
    events = event_order(jobs.submit_seconds, log.finish_seconds)
    online = OnlineRunTimes(jobs, model=tiny())
    forecasts = []
    for event in events.tolist():
        if event >= 0:
            forecasts.append(online.submitted(event))
        else:
            online.completed(~event, float(log.run_seconds[~event]), float(log.finish_seconds[~event]))
    rows = snapshots(codes(jobs.user), jobs, log.run_seconds, log.finish_seconds)
    for name, rule in HEURISTICS.items():
        found = [forecast.heuristics[name] for forecast in forecasts]
        np.testing.assert_array_equal(found, rule(rows, jobs.requested_seconds))
    regression = regressed(events, table_4_1(rows, jobs), log.run_seconds, jobs.requested_seconds)
    np.testing.assert_allclose([forecast.regression for forecast in forecasts], regression, rtol=1e-9)
    trees = rolling_distributions(log, tree_features(log), model=tiny())
    np.testing.assert_allclose([forecast.distribution.masses[0] for forecast in forecasts], trees.masses, rtol=1e-6)
    best = within_request(trees.most_accurate(), jobs.requested_seconds)
    np.testing.assert_allclose([forecast.most_accurate for forecast in forecasts], best, rtol=1e-6)
    assert forecasts[-1].quantile(0.9) >= forecasts[-1].quantile(0.5)


def test_a_submission_before_any_completion_is_answered() -> None:
    log = log_of(5)
    first = OnlineRunTimes(log.jobs, model=tiny()).submitted(0)
    assert first.heuristics["last-two-runs"] == first.heuristics["user-estimate"]
    assert np.isclose(first.distribution.masses.sum(), 1.0)


def test_a_run_of_no_length_counts_as_the_shortest() -> None:
    log = log_of(5)
    online = OnlineRunTimes(log.jobs, model=tiny())
    for job in range(5):
        found = online.submitted(job)
        online.completed(job, 0.0, float(log.jobs.submit_seconds[job]))
        assert np.isfinite(found.regression)
