"""Slack-based backfilling for gangs on many machines with vector demands (Talby and Feitelson 1999; Naghshnejad 2019's
[138]).

Called by `machine_replay`. Promises, slack and what a round tries are those of `slack`, where a processor was like any
other; reservations are made and moved forward as in `gang_conservative`. A job that fits into the free room goes to the
first machines that have enough of it. In its way are the reservations that hold any of these and begin before it would
end. They are made again on any machines, in their present order. It starts if each of them still begins by its promise
and the starts of all together become earlier; else all stays as it was.

Invariants: no machine is ever overfilled in any resource; while forecasts are upper bounds no job starts later than
promised; on one machine with one resource the schedules are those of `slack`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import inlined, uncounted, with_steps
from cotide_core.kernels.machine_slack import TRIALS
from cotide_core.kernels.ordered_jobs import insert
from cotide_lab.trace_replay.kernels.conservative import start_reserved
from cotide_lab.trace_replay.kernels.event_loop import replay
from cotide_lab.trace_replay.kernels.on_machines.gang_conservative import (
    BROKEN,
    GangConservativeRule,
    earliest_open,
    gang_conservative_rule,
    reserve_submitted,
)
from cotide_lab.trace_replay.kernels.on_machines.gang_conservative import (
    before_submissions as before_submissions_reserved,
)
from cotide_lab.trace_replay.kernels.on_machines.gang_conservative import ended as ended_reserved
from cotide_lab.trace_replay.kernels.on_machines.gang_conservative import forecast_exceeded as outlived_reserved
from cotide_lab.trace_replay.kernels.on_machines.gang_conservative import open_round as open_round_reserved
from cotide_lab.trace_replay.kernels.on_machines.gang_counts import Fitting, all_fit, fitting_of, work_out_room
from cotide_lab.trace_replay.kernels.on_machines.gang_lists import (
    FILLED,
    book_gang,
    lay_at,
    lay_now,
    open_entry,
    take_now,
)
from cotide_lab.trace_replay.kernels.on_machines.gang_steps import give_back_now
from cotide_lab.trace_replay.kernels.on_machines.gang_steps import prepare as prepare_reserved
from cotide_lab.trace_replay.kernels.on_machines.gangs import Gangs
from cotide_lab.trace_replay.kernels.replay_state import WAITING, Jobs, ReplayState
from cotide_lab.trace_replay.kernels.slack import note_waits, promise_with_slack


class Trial(NamedTuple):
    """One trial: a job at this moment, with the reservations in its way made again.

    Attributes
    ----------
    moved : (2, n) the starts that reservations in the way had, in order, and their jobs.
    begin : (n,) where they would start now.
    marked : (N,) 1 where the job would run, while what is in its way is looked for.
    saved, many, devices : (n,) where a job's old entries begin below, how many there are, and its devices.
    placed, counts : (S,) machines and pieces of the reservations that were taken out.
    """

    moved: Integers
    begin: Integers
    marked: Integers
    saved: Integers
    many: Integers
    devices: Integers
    placed: Integers
    counts: Integers


class GangSlackRule(NamedTuple):
    """Promises with slack on machines.

    Attributes
    ----------
    base : the reservations.
    present : what is free now, less what starts now.
    priority : (n,) from 0 to 100.
    trial : what is tried.
    """

    base: GangConservativeRule
    present: Fitting
    priority: Integers
    trial: Trial


def gang_slack_rule(gangs: Gangs, priority: Integers) -> GangSlackRule:
    """Return the rule on empty machines for jobs of these priorities, (n,)."""
    jobs, base = len(gangs.pieces), gang_conservative_rule(gangs)
    begin, saved, many, devices = np.empty((4, jobs), np.int64)
    entries = np.empty((2, len(base.holding.held.placed)), np.int64)
    marked = np.zeros(len(gangs.kind), np.int64)
    trial = Trial(np.empty((2, jobs), np.int64), begin, marked, saved, many, devices, entries[0], entries[1])
    return GangSlackRule(base, fitting_of(gangs, np.ones(1, np.int64)), priority, trial)


@inlined
def _prepare(jobs: Jobs, state: ReplayState, rule: GangSlackRule) -> GangSlackRule:
    prepare_reserved(jobs, state, rule.base)
    return rule


@inlined
def _open_round(now: int, jobs: Jobs, state: ReplayState, rule: GangSlackRule) -> GangSlackRule:
    open_round_reserved(now, jobs, state, rule.base)
    return rule


@inlined
def _forecast_exceeded(now: int, job: int, jobs: Jobs, state: ReplayState, rule: GangSlackRule) -> GangSlackRule:
    outlived_reserved(now, job, jobs, state, rule.base)
    return rule


@inlined
def _ended(now: int, job: int, jobs: Jobs, state: ReplayState, rule: GangSlackRule) -> GangSlackRule:
    give_back_now(job, rule.base.gangs, rule.base.holding.held, rule.present)
    ended_reserved(now, job, jobs, state, rule.base)
    return rule


@inlined
def _before_submissions(now: int, jobs: Jobs, state: ReplayState, rule: GangSlackRule) -> GangSlackRule:
    before_submissions_reserved(now, jobs, state, rule.base)
    if state.counts[BROKEN] == 1:
        for index in range(state.counts[WAITING]):
            job = state.queues[0, 1, index]
            jobs.promise[job] = max(jobs.promise[job], jobs.start[job])
    return rule


@inlined
def _submitted(now: int, job: int, jobs: Jobs, state: ReplayState, rule: GangSlackRule) -> GangSlackRule:
    reserve_submitted(now, job, jobs, state, rule.base)
    promise_with_slack(job, rule.priority[job], jobs, state)
    return rule


@inlined
def _decide(now: int, jobs: Jobs, state: ReplayState, rule: GangSlackRule) -> GangSlackRule:
    for index in range(state.counts[WAITING]):
        job = state.queues[0, 1, index]
        if jobs.start[job] == now:
            take_now(job, 1, rule.base.gangs, rule.base.holding.held, rule.present)
    _spend(now, jobs, state, rule)
    note_waits(now, jobs, state)
    start_reserved(now, jobs, state)
    return rule


@inlined
def _spend(now: int, jobs: Jobs, state: ReplayState, rule: GangSlackRule) -> None:
    """Spend slack: try the shortest jobs that fit into the free room at this moment."""
    work_out_room(rule.present)
    line, trials = state.queues[1, 1], 0
    for index in range(state.counts[WAITING]):
        job = line[index]
        if trials == TRIALS:
            break
        if jobs.start[job] > now and all_fit(rule.present, job, rule.base.gangs):
            trials += 1
            _try_now(now, job, jobs, state, rule)


@uncounted
def _try_now(now: int, job: int, jobs: Jobs, state: ReplayState, rule: GangSlackRule) -> None:
    """Start a job instead of its reservation if that is worth it and breaks no promise, or leave all as it is."""
    gangs, held, trial, start = rule.base.gangs, rule.base.holding.held, rule.trial, jobs.start
    end = now + jobs.forecast[job]
    size = _take_out(now, job, 0, jobs, state, rule)
    lay_now(rule.present.free, job, gangs, state, held)
    _mark(job, 1, rule)
    moved = 0
    for index in range(state.counts[WAITING]):
        other = state.queues[0, 1, index]
        if other != job and now < start[other] < end and _is_in_the_way(other, rule):
            size = _take_out(now, other, size, jobs, state, rule)
            moved = insert(trial.moved[0], trial.moved[1], moved, start[other], other)
    _mark(job, 0, rule)
    book_gang(now, now, end, job, gangs, state, rule.base.holding, 1)
    laid, gain = _laid_anew(now, moved, jobs, state, rule)
    gain += start[job] - now
    if laid < moved or gain <= 0:
        book_gang(now, now, end, job, gangs, state, rule.base.holding, -1)
        for index in range(laid):
            other = trial.moved[1, index]
            begin = trial.begin[other]
            book_gang(now, begin, begin + jobs.forecast[other], other, gangs, state, rule.base.holding, -1)
        for index in range(moved):
            _put_back(now, trial.moved[1, index], jobs, state, rule)
        _put_back(now, job, jobs, state, rule)
        return
    checks = rule.base.checks
    checks.moment[0] += 1
    for index in range(size):
        checks.opened[trial.placed[index]] = checks.moment[0]
    start[job] = now
    take_now(job, 1, gangs, held, rule.present)
    for index in range(moved):
        other = trial.moved[1, index]
        start[other] = trial.begin[other]
        if start[other] == now:
            take_now(other, 1, gangs, held, rule.present)


@uncounted
def _laid_anew(now: int, moved: int, jobs: Jobs, state: ReplayState, rule: GangSlackRule) -> tuple[int, int]:
    """Reserve what was moved its earliest starts, in order, up to the first that would miss its promise.

    Returns how many are reserved and by how many seconds all of those together start earlier than they did.
    """
    trial = rule.trial
    gain = 0
    for index in range(moved):
        other = trial.moved[1, index]
        length, limit = jobs.forecast[other], jobs.promise[other] + 1
        begin = earliest_open(now, length, other, state, rule.base, limit)
        if begin >= limit:
            return index, gain
        gain += jobs.start[other] - begin
        trial.begin[other] = begin
        lay_at(begin, length, other, rule.base.gangs, state, rule.base.holding)
        book_gang(now, begin, begin + length, other, rule.base.gangs, state, rule.base.holding, 1)
    return moved, gain


@inlined
def _take_out(now: int, job: int, size: int, jobs: Jobs, state: ReplayState, rule: GangSlackRule) -> int:
    """Take a reservation out of the profiles; note its machines behind ``size`` others and return how many are noted.

    The profiles keep seams where it began and ended, which change no answer.
    """
    held, trial = rule.base.holding.held, rule.trial
    begin = jobs.start[job]
    book_gang(now, begin, begin + jobs.forecast[job], job, rule.base.gangs, state, rule.base.holding, -1)
    trial.saved[job] = size
    trial.many[job] = held.used[job]
    trial.devices[job] = held.devices[job]
    for index in range(held.first[job], held.first[job] + held.used[job]):
        trial.placed[size] = held.placed[index]
        trial.counts[size] = held.counts[index]
        size += 1
    return size


@inlined
def _put_back(now: int, job: int, jobs: Jobs, state: ReplayState, rule: GangSlackRule) -> None:
    """Reserve a job what it had before it was taken out."""
    gangs, held, trial = rule.base.gangs, rule.base.holding.held, rule.trial
    open_entry(job, gangs, state, held)
    for index in range(trial.many[job]):
        held.placed[held.first[job] + index] = trial.placed[trial.saved[job] + index]
        held.counts[held.first[job] + index] = trial.counts[trial.saved[job] + index]
    held.used[job] = trial.many[job]
    held.devices[job] = trial.devices[job]
    state.counts[FILLED] += trial.many[job]
    begin = jobs.start[job]
    book_gang(now, begin, begin + jobs.forecast[job], job, gangs, state, rule.base.holding, 1)


@inlined
def _mark(job: int, mark: int, rule: GangSlackRule) -> None:
    """Mark the machines of a job, or unmark them."""
    held = rule.base.holding.held
    for index in range(held.first[job], held.first[job] + held.used[job]):
        rule.trial.marked[held.placed[index]] = mark


@inlined
def _is_in_the_way(job: int, rule: GangSlackRule) -> bool:
    """Return whether a reservation holds any of the marked machines."""
    held = rule.base.holding.held
    index = held.first[job]
    last = index + held.used[job]
    while index < last and rule.trial.marked[held.placed[index]] == 0:
        index += 1
    found: bool = index < last
    return found


replay_gang_slack = with_steps(
    replay, "replay_gang_slack", prepare=_prepare, open_round=_open_round, forecast_exceeded=_forecast_exceeded,
    ended=_ended,
    before_submissions=_before_submissions, submitted=_submitted, decide=_decide,
)  # fmt: skip
"""Replays a log under slack-based backfilling, see `event_loop.replay`; the promise is the latest start."""
