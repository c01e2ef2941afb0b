"""Forecasts given to a replay: the policies believe them, and what is relied on follows completions."""

from __future__ import annotations

import numpy as np
from run_logs import small_log

from cotide_lab.job_logs.generated_log import generated_log
from cotide_lab.predictor_lab.plan import source_of
from cotide_lab.predictor_lab.report import DECISIONS
from cotide_lab.predictor_lab.run_times.decision import decided, given_forecasts, learned_from, relied_upon
from cotide_lab.predictor_lab.run_times.entries import RunTimeForecasts
from cotide_lab.trace_replay.policies import policy_of
from cotide_lab.trace_replay.runner import GivenForecasts, run_policy

JOBS = generated_log("jobs", "lublin", 500, 0.9, 3)


def test_given_truths_are_what_the_clairvoyant_believes() -> None:
    ones = np.ones(len(JOBS), dtype=np.int64)
    for name in ("easy", "easy-sjbf", "hybrid"):
        given = run_policy(JOBS, policy_of(name), forecasts=GivenForecasts(JOBS.run, JOBS.run, ones)).start
        np.testing.assert_array_equal(given, run_policy(JOBS, policy_of(name), "clairvoyant").start)


def test_forecasts_are_whole_seconds_within_the_request() -> None:
    log = learned_from(JOBS)
    found = given_forecasts(log, RunTimeForecasts(log.run_seconds * 100, log.run_seconds * 100))
    assert np.all((found.point >= 1) & (found.point <= JOBS.request))
    np.testing.assert_array_equal(found.upper, JOBS.request)


def test_only_accuracies_of_finished_jobs_make_a_user_relied_upon() -> None:
    log = small_log()
    point = log.run_seconds.copy()
    before = relied_upon(log, point)
    job = 20
    point[job] *= 5.0
    after = relied_upon(log, point)
    unmoved = log.jobs.submit_seconds <= log.finish_seconds[job]
    np.testing.assert_array_equal(before[unmoved], after[unmoved])
    assert np.any(before != after)
    assert set(before) == {0.0, 1.0}  # nothing known, then never wrong


def test_better_forecasts_wait_less_under_shortest_first() -> None:
    source = source_of(None)
    truth, _ = decided(source, lambda log, _: RunTimeForecasts(log.run_seconds, log.run_seconds), 0)
    request, _ = decided(
        source, lambda log, _: RunTimeForecasts(log.jobs.requested_seconds, log.jobs.requested_seconds), 0
    )
    assert truth["easy_sjbf_slowdown"] < request["easy_sjbf_slowdown"]


def test_waits_and_slowdowns_of_all_policies_are_ranked() -> None:
    source = source_of(None, limit=200)
    found, blocks = decided(source, lambda log, _: RunTimeForecasts(log.run_seconds, log.run_seconds), 0)
    assert set(DECISIONS["run-time"]) == set(found) == set(blocks)
