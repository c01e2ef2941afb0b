"""HYBRID: high-demand jobs and the others on machines of their own (Naghshnejad 2019, section 3.3.3, M >= 2).

Called through `algorithms` and by the experiment. Jobs of more than half a machine can never share one, so they run one
at a time, shortest first, on M1 machines; all others by SVF-EF on the remaining ones. A 5 + O(1/M) approximation
(Theorem 3).

As printed, M1 = floor((M-2)/4) + 1 and M2 = floor(3(M-2)/4) + 1. They add up to M only where M - 2 is a multiple of 4;
otherwise one machine would stand idle. It goes to the low-demand jobs: both factors of the proof fall with M1 and M2.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cotide_core.planning.high_demand_partition import machine_shares
from cotide_lab.offline.job_list import JobList
from cotide_lab.offline.lists.list_scheduling import earliest_feasible
from cotide_lab.offline.orders import shortest_job_first, smallest_volume_first
from cotide_lab.offline.schedule import Schedule, total_completion


def hybrid(jobs: JobList, machines: int, *, relist: bool = False) -> Schedule:
    """Schedule all jobs; machines 0 to M1 - 1 run the high-demand ones. At least two machines.

    Parameters
    ----------
    relist : also take all jobs by EF over all machines together, in three orders, and keep the cheapest schedule: by
        their starts, by volume (SVF-EF), and by volume with high demands counted as a whole machine. The guarantee
        stays, and SVF-EF is never better. Not in the paper.
    """
    schedule = _apart(jobs, machines)
    if not relist:
        return schedule
    orders = (
        np.argsort(schedule.starts, kind="stable"),
        smallest_volume_first(jobs),
        np.argsort(np.where(high_demand(jobs), jobs.capacity * jobs.sizes, jobs.volumes), kind="stable"),
    )
    together = [earliest_feasible(jobs, machines, order) for order in orders]
    return min((schedule, *together), key=lambda one: total_completion(jobs, one))


def high_demand(jobs: JobList, *, from_half: bool = False) -> npt.NDArray[np.bool_]:
    """Return (n,) which jobs ask for more than half a machine; ``from_half``: or for just half."""
    return 2 * jobs.demands > jobs.capacity - int(from_half)


def _apart(jobs: JobList, machines: int) -> Schedule:
    high_machines, low_machines = machine_shares(machines)
    is_high = high_demand(jobs)
    high, low = np.flatnonzero(is_high), np.flatnonzero(~is_high)
    schedule = Schedule(np.empty(len(jobs), np.int64), np.empty(len(jobs), np.int64))
    # Two high-demand jobs never fit together: with their own demands EF does just what it does with whole machines.
    some = jobs.taken(high)
    part = earliest_feasible(some, high_machines, shortest_job_first(some))
    schedule.starts[high], schedule.machines[high] = part.starts, part.machines
    some = jobs.taken(low)
    part = earliest_feasible(some, low_machines, smallest_volume_first(some))
    schedule.starts[low], schedule.machines[low] = part.starts, part.machines + high_machines
    return schedule
