"""A finished schedule, what is measured on it, and the judge of its feasibility.

Called with the outcome of every algorithm. Last step of the flow. Invariant: the judge shares no code with the timeline
that placed the jobs; it sweeps over all starts and ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.array_types import Integers
from cotide_lab.offline.job_list import JobList


@dataclass(frozen=True, slots=True)
class Schedule:
    """Where and when each job runs, without interruption.

    Attributes
    ----------
    starts : (n,) slot of the start, >= 0.
    machines : (n,) number of the machine, from 0.
    """

    starts: Integers
    machines: Integers


def total_completion(jobs: JobList, schedule: Schedule) -> int:
    """Return the objective: the sum of all completion times, in slots."""
    return int((schedule.starts + jobs.sizes).sum())


def stretches(jobs: JobList, schedule: Schedule) -> npt.NDArray[np.float64]:
    """Return (n,) completion over size, >= 1 (Naghshnejad 2019, section 3.4.2): all jobs are there at time 0."""
    return (schedule.starts + jobs.sizes) / jobs.sizes


def first_fault(jobs: JobList, machines: int, schedule: Schedule) -> str | None:
    """Return what makes a schedule infeasible, or None if it is feasible (Naghshnejad 2019, section 3.2.1)."""
    if schedule.starts.shape != jobs.sizes.shape or schedule.machines.shape != jobs.sizes.shape:
        return f"{len(schedule.starts)} starts and {len(schedule.machines)} machines for {len(jobs)} jobs"
    early = schedule.starts < 0
    if early.any():
        return f"job {int(np.argmax(early))} starts before time 0"
    nowhere = (schedule.machines < 0) | (schedule.machines >= machines)
    if nowhere.any():
        return f"job {int(np.argmax(nowhere))} runs on no machine of 0 to {machines - 1}"
    times = np.concatenate([schedule.starts, schedule.starts + jobs.sizes])
    where = np.concatenate([schedule.machines, schedule.machines])
    change = np.concatenate([jobs.demands, -jobs.demands])
    # By machine, by time, ends before starts; each machine's changes add up to nothing, so one running sum serves all.
    order = np.lexsort((change, times, where))
    held = np.cumsum(change[order])
    over = held > jobs.capacity
    if over.any():
        index = order[int(np.argmax(over))]
        return f"machine {where[index]} holds {held[np.argmax(over)]} of {jobs.capacity} units at time {times[index]}"
    return None
