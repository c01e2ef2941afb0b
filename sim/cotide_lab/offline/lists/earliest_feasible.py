"""EF: each job goes to the machine where it can start first (Naghshnejad 2019, section 3.2.2, Algorithm 1).

Called by `list_scheduling` and `hybrid`. The printed Algorithm 1 walks over the ends of running jobs and compares with
the free units of that moment only. Where other jobs are already planned to start later, a job must also fit for all of
its size. The definition in the text requires it, and this module does it. Ties go to the lowest machine.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled
from cotide_lab.offline.lists.timeline import NEVER, Timelines, earliest_start, leave_behind, reserve


@compiled
def place_earliest_feasible(
    lines: Timelines, order: Integers, sizes: Integers, demands: Integers, starts: Integers, machines: Integers
) -> None:
    """Place jobs in order; fills ``starts`` and ``machines`` (n,)."""
    count = order.shape[0]
    still = np.empty(count, np.int64)
    smallest = NEVER
    for index in range(count - 1, -1, -1):
        smallest = min(smallest, demands[order[index]])
        still[index] = smallest
    for index in range(count):
        job = order[index]
        best = NEVER
        chosen = 0
        for machine in range(lines.first.shape[0]):
            leave_behind(lines, machine, still[index])
            start = earliest_start(lines, machine, demands[job], sizes[job], best)
            if start < best:
                best = start
                chosen = machine
                if start == 0:
                    break
        reserve(lines, chosen, demands[job], sizes[job], best)
        starts[job] = best
        machines[job] = chosen
