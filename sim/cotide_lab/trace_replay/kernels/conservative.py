"""Conservative backfilling on one pool: each job is promised a start when it is submitted (Naghshnejad 2019, section
4.2.1).

Called by the trace replay. As in Mu'alem and Feitelson 2001 (Naghshnejad 2019's [104]): a submitted job gets the
earliest start that leaves every earlier reservation untouched. When a job ends before its planned end, the waiting jobs
move forward one after another, in order of submission. Each moves to the earliest start that is open then.

Invariant: while forecasts are upper bounds (the user's request), no job starts later than promised. When a running job
exceeds its forecast, some promises break: all reservations are made again, in order of submission.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeVar

from cotide_core.kernels.compiled import inlined, with_steps
from cotide_lab.trace_replay.kernels.event_loop import replay, start_job
from cotide_lab.trace_replay.kernels.profile import (
    change,
    earlier_start,
    earliest_start,
    first_room,
    forget_past,
    move,
    profile_of,
)
from cotide_lab.trace_replay.kernels.replay_state import ROUNDS, RUNNING, SPARE, TAKEN, WAITING, WAKE, Jobs, ReplayState

SIZE: Final = SPARE
"""Index of the number of segments of the profile."""
GAINED: Final = SPARE + 1
"""Index of 1 where a job of this round ended before its planned end."""
BROKEN: Final = SPARE + 2
"""Index of 1 where a job of this round exceeded its forecast."""


class ConservativeRule(NamedTuple):
    """Reservations for all on one pool.

    Attributes
    ----------
    capacity : processors.
    """

    capacity: int


PoolRule = TypeVar("PoolRule", bound=tuple[Any, ...])
"""A rule on one pool, whose first field is its capacity."""


@inlined
def begin_profile(capacity: int, state: ReplayState) -> None:
    """Write the profile of an empty pool, before the first round."""
    if state.counts[ROUNDS] == 0:
        state.profile[0, 0] = 0
        state.profile[1, 0] = capacity
        state.counts[SIZE] = 1


@inlined
def open_profile(now: int, state: ReplayState) -> None:
    """Forget what lies before a round; nothing was gained or broken in it yet."""
    state.counts[SIZE] = forget_past(state.profile[0], state.profile[1], state.counts[SIZE], now)
    state.counts[GAINED] = 0
    state.counts[BROKEN] = 0


@inlined
def give_back(now: int, job: int, jobs: Jobs, state: ReplayState) -> None:
    """Give back what a job that has ended was planned to hold from now on."""
    counts, until = state.counts, state.planned_end[job]
    if until > now:
        counts[SIZE] = change(state.profile[0], state.profile[1], counts[SIZE], now, until, jobs.demand[job])
        counts[GAINED] = 1


@inlined
def begin_anew(now: int, capacity: int, jobs: Jobs, state: ReplayState) -> None:
    """Leave the running jobs alone in the profile."""
    counts = state.counts
    free = capacity - counts[TAKEN]
    times, level = state.profile[0], state.profile[1]
    counts[SIZE] = profile_of(times, level, now, free, state.ends[0], state.ends[1], counts[RUNNING], jobs.demand)


@inlined
def reserve(now: int, job: int, jobs: Jobs, state: ReplayState) -> int:
    """Reserve a job its earliest start; return it."""
    counts, forecast, demand = state.counts, jobs.forecast[job], jobs.demand[job]
    times, free = state.profile[0], state.profile[1]
    begin: int = earliest_start(times, free, counts[SIZE], now, forecast, demand)
    counts[SIZE] = change(times, free, counts[SIZE], begin, begin + forecast, -demand)
    jobs.start[job] = begin
    return begin


@inlined
def prepare(jobs: Jobs, state: ReplayState, rule: PoolRule) -> PoolRule:
    """Begin with an empty profile."""
    begin_profile(rule[0], state)
    return rule


@inlined
def open_round(now: int, jobs: Jobs, state: ReplayState, rule: PoolRule) -> PoolRule:
    """Forget what lies before the round."""
    open_profile(now, state)
    return rule


@inlined
def forecast_exceeded(now: int, job: int, jobs: Jobs, state: ReplayState, rule: PoolRule) -> PoolRule:
    """Note that the profile holds no more."""
    state.counts[BROKEN] = 1
    return rule


@inlined
def ended(now: int, job: int, jobs: Jobs, state: ReplayState, rule: PoolRule) -> PoolRule:
    """Give back what the job was planned to hold."""
    give_back(now, job, jobs, state)
    return rule


@inlined
def _before_submissions(now: int, jobs: Jobs, state: ReplayState, rule: ConservativeRule) -> ConservativeRule:
    counts, queue = state.counts, state.queues[0, 1]
    if counts[BROKEN] == 1:
        begin_anew(now, rule.capacity, jobs, state)
        wake: int = -1
        for index in range(counts[WAITING]):
            begin = reserve(now, queue[index], jobs, state)
            if wake < 0 or begin < wake:
                wake = begin
        counts[WAKE] = wake
    elif counts[GAINED] == 1:
        _move_forward(now, jobs, state)
    return rule


@inlined
def _move_forward(now: int, jobs: Jobs, state: ReplayState) -> None:
    """Move the waiting forward, one after another, each to the earliest start now open to it."""
    counts, queue = state.counts, state.queues[0, 1]
    times, free = state.profile[0], state.profile[1]
    start, demand, forecast = jobs.start, jobs.demand, jobs.forecast
    size, wake = counts[SIZE], counts[WAKE]
    narrow: int = 0
    until: int = now  # before this moment there is no room for ``narrow`` processors or more
    for index in range(counts[WAITING]):
        job = queue[index]
        held = start[job]
        if held <= until and demand[job] >= narrow:
            continue
        opens = times[first_room(free, demand[job])]
        if opens >= held:
            narrow, until = demand[job], opens
            continue
        begin = earlier_start(times, free, size, max(now, opens), forecast[job], demand[job], held)
        if begin < held:
            size = move(times, free, size, held, begin, forecast[job], demand[job])
            start[job] = begin
            wake = min(wake, begin)
            until = min(until, max(held, begin + forecast[job]))
    counts[SIZE] = size
    counts[WAKE] = wake


@inlined
def _submitted(now: int, job: int, jobs: Jobs, state: ReplayState, rule: ConservativeRule) -> ConservativeRule:
    counts = state.counts
    begin = reserve(now, job, jobs, state)
    jobs.promise[job] = begin
    if counts[WAKE] < 0 or begin < counts[WAKE]:
        counts[WAKE] = begin
    state.queues[0, 1, counts[WAITING]] = job
    counts[WAITING] += 1
    return rule


@inlined
def _decide(now: int, jobs: Jobs, state: ReplayState, rule: ConservativeRule) -> ConservativeRule:
    if state.counts[WAKE] == now:
        start_reserved(now, jobs, state)
    return rule


@inlined
def start_reserved(now: int, jobs: Jobs, state: ReplayState) -> None:
    """Start the jobs that are reserved for this moment; the others close up, and the earliest of them wakes the
    replay."""
    counts, queue, start = state.counts, state.queues[0, 1], jobs.start
    staying = 0
    wake: int = -1
    for index in range(counts[WAITING]):
        job = queue[index]
        if start[job] == now:
            start_job(now, job, jobs.forecast[job], jobs, state)
            continue
        queue[staying] = job
        staying += 1
        if wake < 0 or start[job] < wake:
            wake = start[job]
    counts[WAITING] = staying
    counts[WAKE] = wake


replay_conservative = with_steps(
    replay, "replay_conservative", prepare=prepare, open_round=open_round, forecast_exceeded=forecast_exceeded,
    ended=ended,
    before_submissions=_before_submissions, submitted=_submitted, decide=_decide,
)  # fmt: skip
"""Replays a log under conservative backfilling, see `event_loop.replay`; every job gets a promise."""
