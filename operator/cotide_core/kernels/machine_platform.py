"""The hybrid platform on many machines with vector demands: who starts now, and who has a start reserved.

Called by `plan_platform`; the rules are those of `platform`, the replay's kernel on one pool: three passes, over the
overdue in order of submission, over all in order of volume, and over the predictable beyond their share. On one machine
with one resource the starts are those of `platform` where no job outlives what it is planned to take.

Invariant: no start or reservation overfills a machine at any time; the predictable hold no more than their share of any
resource, what they are lent apart.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.machine_plan import NO_ROOM, first_machine, fits_somewhere, present_on, stretched
from cotide_core.kernels.machines import NEVER, occupy

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]

PREDICTABLE: Final = 0.6
"""Estimated accuracy from which a job counts as predictable (Naghshnejad 2019, section 4.4)."""
FIRST_SHARE: Final = 0.6
"""alpha before the first job (Naghshnejad 2019, section 4.5.4)."""
RECENT_JOBS: Final = 1000
"""alpha follows about so many jobs (chosen)."""
FIRST_DEMAND: Final = 1000.0
"""Processors that the first share stands for (chosen)."""
PATIENCE: Final = (5, 20)
"""Times its planned length that an unpredictable and a predictable job waits before a start is reserved for it (chosen
among 2 to 40, see docs/replay.md)."""
RESERVED: Final = 2
"""Reservations of each kind that a round makes (chosen among 1, 2 and 4, see docs/replay.md)."""


@cache
def compile_platform() -> None:
    """Have the kernel compiled, once in a process."""
    one, table = np.zeros(1, np.int64), np.zeros((1, 1), np.int64)
    plan_platform(
        table.copy(), np.zeros((1, 1, 1), np.int64), np.ones(1, np.int64), 0, one, one, table, table, one, one,
        np.ones((1, 1)), one, np.zeros((1, 1), np.bool_), table, one, table.copy(), np.zeros(1, np.bool_),
        np.zeros(1, np.bool_), np.zeros((1, 2), np.int64), np.zeros(2, np.int64), np.zeros(2, np.int64), 1, one - 1,
        one - 1,
    )  # fmt: skip


@compiled
def plan_platform(  # noqa: PLR0912  one compiled loop: a call for each step would pass all its arrays
    times: Integers,
    free: Integers,
    sizes: Integers,
    now: int,
    group: Integers,
    by_volume: Integers,
    need: Integers,
    take: Integers,
    length: Integers,
    kind: Integers,
    stretch: Floats,
    fit: Integers,
    may: Booleans,
    soft: Integers,
    slot: Integers,
    bound: Integers,
    overdue: Booleans,
    predictable: Booleans,
    amounts: Integers,
    held: Integers,
    share: Integers,
    most_starts: int,
    machine: Integers,
    start: Integers,
) -> int:
    """Plan n pods, which come in order of submission; return how many start now, or `NO_ROOM`.

    Parameters as in `machine_plan.plan_machines`, but:

    by_volume : (n,) the order of the second and third pass.
    overdue, predictable : (n,) who has waited long enough for a reservation, and whose run time can be relied on.
    amounts : (G, S) what a pod takes of the S resources that are shared out.
    held, share : (S,) what the predictable hold now, counted up by the call, and what they may hold.
    machine, start : (n,) out: starts and reservations, -1 for none.
    """
    machine[:] = -1
    start[:] = -1
    starts = 0
    places = np.zeros(2, np.int64)
    nowhere = np.zeros(sizes.shape[0], np.bool_)
    for step in range(3):
        present = present_on(times, free, sizes, now)
        for place in range(group.shape[0]):
            pod = place if step == 0 else by_volume[place]
            if starts >= most_starts:
                break
            of = group[pod]
            trusted = 1 if predictable[pod] else 0
            if machine[pod] >= 0:
                continue
            if step == 0 and (not overdue[pod] or places[trusted] == RESERVED):
                continue
            if step == 2 and trusted == 0:
                continue
            beyond = False
            for resource in range(share.shape[0]):
                beyond = beyond or held[resource] + amounts[of, resource] > share[resource]
            if step == 1 and trusted == 1 and beyond:
                continue
            if step > 0 and not fits_somewhere(present, may[fit[of]], need[of]):
                continue
            found, begin = first_machine(
                times, free, sizes, now, length[of], stretch[kind[of]], need[of], may[fit[of]], soft[fit[of]],
                bound[slot[of]], NEVER if step == 0 else now + 1, -1, slot[of] == 0, nowhere,
            )  # fmt: skip
            if found < 0:
                continue
            if sizes[found] + 2 > times.shape[1]:
                return NO_ROOM
            lasts = stretched(length[of], stretch[kind[of], found])
            sizes[found] = occupy(times[found], free[found], sizes[found], begin, begin + lasts, take[of], 1)
            machine[pod] = found
            start[pod] = begin
            if begin > now:
                places[trusted] += 1
                continue
            starts += 1
            for resource in range(take.shape[1]):
                present[found, resource] -= take[of, resource]
            for resource in range(share.shape[0]):
                held[resource] += amounts[of, resource] * trusted
    return starts
