"""Lists that start no job before the one ahead of it: Algorithm 1 as printed (Naghshnejad 2019, section 3.2.2).

Called by the experiment on readings of the paper. The printed EF walks over the ends of the placed jobs, in order of
time, and takes the first machine that has enough free units by then. A placed job counts as running until its end, so a
machine never starts a job before the one it was given last; no hole is ever filled. ``across`` goes further: starts
never fall over all machines together, as in a simulator that moves its clock to each start.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.ordered_jobs import insert
from cotide_lab.offline.job_list import JobList
from cotide_lab.offline.schedule import Schedule


def in_order(
    jobs: JobList, machines: int, order: Integers, chosen: Integers | None = None, *, across: bool = False
) -> Schedule:
    """Schedule all jobs.

    Parameters
    ----------
    chosen : (n,) machine of each job; None for EF, ties to the lowest machine.
    across : a start is never before the start of the job ahead, on whatever machine.
    """
    first = np.zeros(len(jobs), np.int64) if chosen is None else chosen
    beyond = np.full(len(jobs), machines) if chosen is None else chosen + 1
    clocks = np.zeros(len(jobs), np.int64) if across else None
    return in_order_within(jobs, machines, order, first, beyond, clocks)


def in_order_within(
    jobs: JobList, machines: int, order: Integers, first: Integers, beyond: Integers, clocks: Integers | None
) -> Schedule:
    """Schedule all jobs by EF, each on machines ``first`` (n,) to ``beyond`` (n,) - 1 only.

    Parameters
    ----------
    clocks : (n,) numbers from 0: no start is before that of the job ahead with the same clock; None for no such rule.
    """
    schedule = Schedule(np.empty(len(jobs), np.int64), np.empty(len(jobs), np.int64))
    of = np.full(len(jobs), -1) if clocks is None else clocks
    times = np.zeros(max(int(of.max(initial=0)) + 1, 1), np.int64)
    _place(
        order, jobs.sizes, jobs.demands, jobs.capacity, machines, first, beyond, of, times,
        schedule.starts, schedule.machines,
    )  # fmt: skip
    return schedule


@compiled
def _place(
    order: Integers,
    sizes: Integers,
    demands: Integers,
    capacity: int,
    machines: int,
    first: Integers,
    beyond: Integers,
    clock_of: Integers,
    clocks: Integers,
    starts: Integers,
    where: Integers,
) -> None:
    # A job holds at least one unit: no machine runs more of them than it has units.
    most = min(order.shape[0], capacity)
    ends = np.empty((machines, most), np.int64)
    running = np.empty((machines, most), np.int64)
    count = np.zeros(machines, np.int64)
    used = np.zeros(machines, np.int64)
    last = np.zeros(machines, np.int64)
    for job in order:
        best = 1 << 62
        machine = 0
        clock = clocks[clock_of[job]] if clock_of[job] >= 0 else 0
        for number in range(first[job], beyond[job]):
            start = max(last[number], clock)
            held = used[number]
            slot = 0
            while slot < count[number] and (ends[number, slot] <= start or held + demands[job] > capacity):
                start = max(start, ends[number, slot])
                held -= demands[running[number, slot]]
                slot += 1
            if start < best:
                best = start
                machine = number
        gone = 0
        while gone < count[machine] and ends[machine, gone] <= best:
            used[machine] -= demands[running[machine, gone]]
            gone += 1
        for slot in range(gone, count[machine]):
            ends[machine, slot - gone] = ends[machine, slot]
            running[machine, slot - gone] = running[machine, slot]
        count[machine] = insert(ends[machine], running[machine], count[machine] - gone, best + sizes[job], job)
        used[machine] += demands[job]
        last[machine] = best
        if clock_of[job] >= 0:
            clocks[clock_of[job]] = best
        starts[job] = best
        where[job] = machine
