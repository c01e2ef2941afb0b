"""Plans on machines that are chosen once for each job: those with the least work (LW), or drawn ones (RANDOM;
Naghshnejad 2019, section 3.2.2).

Called by `machine_replay`; the replay's counterpart of the live `planning.preassigned`. A job gets its machines when it
is first planned, in the order of the plan, piece by piece. It keeps them until it starts, or until a job there exceeds
its forecast, so that a job that hangs does not block those behind it. All waiting jobs are planned in each round, each
at the earliest start on its own machines; those planned for now start. "Work" is the unfinished part of the jobs of a
machine, as time x largest share of the machine: the planned rest of running jobs, and all of waiting ones.

A plan is made only as far as the last job that fits into what is free now on its own machines: those behind it can't
start. Invariants: no machine is ever overfilled in any resource; with all jobs there from the start on alike machines
and run times as forecast, the schedule is that of `offline.lists.list_scheduling`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.compiled import inlined, uncounted, with_steps
from cotide_core.kernels.machines import NEVER, segment_on
from cotide_core.kernels.ordered_jobs import remove_at
from cotide_lab.trace_replay.kernels.event_loop import replay, start_job
from cotide_lab.trace_replay.kernels.on_machines.devices import earliest_with_devices
from cotide_lab.trace_replay.kernels.on_machines.gang_lists import (
    FILLED,
    Holding,
    book_gang,
    choose_devices,
    holding_of,
    open_entry,
    profiles_in,
)
from cotide_lab.trace_replay.kernels.on_machines.gang_steps import (
    RESERVED,
    drop_reservations,
    forecast_exceeded,
    give_back_planned,
    note_reservation,
    prepare,
    submitted,
)
from cotide_lab.trace_replay.kernels.on_machines.gangs import Gangs, fitting_on, may_use
from cotide_lab.trace_replay.kernels.replay_state import SPARE, WAITING, Jobs, ReplayState

LEAST_WORK: Final = 0
DRAWN: Final = 1
OUTLIVED: Final = SPARE + 4
"""Index of 1 where a job of this round exceeded its forecast."""
DRAW_FACTOR: Final = 48_271
DRAW_MODULUS: Final = 2_147_483_647
"""The generator that goes on from a job's draw, piece by piece (Park, Miller and Stockmeyer 1993): small enough to be
exact with and without numba."""


class Work(NamedTuple):
    """What N machines have to do, in units of a resource x seconds.

    Attributes
    ----------
    waiting : (N, R) of jobs that wait.
    running, held : (N, R) amount x planned end of those that run, and their amounts: by ``running`` less ``held`` x
        the moment so much of them is left.
    outlived : (N,) 1 where a job of this round exceeded its forecast.
    """

    waiting: Integers
    running: Integers
    held: Integers
    forecast_exceeded: Integers


class GivenPlanRule(NamedTuple):
    """Plans on machines that are chosen once.

    Attributes
    ----------
    gangs, holding : what jobs ask for, and what they hold or were given.
    order : in which jobs are planned, as in `easy`.
    choice : `LEAST_WORK` or `DRAWN`.
    draws : (n,) from 1 to `DRAW_MODULUS` - 1, where the draws of a job begin.
    work : of the machines.
    shares : (N,) the largest share of a machine that it has to do, while a job is given its machines.
    pieces : (N,) pieces of the job that is given its machines.
    amount : (R,) used up by a search.
    reserved : (3, n) of this round, see `gang_steps`.
    """

    gangs: Gangs
    holding: Holding
    order: int
    choice: int
    draws: Integers
    work: Work
    shares: Floats
    pieces: Integers
    amount: Integers
    reserved: Integers


def given_plan_rule(gangs: Gangs, order: int, choice: int, draws: Integers) -> GivenPlanRule:
    """Return the rule on empty machines."""
    machines, resources = len(gangs.capacity), gangs.need.shape[1]
    waiting, running, held = np.zeros((3, machines, resources), np.int64)
    work = Work(waiting, running, held, np.zeros(machines, np.int64))
    return GivenPlanRule(
        gangs,
        holding_of(gangs),
        order,
        choice,
        draws,
        work,
        np.zeros(machines, np.float64),
        np.zeros(machines, np.int64),
        np.zeros(resources, np.int64),
        np.empty((3, len(gangs.pieces)), np.int64),
    )


@inlined
def _weigh(job: int, seconds: int, amounts: Integers, sign: int, rule: GivenPlanRule) -> None:
    """Add what a job takes of its machines, times so many seconds, to (N, R) amounts, or take it off (-1)."""
    held, need = rule.holding.held, rule.gangs.need
    for index in range(held.first[job], held.first[job] + held.used[job]):
        for resource in range(need.shape[1]):
            amounts[held.placed[index], resource] += sign * seconds * need[job, resource] * held.counts[index]


@inlined
def _forecast_exceeded(now: int, job: int, jobs: Jobs, state: ReplayState, rule: GivenPlanRule) -> GivenPlanRule:
    held = rule.holding.held
    _weigh(job, state.planned_end[job] - now, rule.work.running, 1, rule)
    state.counts[OUTLIVED] = 1
    for index in range(held.first[job], held.first[job] + held.used[job]):
        rule.work.forecast_exceeded[held.placed[index]] = 1
    return forecast_exceeded(now, job, jobs, state, rule)


@inlined
def _ended(now: int, job: int, jobs: Jobs, state: ReplayState, rule: GivenPlanRule) -> GivenPlanRule:
    _weigh(job, state.planned_end[job], rule.work.running, -1, rule)
    _weigh(job, 1, rule.work.held, -1, rule)
    give_back_planned(now, job, state, rule)
    return rule


@inlined
def _decide(now: int, jobs: Jobs, state: ReplayState, rule: GivenPlanRule) -> GivenPlanRule:
    """Give machines to jobs without any, then plan while a job fits into the free room."""
    queue, counts = state.queues[0, 1], state.counts
    if counts[OUTLIVED] == 1:
        _let_choose_again(jobs, state, rule)
    last = 0
    for index in range(counts[WAITING]):
        job = queue[index]
        if rule.holding.held.used[job] == 0:
            _choose(now, job, jobs.forecast[job], state, rule)
            _weigh(job, jobs.forecast[job], rule.work.waiting, 1, rule)
        if _fits_now(now, job, state, rule):
            last = index + 1
    counts[RESERVED] = 0
    index = 0
    while index < last:
        job = queue[index]
        length = jobs.forecast[job]
        begin = _earliest(now, length, job, state, rule)
        choose_devices(begin, length, job, rule.gangs, state, rule.holding)
        book_gang(now, begin, begin + length, job, rule.gangs, state, rule.holding, 1)
        if begin > now:
            note_reservation(begin, length, job, state, rule)
            index += 1
            continue
        _weigh(job, length, rule.work.waiting, -1, rule)
        _weigh(job, now + length, rule.work.running, 1, rule)
        _weigh(job, 1, rule.work.held, 1, rule)
        start_job(now, job, length, jobs, state)
        counts[WAITING] = remove_at(state.queues[0, 0], queue, counts[WAITING], index)
        last -= 1
    drop_reservations(now, False, state, rule)
    return rule


@uncounted
def _let_choose_again(jobs: Jobs, state: ReplayState, rule: GivenPlanRule) -> None:
    """Take their machines from all jobs that wait for a machine with a job that has exceeded its forecast."""
    held, forecast_exceeded = rule.holding.held, rule.work.forecast_exceeded
    for index in range(state.counts[WAITING]):
        job = state.queues[0, 1, index]
        behind = False
        for entry in range(held.first[job], held.first[job] + held.used[job]):
            behind = behind or forecast_exceeded[held.placed[entry]] == 1
        if behind:
            _weigh(job, jobs.forecast[job], rule.work.waiting, -1, rule)
            held.used[job] = 0
    for at in range(forecast_exceeded.shape[0]):
        forecast_exceeded[at] = 0
    state.counts[OUTLIVED] = 0


@uncounted
def _choose(now: int, job: int, length: int, state: ReplayState, rule: GivenPlanRule) -> None:
    """Give a job its machines, piece by piece, as many on each as the empty machine holds at most."""
    gangs, pieces, held = rule.gangs, rule.pieces, rule.holding.held
    machines = gangs.kind.shape[0]
    for at in range(machines):
        pieces[at] = 0
        if rule.choice == LEAST_WORK:
            rule.shares[at] = _share(now, at, job, length, rule)
    draw = rule.draws[job]
    for _ in range(gangs.pieces[job]):
        if rule.choice == LEAST_WORK:
            found = _least_work(job, rule)
        else:
            found = _drawn(draw, job, rule)
            draw = draw * DRAW_FACTOR % DRAW_MODULUS
        pieces[found] += 1
        if rule.choice == LEAST_WORK:
            rule.shares[found] = _share(now, found, job, length, rule)
    open_entry(job, gangs, state, held)
    filled = state.counts[FILLED]
    for at in range(machines):
        if pieces[at] > 0:
            held.placed[filled] = at
            held.counts[filled] = pieces[at]
            filled += 1
    held.used[job] = filled - held.first[job]
    state.counts[FILLED] = filled


@inlined
def _share(now: int, at: int, job: int, length: int, rule: GivenPlanRule) -> float:
    """Return the seconds of the whole machine that it has to do, by the resource that takes longest.

    Pieces that ``job`` was given there count, each for ``length``.
    """
    work, capacity = rule.work, rule.gangs.capacity
    most = 0.0
    for resource in range(work.waiting.shape[1]):
        left = work.waiting[at, resource] + work.running[at, resource] - now * work.held[at, resource]
        left += rule.pieces[at] * rule.gangs.need[job, resource] * length
        most = max(most, left / max(1, capacity[at, resource]))
    return most


@inlined
def _takes_one_more(job: int, at: int, rule: GivenPlanRule) -> bool:
    """Return whether a job may use a machine, and the empty machine holds one more of its pieces."""
    more = rule.pieces[at] + 1
    gangs = rule.gangs
    fits: bool = fitting_on(gangs.capacity, at, gangs.need[job], gangs.devices[job], more) >= more
    return may_use(gangs, job, at) and fits


@inlined
def _least_work(job: int, rule: GivenPlanRule) -> int:
    """Return the machine with the least work that takes one more piece, the first of equals."""
    found = -1
    for at in range(rule.shares.shape[0]):
        if (found < 0 or rule.shares[at] < rule.shares[found]) and _takes_one_more(job, at, rule):
            found = at
    return found


@inlined
def _drawn(draw: int, job: int, rule: GivenPlanRule) -> int:
    """Return one of the machines that take one more piece, each as likely as another."""
    some = 0
    for at in range(rule.shares.shape[0]):
        some += 1 if _takes_one_more(job, at, rule) else 0
    left = draw % some
    found = -1
    while left >= 0:
        found += 1
        left -= 1 if _takes_one_more(job, found, rule) else 0
    return found


@uncounted
def _fits_now(now: int, job: int, state: ReplayState, rule: GivenPlanRule) -> bool:
    """Return whether what is free at this moment is enough on a job's own machines."""
    held, need, profiles = rule.holding.held, rule.gangs.need[job], profiles_in(rule.holding.storage, state)
    devices = rule.gangs.devices[job]
    for index in range(held.first[job], held.first[job] + held.used[job]):
        at = held.placed[index]
        segment = segment_on(profiles.times[at], profiles.sizes[at], now)
        if fitting_on(profiles.free[at], segment, need, devices, held.counts[index]) < held.counts[index]:
            return False
    return True


@uncounted
def _earliest(now: int, length: int, job: int, state: ReplayState, rule: GivenPlanRule) -> int:
    """Return the earliest time at which all pieces fit on their own machines for so long."""
    held, need, profiles = rule.holding.held, rule.gangs.need, profiles_in(rule.holding.storage, state)
    first, entries = held.first[job], held.used[job]
    begin = now
    agreed = 0
    index = 0
    while agreed < entries:
        at = held.placed[first + index]
        for resource in range(need.shape[1]):
            rule.amount[resource] = need[job, resource] * held.counts[first + index]
        devices = rule.gangs.devices[job]
        found = earliest_with_devices(profiles, at, begin, length, rule.amount, devices, NEVER)
        agreed = agreed + 1 if found == begin else 1
        begin = found
        index = index + 1 if index + 1 < entries else 0
    return begin


replay_given_plan = with_steps(
    replay, "replay_given_plan", prepare=prepare, forecast_exceeded=_forecast_exceeded,
    ended=_ended, submitted=submitted,
    decide=_decide,
)  # fmt: skip
"""Replays a log under plans on machines that are chosen once, see `event_loop.replay`; ``demand`` stands for volume."""
