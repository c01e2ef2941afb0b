"""Slack-based backfilling on many machines with vector demands: promises moved back, as far as they allow, for others.

Called by `slack_reservations` after `machine_plan` has laid the reservations. As in `slack`, the replay's kernel on one
pool: a pod that fits beside what runs is brought forward to this moment by moving the reservations in its way, as long
as each still starts by its promise and the starts of all together become earlier. Reservations move within their
machine. On one machine with one resource the starts are those of `slack` where no job outlives its forecast.

Invariant: no start or reservation overfills a machine at any time, and none is later than its promise.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.machine_plan import NO_ROOM, stretched
from cotide_core.kernels.machines import earliest_on, is_enough, occupy
from cotide_core.kernels.ordered_jobs import insert

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]

TRIALS: Final = 16
"""Jobs that a round tries to bring forward (chosen: bounds the time of a round)."""


@cache
def compile_slack() -> None:
    """Have the kernel compiled, once in a process."""
    one, table = np.zeros(1, np.int64), np.zeros((1, 1), np.int64)
    spend_slack(
        table.copy(), np.zeros((1, 1, 1), np.int64), np.ones(1, np.int64), 0, one, one, table, table, one, one,
        np.ones((1, 1)), one, np.zeros((1, 1), np.bool_), 1, one - 1, one - 1, one - 1, np.zeros(1, np.bool_),
    )  # fmt: skip


@compiled
def spend_slack(
    times: Integers,
    free: Integers,
    sizes: Integers,
    now: int,
    line: Integers,
    group: Integers,
    need: Integers,
    take: Integers,
    length: Integers,
    kind: Integers,
    stretch: Floats,
    fit: Integers,
    may: Booleans,
    most_starts: int,
    machine: Integers,
    start: Integers,
    promise: Integers,
    opened: Booleans,
) -> int:
    """Bring pods forward; return how many start now, or `NO_ROOM`.

    Parameters as in `machine_plan.plan_machines`, its profiles behind all reservations, but:

    line : (n,) the order in which pods are tried.
    machine, start : (n,) in: the reservations, -1 for none; out: the new ones.
    promise : (n,) the latest start of each.
    opened : (N,) machines that reservations left are set.
    """
    starts = 0
    for pod in range(group.shape[0]):
        starts += start[pod] == now and machine[pod] >= 0
    trials = 0
    for pod in line:
        if machine[pod] < 0 or start[pod] == now:
            continue
        of = group[pod]
        at = 0
        while at < sizes.shape[0] and start[pod] != now:
            if trials == TRIALS or starts >= most_starts:
                return starts
            if may[fit[of], at] and is_enough(free[at], _segment(times[at], sizes[at], now), need[of]):
                trials += 1
                begun = _brought_forward(
                    times, free, sizes, now, pod, at, group, need, take, length, kind, stretch, machine, start, promise,
                    opened,
                )  # fmt: skip
                if begun == NO_ROOM:
                    return NO_ROOM
                starts += begun
            at += 1
    return starts


@compiled
def _segment(times: Integers, size: int, now: int) -> int:
    place = 0
    while place + 1 < size and times[place + 1] <= now:
        place += 1
    return place


@compiled
def _brought_forward(  # noqa: PLR0915  one compiled step: a call for each part would pass all its arrays
    times: Integers,
    free: Integers,
    sizes: Integers,
    now: int,
    pod: int,
    at: int,
    group: Integers,
    need: Integers,
    take: Integers,
    length: Integers,
    kind: Integers,
    stretch: Floats,
    machine: Integers,
    start: Integers,
    promise: Integers,
    opened: Booleans,
) -> int:
    """Start ``pod`` on ``at`` in place of its reservation; return how many start now for it, 0 where that won't do.

    Reservations there that begin after now and before the pod would end are taken out and laid anew, in the order in
    which they stood.
    """
    count = group.shape[0]
    held = machine[pod]
    old_times = times[at].copy()
    old_free = free[at].copy()
    old_size = sizes[at]
    held_times = times[held].copy()
    held_free = free[held].copy()
    held_size = sizes[held]
    of = group[pod]
    lasts = stretched(length[of], stretch[kind[of], held])
    if sizes[held] + 2 > times.shape[1]:
        return NO_ROOM
    sizes[held] = occupy(times[held], free[held], sizes[held], start[pod], start[pod] + lasts, take[of], -1)
    end = now + stretched(length[of], stretch[kind[of], at])
    moved = 0
    keys = np.empty(count, np.int64)
    others = np.empty(count, np.int64)
    for other in range(count):
        if other != pod and machine[other] == at and now < start[other] < end:
            if sizes[at] + 2 > times.shape[1]:
                return NO_ROOM
            its = group[other]
            until = start[other] + stretched(length[its], stretch[kind[its], at])
            sizes[at] = occupy(times[at], free[at], sizes[at], start[other], until, take[its], -1)
            moved = insert(keys, others, moved, start[other], other)
    if sizes[at] + 2 > times.shape[1]:
        return NO_ROOM
    sizes[at] = occupy(times[at], free[at], sizes[at], now, end, take[of], 1)
    gain = start[pod] - now
    begins = np.empty(moved, np.int64)
    kept = True
    for place in range(moved):
        other = others[place]
        its = group[other]
        lasts = stretched(length[its], stretch[kind[its], at])
        begins[place] = earliest_on(times[at], free[at], sizes[at], now, lasts, need[its], promise[other] + 1)
        kept = begins[place] <= promise[other]
        if not kept:
            break
        if sizes[at] + 2 > times.shape[1]:
            return NO_ROOM
        gain += start[other] - begins[place]
        sizes[at] = occupy(times[at], free[at], sizes[at], begins[place], begins[place] + lasts, take[its], 1)
    if not kept or gain <= 0:
        times[held] = held_times
        free[held] = held_free
        sizes[held] = held_size
        times[at] = old_times
        free[at] = old_free
        sizes[at] = old_size
        return 0
    begun = 1
    machine[pod] = at
    start[pod] = now
    opened[held] = True
    opened[at] = True
    for place in range(moved):
        start[others[place]] = begins[place]
        begun += begins[place] == now
    return begun
