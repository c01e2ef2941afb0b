"""The replay kernels against slow, obvious implementations: equal job by job on random logs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.kernels.conservative import replay_conservative
from cotide_core.kernels.easy import BY_DEMAND, BY_RUN, BY_SUBMIT, BY_VOLUME, NO_BACKFILL, order_key, replay_queue
from cotide_core.kernels.plan import replay_plan
from cotide_core.kernels.run_forecasts import GIVEN, LAST_TWO


@dataclass
class Job:
    number: int
    submit: int
    run: int
    demand: int
    request: int
    user: int
    forecast: int
    start: int = -1
    promise: int = -1
    planned_end: int = -1


@dataclass
class Pool:
    """What every reference shares: who runs and waits, what happens at a moment, and nothing clever."""

    jobs: list[Job]
    capacity: int
    mode: int
    waiting: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    finished: list[Job] = field(default_factory=list)

    def free(self) -> int:
        return self.capacity - sum(job.demand for job in self.running)

    def moments(self, extra) -> list[int]:
        """Every later moment at which something is known to happen."""
        ends = [min(job.planned_end, job.start + job.run) for job in self.running]
        submits = [job.submit for job in self.jobs if job.start < 0 and job not in self.waiting]
        return sorted({*ends, *submits, *extra})

    def pass_to(self, now: int) -> list[Job]:
        """End jobs, correct forecasts that proved too short, take submissions; return the corrected jobs."""
        corrected = []
        for job in sorted(self.running, key=lambda job: job.number):
            if job.start + job.run == now:
                self.running.remove(job)
                self.finished.append(job)
            elif job.planned_end == now:
                age = now - job.start
                job.planned_end = job.start + (job.request if job.request > age else 2 * age)
                corrected.append(job)
        for job in self.jobs:
            if job.submit == now:
                if self.mode == LAST_TWO:
                    of_user = [other.run for other in self.finished if other.user == job.user]
                    mean = sum(of_user[-2:]) // 2 if len(of_user) >= 2 else job.request
                    job.forecast = max(1, min(job.request, mean))
                self.waiting.append(job)
        return corrected

    def begin(self, job: Job, now: int) -> None:
        assert job.demand <= self.free()
        self.waiting.remove(job)
        self.running.append(job)
        job.start, job.planned_end = now, now + job.forecast


def reserved_start(pool: Pool, job: Job, now: int) -> int:
    """When the planned ends of running jobs leave enough for a job."""
    for moment in sorted({now, *(other.planned_end for other in pool.running)}):
        left = pool.capacity - sum(other.demand for other in pool.running if other.planned_end > moment)
        if left >= job.demand:
            return moment
    raise AssertionError("every job fits the empty machine")


def reference_queue(pool: Pool, order: int, backfill: int) -> None:
    """EASY by its definition: a job may overtake if the first job's reserved start does not move."""
    while moments := pool.moments(()):
        now = moments[0]
        pool.pass_to(now)
        pool.waiting.sort(key=lambda job: (order_key(order, job.forecast, job.demand), job.number))
        while pool.waiting and pool.waiting[0].demand <= pool.free():
            pool.begin(pool.waiting[0], now)
        if not pool.waiting or backfill == NO_BACKFILL:
            continue
        first = pool.waiting[0]
        shadow = reserved_start(pool, first, now)
        if first.promise < 0:
            first.promise = shadow
        others = pool.waiting[1:]
        for job in sorted(others, key=lambda job: (order_key(backfill, job.forecast, job.demand), job.number)):
            if job.demand > pool.free():
                continue
            pool.begin(job, now)
            if reserved_start(pool, first, now) > shadow:
                pool.running.remove(job)
                pool.waiting.append(job)
                job.start = -1


def fits(planned: list[tuple[int, int, int]], capacity: int, begin: int, seconds: int, demand: int) -> bool:
    moments = {begin, *(start for start, _, _ in planned if begin < start < begin + seconds)}
    return all(
        sum(size for start, end, size in planned if start <= moment < end) + demand <= capacity for moment in moments
    )


def earliest(planned: list[tuple[int, int, int]], capacity: int, now: int, job: Job) -> int:
    for begin in sorted({now, *(end for _, end, _ in planned if end > now)}):
        if fits(planned, capacity, begin, job.forecast, job.demand):
            return begin
    raise AssertionError("every job fits once all others have ended")


def reference_conservative(pool: Pool) -> None:
    reserved: dict[int, int] = {}

    def others(now: int, besides: Job) -> list[tuple[int, int, int]]:
        running = [(now, job.planned_end, job.demand) for job in pool.running]
        starts = [(reserved[job.number], job) for job in pool.waiting if job.number in reserved and job is not besides]
        return running + [(start, start + job.forecast, job.demand) for start, job in starts]

    while moments := pool.moments(reserved.values()):
        now = moments[0]
        ends_early = [job for job in pool.running if job.start + job.run == now < job.planned_end]
        corrected = pool.pass_to(now)
        queue = sorted(pool.waiting, key=lambda job: job.number)
        if corrected:
            held = [job for job in queue if job.number in reserved]
            for job in held:
                del reserved[job.number]
            for job in held:
                reserved[job.number] = earliest(others(now, job), pool.capacity, now, job)
        elif ends_early:
            for job in queue:
                if job.number in reserved:
                    found = earliest(others(now, job), pool.capacity, now, job)
                    reserved[job.number] = min(found, reserved[job.number])
        for job in queue:
            if job.number not in reserved:
                reserved[job.number] = job.promise = earliest(others(now, job), pool.capacity, now, job)
        for job in queue:
            if reserved[job.number] == now:
                del reserved[job.number]
                pool.begin(job, now)


