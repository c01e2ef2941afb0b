"""One machine: partial schedules of doubling length, each by strip packing (Naghshnejad 2019, section 3.3.3, M = 1).

Called through `algorithms` and by the experiment. For L = 1, 2, 4, ... as many jobs as any schedule could complete by L
are chosen and packed into 3 L slots; the packings follow each other, each without the jobs that came before. A 12
approximation (Theorem 3).

Departures from the print. The choice is a knapsack with equal profits, so the smallest volumes are an exact answer, and
the paper's factor 1 + epsilon is not needed. The paper packs into height 2 by Steinberg and cuts that into three strips
of length L. Packing by levels needs at most 2 (area) + (longest) <= 3 L as well (`strip_packing`), the bound of Lemma
5. A packing ends where its last job ends instead of being filled up to 3 L.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_lab.offline.job_list import JobList
from cotide_lab.offline.lists.list_scheduling import on_given
from cotide_lab.offline.schedule import Schedule
from cotide_lab.offline.strip_packing import pack_levels


def single_machine(jobs: JobList, *, compact: bool = False) -> Schedule:
    """Schedule all jobs on one machine.

    Parameters
    ----------
    compact : take the jobs in order of their starts and let each start as early as it can. None starts later: the jobs
        before it hold no more of any slot from its start on than they did. The guarantee stays.
    """
    starts = np.full(len(jobs), -1, np.int64)
    begin = 0
    length = 1
    while (starts < 0).any():
        chosen = completable(jobs, length)
        fresh = chosen[starts[chosen] < 0]
        packed, lasts = pack_levels(jobs.taken(fresh))
        starts[fresh] = begin + packed
        begin += lasts
        length *= 2
    machines = np.zeros(len(jobs), np.int64)
    if compact:
        return on_given(jobs, 1, np.argsort(starts, kind="stable"), machines)
    return Schedule(starts, machines)


def completable(jobs: JobList, length: int) -> Integers:
    """Return the largest set of jobs with sizes up to ``length`` and no more volume than the machine has by then.

    At least as many as any schedule completes by ``length`` (Naghshnejad 2019, Lemma 5).
    """
    order = np.argsort(jobs.volumes, kind="stable")
    order = order[jobs.sizes[order] <= length]
    # Whole capacities: the product could leave 64 bits, the quotient cannot.
    needed = -(-np.cumsum(jobs.volumes[order]) // jobs.capacity)
    return order[needed <= length]
