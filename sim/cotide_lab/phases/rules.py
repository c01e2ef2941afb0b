"""The rules side by side: what each holds for a task, and how it chooses.

Called by `world`. All run on the same kernel and see the same stated profiles; they differ in their model of a task:

    phases      each phase with its own need, by the utility of Zhang and Boutaba 2014 and how little a job has left
    printed     the same by the utility as the paper prints it, with the distance from the fair share as eq. 15: a grant
                beyond the fair share that saves too little is declined
    drf         each phase with its own need, the lowest dominant share first
    fifo        each phase with its own need, the job that came first
    task        one need for the whole task, the largest of its phases, the lowest dominant share first (YARN)
    task-utility  the same need, by our utility: what the order alone is worth
    task-fifo   the same need, the job that came first
    slots       map and reduce slots of one size, the fewest slots first (Hadoop 0.20 with its fair scheduler)

A phase that is given less than it truly needs runs slower in proportion, by its scarcest resource. Every rule may cap
the cpu of a task at a part of its largest need (``size``), as people set containers of YARN: phases that need more run
slower, and more tasks run at once. Memory is held in full, since too little of it kills a task.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.phases.profile import Phase, Profile
from cotide_lab.phases.utility import ARRIVAL, DISTANCE, DOMINANT_SHARE, UTILITY, Weights
from cotide_lab.phases.workload import Stage, Workload

PHASES: Final = "phases"
TASK: Final = "task"
PRINTED: Final = "printed"
FIFO: Final = "fifo"
TASK_FIFO: Final = "task-fifo"
TASK_UTILITY: Final = "task-utility"
DRF: Final = "drf"
SLOTS: Final = "slots"
RULES: Final = (PHASES, PRINTED, DRF, FIFO, TASK, TASK_UTILITY, TASK_FIFO, SLOTS)
BY_PHASE: Final = (PHASES, PRINTED, DRF, FIFO)
SAME_ORDER: Final = {PHASES: TASK_UTILITY, DRF: TASK, FIFO: TASK_FIFO}
"""Which rule of whole tasks serves jobs in the same order as a rule of phases: what holding less is worth, and no more.
"""
CPU: Final = 0
Group = tuple[int, Profile, int]


def weights_of(rule: str, weights: Weights) -> Weights:
    """Return the weights of a rule: ours, those of the paper, or those of a rule without a utility."""
    if rule == PRINTED:
        return weights._replace(rule=UTILITY, shortness=0.0, measure=DISTANCE)
    if rule in (FIFO, TASK_FIFO):
        return weights._replace(rule=ARRIVAL)
    return weights._replace(rule=UTILITY if rule in (PHASES, TASK_UTILITY) else DOMINANT_SHARE)


def groups_of(rule: str, workload: Workload, size: float = 1.0) -> tuple[list[Group], Integers]:
    """Return the groups as the rule sees them, with the time that each phase then takes, and the nodes' capacity.

    Parameters
    ----------
    size : the most cpu that a task holds, as a share of the largest need of its phases, in (0, 1]; of slots that of the
        largest task.
    """
    if rule == SLOTS:
        return _slots(workload, size)
    largest = workload.capacity.max(axis=0)
    known: dict[tuple[int, int], Profile] = {}
    groups = []
    for stage in workload.stages:
        key = (id(stage.true), id(stage.stated))
        if key not in known:
            known[key] = _held(stage, largest, size, by_phase=rule in BY_PHASE)
        groups.append((stage.job, known[key], stage.tasks))
    return groups, workload.capacity


def _held(stage: Stage, largest: Integers, size: float, *, by_phase: bool) -> Profile:
    stated = stage.stated or stage.true
    needs = [
        tuple(min(number, int(most)) for number, most in zip(phase.need, largest, strict=True))
        for phase in stated.phases
    ]
    most = _sized(tuple(max(column) for column in zip(*needs, strict=True)), size)
    needs = [
        tuple(min(number, cap) for number, cap in zip(need, most, strict=True)) if by_phase else most for need in needs
    ]
    phases = tuple(
        Phase(phase.name, need, slowed(phase, need)) for phase, need in zip(stage.true.phases, needs, strict=True)
    )
    return Profile(phases) if by_phase else Profile(phases).as_one()


def _sized(need: tuple[int, ...], size: float) -> tuple[int, ...]:
    return tuple(max(1, int(size * number)) if index == CPU else number for index, number in enumerate(need))


def slowed(phase: Phase, given: tuple[int, ...]) -> int:
    """Return the milliseconds of a phase that is given some amounts."""
    speed = min((have / need for have, need in zip(given, phase.need, strict=True) if need > have), default=1.0)
    return max(1, round(phase.milliseconds / speed))


def _slots(workload: Workload, size: float) -> tuple[list[Group], Integers]:
    """Cut nodes into slots that the largest task fits into; maps and reduces share them by their work."""
    needs = np.array([stage.true.largest() for stage in workload.stages])
    slot = _sized(tuple(needs.max(axis=0).tolist()), size)
    length = np.array([sum(slowed(phase, slot) for phase in stage.true.phases) for stage in workload.stages])
    work = length * np.array([stage.tasks for stage in workload.stages])
    reduces = np.array([stage.reduces for stage in workload.stages])
    slots = (workload.capacity // np.array(slot)).min(axis=1)
    share = float(work[reduces].sum() / work.sum()) if len(work) else 0.0
    for_reduces = np.clip(np.rint(slots * share), min(1, int(reduces.any())), slots - 1).astype(np.int64)
    groups = [
        (stage.job, Profile((Phase("task", (0, 1) if stage.reduces else (1, 0), int(whole)),)), stage.tasks)
        for stage, whole in zip(workload.stages, length, strict=True)
    ]
    return groups, np.stack([slots - for_reduces, for_reduces], axis=1)
