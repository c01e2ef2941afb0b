"""Slack-based backfilling on one pool: a promise is a reservation and some slack, and slack may be spent on others.

Called by the trace replay. After Talby and Feitelson 1999 (Naghshnejad 2019's [138]): a submitted job is reserved the
earliest start and promised to start no later than that plus its slack. The slack is the mean wait of the jobs that
started so far, times 2 - priority / 50: none for priority 100, the mean wait for 50, twice that for 0. A job that fits
into the free room may then move to this moment, if the reservations in its way move. Each of those must still start by
its promise, and the sum of all starts must become earlier. The shortest job is tried first. The paper prices every
legal order of the queue and takes the cheapest, with rules that shorten the search. Here a round tries at most `TRIALS`
such moves and prices a schedule by the sum of its starts.

Invariant: there always is a plan that keeps every promise, and it is held explicitly. While forecasts are upper bounds
no job starts later than promised. When a running job exceeds its forecast, all reservations are made again, in order of
submission, and impossible promises are renewed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled, inlined, with_steps
from cotide_core.kernels.machine_slack import TRIALS
from cotide_core.kernels.ordered_jobs import index_of, insert, remove_at
from cotide_lab.trace_replay.kernels.conservative import (
    BROKEN,
    GAINED,
    SIZE,
    begin_anew,
    ended,
    forecast_exceeded,
    open_round,
    prepare,
    reserve,
    start_reserved,
)
from cotide_lab.trace_replay.kernels.event_loop import replay
from cotide_lab.trace_replay.kernels.profile import change, earlier_start, earliest_start, move
from cotide_lab.trace_replay.kernels.replay_state import SPARE, TAKEN, WAITING, Jobs, ReplayState

WAITED: Final = SPARE + 5
"""Index of the seconds that all started jobs waited together."""
STARTED: Final = SPARE + 6
MIDDLING_PRIORITY: Final = 50
"""For every job of a log, as logs name no priorities: the slack is then the mean wait so far."""


class SlackRule(NamedTuple):
    """Promises with slack on one pool.

    Attributes
    ----------
    capacity : processors.
    priority : (n,) from 0 to 100.
    trial : (n,) starts of the waiting jobs that are tried.
    profile : (2, 2n + 16) the profile that is tried.
    moved : (2, n) starts and jobs that are placed again.
    """

    capacity: int
    priority: Integers
    trial: Integers
    profile: Integers
    moved: Integers


def slack_rule(capacity: int, priority: Integers) -> SlackRule:
    """Return the rule for n jobs of these priorities, (n,)."""
    jobs = len(priority)
    trial, moved = np.empty(jobs, np.int64), np.empty((2, jobs), np.int64)
    return SlackRule(capacity, priority, trial, np.empty((2, 2 * jobs + 16), np.int64), moved)


@compiled
def slack_of(priority: int, waited: int, started: int) -> int:
    """Return the seconds a promise may lie behind the reservation; ``waited`` is the sum over ``started`` jobs."""
    if started == 0:
        return 0
    return (100 - priority) * waited // (50 * started)


@inlined
def _before_submissions(now: int, jobs: Jobs, state: ReplayState, rule: SlackRule) -> SlackRule:
    counts, queue = state.counts, state.queues[0, 1]
    start, demand, forecast, promise = jobs.start, jobs.demand, jobs.forecast, jobs.promise
    if counts[BROKEN] == 1:
        begin_anew(now, rule.capacity, jobs, state)
        for index in range(counts[WAITING]):
            job = queue[index]
            promise[job] = max(promise[job], reserve(now, job, jobs, state))
    elif counts[GAINED] == 1:
        times, free = state.profile[0], state.profile[1]
        size = counts[SIZE]
        for index in range(counts[WAITING]):
            job = queue[index]
            held = start[job]
            begin = earlier_start(times, free, size, now, forecast[job], demand[job], held)
            if begin < held:
                size = move(times, free, size, held, begin, forecast[job], demand[job])
                start[job] = begin
        counts[SIZE] = size
    return rule


@inlined
def _submitted(now: int, job: int, jobs: Jobs, state: ReplayState, rule: SlackRule) -> SlackRule:
    reserve(now, job, jobs, state)
    state.queues[0, 1, state.counts[WAITING]] = job
    promise_with_slack(job, rule.priority[job], jobs, state)
    return rule


@inlined
def _decide(now: int, jobs: Jobs, state: ReplayState, rule: SlackRule) -> SlackRule:
    _spend(now, jobs, state, rule)
    note_waits(now, jobs, state)
    start_reserved(now, jobs, state)
    return rule


@inlined
def promise_with_slack(job: int, priority: int, jobs: Jobs, state: ReplayState) -> None:
    """Promise a job, the last of the queue, its reserved start and some slack; have it stand among the shortest."""
    counts = state.counts
    jobs.promise[job] = jobs.start[job] + slack_of(priority, counts[WAITED], counts[STARTED])
    counts[WAITING] = insert(state.queues[1, 0], state.queues[1, 1], counts[WAITING], jobs.forecast[job], job)


@inlined
def note_waits(now: int, jobs: Jobs, state: ReplayState) -> None:
    """Note how long those that start at this moment waited, and take them out of the line of the shortest."""
    counts, queue, line_key, line = state.counts, state.queues[0, 1], state.queues[1, 0], state.queues[1, 1]
    left = counts[WAITING]
    for index in range(counts[WAITING]):
        job = queue[index]
        if jobs.start[job] == now:
            counts[WAITED] += now - jobs.submit[job]
            counts[STARTED] += 1
            left = remove_at(line_key, line, left, index_of(line_key, line, left, jobs.forecast[job], job))


@inlined
def _spend(now: int, jobs: Jobs, state: ReplayState, rule: SlackRule) -> None:
    """Spend slack: try the shortest jobs that fit into the free room at this moment."""
    counts, queue, line = state.counts, state.queues[0, 1], state.queues[1, 1]
    start, demand, trial = jobs.start, jobs.demand, rule.trial
    waiting = counts[WAITING]
    room = rule.capacity - counts[TAKEN]
    for index in range(waiting):
        if start[queue[index]] == now:
            room -= demand[queue[index]]
    trials = 0
    for index in range(waiting):
        job = line[index]
        if room == 0 or trials == TRIALS:
            break
        if start[job] == now or demand[job] > room:
            continue
        trials += 1
        size = _brought_forward(job, now, jobs, state, rule)
        if size == 0:
            continue
        counts[SIZE] = size
        for at in range(size):
            state.profile[0, at] = rule.profile[0, at]
            state.profile[1, at] = rule.profile[1, at]
        for at in range(waiting):
            moved = queue[at]
            if trial[moved] == now and start[moved] > now:
                room -= demand[moved]
            start[moved] = trial[moved]


@inlined
def _brought_forward(job: int, now: int, jobs: Jobs, state: ReplayState, rule: SlackRule) -> int:
    """Plan ``job`` at ``now`` in place of its reservation; return the tried profile's size, or 0 when that won't do.

    The rule's ``trial`` receives the starts of all waiting jobs. Reservations that begin after now and before the job
    would end are made again, in their present order.
    """
    queue, waiting, size = state.queues[0, 1], state.counts[WAITING], state.counts[SIZE]
    demand, forecast, start, trial = jobs.demand, jobs.forecast, jobs.start, rule.trial
    times, free = rule.profile[0], rule.profile[1]
    keys, others = rule.moved[0], rule.moved[1]
    for at in range(size):
        times[at] = state.profile[0, at]
        free[at] = state.profile[1, at]
    for index in range(waiting):
        trial[queue[index]] = start[queue[index]]
    end = now + forecast[job]
    size = change(times, free, size, start[job], start[job] + forecast[job], demand[job])
    moved = 0
    for index in range(waiting):
        other = queue[index]
        if other != job and now < start[other] < end:
            size = change(times, free, size, start[other], start[other] + forecast[other], demand[other])
            moved = insert(keys, others, moved, start[other], other)
    size = change(times, free, size, now, end, -demand[job])
    trial[job] = now
    gain = start[job] - now
    for index in range(moved):
        other = others[index]
        begin = earliest_start(times, free, size, now, forecast[other], demand[other])
        if begin > jobs.promise[other]:
            return 0
        gain += start[other] - begin
        size = change(times, free, size, begin, begin + forecast[other], -demand[other])
        trial[other] = begin
    return size if gain > 0 else 0


replay_slack = with_steps(
    replay, "replay_slack", prepare=prepare, open_round=open_round, forecast_exceeded=forecast_exceeded, ended=ended,
    before_submissions=_before_submissions, submitted=_submitted, decide=_decide,
)  # fmt: skip
"""Replays a log under slack-based backfilling, see `event_loop.replay`; the promise is the latest start."""
