"""The hybrid platform for gangs on many machines with vector demands (Naghshnejad 2019, ch. 4).

Called by `machine_replay`. The rounds, rules and lists are those of `platform`, where a processor was like any other:
here each piece of a job needs all its resources on one machine (`gangs`). The share alpha is one of the first resource
of all machines together, held anywhere. Invariants: no machine is ever overfilled in any resource; on one machine with
one resource the schedules are those of `platform`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import inlined, uncounted, with_steps
from cotide_core.kernels.machines import NEVER
from cotide_lab.trace_replay.kernels.event_loop import replay
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
    begin_waiting,
    drop_reservations,
    ended,
    forecast_exceeded,
    note_reservation,
    prepare,
)
from cotide_lab.trace_replay.kernels.on_machines.gangs import Gangs, earliest_gang, fits_through
from cotide_lab.trace_replay.kernels.platform import (
    HELD,
    NONE_LEFT,
    PlatformRule,
    backfilled_on_platform,
    ended_on_platform,
    is_among,
    is_overdue,
    next_by_volume,
    planned_on_platform,
    prepare_platform,
    share_of,
    start_on_platform,
    submitted_to_platform,
)
from cotide_lab.trace_replay.kernels.replay_state import WAITING, Jobs, ReplayState


class GangPlatformRule(NamedTuple):
    """The hybrid platform on machines.

    Attributes
    ----------
    platform : shares, settings and lists, as on one pool of the first resource.
    gangs, holding : what jobs ask for, and what they hold or have reserved.
    present : what is free now.
    reserved : (3, n) of this round, of either kind, see `gang_steps`.
    """

    platform: PlatformRule
    gangs: Gangs
    holding: Holding
    present: Fitting
    reserved: Integers


def gang_platform_rule(platform: PlatformRule, gangs: Gangs) -> GangPlatformRule:
    """Return the rule on empty machines."""
    present = fitting_of(gangs, np.ones(1, np.int64))
    return GangPlatformRule(platform, gangs, holding_of(gangs), present, np.empty((3, len(gangs.pieces)), np.int64))


@inlined
def _prepare(jobs: Jobs, state: ReplayState, rule: GangPlatformRule) -> GangPlatformRule:
    prepare_platform(jobs, state, rule.platform)
    return prepare(jobs, state, rule)


@inlined
def _ended(now: int, job: int, jobs: Jobs, state: ReplayState, rule: GangPlatformRule) -> GangPlatformRule:
    ended_on_platform(now, job, jobs, state, rule.platform)
    return ended(now, job, jobs, state, rule)


@inlined
def _submitted(now: int, job: int, jobs: Jobs, state: ReplayState, rule: GangPlatformRule) -> GangPlatformRule:
    begin_waiting(job, jobs, rule.holding.held)
    submitted_to_platform(now, job, jobs, state, rule.platform)
    return rule


@inlined
def _decide(now: int, jobs: Jobs, state: ReplayState, rule: GangPlatformRule) -> GangPlatformRule:
    counts = state.counts
    if counts[WAITING] == 0:
        return rule
    work_out_room(rule.present)
    counts[RESERVED] = 0
    _overdue(now, jobs, state, rule)
    _by_volume(now, share_of(rule.platform), True, jobs, state, rule)
    _by_volume(now, rule.platform.capacity, False, jobs, state, rule)
    drop_reservations(now, True, state, rule)
    return rule


@inlined
def _overdue(now: int, jobs: Jobs, state: ReplayState, rule: GangPlatformRule) -> None:
    """Start or reserve the overdue in order of submission."""
    counts, queue, storage, most = (
        state.counts,
        state.queues[0, 1],
        rule.holding.storage,
        rule.platform.settings.reserved,
    )
    index = 0
    others = 0
    predictable = 0
    while index < counts[WAITING] and (others < most or predictable < most):
        job = queue[index]
        kind = rule.platform.predictable[job]
        length = planned_on_platform(job, jobs, rule.platform)
        reserved = predictable if kind == 1 else others
        if reserved == most or not is_overdue(now, job, length, jobs, rule.platform):
            index += 1
            continue
        begin = earliest_gang(profiles_in(storage, state), now, length, job, rule.gangs, NEVER, storage.search)
        lay_at(begin, length, job, rule.gangs, state, rule.holding)
        if begin == now:
            _start(now, job, length, jobs, state, rule)
            continue
        book_gang(now, begin, begin + length, job, rule.gangs, state, rule.holding, 1)
        note_reservation(begin, length, job, state, rule)
        predictable += kind
        others += 1 - kind
        index += 1


@inlined
def _start(now: int, job: int, length: int, jobs: Jobs, state: ReplayState, rule: GangPlatformRule) -> None:
    """Start a job on the machines that were laid out for it."""
    book_gang(now, now, now + length, job, rule.gangs, state, rule.holding, 1)
    take_now(job, 1, rule.gangs, rule.holding.held, rule.present)
    start_on_platform(now, job, length, jobs, state, rule.platform)


@uncounted
def _by_volume(now: int, share: int, with_others: bool, jobs: Jobs, state: ReplayState, rule: GangPlatformRule) -> None:
    """Start what fits in order of volume.

    Parameters
    ----------
    share : of the first resource, what the predictable may hold.
    with_others : whether the jobs that are not predictable are tried, too.
    """
    reserved = state.counts[RESERVED]
    first = 0
    second = 0
    while True:
        kind = next_by_volume(first, second, with_others, state, rule.platform)
        if kind == NONE_LEFT:
            break
        job = rule.platform.lines[kind, first if kind == 1 else second]
        length = backfilled_on_platform(job, reserved > 0, jobs, rule.platform)
        beyond = kind == 1 and state.counts[HELD] + jobs.demand[job] > share
        if beyond or is_among(job, rule.reserved[0], reserved) or not _could(now, job, length, state, rule):
            first += kind
            second += 1 - kind
            continue
        lay_at(now, length, job, rule.gangs, state, rule.holding)
        _start(now, job, length, jobs, state, rule)


@inlined
def _could(now: int, job: int, length: int, state: ReplayState, rule: GangPlatformRule) -> bool:
    """Return whether a job without a reservation could start now without touching a reservation."""
    if not all_fit(rule.present, job, rule.gangs):
        return False
    if state.counts[RESERVED] == 0:
        return True
    return fits_through(profiles_in(rule.holding.storage, state), now, now + length, job, rule.gangs)


replay_gang_platform = with_steps(
    replay, "replay_gang_platform", prepare=_prepare, forecast_exceeded=forecast_exceeded,
    ended=_ended, submitted=_submitted,
    decide=_decide,
)  # fmt: skip
"""Replays a log under the hybrid platform, see `event_loop.replay`; ``demand`` stands for volume."""
