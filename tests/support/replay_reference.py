"""Slow, obvious implementations of the replay policies, and random logs on which kernels are held against them.

Imported by the kernels' tests. Everything is recomputed from the definition at every moment; nothing is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from cotide_lab.predictors.run_time.kernels.run_forecasts import GIVEN, LAST_TWO, LEARNED, past_of
from cotide_lab.trace_replay.kernels.easy import NO_BACKFILL, order_key
from cotide_lab.trace_replay.kernels.platform import (
    FIRST_DEMAND,
    FIRST_SHARE,
    PATIENCE,
    PATIENCE_SECONDS,
    PREDICTABLE,
    RECENT_JOBS,
    RESERVED,
)
from cotide_lab.trace_replay.kernels.replay_state import Jobs, new_replay_state
from cotide_lab.trace_replay.kernels.slack import TRIALS, slack_of
from cotide_predictors.run_time.kernels.run_habits import habits_of, note_habit, predict


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
    upper: int = 0
    predictable: int = 0


@dataclass
class Pool:
    """What every reference shares: who runs and waits, what happens at a moment, and nothing clever."""

    jobs: list[Job]
    capacity: int
    mode: int
    waiting: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    finished: list[Job] = field(default_factory=list)

    def __post_init__(self) -> None:
        log = columns(self.jobs)
        self.habits = habits_of(log["user"], log["demand"], log["request"])

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
                if self.mode == LEARNED:
                    note_habit(self.habits, job.number, job.run, job.request, job.forecast)
            elif job.planned_end == now:
                age = now - job.start
                upper = self.habits.upper[job.number] if self.mode == LEARNED else 0
                longer = job.request if job.request > age else 2 * age
                job.planned_end = job.start + int(upper if upper > age else longer)
                corrected.append(job)
        for job in self.jobs:
            if job.submit == now:
                if self.mode == LAST_TWO:
                    of_user = [other.run for other in self.finished if other.user == job.user]
                    mean = sum(of_user[-2:]) // 2 if len(of_user) >= 2 else job.request
                    job.forecast = max(1, min(job.request, mean))
                if self.mode == LEARNED:
                    job.forecast = int(predict(self.habits, job.number, job.request))
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


def earliest(planned: list[tuple[int, int, int]], capacity: int, now: int, job: Job, seconds: int | None = None) -> int:
    seconds = job.forecast if seconds is None else seconds
    for begin in sorted({now, *(end for _, end, _ in planned if end > now)}):
        if fits(planned, capacity, begin, seconds, job.demand):
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


def reference_slack(pool: Pool, priority: int) -> None:  # noqa: PLR0912  the definition, step by step
    """A plan keeps every promise; a job may change it if all promises still hold and the sum of the starts falls."""
    reserved: dict[int, int] = {}

    def blocks(now: int, held: dict[int, int]) -> list[tuple[int, int, int]]:
        running = [(now, job.planned_end, job.demand) for job in pool.running]
        waiting = [(held[job.number], job) for job in pool.waiting if job.number in held]
        return running + [(start, start + job.forecast, job.demand) for start, job in waiting]

    def without(job: Job) -> dict[int, int]:
        return {number: start for number, start in reserved.items() if number != job.number}

    while moments := pool.moments(reserved.values()):
        now = moments[0]
        ends_early = [job for job in pool.running if job.start + job.run == now < job.planned_end]
        corrected = pool.pass_to(now)
        queue = sorted(pool.waiting, key=lambda job: job.number)
        if corrected:
            held = [job for job in queue if job.number in reserved]
            reserved.clear()
            for job in held:
                reserved[job.number] = earliest(blocks(now, reserved), pool.capacity, now, job)
                job.promise = max(job.promise, reserved[job.number])
        elif ends_early:
            for job in queue:
                if job.number in reserved:
                    found = earliest(blocks(now, without(job)), pool.capacity, now, job)
                    reserved[job.number] = min(found, reserved[job.number])
        waits = [job.start - job.submit for job in pool.jobs if job.start >= 0]
        for job in queue:
            if job.number not in reserved:
                reserved[job.number] = earliest(blocks(now, reserved), pool.capacity, now, job)
                job.promise = reserved[job.number] + slack_of(priority, sum(waits), len(waits))
        trials = 0
        for job in sorted(queue, key=lambda job: (job.forecast, job.number)):
            starting = sum(other.demand for other in queue if reserved[other.number] == now)
            if reserved[job.number] == now or job.demand > pool.free() - starting or trials == TRIALS:
                continue
            trials += 1
            plan = without(job)
            in_the_way = sorted((start, number) for number, start in plan.items() if now < start < now + job.forecast)
            for _, number in in_the_way:
                del plan[number]
            plan[job.number] = now
            for _, number in in_the_way:
                plan[number] = earliest(blocks(now, plan), pool.capacity, now, pool.jobs[number])
            in_time = all(plan[number] <= pool.jobs[number].promise for _, number in in_the_way)
            if in_time and sum(plan.values()) < sum(reserved.values()):
                reserved.update(plan)
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


@dataclass
class Share:
    """The part of the pool that the predictable may hold, as both platforms reckon it."""

    pool: Pool
    asked: float = FIRST_DEMAND
    of_predictable: float = FIRST_SHARE * FIRST_DEMAND

    def processors(self) -> int:
        return int(self.pool.capacity * self.of_predictable / self.asked)

    def held(self) -> int:
        return sum(job.demand for job in self.pool.running if job.predictable)

    def take(self, job: Job) -> None:
        """A job is submitted: who counts as predictable, and what the share is then."""
        if self.pool.mode == LEARNED:
            job.upper = int(self.pool.habits.upper[job.number])
            job.predictable = int(self.pool.habits.reliability[job.number] >= PREDICTABLE)
        self.asked += job.demand - self.asked / RECENT_JOBS
        self.of_predictable += job.demand * job.predictable - self.of_predictable / RECENT_JOBS
        if job.demand > self.processors():
            job.predictable = 0

    def moments(self):
        """Pass from moment to moment with everything submitted."""
        while moments := self.pool.moments(()):
            now = moments[0]
            submitted = [job for job in self.pool.jobs if job.submit == now]
            self.pool.pass_to(now)
            for job in submitted:
                self.take(job)
            yield now, [(now, job.planned_end, job.demand) for job in self.pool.running]

    def start(self, job: Job, now: int, length: int) -> None:
        self.pool.begin(job, now)
        job.planned_end = now + length


def reference_platform(pool: Pool, patience=PATIENCE, patience_seconds=PATIENCE_SECONDS, most=RESERVED) -> None:
    """Predictable jobs on a share, the rest everywhere; in order of volume, the overdue first and with reservations."""

    def planned_length(job: Job) -> int:
        return job.upper if job.predictable else job.request

    share = Share(pool)
    for now, planned in share.moments():
        reserved: list[Job] = []
        for job in sorted(pool.waiting, key=lambda job: job.number):
            same_kind = [other for other in reserved if other.predictable == job.predictable]
            waited = now - job.submit
            overdue = waited >= min(patience[job.predictable] * planned_length(job), patience_seconds)
            if len(same_kind) == most or not overdue:
                continue
            begin = earliest(planned, pool.capacity, now, job, planned_length(job))
            planned.append((begin, begin + planned_length(job), job.demand))
            if begin == now:
                share.start(job, now, planned_length(job))
            else:
                reserved.append(job)
        in_order = sorted(
            (job for job in pool.waiting if job not in reserved),
            key=lambda job: ((job.forecast if job.predictable else job.upper) * job.demand, job.number),
        )
        for lent in (False, True):
            for job in [job for job in in_order if job.start < 0 and (job.predictable or not lent)]:
                within = lent or not job.predictable or share.held() + job.demand <= share.processors()
                length = job.upper if reserved else planned_length(job)
                if within and fits(planned, pool.capacity, now, length, job.demand):
                    planned.append((now, now + length, job.demand))
                    share.start(job, now, length)


def reference_printed_platform(pool: Pool) -> None:
    """A plan of the predictable on the share, by volume; then EASY for the others, on requests and beside the plan."""
    share = Share(pool)
    for now, planned in share.moments():
        own = [(now, job.planned_end, job.demand) for job in pool.running if job.predictable]
        size = share.processors()
        by_volume = [job for job in pool.waiting if job.predictable and job.demand <= size]
        for job in sorted(by_volume, key=lambda job: (job.forecast * job.demand, job.number)):
            begin = now
            while not (
                fits(own, size, begin, job.forecast, job.demand)
                and fits(planned, pool.capacity, begin, job.forecast, job.demand)
            ):
                begin += 1
            for held in (own, planned):
                held.append((begin, begin + job.forecast, job.demand))
            if begin == now:
                share.start(job, now, job.forecast)
        reserved = False
        for job in sorted((job for job in pool.waiting if job not in by_volume), key=lambda job: job.number):
            if fits(planned, pool.capacity, now, job.request, job.demand):
                planned.append((now, now + job.request, job.demand))
                share.start(job, now, job.request)
            elif not reserved:
                begin = earliest(planned, pool.capacity, now, job, job.request)
                planned.append((begin, begin + job.request, job.demand))
                reserved = True


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
        job = Job(number, now, run, demand, request, draw(st.integers(0, 1)), forecast)
        job.upper = draw(st.integers(forecast, max(forecast, request)))
        job.predictable = draw(st.integers(0, 1))
        jobs.append(job)
    return jobs, capacity, draw(st.sampled_from([GIVEN, LAST_TWO, LEARNED]))


def columns(jobs: list[Job]):
    return {
        name: np.array([getattr(job, name) for job in jobs], dtype=np.int64)
        for name in ("submit", "run", "demand", "request", "user", "forecast")
    }


def columns_of(jobs: list[Job]) -> Jobs:
    """The jobs as kernels take them; nothing is found yet."""
    return Jobs(**columns(jobs), start=np.full(len(jobs), -1), promise=np.full(len(jobs), -1))


def replay(kernel, jobs, rule, mode, one_by_one=0):
    """Call a kernel; return starts, forecasts and promises."""
    log = columns_of(jobs)
    past = past_of(LEARNED, 2, log.user, log.demand, log.request)
    kernel(log, past, mode, one_by_one, np.zeros(2, dtype=np.int64), new_replay_state(len(jobs)), rule)
    return log.start.tolist(), log.forecast.tolist(), log.promise.tolist()


def expected(jobs):
    return tuple([getattr(job, name) for job in jobs] for name in ("start", "forecast", "promise"))