def reference_plan(pool: Pool, order: int) -> None:
    while moments := pool.moments(()):
        now = moments[0]
        pool.pass_to(now)
        planned = [(now, job.planned_end, job.demand) for job in pool.running]
        for job in sorted(pool.waiting, key=lambda job: (order_key(order, job.forecast, job.demand), job.number)):
            begin = earliest(planned, pool.capacity, now, job)
            planned.append((begin, begin + job.forecast, job.demand))
            if begin == now:
                pool.begin(job, now)


@st.composite
def logs(draw):
    """Few different numbers, so that jobs often end, are planned to end and are submitted together."""
    capacity = draw(st.integers(2, 8))
    jobs: list[Job] = []
    now = 0
    for number in range(draw(st.integers(4, 14))):
        now += draw(st.sampled_from([0, 0, 0, 1, 2, 4]))
        run = draw(st.sampled_from([2, 4, 4, 6, 10]))
        request = run + draw(st.sampled_from([0, 0, 2, 6]))
        forecast = draw(st.sampled_from([request, run, max(1, run // 2), 1]))
        demand = draw(st.integers(1, capacity))
        jobs.append(Job(number, now, run, demand, request, draw(st.integers(0, 1)), forecast))
    return jobs, capacity, draw(st.sampled_from([GIVEN, LAST_TWO]))


def columns(jobs: list[Job]):
    return {
        name: np.array([getattr(job, name) for job in jobs], dtype=np.int64)
        for name in ("submit", "run", "demand", "request", "user", "forecast")
    }


def replay(kernel, jobs, capacity, *codes, promises=True):
    """Call a kernel; return starts, forecasts and promises."""
    log = columns(jobs)
    start, promise = np.full((2, len(jobs)), -1, dtype=np.int64)
    arrays = (log["submit"], log["run"], log["demand"], log["request"], log["user"], 2, capacity)
    outs = (log["forecast"], start, promise) if promises else (log["forecast"], start)
    kernel(*arrays, *codes, *outs, np.zeros(2, dtype=np.int64))
    return start.tolist(), log["forecast"].tolist(), promise.tolist()


def expected(jobs):
    return tuple([getattr(job, name) for job in jobs] for name in ("start", "forecast", "promise"))


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
    found = replay(replay_queue, jobs, capacity, order, backfill, mode, 0)
    reference_queue(Pool(jobs, capacity, mode), order, backfill)
    assert found == expected(jobs)


@settings(max_examples=400, deadline=None)
@given(log=logs())
def test_conservative_equals_the_reference_job_by_job(log):
    jobs, capacity, mode = log
    found = replay(replay_conservative, jobs, capacity, mode)
    reference_conservative(Pool(jobs, capacity, mode))
    assert found == expected(jobs)


@pytest.mark.parametrize("order", [BY_SUBMIT, BY_RUN, BY_VOLUME])
@settings(max_examples=250, deadline=None)
@given(log=logs())
def test_plans_equal_the_reference_job_by_job(order, log):
    jobs, capacity, mode = log
    found = replay(replay_plan, jobs, capacity, order, mode, promises=False)
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
    together = replay(replay_queue, jobs, capacity, BY_SUBMIT, BY_SUBMIT, GIVEN, 0)
    moments = [start + job.run for start, job in zip(together[0], jobs, strict=True)] + [job.submit for job in jobs]
    if len(set(moments)) == len(moments):
        assert replay(replay_queue, jobs, capacity, BY_SUBMIT, BY_SUBMIT, GIVEN, 1) == together


def test_a_new_first_of_the_queue_opens_the_way_for_a_job_that_its_predecessor_held_back():
    """Ten processors, shortest first. Running: 5 until 100 and 2 until 200, so 3 are free.

    At 1 comes a job for 6 (50 s): it can start at 100 and leaves 2. At 2 comes one for 3 (150 s): too long, too wide.
    At 3 comes one for 9 (40 s), which is first now and can't start before 200: by then the one for 3 is over.
    """
    rows = [(0, 100, 5), (0, 200, 2), (1, 50, 6), (2, 150, 3), (3, 40, 9)]
    jobs = [Job(place, submit, run, demand, run, 0, run) for place, (submit, run, demand) in enumerate(rows)]
    found = replay(replay_queue, jobs, 10, BY_RUN, BY_RUN, GIVEN, 0)
    reference_queue(Pool(jobs, 10, GIVEN), BY_RUN, BY_RUN)
    assert found == expected(jobs)
    assert found[0][3] == 3


def test_all_jobs_that_end_at_the_reserved_time_leave_room_for_a_long_narrow_one():
    """Five processors. Two jobs of 2 until 10; the first of the queue needs 3 then, so 2 are left over, not 0."""
    rows = [(0, 10, 2), (0, 10, 2), (1, 20, 3), (2, 50, 1)]
    jobs = [Job(place, submit, run, demand, run, 0, run) for place, (submit, run, demand) in enumerate(rows)]
    assert replay(replay_queue, jobs, 5, BY_SUBMIT, BY_SUBMIT, GIVEN, 0)[0] == [0, 0, 10, 2]


def test_a_plan_counts_every_job_that_ends_at_one_moment():
    """Five processors. Two jobs of 2 until 10; the next needs 3 from then on, which leaves 2."""
    rows = [(0, 10, 2), (0, 10, 2), (1, 20, 3), (2, 50, 1)]
    jobs = [Job(place, submit, run, demand, run, 0, run) for place, (submit, run, demand) in enumerate(rows)]
    assert replay(replay_plan, jobs, 5, BY_SUBMIT, GIVEN, promises=False)[0] == [0, 0, 10, 2]
