"""Builders of what the simulator is given to run."""

from __future__ import annotations

from cotide_core.classes import WorkloadClass
from cotide_sim.workloads.plan import PlannedJob


def planned_job(
    name: str,
    at: float,
    seconds: float,
    millicores: int = 8000,
    cls: WorkloadClass = WorkloadClass.BATCH,
    completions: int = 1,
) -> PlannedJob:
    """A Job of pods of a gibibyte that arrives at a time and runs so long where it is alone; nobody estimated it."""
    return PlannedJob(name, at, cls, "grep", 10**9, 100, completions, millicores, 1 << 30, seconds, None)
