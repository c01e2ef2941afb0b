"""HYBRID: high-demand jobs and the others on machines of their own (seed 002, section 3.3.3, M >= 2).

Called through `algorithms` and by the experiment. Jobs of more than half a machine can never share one, so they run one
at a time, shortest first, on M1 machines; all others by SVF-EF on the remaining ones. A 5 + O(1/M) approximation
(Theorem 3).

As printed M1 = floor((M-2)/4) + 1 and M2 = floor(3(M-2)/4) + 1, which add up to M only where M - 2 is a multiple of 4;
otherwise one machine would stand idle. It goes to the low-demand jobs: both factors of the proof fall with M1 and M2.
"""

from __future__ import annotations

import numpy as np

from cotide_core.approximation.job_list import JobList, require_machines
from cotide_core.approximation.list_scheduling import earliest_feasible
from cotide_core.approximation.orders import shortest_job_first, smallest_volume_first
from cotide_core.approximation.schedule import Schedule, total_completion


def machine_shares(machines: int) -> tuple[int, int]:
    """Return how many machines run high-demand and low-demand jobs (M1 and M2, which add up to M)."""
    require_machines(machines, least=2)
    high = (machines - 2) // 4 + 1
    return high, machines - high


def hybrid(jobs: JobList, machines: int, *, relist: bool = False) -> Schedule:
    """Schedule all jobs; machines 0 to M1 - 1 run the high-demand ones. At least two machines.

    Parameters
    ----------
    relist : take the jobs once more in order of their starts, by EF over all machines together, and keep whichever
        schedule is cheaper: the guarantee stays, and no machine idles while the other set waits. Not in the paper.
    """
    schedule = _apart(jobs, machines)
    if not relist:
        return schedule
    together = earliest_feasible(jobs, machines, np.argsort(schedule.starts, kind="stable"))
    return min(schedule, together, key=lambda one: total_completion(jobs, one))


def _apart(jobs: JobList, machines: int) -> Schedule:
    high_machines, low_machines = machine_shares(machines)
    is_high = 2 * jobs.demands > jobs.capacity
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
