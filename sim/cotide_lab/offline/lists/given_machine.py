"""Placing on machines that were chosen beforehand: each job at its earliest feasible start there.

Called by `list_scheduling` for LW and RANDOM, and to let a finished schedule start as early as its order allows.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled
from cotide_lab.offline.lists.timeline import NEVER, Timelines, earliest_start, leave_behind, reserve


@compiled
def place_on_given(
    lines: Timelines, order: Integers, sizes: Integers, demands: Integers, machines: Integers, starts: Integers
) -> None:
    """Place jobs in order on ``machines`` (n,); fills ``starts`` (n,)."""
    count = order.shape[0]
    still = np.empty(count, np.int64)
    smallest = np.full(lines.first.shape[0], NEVER, np.int64)
    for index in range(count - 1, -1, -1):
        job = order[index]
        smallest[machines[job]] = min(smallest[machines[job]], demands[job])
        still[index] = smallest[machines[job]]
    for index in range(count):
        job = order[index]
        leave_behind(lines, machines[job], still[index])
        start = earliest_start(lines, machines[job], demands[job], sizes[job], NEVER)
        reserve(lines, machines[job], demands[job], sizes[job], start)
        starts[job] = start
