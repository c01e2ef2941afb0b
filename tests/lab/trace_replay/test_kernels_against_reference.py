"""The replay kernels against slow, obvious implementations: equal job by job on random logs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from replay_reference import (
    Job,
    Pool,
    expected,
    logs,
    reference_conservative,
    reference_plan,
    reference_queue,
    replay,
)  # fmt: skip

from cotide_lab.predictors.run_time.kernels.run_forecasts import GIVEN
from cotide_lab.trace_replay.kernels.conservative import ConservativeRule, replay_conservative
from cotide_lab.trace_replay.kernels.easy import (
    BY_DEMAND,
    BY_RUN,
    BY_SUBMIT,
    BY_VOLUME,
    NO_BACKFILL,
    QueueRule,
    replay_queue,
)
from cotide_lab.trace_replay.kernels.plan import PlanRule, replay_plan


@pytest.mark.parametrize(
    ("order", "backfill"),
    [
        (BY_SUBMIT, NO_BACKFILL), (BY_RUN, NO_BACKFILL), (BY_SUBMIT, BY_SUBMIT), (BY_SUBMIT, BY_RUN),
        (BY_SUBMIT, BY_VOLUME), (BY_RUN, BY_RUN), (BY_VOLUME, BY_VOLUME), (BY_VOLUME, BY_DEMAND),
    ],
)  # fmt: skip
@settings(max_examples=250, deadline=None)
@given(log=logs())
def test_queue_policies_equal_the_reference_job_by_job(order, backfill, log):
    jobs, capacity, mode = log
    found = replay(replay_queue, jobs, QueueRule(capacity, order, backfill), mode)
    reference_queue(Pool(jobs, capacity, mode), order, backfill)
    assert found == expected(jobs)


@settings(max_examples=400, deadline=None)
@given(log=logs())
def test_conservative_equals_the_reference_job_by_job(log):
    jobs, capacity, mode = log
    found = replay(replay_conservative, jobs, ConservativeRule(capacity), mode)
    reference_conservative(Pool(jobs, capacity, mode))
    assert found == expected(jobs)


@pytest.mark.parametrize("seed", range(12))
def test_conservative_equals_the_reference_where_one_early_end_moves_many_of_a_long_queue(seed):
    """Forty jobs of unlike sizes and lengths wait at once; half of them end before the half of their request."""
    rng = random.Random(seed)
    jobs = []
    for number in range(40):
        request = rng.randint(2, 40)
        run = rng.randint(1, request if rng.random() < 0.5 else max(1, request // 2))
        jobs.append(Job(number, number // 4, run, rng.choice([1, 2, 3, 5, 8, 13]), request, 0, request))
    found = replay(replay_conservative, jobs, ConservativeRule(16), GIVEN)
    reference_conservative(Pool(jobs, 16, GIVEN))
    assert found == expected(jobs)


@pytest.mark.parametrize("order", [BY_SUBMIT, BY_RUN, BY_VOLUME])
@settings(max_examples=250, deadline=None)
@given(log=logs())
def test_plans_equal_the_reference_job_by_job(order, log):
    jobs, capacity, mode = log
    found = replay(replay_plan, jobs, PlanRule(capacity, order), mode)
    reference_plan(Pool(jobs, capacity, mode), order)
    assert found[:2] == expected(jobs)[:2]


@settings(max_examples=200, deadline=None)
@given(log=logs())
def test_deciding_after_each_event_equals_deciding_once_a_moment_when_no_moment_has_two(log):
    """Spread out: a job at a time on times that are multiples of 1000 plus its number, run times likewise unique."""
    jobs, capacity, _ = log
    for job in jobs:
        job.submit = job.submit * 1000 + job.number
        job.run = job.run * 1000 + 17 * job.number + 500
        job.request = job.forecast = job.run
    together = replay(replay_queue, jobs, QueueRule(capacity, BY_SUBMIT, BY_SUBMIT), GIVEN)
    moments = [start + job.run for start, job in zip(together[0], jobs, strict=True)] + [job.submit for job in jobs]
    if len(set(moments)) == len(moments):
        assert replay(replay_queue, jobs, QueueRule(capacity, BY_SUBMIT, BY_SUBMIT), GIVEN, 1) == together


def test_a_new_first_of_the_queue_opens_the_way_for_a_job_that_its_predecessor_held_back():
    """Ten processors, shortest first. Running: 5 until 100 and 2 until 200, so 3 are free.

    At 1 comes a job for 6 (50 s): it can start at 100 and leaves 2. At 2 comes one for 3 (150 s): too long, too wide.
    At 3 comes one for 9 (40 s), which is first now and can't start before 200: by then the one for 3 is over.
    """
    rows = [(0, 100, 5), (0, 200, 2), (1, 50, 6), (2, 150, 3), (3, 40, 9)]
    jobs = [Job(number, submit, run, demand, run, 0, run) for number, (submit, run, demand) in enumerate(rows)]
    found = replay(replay_queue, jobs, QueueRule(10, BY_RUN, BY_RUN), GIVEN)
    reference_queue(Pool(jobs, 10, GIVEN), BY_RUN, BY_RUN)
    assert found == expected(jobs)
    assert found[0][3] == 3


def test_a_job_that_starts_ahead_of_the_first_and_delays_it_opens_the_way_for_others():
    """Five processors, smallest volume first. At 2 three come free; the first in line needs 4 and is reserved 4.

    At 3 comes a small job that is first by volume and starts: the other's reserved start moves to 7. Now the job for 2
    processors and 4 s, which had been in its way, is over by then.
    """
    rows = [(0, 2, 4), (0, 2, 1), (0, 2, 1), (0, 2, 1), (0, 4, 1), (1, 6, 1), (1, 4, 2), (3, 4, 1)]
    jobs = [Job(number, submit, run, demand, run, 0, run) for number, (submit, run, demand) in enumerate(rows)]
    found = replay(replay_queue, jobs, QueueRule(5, BY_VOLUME, BY_VOLUME), GIVEN)
    reference_queue(Pool(jobs, 5, GIVEN), BY_VOLUME, BY_VOLUME)
    assert found == expected(jobs)
    assert found[0] == [7, 0, 0, 0, 0, 1, 3, 3]


def test_all_jobs_that_end_at_the_reserved_time_leave_room_for_a_long_narrow_one():
    """Five processors. Two jobs of 2 until 10; the first of the queue needs 3 then, so 2 are left over, not 0."""
    rows = [(0, 10, 2), (0, 10, 2), (1, 20, 3), (2, 50, 1)]
    jobs = [Job(number, submit, run, demand, run, 0, run) for number, (submit, run, demand) in enumerate(rows)]
    assert replay(replay_queue, jobs, QueueRule(5, BY_SUBMIT, BY_SUBMIT), GIVEN)[0] == [0, 0, 10, 2]


def test_a_plan_counts_every_job_that_ends_at_one_moment():
    """Five processors. Two jobs of 2 until 10; the next needs 3 from then on, which leaves 2."""
    rows = [(0, 10, 2), (0, 10, 2), (1, 20, 3), (2, 50, 1)]
    jobs = [Job(number, submit, run, demand, run, 0, run) for number, (submit, run, demand) in enumerate(rows)]
    assert replay(replay_plan, jobs, PlanRule(5, BY_SUBMIT), GIVEN)[0] == [0, 0, 10, 2]
