"""The events of a run before any scheduling decision: services and arrivals of jobs, as frozen values.

Made by `generated` and `traced` from a seed; carried out by `world` in virtual time and by the demo through the
Kubernetes API. Invariant: one plan serves every compared policy; it does not depend on any decision.
"""

from __future__ import annotations

from dataclasses import dataclass

from cotide_core.classes import WorkloadClass


@dataclass(frozen=True, slots=True)
class PlannedService:
    """An online service.

    Attributes
    ----------
    replicas : pods that share its load evenly.
    millicores, memory_bytes : requested by each pod.
    limit_milliseconds : its p95 limit.
    rates : requests/s of each *pod* at each step, linear between, from the start of the run.
    rates_step_seconds : simulated seconds between two rates.
    exclusive : whether its pods need nodes without another online service (``spec.exclusive``, the rule of Ou 2024).
    used_millicores : cpu usage of each pod at each of the same steps, independent of its request; empty: by its rates.
    rates_before : requests/s of each pod at the steps before the start of the run, the oldest first; empty where
        unknown. A metrics source would remember them; they are not played.
    """

    name: str
    replicas: int
    millicores: int
    memory_bytes: int
    limit_milliseconds: float
    rates: tuple[float, ...]
    rates_step_seconds: float
    exclusive: bool = False
    used_millicores: tuple[float, ...] = ()
    rates_before: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A finite job of ``completions`` identical pods, all submitted at once.

    Attributes
    ----------
    at_seconds : arrival, simulated seconds from the start of the run.
    type, input_bytes : of each pod: the inputs of predictors.
    priority : ``spec.priority``, 0-1000.
    millicores, memory_bytes : requested by each pod.
    lone_seconds : true run time of a pod on an idle node; predictors never see it.
    requested_seconds : the user's estimate, None for none.
    """

    name: str
    at_seconds: float
    workload_class: WorkloadClass
    type: str
    input_bytes: int
    priority: int
    completions: int
    millicores: int
    memory_bytes: int
    isolated_seconds: float
    requested_seconds: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """Services from the start, jobs in order of arrival, and the length of the run in simulated seconds."""

    services: tuple[PlannedService, ...]
    jobs: tuple[PlannedJob, ...]
    duration_seconds: float

    @property
    def offered_core_seconds(self) -> float:
        """Isolated work of all jobs: cores times seconds."""
        return sum(job.completions * job.millicores * job.isolated_seconds / 1000.0 for job in self.jobs)
