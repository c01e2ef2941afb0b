"""SINGLE and Block-Scheduling as online plans: the offline algorithms' order, and a slow reference of every round."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_reference import Job, Pool, earliest, logs, replay

from cotide_lab.offline.block_scheduling import block_schedule, gamma
from cotide_lab.offline.job_list import JobList
from cotide_lab.offline.lists.list_scheduling import on_given
from cotide_lab.offline.single_machine import single_machine
from cotide_lab.predictors.run_time.kernels.run_forecasts import GIVEN, LEARNED
from cotide_lab.trace_replay.kernels.set_plan import BY_BLOCK, BY_PARTS, GAMMA, replay_set_plan, set_plan_rule


def offline_order(jobs: list[Job], capacity: int, order: int) -> list[Job]:
    """Return the jobs by the starts that the offline algorithm gives them on an empty pool."""
    sizes, demands = (np.array([getattr(job, name) for job in jobs], np.int64) for name in ("forecast", "demand"))
    listed = JobList(sizes, demands, capacity)
    schedule = single_machine(listed) if order == BY_PARTS else block_schedule(listed, 1)
    return [jobs[index] for index in np.argsort(schedule.starts, kind="stable")]


def reference(pool: Pool, order: int) -> None:
    """Order all that wait whenever somebody was submitted and something is free; plan them in that order."""
    line: list[Job] = []
    stale = False
    while moments := pool.moments(()):
        now = moments[0]
        before = list(pool.waiting)
        pool.pass_to(now)
        stale = stale or pool.waiting != before
        if stale and pool.waiting and pool.free():
            line = offline_order(sorted(pool.waiting, key=lambda job: job.number), pool.capacity, order)
            stale = False
        if not pool.free():
            continue
        planned = [(now, job.planned_end, job.demand) for job in pool.running]
        for job in [job for job in line if job in pool.waiting]:
            begin = earliest(planned, pool.capacity, now, job)
            planned.append((begin, begin + job.forecast, job.demand))
            if begin == now:
                pool.begin(job, now)


@pytest.mark.parametrize("order", [BY_PARTS, BY_BLOCK])
@settings(max_examples=100, deadline=None)
@given(log=logs())
def test_plans_of_sets_equal_the_reference_job_by_job(order, log):
    jobs, capacity, mode = log
    mode = mode if mode != LEARNED else GIVEN
    found = replay(replay_set_plan, jobs, set_plan_rule(capacity, order, len(jobs)), mode)
    reference(Pool(jobs, capacity, mode), order)
    assert found[0] == [job.start for job in jobs]


@pytest.mark.parametrize("order", [BY_PARTS, BY_BLOCK])
@settings(max_examples=100, deadline=None)
@given(
    capacity=st.integers(1, 8),
    asked=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 8)), min_size=1, max_size=25),
)
def test_with_all_jobs_there_from_the_start_the_schedule_is_the_offline_one_with_nobody_held_back(
    order, capacity, asked
):
    jobs = [Job(number, 0, run, min(demand, capacity), run, 0, run) for number, (run, demand) in enumerate(asked)]
    found = replay(replay_set_plan, jobs, set_plan_rule(capacity, order, len(jobs)), GIVEN)[0]
    listed = JobList(np.array([job.run for job in jobs]), np.array([job.demand for job in jobs]), capacity)
    ordered = np.array([job.number for job in offline_order(jobs, capacity, order)])
    assert found == on_given(listed, 1, ordered, np.zeros(len(jobs), np.int64)).starts.tolist()


def test_a_step_is_as_long_as_the_offline_algorithm_has_it():
    assert gamma(1) == GAMMA


def test_blocks_run_densest_first_where_the_shortest_come_one_by_one():
    """Four processors. Four jobs of 2 s and one processor make one block of four in 2 s: denser than a 1 s job of four
    processors, one job in 1 s. By volume the second would be first (4 against 2 each is later; volume 4 against 2)."""
    jobs = [Job(0, 0, 1, 4, 1, 0, 1), *(Job(number, 0, 2, 1, 2, 0, 2) for number in range(1, 5))]
    assert replay(replay_set_plan, jobs, set_plan_rule(4, BY_BLOCK, 5), GIVEN)[0] == [0, 1, 1, 1, 1]
