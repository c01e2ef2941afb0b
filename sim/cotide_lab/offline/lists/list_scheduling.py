"""List scheduling: a priority order and a rule for the machine, named together as in SVF-EF (Naghshnejad 2019, 3.2.2).

Called through `algorithms` and by the experiment. Jobs are taken in order; each gets, on the machine the rule names,
the earliest start at which its demand is free for all of its size, and never moves again. A later job may therefore run
in a hole that an earlier one left.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Integers
from cotide_lab.offline.job_list import JobList, require_machines
from cotide_lab.offline.lists.earliest_feasible import place_earliest_feasible
from cotide_lab.offline.lists.given_machine import place_on_given
from cotide_lab.offline.lists.least_work import least_work_machines
from cotide_lab.offline.lists.timeline import empty_timelines
from cotide_lab.offline.orders import ORDERS, RANDOM
from cotide_lab.offline.schedule import Schedule

Assignment = Literal["ef", "lw", "random"]
ASSIGNMENTS: Final[tuple[Assignment, ...]] = ("ef", "lw", "random")


def list_schedule(
    jobs: JobList, machines: int, order: str, assignment: Assignment, generator: np.random.Generator | None = None
) -> Schedule:
    """Schedule all jobs.

    Parameters
    ----------
    machines : how many, >= 1.
    order : ``sjf``, ``sdf``, ``svf`` or ``random``.
    assignment : ``ef`` earliest feasible, ``lw`` least work, ``random``.
    generator : draws for ``random``; seed 0 when None.
    """
    require_machines(machines)
    draw = generator if generator is not None else np.random.default_rng(0)
    if order == RANDOM:
        sequence = draw.permutation(len(jobs))
    elif order in ORDERS:
        sequence = ORDERS[order](jobs)
    else:
        raise InputError(f"{order!r} is no order; choose of {', '.join((*ORDERS, RANDOM))}", field="order")
    if assignment == "ef":
        return earliest_feasible(jobs, machines, sequence)
    if assignment == "lw":
        return on_given(jobs, machines, sequence, least_work_machines(sequence, jobs.volumes, machines))
    return on_given(jobs, machines, sequence, draw.integers(0, machines, len(jobs)))


def earliest_feasible(jobs: JobList, machines: int, order: Integers) -> Schedule:
    """Schedule all jobs in a given order by EF."""
    schedule = Schedule(np.empty(len(jobs), np.int64), np.empty(len(jobs), np.int64))
    lines = empty_timelines(machines, jobs.capacity, len(jobs))
    place_earliest_feasible(lines, order, jobs.sizes, jobs.demands, schedule.starts, schedule.machines)
    return schedule


def on_given(jobs: JobList, machines: int, order: Integers, chosen: Integers) -> Schedule:
    """Schedule all jobs in a given order on machines chosen beforehand."""
    starts = np.empty(len(jobs), np.int64)
    lines = empty_timelines(machines, jobs.capacity, len(jobs))
    place_on_given(lines, order, jobs.sizes, jobs.demands, chosen, starts)
    return Schedule(starts, chosen)
