"""Slack-based backfilling: equal to a slow, obvious implementation, and what it is about on logs made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_reference import Job, Pool, expected, logs, reference_slack, replay

from cotide_lab.predictors.run_time.kernels.run_forecasts import GIVEN
from cotide_lab.trace_replay.kernels.slack import replay_slack, slack_of, slack_rule


def slack(jobs, capacity, priority, mode):
    return replay(replay_slack, jobs, slack_rule(capacity, np.full(len(jobs), priority, dtype=np.int64)), mode)


@settings(max_examples=60, deadline=None)
@given(log=logs(), priority=st.sampled_from([0, 50, 90, 100]))
def test_slack_equals_the_reference_job_by_job(log, priority):
    jobs, capacity, mode = log
    found = slack(jobs, capacity, priority, mode)
    reference_slack(Pool(jobs, capacity, mode), priority)
    assert found == expected(jobs)


@settings(max_examples=200, deadline=None)
@given(log=logs(), priority=st.integers(0, 100))
def test_no_job_starts_later_than_promised_while_forecasts_are_upper_bounds(log, priority):
    jobs, capacity, _ = log
    for job in jobs:
        job.forecast = job.request
    starts, _, promises = slack(jobs, capacity, priority, GIVEN)
    assert all(start <= promise for start, promise in zip(starts, promises, strict=True))


def test_slack_is_the_mean_wait_for_a_middling_priority_twice_that_for_the_lowest_and_none_for_the_highest():
    assert [slack_of(priority, 300, 3) for priority in (50, 0, 100)] == [100, 200, 0]
    assert slack_of(0, 0, 0) == 0


@pytest.mark.parametrize(("priority", "third", "fourth"), [(100, 10, 14), (0, 12, 9)])
def test_a_job_with_slack_lets_a_short_one_pass_and_one_without_does_not(priority, third, fourth):
    """Three processors. The first two jobs wait 0 and 8 s, so the mean wait is 4 s and slack 8 s for priority 0.

    The second holds two from 8 to 10. At 9 come the third, which needs all three for 4 s and is reserved 10, and the
    fourth, one processor for 3 s. That fits beside the second; then the third starts at 12: 2 s later, and the fourth
    5 s earlier than the 14 it would get behind it.
    """
    rows = [(0, 8, 3), (0, 2, 2), (9, 4, 3), (9, 3, 1)]
    jobs = [Job(number, submit, run, demand, run, 0, run) for number, (submit, run, demand) in enumerate(rows)]
    assert slack(jobs, 3, priority, GIVEN)[0] == [0, 8, third, fourth]
