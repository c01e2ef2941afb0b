"""Conservative backfilling for gangs on many machines with vector demands (Naghshnejad 2019, section 4.2.1).

Called by `machine_replay`. The rounds and rules are those of `conservative`, where a processor was like any other: here
each piece of a job needs all its resources on one machine (`gangs`). Machines are reserved for every job at its
submission; after an early end the waiting move forward, in order of submission, each to the earliest start now open to
it. When a job exceeds its forecast, all reservations are made again.

A round looks at a waiting job again only if something that it may use was given back since the last look, by an early
end or by a job that moved. Otherwise nothing before its start can have opened. Invariants: no machine is ever
overfilled in any resource; on one machine with one resource the schedules are those of `conservative`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import inlined, uncounted, with_steps
from cotide_core.kernels.machines import NEVER
from cotide_lab.trace_replay.kernels.conservative import start_reserved
from cotide_lab.trace_replay.kernels.event_loop import replay
from cotide_lab.trace_replay.kernels.on_machines.gang_lists import (
    Holding,
    book_gang,
    holding_of,
    lay_at,
    profiles_in,
)
from cotide_lab.trace_replay.kernels.on_machines.gang_steps import forecast_exceeded as book_exceeded
from cotide_lab.trace_replay.kernels.on_machines.gang_steps import give_back_planned, prepare
from cotide_lab.trace_replay.kernels.on_machines.gangs import Gangs, earliest_gang, may_use
from cotide_lab.trace_replay.kernels.replay_state import SPARE, WAITING, Jobs, ReplayState

GAINED: Final = SPARE + 3
"""Index of 1 where a job of this round ended before its planned end."""
BROKEN: Final = SPARE + 4
"""Index of 1 where a job of this round exceeded its forecast."""


class Checks(NamedTuple):
    """When what was looked at.

    Attributes
    ----------
    moment : (1,) counts what was given back.
    opened : (N,) when something was last given back on each machine.
    looked : (n,) when each job was last looked at.
    """

    moment: Integers
    opened: Integers
    checked: Integers


class GangConservativeRule(NamedTuple):
    """Reservations for all on machines.

    Attributes
    ----------
    gangs, holding : what jobs ask for, and what they hold or have reserved.
    looks : who need not be looked at again.
    """

    gangs: Gangs
    holding: Holding
    checks: Checks


def gang_conservative_rule(gangs: Gangs) -> GangConservativeRule:
    """Return the rule on empty machines."""
    opened, checked = np.zeros(len(gangs.kind), np.int64), np.zeros(len(gangs.pieces), np.int64)
    return GangConservativeRule(gangs, holding_of(gangs), Checks(np.ones(1, np.int64), opened, checked))


@inlined
def open_machines(job: int, rule: GangConservativeRule) -> None:
    """Take note that a job gives back something on its machines."""
    checks, held = rule.checks, rule.holding.held
    checks.moment[0] += 1
    for index in range(held.first[job], held.first[job] + held.used[job]):
        checks.opened[held.placed[index]] = checks.moment[0]


@inlined
def earliest_open(now: int, length: int, job: int, state: ReplayState, rule: GangConservativeRule, limit: int) -> int:
    """Return the earliest start of a job, or ``limit`` if none lies before it."""
    storage = rule.holding.storage
    begin: int = earliest_gang(profiles_in(storage, state), now, length, job, rule.gangs, limit, storage.search)
    return begin


@inlined
def open_round(now: int, jobs: Jobs, state: ReplayState, rule: GangConservativeRule) -> GangConservativeRule:
    """Note that nothing was gained or broken in the round yet."""
    state.counts[GAINED] = 0
    state.counts[BROKEN] = 0
    return rule


@inlined
def forecast_exceeded(
    now: int, job: int, jobs: Jobs, state: ReplayState, rule: GangConservativeRule
) -> GangConservativeRule:
    """Note that the reservations hold no more; book what the job is planned to hold from now on."""
    state.counts[BROKEN] = 1
    return book_exceeded(now, job, jobs, state, rule)


@inlined
def ended(now: int, job: int, jobs: Jobs, state: ReplayState, rule: GangConservativeRule) -> GangConservativeRule:
    """Give back what the job was planned to hold."""
    if give_back_planned(now, job, state, rule):
        state.counts[GAINED] = 1
        open_machines(job, rule)
    return rule


@inlined
def before_submissions(now: int, jobs: Jobs, state: ReplayState, rule: GangConservativeRule) -> GangConservativeRule:
    """Make all reservations again, or move them forward one after another."""
    queue, waiting, start, forecast = state.queues[0, 1], state.counts[WAITING], jobs.start, jobs.forecast
    broken = state.counts[BROKEN] == 1
    if broken:
        for index in range(waiting):
            job = queue[index]
            book_gang(now, start[job], start[job] + forecast[job], job, rule.gangs, state, rule.holding, -1)
    elif state.counts[GAINED] == 0:
        return rule
    checks = rule.checks
    for index in range(waiting):
        job = queue[index]
        limit = NEVER
        if not broken:
            if not opened_for(checks.opened, checks.checked[job], job, rule.gangs):
                continue
            limit = start[job]
            book_gang(now, limit, limit + forecast[job], job, rule.gangs, state, rule.holding, -1)
        checks.checked[job] = checks.moment[0]
        begin = earliest_open(now, forecast[job], job, state, rule, limit)
        if begin < limit:
            open_machines(job, rule)
            checks.checked[job] = checks.moment[0]
            start[job] = begin
            lay_at(begin, forecast[job], job, rule.gangs, state, rule.holding)
        book_gang(now, start[job], start[job] + forecast[job], job, rule.gangs, state, rule.holding, 1)
    return rule


@inlined
def reserve_submitted(now: int, job: int, jobs: Jobs, state: ReplayState, rule: GangConservativeRule) -> None:
    """Reserve a job its earliest start, and put it behind those that are counted as waiting."""
    forecast = jobs.forecast[job]
    rule.holding.held.used[job] = 0
    begin = earliest_open(now, forecast, job, state, rule, NEVER)
    jobs.start[job] = begin
    rule.checks.checked[job] = rule.checks.moment[0]
    lay_at(begin, forecast, job, rule.gangs, state, rule.holding)
    state.queues[0, 1, state.counts[WAITING]] = job
    book_gang(now, begin, begin + forecast, job, rule.gangs, state, rule.holding, 1)


@inlined
def _submitted(now: int, job: int, jobs: Jobs, state: ReplayState, rule: GangConservativeRule) -> GangConservativeRule:
    """Reserve a job its earliest start; that is its promise."""
    reserve_submitted(now, job, jobs, state, rule)
    jobs.promise[job] = jobs.start[job]
    state.counts[WAITING] += 1
    return rule


@inlined
def _decide(now: int, jobs: Jobs, state: ReplayState, rule: GangConservativeRule) -> GangConservativeRule:
    start_reserved(now, jobs, state)
    return rule


@uncounted
def opened_for(opened: Integers, checked: int, job: int, gangs: Gangs) -> bool:
    """Return whether something was given back since a job was looked at, on a machine that it may use."""
    at = 0
    while at < opened.shape[0] and not (opened[at] > checked and may_use(gangs, job, at)):
        at += 1
    found: bool = at < opened.shape[0]
    return found


replay_gang_conservative = with_steps(
    replay, "replay_gang_conservative", prepare=prepare, open_round=open_round, forecast_exceeded=forecast_exceeded,
    ended=ended, before_submissions=before_submissions, submitted=_submitted, decide=_decide,
)  # fmt: skip
"""Replays a log under conservative backfilling, see `event_loop.replay`; every job gets a promise."""
