"""Strict order and EASY backfilling for gangs on many machines with vector demands (Naghshnejad 2019, section 4.2.1).

Called by `machine_replay`. The rounds and rules are those of `easy`, where a processor was like any other: here each
piece of a job needs all its resources on one machine (`gangs`). The first job of the queue that does not fit reserves
machines at the earliest planned end that leaves it enough. Any other job that fits now may start if its planned end
comes before, or if it takes nothing that is reserved.

What is planned to be free only grows with time, as long as nothing but running jobs is planned. So a reservation needs
no profile over time: the kernel gives back what runs, in order of planned end. A job that is planned to run beyond the
reservation may use, of each machine, the smaller of the free room now and the rest then.

A blocked job can start only after something came free, a forecast changed, a first job started or another became first.
Any other round keeps the reservation, and looks at the submitted jobs alone. Invariants: no machine is ever overfilled
in any resource; on one machine with one resource the schedules are those of `easy`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import inlined, uncounted, with_steps
from cotide_core.kernels.ordered_jobs import index_of, remove_at
from cotide_lab.trace_replay.kernels.easy import NO_BACKFILL, enqueue, order_key
from cotide_lab.trace_replay.kernels.event_loop import replay, start_job
from cotide_lab.trace_replay.kernels.on_machines.devices import EACH, MANY, first_devices, open_devices
from cotide_lab.trace_replay.kernels.on_machines.gang_counts import (
    Fitting,
    all_fit,
    change_machine,
    fitting_of,
    gained,
    work_out_room,
)
from cotide_lab.trace_replay.kernels.on_machines.gang_lists import Held, begin_lists, held_of, lay_now
from cotide_lab.trace_replay.kernels.on_machines.gang_steps import begin_waiting, give_back_now
from cotide_lab.trace_replay.kernels.on_machines.gangs import Gangs, amount_of, fitting_on, may_use, room_of
from cotide_lab.trace_replay.kernels.replay_state import (
    ENDED,
    NEW_FROM,
    ROUNDS,
    RUNNING,
    SPARE,
    WAITING,
    Jobs,
    ReplayState,
)

FIRST: Final = SPARE + 3
"""Index of the first of the queue behind the last round, -1 without."""
SHADOW: Final = SPARE + 4
"""Index of the reserved start of the queue's first."""


class GangQueueRule(NamedTuple):
    """A queue on machines.

    Attributes
    ----------
    gangs, held : what jobs ask for, and what they hold.
    order, backfill : as in `easy`.
    present : what is free now.
    later : (N, R + D) planned to be free when the reservation begins, and not reserved.
    beside : for jobs that run beyond that: the smaller of the two.
    """

    gangs: Gangs
    held: Held
    order: int
    backfill: int
    present: Fitting
    later: Integers
    beside: Fitting


def gang_queue_rule(gangs: Gangs, order: int, backfill: int) -> GangQueueRule:
    """Return the rule on empty machines."""
    clock = np.ones(1, np.int64)
    present, beside = fitting_of(gangs, clock), fitting_of(gangs, clock)
    return GangQueueRule(gangs, held_of(gangs), order, backfill, present, gangs.capacity.copy(), beside)


@inlined
def _prepare(jobs: Jobs, state: ReplayState, rule: GangQueueRule) -> GangQueueRule:
    begin_lists(rule.gangs, state, rule.held)
    if state.counts[ROUNDS] == 0:
        state.counts[FIRST] = -1
        state.counts[SHADOW] = -1
    return rule


@inlined
def _ended(now: int, job: int, jobs: Jobs, state: ReplayState, rule: GangQueueRule) -> GangQueueRule:
    give_back_now(job, rule.gangs, rule.held, rule.present)
    return rule


@inlined
def _submitted(now: int, job: int, jobs: Jobs, state: ReplayState, rule: GangQueueRule) -> GangQueueRule:
    begin_waiting(job, jobs, rule.held)
    if rule.backfill != NO_BACKFILL:
        enqueue(1, rule.backfill, job, jobs, state)
    state.counts[WAITING] = enqueue(0, rule.order, job, jobs, state)
    return rule


@inlined
def _decide(now: int, jobs: Jobs, state: ReplayState, rule: GangQueueRule) -> GangQueueRule:
    """Start the queue's first jobs as long as they fit, then those behind the reservation of its first."""
    counts, queue, line, present = state.counts, state.queues[0, 1], state.queues[1, 1], rule.present
    work_out_room(present)
    first_before = counts[FIRST]
    everything = first_before < 0 or counts[ENDED] > 0
    new_from = counts[NEW_FROM]
    index = 0
    reserved = False
    while index < counts[WAITING]:
        job = line[index] if reserved else queue[0]
        beyond = reserved and now + jobs.forecast[job] > counts[SHADOW]
        if reserved and not everything and job < new_from:
            index += 1
            continue
        if all_fit(rule.beside, job, rule.gangs) if beyond else all_fit(present, job, rule.gangs):
            _start(now, job, beyond, jobs, state, rule)
            everything = everything or not reserved
            continue
        if rule.backfill == NO_BACKFILL:
            break
        if reserved:
            index += 1
            continue
        everything = everything or job != first_before
        if everything:
            _reserve(job, state, rule)
        if jobs.promise[job] < 0:
            jobs.promise[job] = counts[SHADOW]
        reserved = True
    counts[FIRST] = queue[0] if counts[WAITING] > 0 else -1
    return rule


