"""The hybrid platform on many machines with vector demands: which jobs start now, and which get a reservation.

Called by `plan_platform`. The rules are those of `platform`, the replay's kernel on one pool. It makes three passes:
over the overdue in order of submission, over all in order of volume, and over the predictable beyond their share. On
one machine with one resource the starts are those of `platform` if no job outlives its planned length.

Invariant: no start or reservation overfills a machine at any time. The predictable hold no more than their share of any
resource, apart from loans.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Booleans, Integers
from cotide_core.kernels.compiled import compiled, inlined
from cotide_core.kernels.machine_plan import (
    NO_ROOM,
    Demands,
    Plan,
    first_machine,
    fits_somewhere,
    lasts_on,
    present_on,
    smallest,
)
from cotide_core.kernels.machines import NEVER, Profiles, has_room, hold

PREDICTABLE: Final = 0.6
"""Estimated accuracy above which a job counts as predictable (Naghshnejad 2019, section 4.4)."""
FIRST_SHARE: Final = 0.6
"""alpha before the first job (Naghshnejad 2019, section 4.5.4)."""
RECENT_JOBS: Final = 1000
"""Jobs that alpha averages over (chosen)."""
FIRST_DEMAND: Final = 1000.0
"""Processors of the first share (chosen)."""
PATIENCE: Final = (5, 20)
"""Times its planned length that an unpredictable and a predictable job waits before it gets a reservation (chosen among
2 to 40, see docs/design/live-plans.md).
"""
PATIENCE_SECONDS: Final = 10 * 86_400
"""Wait after which a job gets a reservation in any case. Chosen among 1, 3, 5, 7 and 10 days: the longest waits of two
logs halve, means rise by at most 5 %, see docs/design/live-plans.md.
"""
RESERVED: Final = 2
"""Reservations of each kind that a round makes (chosen among 1, 2 and 4, see docs/design/live-plans.md)."""


class Shares(NamedTuple):
    """The kinds of jobs on the platform, and what the predictable may hold.

    Attributes
    ----------
    by_volume : (n,) the order of the second and third pass.
    overdue, predictable : (n,) jobs that have waited long enough for a reservation, and jobs with a reliable run time.
    amounts : (G, S) amounts that a pod takes of the S shared resources.
    beside : (n,) out: whether a pod that starts now starts next to a reservation.
    held, share : (S,) what the predictable hold now, updated by the call, and what they may hold.
    """

    by_volume: Integers
    overdue: Booleans
    predictable: Booleans
    amounts: Integers
    held: Integers
    share: Integers
    beside: Booleans


@cache
def compile_platform() -> None:
    """Have the kernel compiled, once in a process."""
    profiles, demands, plan = smallest()
    nobody, nothing = np.zeros(1, np.bool_), np.zeros(2, np.int64)
    shares = Shares(np.zeros(1, np.int64), nobody, nobody, np.zeros((1, 2), np.int64), nothing, nothing, nobody)
    plan_platform(profiles, 0, demands, demands, shares, 1, plan)


@compiled
def plan_platform(
    profiles: Profiles, now: int, demands: Demands, shorter: Demands, shares: Shares, most_starts: int, plan: Plan
) -> int:
    """Plan n pods, which come in order of submission; return how many start now, or `NO_ROOM`.

    Parameters as in `machine_plan.plan_machines`, but the plan is only filled by the call. ``shorter`` is the demand of
    the pods if they start next to a reservation of this call, with bounds of its own.
    """
    machine, start, group, need, take = plan.machine, plan.start, demands.group, demands.need, demands.take
    machine[:] = -1
    start[:] = -1
    starts = 0
    indices = np.zeros(2, np.int64)
    for step in range(3):
        present = present_on(profiles, now)
        beside = step > 0 and indices[0] + indices[1] > 0
        asked = shorter if beside else demands
        for index in range(group.shape[0]):
            pod = index if step == 0 else shares.by_volume[index]
            if starts >= most_starts:
                break
            of = group[pod]
            trusted = 1 if shares.predictable[pod] else 0
            if machine[pod] >= 0 or not _is_tried(step, pod, of, indices, shares):
                continue
            if step > 0 and not fits_somewhere(present, demands.may[demands.fit[of]], need[of]):
                continue
            limit = NEVER if step == 0 else now + 1
            found, begin = first_machine(profiles, now, asked, of, limit, -1, plan.opened)
            if found < 0:
                continue
            if not has_room(profiles, found):
                return NO_ROOM
            hold(profiles, found, begin, lasts_on(asked, of, found), take[of], 1)
            machine[pod] = found
            start[pod] = begin
            if begin > now:
                indices[trusted] += 1
                continue
            starts += 1
            shares.beside[pod] = beside
            for resource in range(take.shape[1]):
                present[found, resource] -= take[of, resource]
            for resource in range(shares.share.shape[0]):
                shares.held[resource] += shares.amounts[of, resource] * trusted
    return starts


@inlined
def _is_tried(step: int, pod: int, of: int, indices: Integers, shares: Shares) -> bool:
    """Return whether a pod has its turn in a pass, ``indices`` being the reservations of each kind."""
    trusted = 1 if shares.predictable[pod] else 0
    if step == 0:
        overdue: bool = shares.overdue[pod] and indices[trusted] != RESERVED
        return overdue
    if step == 2 or trusted == 0:
        return trusted == 1 or step == 1
    for resource in range(shares.share.shape[0]):
        if shares.held[resource] + shares.amounts[of, resource] > shares.share[resource]:
            return False
    return True
