"""Lists without reservations: at each end, in order, every job that fits at once is started.

Called by the experiment on readings of the paper, as what a discrete-event simulator does that looks through its whole
queue. No unit of a machine stands idle that some waiting job could use, and jobs of high demand wait for very long.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled
from cotide_lab.offline.job_list import JobList
from cotide_lab.offline.schedule import Schedule
from cotide_lab.trace_replay.kernels.time_heap import heap_pop, heap_push


def whatever_fits(jobs: JobList, machines: int, order: Integers, chosen: Integers | None = None) -> Schedule:
    """Schedule all jobs.

    Parameters
    ----------
    chosen : (n,) machine of each job; None for the lowest machine where it fits.
    """
    schedule = Schedule(np.empty(len(jobs), np.int64), np.empty(len(jobs), np.int64))
    where = np.full(len(jobs), -1) if chosen is None else chosen
    _start(order, jobs.sizes, jobs.demands, jobs.capacity, machines, where, schedule.starts, schedule.machines)
    return schedule


@compiled
def _start(
    order: Integers,
    sizes: Integers,
    demands: Integers,
    capacity: int,
    machines: int,
    chosen: Integers,
    starts: Integers,
    where: Integers,
) -> None:
    waiting = order.copy()
    left = order.shape[0]
    free = np.full(machines, capacity, np.int64)
    ends = np.empty(left, np.int64)
    running = np.empty(left, np.int64)
    size = 0
    now = 0
    while left > 0:
        widest = free.max()
        kept = 0
        for index in range(left):
            job = waiting[index]
            machine = chosen[job]
            if demands[job] > widest:
                machine = -1
            elif machine >= 0:
                machine = machine if free[machine] >= demands[job] else -1
            else:
                machine = 0
                while free[machine] < demands[job]:
                    machine += 1
            if machine < 0:
                waiting[kept] = job
                kept += 1
                continue
            starts[job] = now
            where[job] = machine
            free[machine] -= demands[job]
            size = heap_push(ends, running, size, now + sizes[job], job)
            widest = free.max()
        left = kept
        if size > 0:
            now = ends[0]
        while size > 0 and ends[0] == now:
            free[where[running[0]]] += demands[running[0]]
            size = heap_pop(ends, running, size)