@inlined
def _start(now: int, job: int, beyond: bool, jobs: Jobs, state: ReplayState, rule: GangQueueRule) -> None:
    """Start a job; ``beyond``: it is planned to run beyond the reserved start."""
    present, later, beside, held, gangs = rule.present, rule.later, rule.beside, rule.held, rule.gangs
    lay_now(beside.free if beyond else present.free, job, gangs, state, held)
    present.clock[0] += 1
    for index in range(held.first[job], held.first[job] + held.used[job]):
        at = held.placed[index]
        change_machine(present, at)
        change_machine(beside, at)
        for column in range(later.shape[1]):
            takes = amount_of(gangs, job, held.devices[job], held.counts[index], column)
            present.free[at, column] -= takes
            if beyond:
                later[at, column] -= takes
            beside.free[at, column] = min(present.free[at, column], later[at, column])
    forecast, volume, waiting = jobs.forecast[job], jobs.demand[job], state.counts[WAITING]
    start_job(now, job, forecast, jobs, state)
    if rule.backfill != NO_BACKFILL:
        line_key, line = state.queues[1, 0], state.queues[1, 1]
        index = index_of(line_key, line, waiting, order_key(rule.backfill, forecast, volume), job)
        remove_at(line_key, line, waiting, index)
    queue_key, queue = state.queues[0, 0], state.queues[0, 1]
    index = index_of(queue_key, queue, waiting, order_key(rule.order, forecast, volume), job)
    state.counts[WAITING] = remove_at(queue_key, queue, waiting, index)


@inlined
def _reserve(job: int, state: ReplayState, rule: GangQueueRule) -> None:
    """Reserve machines for the queue's first job, and compute the rest."""
    present, later, beside = rule.present, rule.later, rule.beside
    for at in range(later.shape[0]):
        for resource in range(later.shape[1]):
            later[at, resource] = present.free[at, resource]
    state.counts[SHADOW] = reserved_start(later, job, state, rule.gangs, rule.held)
    present.clock[0] += 1
    gained(beside)
    for at in range(later.shape[0]):
        for resource in range(later.shape[1]):
            left = min(present.free[at, resource], later[at, resource])
            if left != beside.free[at, resource]:
                beside.free[at, resource] = left
                change_machine(beside, at)
    room_of(beside.free, beside.room)


@uncounted
def reserved_start(later: Integers, job: int, state: ReplayState, gangs: Gangs, held: Held) -> int:
    """Return the earliest planned end at which all pieces of a job fit; at the last one all machines are empty.

    Parameters
    ----------
    later : (N, R + D) in: what is free now; out: what is planned to be free then, less what the job takes.
    """
    need, devices, pieces = gangs.need[job], gangs.devices[job], gangs.pieces[job]
    end_time, end_job = state.ends[0], state.ends[1]
    fits = 0
    for at in range(later.shape[0]):
        if may_use(gangs, job, at):
            fits += fitting_on(later, at, need, devices, pieces)
    index = 0
    shadow: int = end_time[0]
    while index < state.counts[RUNNING] and (fits < pieces or end_time[index] == shadow):
        other = end_job[index]
        shadow = end_time[index]
        for entry in range(held.first[other], held.first[other] + held.used[other]):
            at = held.placed[entry]
            usable = may_use(gangs, job, at)
            if usable:
                fits -= fitting_on(later, at, need, devices, pieces)
            for column in range(later.shape[1]):
                takes = amount_of(gangs, other, held.devices[other], held.counts[entry], column)
                later[at, column] += takes
            if usable:
                fits += fitting_on(later, at, need, devices, pieces)
        index += 1
    left = pieces
    for at in range(later.shape[0]):
        if left > 0 and may_use(gangs, job, at):
            here = fitting_on(later, at, need, devices, left)
            left -= here
            chosen = 0
            if here > 0 and devices[MANY] > 0:
                chosen = first_devices(open_devices(later, at, need.shape[0], devices[EACH]), devices[MANY])
            for column in range(later.shape[1]):
                later[at, column] -= amount_of(gangs, job, chosen, here, column)
    return shadow


replay_gang_queue = with_steps(
    replay, "replay_gang_queue", prepare=_prepare, ended=_ended, submitted=_submitted, decide=_decide
)
"""Replays a log in strict order or under EASY, see `event_loop.replay`; ``demand`` stands for volume. Promises as in
`easy`."""
