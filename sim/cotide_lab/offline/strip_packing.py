"""Strip packing by levels: rectangles of demand times size on a strip as wide as one machine.

Called by `single_machine`. Next-Fit Decreasing Height (Coffman, Garey, Johnson, Tarjan 1980): longest jobs first, side
by side on a level while they fit; the next level begins where the level's longest job ends. Its length is at most twice
the area plus the longest job, and that is all the guarantee needs.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled
from cotide_lab.offline.job_list import JobList


def pack_levels(jobs: JobList) -> tuple[Integers, int]:
    """Return (n,) the start of each job on one machine, and the length of the packing.

    length <= 2 sum(size demand) / capacity + max(size).
    """
    order = np.lexsort((-jobs.demands, -jobs.sizes))
    return _levels(order, jobs.sizes, jobs.demands, jobs.capacity)


@compiled
def _levels(order: Integers, sizes: Integers, demands: Integers, capacity: int) -> tuple[Integers, int]:
    starts = np.empty(order.shape[0], np.int64)
    start = 0
    end = 0
    held = 0
    for job in order:
        if held + demands[job] > capacity:
            start = end
            held = 0
        if held == 0:
            end = start + sizes[job]
        held += demands[job]
        starts[job] = start
    return starts, end
