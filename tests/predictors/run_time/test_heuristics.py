"""Histories and heuristics: what a forecast is made of, and what it can't know."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.kernels.array_types import Floats
from cotide_predictors.run_time.heuristics import HEURISTICS, largest_ratio_of_five, last_two_mean, user_estimate
from cotide_predictors.run_time.history import WIDTH, Column, Histories, deviation, snapshots
from cotide_predictors.run_time.jobs import JobTable, RunLog, codes, event_order
from cotide_predictors.run_time.scores import accuracy, score


def table(submit: list[float], requested: list[float], user: list[int] | None = None) -> JobTable:
    count = len(submit)
    numbers = np.full(count, 1, dtype=np.int64)
    return JobTable(
        submit_seconds=np.array(submit, dtype=np.float64),
        requested_seconds=np.array(requested, dtype=np.float64),
        processors=np.full(count, 4.0),
        user=np.array(user or [1] * count, dtype=np.int64),
        group=numbers,
        executable=numbers,
        queue=numbers,
    )


def past(jobs: JobTable, run: list[float]) -> Floats:
    runs = np.array(run)
    return snapshots(codes(jobs.user), jobs, runs, jobs.submit_seconds + runs)


def test_a_completion_at_the_second_of_a_submission_comes_after_it() -> None:
    assert event_order(np.array([0.0, 10.0]), np.array([10.0, 12.0])).tolist() == [0, 1, ~0, ~1]


def test_the_last_two_completed_runs_count_not_the_last_two_submitted() -> None:
    jobs = table([0, 1, 2, 100], [1000, 1000, 1000, 1000])
    rows = past(jobs, [10, 500, 30, 7])
    # Before second 100 the user's runs of 10 s (until 10) and 30 s (until 32) are over, that of 500 s is not.
    assert last_two_mean(rows, jobs.requested_seconds)[3] == (10 + 30) / 2


def test_one_past_run_stands_for_two() -> None:
    jobs = table([0, 100], [1000, 1000])
    assert last_two_mean(past(jobs, [40, 1]), jobs.requested_seconds)[1] == 40


def test_the_largest_ratio_of_the_last_five_scales_the_request() -> None:
    jobs = table([0, 100, 200, 300, 400, 500, 600], [100, 100, 100, 100, 100, 100, 50])
    rows = past(jobs, [90, 10, 20, 30, 25, 5, 1])
    # The run of 90 of 100 is the sixth back; of the five after it 30 of 100 is the largest, times 50 requested.
    assert largest_ratio_of_five(rows, jobs.requested_seconds)[6] == pytest.approx(0.3 * 50)


def test_a_first_job_gets_the_users_estimate_and_without_one_an_hour() -> None:
    jobs = table([0, 1], [700, np.nan], [1, 2])
    rows = past(jobs, [5, 5])
    for rule in HEURISTICS.values():
        assert rule(rows, jobs.requested_seconds).tolist() == [700, 3600]


def test_no_heuristic_exceeds_the_request() -> None:
    jobs = table([0, 1000], [5000, 60])
    rows = past(jobs, [900, 1])
    assert last_two_mean(rows, jobs.requested_seconds)[1] == 60


def test_users_do_not_mix() -> None:
    jobs = table([0, 100], [1000, 1000], [1, 2])
    assert user_estimate(past(jobs, [5, 5]), jobs.requested_seconds)[1] == 1000
    assert past(jobs, [5, 5])[1, Column.COUNT] == 0


def test_running_means_and_deviations_are_those_of_the_completed_runs() -> None:
    jobs = table([0, 100, 200, 300], [1000] * 4)
    rows = past(jobs, [10, 20, 60, 1])
    assert rows[3, Column.RUN_MEAN] == pytest.approx(30)
    assert deviation(rows, Column.RUN_SQUARES)[3] == pytest.approx(np.std([10, 20, 60]))
    assert rows[3, Column.RUN_MAX] == 60
    assert rows[3, Column.LAST_FINISH] == 260


def test_walking_event_by_event_gives_what_walking_at_once_gives() -> None:
    log = random_log(60, seed=3)
    keys = codes(log.jobs.user)
    at_once = snapshots(keys, log.jobs, log.run_seconds, log.finish_seconds)
    step_by_step = np.empty((len(log), WIDTH))
    histories = Histories(1)
    for event in event_order(log.jobs.submit_seconds, log.finish_seconds):
        one = np.array([event])
        histories.walk(one, keys, log.jobs, log.run_seconds, log.finish_seconds, step_by_step)
    np.testing.assert_array_equal(at_once, step_by_step)


@given(seed=st.integers(0, 10_000), later=st.integers(0, 39))
def test_a_run_time_changes_nothing_before_it_is_over(seed: int, later: int) -> None:
    log = random_log(40, seed)
    keys = codes(log.jobs.user)
    before = snapshots(keys, log.jobs, log.run_seconds, log.finish_seconds)
    run = log.run_seconds.copy()
    run[later] *= 7
    finish = log.finish_seconds.copy()
    finish[later] += run[later] - log.run_seconds[later]
    after = snapshots(keys, log.jobs, run, finish)
    unaware = log.jobs.submit_seconds <= log.finish_seconds[later]
    np.testing.assert_array_equal(before[unaware], after[unaware])


def test_codes_agree_exactly_where_all_columns_do() -> None:
    found = codes(np.array([1, 1, 2, 1]), np.array([np.nan, np.nan, np.nan, 5.0]))
    assert found[0] == found[1]
    assert len(set(found.tolist())) == 3


def test_a_table_whose_submits_fall_is_refused() -> None:
    with pytest.raises(ValueError, match="must rise"):
        table([5, 1], [1, 1])


def test_accuracy_is_the_smaller_over_the_larger() -> None:
    assert accuracy(np.array([50.0, 200.0, 7.0]), np.array([100.0, 100.0, 7.0])).tolist() == [0.5, 0.5, 1.0]


def test_a_score_counts_under_estimates_apart() -> None:
    found = score(np.array([50.0, 200.0]), np.array([100.0, 100.0]))
    assert (found.accuracy, found.mae_seconds, found.under_share, found.under_seconds) == (0.5, 75, 0.5, 50)


def random_log(count: int, seed: int) -> RunLog:
    generator = np.random.default_rng(seed)
    submit = np.sort(generator.integers(0, 2000, count)).astype(np.float64)
    run = generator.integers(1, 300, count).astype(np.float64)
    jobs = table(submit.tolist(), (2 * run).tolist(), generator.integers(0, 4, count).tolist())
    return RunLog(jobs, run, submit + generator.integers(0, 50, count) + run)
