"""Whether a schedule could have happened and kept its promises; every replay is put through it.

Called by `cotide simulate` and by tests. Pure. Invariant: knows nothing of how the schedule was made.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_lab.trace_replay.kernels.easy import BY_SUBMIT, NO_BACKFILL
from cotide_lab.trace_replay.policies import POLICIES
from cotide_lab.trace_replay.runner import Schedule
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

PLANS: Final = ("plan", "least-work", "drawn")
"""Kernels that plan all jobs again in each round, and promise nothing."""


def faults_of(jobs: BatchJobs, schedule: Schedule) -> list[str]:
    """Return what is impossible or broken about a schedule, a sentence each with the first job concerned.

    Checked: every job starts, and none before its submission. No moment uses more processors than there are; a job that
    ends frees its own for the jobs that start at that moment. A promised start holds under policies in order of
    submission, while no job exceeds its forecast. No job overtakes where the policy forbids it.
    """
    faults = []
    start = schedule.start
    early = start < jobs.submit
    if early.any():
        faults.append(f"job {_first(jobs, early)} starts before it was submitted, or never")
    times = np.concatenate([start + jobs.run, start])
    amounts = np.concatenate([-jobs.demand, jobs.demand])
    kinds = np.repeat(np.array([0, 1]), len(jobs))
    order = np.lexsort((kinds, times))
    used = np.cumsum(amounts[order])
    over = used > jobs.processors
    if over.any():
        at = int(np.argmax(over))
        faults.append(f"{used[at]} of {jobs.processors} processors in use at {times[order[at]]} s")
    policy = POLICIES.get(schedule.policy)
    # Of a policy from a user's file nothing else is known that it would have to keep.
    if policy is None or policy.order != BY_SUBMIT or policy.kernel in PLANS:
        return faults
    if (schedule.forecast >= jobs.run).all():
        late = (schedule.promise >= 0) & (start > schedule.promise)
        if late.any():
            faults.append(f"job {_first(jobs, late)} starts later than it was promised")
    if policy.kernel == "queue" and policy.backfill == NO_BACKFILL:
        overtaken = np.zeros(len(jobs), dtype=np.bool_)
        overtaken[1:] = start[1:] < start[:-1]
        if overtaken.any():
            faults.append(f"job {_first(jobs, overtaken)} overtakes the one before it")
    return faults


def _first(jobs: BatchJobs, cases: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> int:
    return int(jobs.numbers[int(np.argmax(cases))])
