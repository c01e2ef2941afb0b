"""Queue policies on one pool: strict order, and EASY backfilling in several orders (Naghshnejad 2019, section 4.2.1).

Called by the trace replay. Arrays in, start times out. Rounds take place at each moment at which a job is submitted,
ends or outlives its forecast: first ends, then submissions, then decisions. Invariant: a job starts only when its
processors are free; with EASY, no backfilled job is planned to hold what the first of the queue needs at its reserved
time.

EASY as in Lifka 1995 and Mu'alem and Feitelson 2001 (Naghshnejad 2019's [128] and [104]): the queue's first job, when
blocked, gets the earliest time at which the planned ends of running jobs leave it enough (the shadow time). Any other
job that fits now may start if its planned end comes before, or if it fits into the rest at that time.

A blocked job can start only after processors came free, a forecast changed, a first job started or another became
first. Any other round looks at the submitted jobs alone. That is what makes a round cheap while the machine is full.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cotide_core.kernels.compiled import compiled, inlined, with_steps
from cotide_core.kernels.ordered_jobs import index_of, insert, remove_at
from cotide_lab.trace_replay.kernels.event_loop import replay, start_job
from cotide_lab.trace_replay.kernels.replay_state import (
    ENDED,
    NEW_FROM,
    ROUNDS,
    RUNNING,
    SPARE,
    TAKEN,
    WAITING,
    Jobs,
    ReplayState,
)

NO_BACKFILL: Final = -1
BY_SUBMIT: Final = 0
BY_RUN: Final = 1
BY_VOLUME: Final = 2
BY_DEMAND: Final = 3

FIRST: Final = SPARE
"""Index of the first of the queue behind the last round, -1 without."""


class QueueRule(NamedTuple):
    """A queue on one pool.

    Attributes
    ----------
    capacity : processors.
    order, backfill : order of the queue, and of the jobs tried behind its first; `NO_BACKFILL` for none.
    """

    capacity: int
    order: int
    backfill: int


@compiled
def order_key(order: int, forecast: int, demand: int) -> int:
    """Return the number a job is ordered by, smallest first; ties go by submission."""
    if order == BY_RUN:
        return forecast
    if order == BY_VOLUME:
        return forecast * demand
    if order == BY_DEMAND:
        return demand
    return 0


@inlined
def enqueue(line: int, order: int, job: int, jobs: Jobs, state: ReplayState) -> int:
    """Put a submitted job into a line of those that wait; return how many stand there then.

    Parameters
    ----------
    line : index in ``state.queues``. order : of the line.
    """
    key = order_key(order, jobs.forecast[job], jobs.demand[job])
    return insert(state.queues[line, 0], state.queues[line, 1], state.counts[WAITING], key, job)


@inlined
def _prepare(jobs: Jobs, state: ReplayState, rule: QueueRule) -> QueueRule:
    if state.counts[ROUNDS] == 0:
        state.counts[FIRST] = -1
    return rule


@inlined
def _submitted(now: int, job: int, jobs: Jobs, state: ReplayState, rule: QueueRule) -> QueueRule:
    jobs.promise[job] = -1
    if rule.backfill not in (NO_BACKFILL, rule.order):
        enqueue(1, rule.backfill, job, jobs, state)
    state.counts[WAITING] = enqueue(0, rule.order, job, jobs, state)
    return rule


@inlined
def _decide(now: int, jobs: Jobs, state: ReplayState, rule: QueueRule) -> QueueRule:
    counts = state.counts
    if rule.backfill == NO_BACKFILL:
        _start_in_order(now, jobs, state, rule)
        return rule
    queue_key, queue = state.queues[0, 0], state.queues[0, 1]
    two = rule.backfill != rule.order
    second = 1 if two else 0
    line_key, line = state.queues[second, 0], state.queues[second, 1]
    demand, forecast = jobs.demand, jobs.forecast
    first_before = counts[FIRST]
    everything = first_before < 0 or counts[ENDED] > 0
    waiting = counts[WAITING]
    free = rule.capacity - counts[TAKEN]
    # The queue's first jobs, as long as they fit.
    while waiting > 0 and demand[queue[0]] <= free:
        everything = True  # what starts ahead of the first blocked job may move that job's reserved start
        job = queue[0]
        if two:
            index = index_of(line_key, line, waiting, order_key(rule.backfill, forecast[job], demand[job]), job)
            remove_at(line_key, line, waiting, index)
        waiting = remove_at(queue_key, queue, waiting, 0)
        free -= demand[job]
        start_job(now, job, forecast[job], jobs, state)
    counts[WAITING] = waiting
    counts[FIRST] = queue[0] if waiting > 0 else -1
    if waiting > 0:
        _backfill(now, everything or queue[0] != first_before, two, jobs, state, rule)
    return rule


@inlined
def _start_in_order(now: int, jobs: Jobs, state: ReplayState, rule: QueueRule) -> None:
    """Start the queue's first jobs as long as they fit, and nothing behind them."""
    counts = state.counts
    queue_key, queue = state.queues[0, 0], state.queues[0, 1]
    waiting = counts[WAITING]
    while waiting > 0 and jobs.demand[queue[0]] <= rule.capacity - counts[TAKEN]:
        job = queue[0]
        waiting = remove_at(queue_key, queue, waiting, 0)
        start_job(now, job, jobs.forecast[job], jobs, state)
    counts[WAITING] = waiting


@inlined
def _backfill(now: int, everything: bool, two: bool, jobs: Jobs, state: ReplayState, rule: QueueRule) -> None:
    """Start jobs behind the reservation of the queue's first: the new ones, or ``everything`` that fits."""
    counts = state.counts
    end_time, end_job = state.ends[0], state.ends[1]
    queue_key, queue = state.queues[0, 0], state.queues[0, 1]
    second = 1 if two else 0
    line_key, line = state.queues[second, 0], state.queues[second, 1]
    demand, forecast = jobs.demand, jobs.forecast
    new_from, waiting, running = counts[NEW_FROM], counts[WAITING], counts[RUNNING]
    free = rule.capacity - counts[TAKEN]
    first = queue[0]
    shadow: int = -1
    extra: int = 0
    if jobs.promise[first] < 0 or free > 0:
        level = free
        ends = 0
        while level < demand[first]:
            shadow = end_time[ends]
            level += demand[end_job[ends]]
            ends += 1
        while ends < running and end_time[ends] == shadow:
            level += demand[end_job[ends]]
            ends += 1
        extra = level - demand[first]
        if jobs.promise[first] < 0:
            jobs.promise[first] = shadow
    index = 0
    while free > 0 and index < waiting:
        job = line[index]
        if job == first or demand[job] > free or not (everything or job >= new_from):
            index += 1
            continue
        ends_in_time = now + forecast[job] <= shadow
        if not ends_in_time and demand[job] > extra:
            index += 1
            continue
        if not ends_in_time:
            extra -= demand[job]
        if two:
            remove_at(line_key, line, waiting, index)
            queue_index = index_of(queue_key, queue, waiting, order_key(rule.order, forecast[job], demand[job]), job)
            waiting = remove_at(queue_key, queue, waiting, queue_index)
        else:
            waiting = remove_at(queue_key, queue, waiting, index)
        free -= demand[job]
        start_job(now, job, forecast[job], jobs, state)
    counts[WAITING] = waiting


replay_queue = with_steps(replay, "replay_queue", prepare=_prepare, submitted=_submitted, decide=_decide)
"""Replays a log in strict order or under EASY, see `event_loop.replay`; the promise is the first reserved start that a
job was given as the queue's first, else -1."""
