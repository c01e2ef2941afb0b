"""Slack-based backfilling on many machines: that of one pool, the slow reference, and what it is about, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_reference import Slow, as_one_machine, columns_of_gangs, crowded, gangs, on_machines
from replay_reference import logs, replay

from cotide_lab.predictors.run_time.kernels.run_forecasts import GIVEN
from cotide_lab.trace_replay.kernels.easy import BY_SUBMIT
from cotide_lab.trace_replay.kernels.slack import replay_slack, slack_rule
from cotide_lab.trace_replay.machine_replay import SLACK


@settings(max_examples=150, deadline=None)
@given(log=logs(), priority=st.sampled_from([0, 50, 90, 100]))
def test_slack_on_one_machine_is_slack_on_one_pool(log, priority):
    jobs, capacity, mode = log
    pool = replay(replay_slack, jobs, slack_rule(capacity, np.full(len(jobs), priority)), mode)
    assert as_one_machine(jobs, capacity, SLACK, BY_SUBMIT, 0, mode, priority) == pool


@settings(max_examples=150, deadline=None)
@given(log=gangs() | st.integers(0, 1 << 32).map(crowded), priority=st.sampled_from([0, 50]))
def test_gangs_with_slack_equal_the_slow_reference_in_starts_promises_and_machines(log, priority):
    jobs, machines = log
    if not jobs:
        return
    Slow(jobs, machines, SLACK, priority=priority).replay()
    start, _, promise, where = on_machines(*columns_of_gangs(jobs, machines), SLACK, BY_SUBMIT, 0, GIVEN, priority)
    assert start == [job.start for job in jobs]
    assert where == [job.where for job in jobs]
    assert promise == [job.promise for job in jobs]


@pytest.mark.parametrize("seed", range(200))
def test_crowded_gangs_with_slack_are_where_the_slow_reference_puts_them(seed):
    jobs, machines = crowded(seed)
    Slow(jobs, machines, SLACK, priority=0).replay()
    start, _, _, where = on_machines(*columns_of_gangs(jobs, machines), SLACK, BY_SUBMIT, 0, GIVEN, 0)
    assert (start, where) == ([job.start for job in jobs], [job.where for job in jobs])


@settings(max_examples=150, deadline=None)
@given(log=gangs() | st.integers(0, 1 << 32).map(crowded), priority=st.integers(0, 100))
def test_no_gang_starts_later_than_promised_while_forecasts_are_upper_bounds(log, priority):
    jobs, machines = log
    if not jobs:
        return
    for job in jobs:
        job.forecast = job.request
    start, _, promise, _ = on_machines(*columns_of_gangs(jobs, machines), SLACK, BY_SUBMIT, 0, GIVEN, priority)
    assert all(begin <= latest for begin, latest in zip(start, promise, strict=True))


@pytest.mark.parametrize(("priority", "third", "fourth"), [(100, 10, 14), (0, 12, 9)])
def test_a_job_with_slack_lets_a_short_one_pass_on_its_machine(priority, third, fourth):
    """Two machines of 3 cores and 3 GiB; a job holds all memory of the second until 99: the others meet on the first.

    Three jobs have started by 9, after 0, 0 and 8 s: slack is 2 x 8 / 3, 5 s, for priority 0. The last of them holds
    two cores from 8 to 10. At 9 come one that needs all three for 4 s, which is reserved 10, and one of one core for
    3 s. That fits beside what runs; the other then starts at 12: 2 s later, and itself 5 s before the 14 behind it.
    """
    rows = [(0, 8, 3, 1), (0, 99, 0, 3), (0, 2, 2, 1), (9, 4, 3, 1), (9, 3, 1, 1)]
    submit, run, cores, memory = (np.array(one) for one in zip(*rows, strict=True))
    log = {"submit": submit, "run": run, "request": run, "forecast": run.copy(), "user": np.zeros(5, np.int64)}
    ones, need = np.ones(5, np.int64), np.stack([cores, memory], axis=1)
    machines = (np.array([[3, 3], [3, 3]]), np.array([0, 1]))
    asked = (log, ones, need, np.array([1, 2, 3, 3, 3]), *machines)
    start, _, _, where = on_machines(*asked, SLACK, BY_SUBMIT, 0, GIVEN, priority)
    assert start == [0, 0, 8, third, fourth]
    assert [machine for [(machine, _)] in where] == [0, 1, 0, 0, 0]
