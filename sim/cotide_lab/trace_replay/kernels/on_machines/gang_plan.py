"""Plans of all waiting gangs on many machines with vector demands, made again in each round (Naghshnejad 2019, section
4.2.1).

Called by `machine_replay`. The rounds and rules are those of `plan`, where a processor was like any other: here each
piece of a job needs all its resources on one machine (`gangs`). All waiting jobs are planned in order; those planned
for now start.

A plan is made only as far as it can matter: to the last job that fits into what is free now and is not kept out by the
reservations made so far. Within a round there is less and less, so a shape that found its earliest start finds none
before it for as many pieces and as long a time. Invariants: no machine is ever overfilled in any resource; on one
machine with one resource the schedules are those of `plan`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import inlined, uncounted, with_steps
from cotide_core.kernels.machines import NEVER
from cotide_core.kernels.ordered_jobs import remove_at
from cotide_lab.trace_replay.kernels.event_loop import replay, start_job
from cotide_lab.trace_replay.kernels.on_machines.gang_counts import Fitting, all_fit, fitting_of, work_out_room
from cotide_lab.trace_replay.kernels.on_machines.gang_lists import (
    Holding,
    book_gang,
    holding_of,
    lay_at,
    profiles_in,
    take_now,
)
from cotide_lab.trace_replay.kernels.on_machines.gang_steps import (
    RESERVED,
    drop_reservations,
    ended,
    forecast_exceeded,
    note_reservation,
    prepare,
    submitted,
)
from cotide_lab.trace_replay.kernels.on_machines.gangs import Gangs, earliest_gang, fits_through
from cotide_lab.trace_replay.kernels.replay_state import ROUNDS, WAITING, Jobs, ReplayState


class GangPlanRule(NamedTuple):
    """Plans on machines.

    Attributes
    ----------
    gangs, holding : what jobs ask for, and what they hold or have reserved.
    order : in which jobs are planned, as in `easy`.
    present : what is free now.
    reserved : (3, n) of this round, see `gang_steps`.
    bounds : (4, shapes) what a shape found last: the round, the pieces, the length, and the start before which there is
        none.
    """

    gangs: Gangs
    holding: Holding
    order: int
    present: Fitting
    reserved: Integers
    bounds: Integers


def gang_plan_rule(gangs: Gangs, order: int) -> GangPlanRule:
    """Return the rule on empty machines."""
    present = fitting_of(gangs, np.ones(1, np.int64))
    reserved, bounds = np.empty((3, len(gangs.pieces)), np.int64), np.full((4, len(present.most)), -1, np.int64)
    return GangPlanRule(gangs, holding_of(gangs), order, present, reserved, bounds)


@inlined
def _decide(now: int, jobs: Jobs, state: ReplayState, rule: GangPlanRule) -> GangPlanRule:
    """Plan while a waiting job fits into the free room and the reservations so far."""
    queue, counts = state.queues[0, 1], state.counts
    work_out_room(rule.present)
    counts[RESERVED] = 0
    index = 0
    last: int = counts[WAITING]
    tail = True
    while index < last:
        job = queue[last - 1] if tail else queue[index]
        could = _could(now, job, jobs, state, rule)
        if tail:
            tail = not could
            last -= 0 if could else 1
            continue
        tail = True
        length = jobs.forecast[job]
        begin = now if could else _earliest(now, job, length, state, rule)
        lay_at(begin, length, job, rule.gangs, state, rule.holding)
        book_gang(now, begin, begin + length, job, rule.gangs, state, rule.holding, 1)
        if begin > now:
            note_reservation(begin, length, job, state, rule)
            index += 1
            continue
        take_now(job, 1, rule.gangs, rule.holding.held, rule.present)
        start_job(now, job, length, jobs, state)
        counts[WAITING] = remove_at(state.queues[0, 0], queue, counts[WAITING], index)
        last -= 1
    drop_reservations(now, True, state, rule)
    return rule


@uncounted
def _could(now: int, job: int, jobs: Jobs, state: ReplayState, rule: GangPlanRule) -> bool:
    """Return whether a job could start now."""
    if not all_fit(rule.present, job, rule.gangs):
        return False
    if state.counts[RESERVED] == 0:
        return True
    profiles = profiles_in(rule.holding.storage, state)
    return fits_through(profiles, now, now + jobs.forecast[job], job, rule.gangs)


@inlined
def _earliest(now: int, job: int, length: int, state: ReplayState, rule: GangPlanRule) -> int:
    """Return the earliest start of a job that can't start now."""
    like, bounds, pieces = rule.gangs.shape[job], rule.bounds, rule.gangs.pieces[job]
    begin = now + 1
    if bounds[0, like] == state.counts[ROUNDS] and pieces >= bounds[1, like] and length >= bounds[2, like]:
        begin = bounds[3, like]
    storage = rule.holding.storage
    begin = earliest_gang(profiles_in(storage, state), begin, length, job, rule.gangs, NEVER, storage.search)
    bounds[0, like] = state.counts[ROUNDS]
    bounds[1, like] = pieces
    bounds[2, like] = length
    bounds[3, like] = begin
    return begin


replay_gang_plan = with_steps(
    replay,
    "replay_gang_plan",
    prepare=prepare,
    forecast_exceeded=forecast_exceeded,
    ended=ended,
    submitted=submitted,
    decide=_decide,
)
"""Replays a log under online plans, see `event_loop.replay`; ``demand`` stands for volume."""
