"""Plans of waiting pods on machines that were chosen beforehand: each at its earliest feasible start there.

Called by `preassigned` for least work and random machines; the live counterpart of `offline.given_machine`.
Invariant: no start of a call overfills a machine at any time.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.machine_plan import NO_ROOM, stretched
from cotide_core.kernels.machines import NEVER, earliest_on, occupy

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@cache
def compile_given() -> None:
    """Have the kernel compiled, once in a process."""
    one, table = np.zeros(1, np.int64), np.zeros((1, 1), np.int64)
    plan_on_given(
        table.copy(), np.zeros((1, 1, 1), np.int64), np.ones(1, np.int64), 0, one, table, table, one, one,
        np.ones((1, 1)), 1, one - 1, one - 1,
    )  # fmt: skip


@compiled
def plan_on_given(
    times: Integers,
    free: Integers,
    sizes: Integers,
    now: int,
    group: Integers,
    need: Integers,
    take: Integers,
    length: Integers,
    kind: Integers,
    stretch: Floats,
    most_starts: int,
    machine: Integers,
    start: Integers,
) -> int:
    """Plan n pods in order; return how many start now, or `NO_ROOM`.

    Parameters as in `machine_plan.plan_machines`, but ``machine``: (n,) in, where each is to run, -1 for nowhere; out:
    -1 where there is no start.
    """
    starts = 0
    for pod in range(group.shape[0]):
        at = machine[pod]
        start[pod] = -1
        if at < 0 or starts >= most_starts:
            machine[pod] = -1
            continue
        of = group[pod]
        lasts = stretched(length[of], stretch[kind[of], at])
        begin = earliest_on(times[at], free[at], sizes[at], now, lasts, need[of], NEVER)
        if begin >= NEVER:
            machine[pod] = -1
            continue
        if sizes[at] + 2 > times.shape[1]:
            return NO_ROOM
        sizes[at] = occupy(times[at], free[at], sizes[at], begin, begin + lasts, take[of], 1)
        start[pod] = begin
        starts += begin == now
    return starts
