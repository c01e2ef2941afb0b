"""Fair shares of users and groups in a replay: the live engine's count of shares, job by job, and whom they serve."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from replay_reference import Job, Pool, logs, replay

from cotide_core.errors import InputError
from cotide_core.state.fair_usage import FairUsage
from cotide_lab.predictors.run_time.kernels.run_forecasts import GIVEN
from cotide_lab.trace_replay.check import faults_of
from cotide_lab.trace_replay.kernels.fair import fair_rule, replay_fair
from cotide_lab.trace_replay.policies import policy_of
from cotide_lab.trace_replay.runner import run_policy
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

HOUR = 3600.0


def reference(pool: Pool, half_life: float) -> None:
    """At each moment start, of the jobs that fit, the one whose user has the smallest share in the live count."""
    usage = FairUsage(half_life)
    while moments := pool.moments(()):
        now = moments[0]
        usage.advance(float(now), (float(pool.capacity), 1.0))
        before = list(pool.running)
        pool.pass_to(now)
        for job in before:
            if job not in pool.running:
                usage.hold(str(max(job.user, -1)), -job.demand, 0)
        while fitting := [job for job in pool.waiting if job.demand <= pool.free()]:
            job = min(fitting, key=lambda job: (usage.share(str(max(job.user, -1))), job.number))
            pool.begin(job, now)
            usage.hold(str(max(job.user, -1)), job.demand, 0)


@settings(max_examples=100, deadline=None)
@given(log=logs())
def test_the_kernel_counts_shares_as_the_live_engine_does(log: tuple[list[Job], int, int]) -> None:
    jobs, capacity, _ = log
    owner = np.array([job.user for job in jobs])
    found = replay(replay_fair, jobs, fair_rule(capacity, 5.0, owner), GIVEN)
    reference(Pool(jobs, capacity, GIVEN), 5.0)
    assert found[0] == [job.start for job in jobs]


def two_users() -> BatchJobs:
    """One processor; the first user hands in four jobs of 100 s at once, the second one a moment later."""
    ones = np.ones(5, np.int64)
    submit, user = np.array([0, 0, 0, 0, 1]), np.array([7, 7, 7, 7, 8])
    return BatchJobs("", 1, np.arange(5), submit, 100 * ones, ones, 100 * ones, user, group=ones)


def test_who_used_less_comes_before_who_came_first() -> None:
    jobs = two_users()
    # The second user's job is next when the first job ends; under fcfs it is the last.
    assert run_policy(jobs, policy_of("fair")).start.tolist() == [0, 200, 300, 400, 100]
    assert run_policy(jobs, policy_of("fcfs")).start.tolist() == [0, 100, 200, 300, 400]


def test_users_of_one_group_have_one_share() -> None:
    jobs = two_users()
    schedule = run_policy(jobs, replace(policy_of("fair"), owners="group"))
    assert schedule.start.tolist() == [0, 100, 200, 300, 400]
    with pytest.raises(InputError, match="no groups"):
        run_policy(replace(jobs, group=None), replace(policy_of("fair"), owners="group"))


@pytest.mark.parametrize(("half_life_hours", "starts"), [(100.0, (10_200, 10_300)), (0.05, (10_300, 10_200))])
def test_what_was_used_long_ago_is_forgotten_after_the_half_life(
    half_life_hours: float, starts: tuple[int, int]
) -> None:
    ones = np.ones(5, np.int64)
    # User 1 runs for 1,000 s, much later user 2 for 100 s, then user 3 for 100 s; meanwhile 2 and 1 come again.
    submit = np.array([0, 10_000, 10_000, 10_050, 10_060])
    run = np.array([1000, 100, 100, 100, 100])
    jobs = BatchJobs("", 1, np.arange(5), submit, run, ones, run, np.array([1, 2, 3, 2, 1]))
    schedule = run_policy(jobs, replace(policy_of("fair"), half_life_seconds=half_life_hours * HOUR))
    # Hardly anything fades in 100 h: user 1 used ten times as much. Of 180 s, 51 have passed since user 1 ended.
    assert schedule.start.tolist() == [0, 10_000, 10_100, *starts]
    assert not faults_of(jobs, schedule)


def test_nothing_is_kept_free_for_a_wide_job() -> None:
    ones = np.ones(4, np.int64)
    # Two processors: a job of both waits for as long as single ones come, whoever they belong to.
    submit, run = np.array([0, 1, 50, 90]), np.array([60, 10, 60, 60])
    jobs = BatchJobs("", 2, np.arange(4), submit, run, np.array([1, 2, 1, 1]), run, np.array([1, 2, 1, 1]), ones)
    assert run_policy(jobs, policy_of("fair")).start.tolist() == [0, 150, 50, 90]
    assert run_policy(jobs, policy_of("easy")).start.tolist() == [0, 60, 70, 90]
