"""The loop of every replay: the next moment, jobs that end, jobs that are submitted, then what the rule decides.

Called by the trace replay, as the kernels that `with_steps` makes of it: `easy`, `conservative`, `slack`, `plan` and
`platform` on one pool, and the three for gangs. A round takes place when a job is submitted, ends or exceeds its
planned time, and when a reserved start comes: first ends, then submissions, then decisions.

A rule is a tuple of its own data, and functions that replace those below. Each function returns the rule, with larger
arrays where some were too small. Invariant: no step but `start_job` starts a job, none but the loop ends one; what is
known of run times was learned from jobs that have ended.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled, inlined
from cotide_core.kernels.ordered_jobs import index_of, insert, remove_at
from cotide_lab.predictors.run_time.kernels.run_forecasts import (
    GIVEN,
    LAST_TWO,
    LEARNED,
    Past,
    corrected,
    forecast_at_submit,
    last_two_mean,
    learn,
    note_last,
)
from cotide_lab.trace_replay.kernels.replay_state import (
    ARRIVED,
    ENDED,
    NEW_FROM,
    ROUNDS,
    RUNNING,
    TAKEN,
    WAKE,
    Jobs,
    ReplayState,
)
from cotide_lab.trace_replay.kernels.time_heap import heap_pop, heap_push
from cotide_predictors.run_time.kernels.run_habits import note_habit, predict

Rule = TypeVar("Rule", bound=tuple[Any, ...])

STOP: Final = 1
"""Index in ``progress`` that a caller sets to end the replay early; index 0 counts submitted jobs."""


@inlined
def prepare(jobs: Jobs, state: ReplayState, rule: Rule) -> Rule:
    """Make ready at the beginning and after a pause."""
    return rule


@inlined
def open_round(now: int, jobs: Jobs, state: ReplayState, rule: Rule) -> Rule:
    """Do what comes before the ends of a moment."""
    return rule


@inlined
def forecast_exceeded(now: int, job: int, jobs: Jobs, state: ReplayState, rule: Rule) -> Rule:
    """Take note of a job that runs on and has a new planned end."""
    return rule


@inlined
def ended(now: int, job: int, jobs: Jobs, state: ReplayState, rule: Rule) -> Rule:
    """Take note of a job that has ended."""
    return rule


@inlined
def before_submissions(now: int, jobs: Jobs, state: ReplayState, rule: Rule) -> Rule:
    """Do what comes between ends and submissions."""
    return rule


@inlined
def submitted(now: int, job: int, jobs: Jobs, state: ReplayState, rule: Rule) -> Rule:
    """Take a job into the lists of those that wait; its forecast stands."""
    return rule


@inlined
def decide(now: int, jobs: Jobs, state: ReplayState, rule: Rule) -> Rule:
    """Start jobs, each with `start_job`."""
    return rule


@compiled
def replay(
    jobs: Jobs, past: Past, mode: int, one_by_one: int, progress: Integers, state: ReplayState, rule: Rule
) -> int:
    """Replay a log; return the number of rounds.

    Parameters
    ----------
    past : of `run_forecasts.past_of`, for this log and mode; used up by the call.
    mode : of `run_forecasts`.
    one_by_one : 0: a round handles all that happens at its moment. 1: it handles one event, submissions before ends.
        (What published figures rest on frees processors by planned end, too: `cotide_lab.trace_replay.event_by_event`.)
    progress : (2,) jobs submitted so far; the caller's wish to stop.
    kept : of `state.new_replay_state`; after a pause, as the call before left it.
    rule : what the rule's steps need.
    """
    total = jobs.submit.shape[0]
    counts = state.counts
    event_time, event_job = state.heap[0], state.heap[1]
    submit = jobs.submit
    rule = prepare(jobs, state, rule)
    arrived = counts[ARRIVED]
    while (arrived < total or counts[RUNNING] > 0 or counts[WAKE] >= 0) and progress[STOP] == 0:
        now: int = counts[WAKE]
        if arrived < total and (now < 0 or submit[arrived] < now):
            now = submit[arrived]
        if counts[RUNNING] > 0 and (now < 0 or event_time[0] < now):
            now = event_time[0]
        if now >= state.until[0]:
            break
        counts[ROUNDS] += 1
        rule = open_round(now, jobs, state, rule)
        # 1. Jobs that end, and jobs that outlive what they were planned to take.
        counts[NEW_FROM] = arrived
        submits_first = one_by_one == 1 and arrived < total and submit[arrived] == now
        ends = 0
        while counts[RUNNING] > 0 and event_time[0] == now and not submits_first:
            ends += 1
            job = event_job[0]
            if end_or_go_on(now, mode, job, jobs, past.upper, state):
                rule = forecast_exceeded(now, job, jobs, state, rule)
            else:
                rule = ended(now, job, jobs, state, rule)
                note_end(mode, job, jobs, past)
            if one_by_one == 1:
                break
        counts[ENDED] = ends
        rule = before_submissions(now, jobs, state, rule)
        # 2. Submissions.
        while arrived < total and submit[arrived] == now:
            job = arrived
            forecast_of(mode, job, jobs, past)
            arrived += 1
            counts[ARRIVED] = arrived
            rule = submitted(now, job, jobs, state, rule)
            if one_by_one == 1:
                break
        progress[0] = arrived
        # 3. What starts.
        rule = decide(now, jobs, state, rule)
    return finish(state, rule)


@inlined
def finish(state: ReplayState, rule: Rule) -> int:
    """Return what the replay returns."""
    rounds: int = state.counts[ROUNDS]
    return rounds


@inlined
def end_or_go_on(now: int, mode: int, job: int, jobs: Jobs, upper: Integers, state: ReplayState) -> bool:
    """Take the first event out; return whether its job runs on, with a new planned end."""
    counts, planned_end = state.counts, state.planned_end
    event_time, event_job = state.heap[0], state.heap[1]
    end_time, end_job = state.ends[0], state.ends[1]
    running = counts[RUNNING]
    remove_at(end_time, end_job, running, index_of(end_time, end_job, running, planned_end[job], job))
    running = heap_pop(event_time, event_job, running)
    real_end = jobs.start[job] + jobs.run[job]
    goes_on: bool = real_end > now
    if goes_on:
        age = now - jobs.start[job]
        planned_end[job] = jobs.start[job] + corrected(mode, job, jobs.request[job], age, upper)
        insert(end_time, end_job, running, planned_end[job], job)
        running = heap_push(event_time, event_job, running, min(planned_end[job], real_end), job)
    else:
        counts[TAKEN] -= jobs.demand[job]
    counts[RUNNING] = running
    return goes_on


@inlined
def forecast_of(mode: int, job: int, jobs: Jobs, past: Past) -> None:
    """Forecast the run time of a job that is submitted."""
    if mode == LAST_TWO:
        jobs.forecast[job] = last_two_mean(past.last, past.before, jobs.request[job], jobs.user[job])
    elif mode == LEARNED:
        jobs.forecast[job] = predict(past.habits, job, jobs.request[job])
    elif mode != GIVEN:
        given = jobs.forecast[job]
        jobs.forecast[job] = forecast_at_submit(mode, job, given, jobs.request[job], jobs.user[job], past)


@inlined
def note_end(mode: int, job: int, jobs: Jobs, past: Past) -> None:
    """Learn from a job that has ended."""
    if mode == LAST_TWO:
        note_last(past.last, past.before, jobs.run[job], jobs.user[job])
    elif mode == LEARNED:
        note_habit(past.habits, job, jobs.run[job], jobs.request[job], jobs.forecast[job])
    elif mode != GIVEN:
        learn(mode, job, jobs.run[job], jobs.request[job], jobs.user[job], jobs.forecast[job], past)


@inlined
def start_job(now: int, job: int, length: int, jobs: Jobs, state: ReplayState) -> None:
    """Start a job now; it is planned to take ``length`` seconds."""
    counts = state.counts
    jobs.start[job] = now
    state.planned_end[job] = now + length
    insert(state.ends[0], state.ends[1], counts[RUNNING], now + length, job)
    counts[RUNNING] = heap_push(state.heap[0], state.heap[1], counts[RUNNING], now + min(length, jobs.run[job]), job)
    counts[TAKEN] += jobs.demand[job]
