"""Slack-based backfilling on many machines with vector demands: moves promises back within their slack, for others.

Called by `slack_reservations` after `machine_plan` has laid the reservations. As in `slack`, the replay's kernel on one
pool, a pod that fits next to the running ones is brought forward to this moment. The reservations in its way move, as
long as each still starts by its promise and the sum of all starts becomes earlier. Reservations move within their
machine. On one machine with one resource the starts are those of `slack` if no job outlives its forecast.

Invariant: no start or reservation overfills a machine at any time, and none is later than its promise.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.machine_plan import NO_ROOM, Demands, Plan, lasts_on, smallest
from cotide_core.kernels.machines import Profiles, earliest_on, has_room, hold, is_enough, segment_on
from cotide_core.kernels.ordered_jobs import insert

TRIALS: Final = 16
"""Jobs that a round tries to bring forward (chosen: bounds the time of a round)."""


@cache
def compile_slack() -> None:
    """Have the kernel compiled, once in a process."""
    profiles, demands, plan = smallest()
    spend_slack(profiles, 0, demands, np.zeros(1, np.int64), np.zeros(1, np.int64), 1, plan)


@compiled
def spend_slack(
    profiles: Profiles, now: int, demands: Demands, line: Integers, promise: Integers, most_starts: int, plan: Plan
) -> int:
    """Bring pods forward; return how many start now, or `NO_ROOM`.

    Parameters as in `machine_plan.plan_machines`, the profiles behind all reservations of the plan, but:

    line : (n,) the order of the pods that are tried.
    promise : (n,) the latest start of each.
    plan : in: the reservations, -1 for none; out: the new ones. Machines that reservations left are set in ``opened``.
    """
    machine, start, times, free, sizes = plan.machine, plan.start, profiles.times, profiles.free, profiles.sizes
    starts = 0
    for pod in range(machine.shape[0]):
        starts += start[pod] == now and machine[pod] >= 0
    trials = 0
    for pod in line:
        if machine[pod] < 0 or start[pod] == now:
            continue
        of = demands.group[pod]
        may, need = demands.may[demands.fit[of]], demands.need[of]
        at = 0
        while at < sizes.shape[0] and start[pod] != now:
            if trials == TRIALS or starts >= most_starts:
                return starts
            if may[at] and is_enough(free[at], segment_on(times[at], sizes[at], now), need):
                trials += 1
                started = _brought_forward(profiles, now, demands, pod, at, promise, plan)
                if started == NO_ROOM:
                    return NO_ROOM
                starts += started
            at += 1
    return starts


@compiled
def _brought_forward(
    profiles: Profiles, now: int, demands: Demands, pod: int, at: int, promise: Integers, plan: Plan
) -> int:
    """Start ``pod`` on ``at`` in place of its reservation; return how many start now for it, 0 if that fails.

    Reservations there that begin after now and before the pod would end are taken out and placed again, in their order.
    """
    machine, start, group, take = plan.machine, plan.start, demands.group, demands.take
    times, free, sizes = profiles.times, profiles.free, profiles.sizes
    held = machine[pod]
    old_times, old_free, old_size = times[at].copy(), free[at].copy(), sizes[at]
    held_times, held_free, held_size = times[held].copy(), free[held].copy(), sizes[held]
    of = group[pod]
    if not has_room(profiles, held):
        return NO_ROOM
    hold(profiles, held, start[pod], lasts_on(demands, of, held), take[of], -1)
    lasts = lasts_on(demands, of, at)
    moved = 0
    keys = np.empty(group.shape[0], np.int64)
    others = np.empty(group.shape[0], np.int64)
    for other in range(group.shape[0]):
        if other != pod and machine[other] == at and now < start[other] < now + lasts:
            if not has_room(profiles, at):
                return NO_ROOM
            its = group[other]
            hold(profiles, at, start[other], lasts_on(demands, its, at), take[its], -1)
            moved = insert(keys, others, moved, start[other], other)
    if not has_room(profiles, at):
        return NO_ROOM
    hold(profiles, at, now, lasts, take[of], 1)
    gain = start[pod] - now
    begins = np.empty(moved, np.int64)
    kept = _placed_again(profiles, now, demands, at, others[:moved], begins, promise)
    if kept == NO_ROOM:
        return NO_ROOM
    for index in range(kept):
        gain += start[others[index]] - begins[index]
    if kept < moved or gain <= 0:
        times[held], free[held], sizes[held] = held_times, held_free, held_size
        times[at], free[at], sizes[at] = old_times, old_free, old_size
        return 0
    started = 1
    machine[pod] = at
    start[pod] = now
    plan.opened[held] = True
    plan.opened[at] = True
    for index in range(moved):
        start[others[index]] = begins[index]
        started += begins[index] == now
    return started


@compiled
def _placed_again(
    profiles: Profiles, now: int, demands: Demands, at: int, others: Integers, begins: Integers, promise: Integers
) -> int:
    """Reserve pods their earliest starts on a machine, in order; return how many start by their promise, or `NO_ROOM`.

    From the first that can't on, nothing is reserved.
    """
    count: int = others.shape[0]
    for index in range(count):
        other = others[index]
        its = demands.group[other]
        lasts = lasts_on(demands, its, at)
        times, free, size = profiles.times[at], profiles.free[at], profiles.sizes[at]
        begins[index] = earliest_on(times, free, size, now, lasts, demands.need[its], promise[other] + 1)
        if begins[index] > promise[other]:
            return index
        if not has_room(profiles, at):
            return NO_ROOM
        hold(profiles, at, begins[index], lasts, demands.take[its], 1)
    return count
