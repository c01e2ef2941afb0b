"""The pods of a plan: the description for the engine, and the real load.

Called by `world` when a service starts or a job arrives; the live demo makes manifests of the same plan instead. Pure.
Invariant: a pod's load and its requests come from the same planned values; predictors see the requests only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from cotide_core.classes import WorkloadClass
from cotide_core.events import Pod
from cotide_core.units import CPU, MEMORY, RECLAIMED_CPU, RECLAIMED_MEMORY
from cotide_sim.cluster.machine import PodLoad
from cotide_sim.workloads.plan import PlannedJob, PlannedService

NAMESPACE: Final = "demo"


@dataclass(frozen=True, slots=True)
class PlannedPod:
    """A pod's description for the engine, and its real load."""

    pod: Pod
    load: PodLoad

    def again(self, now: float) -> PlannedPod:
        """Return the replacement of an evicted pod."""
        name = f"{self.pod.key}-again"
        return PlannedPod(self.pod._replace(key=name, uid=name, created_seconds=now), replace(self.load, key=name))


def pods_of_service(service: PlannedService, now: float) -> list[PlannedPod]:
    """Return the replicas of a service that starts now."""
    key = f"{NAMESPACE}/{service.name}"
    requests = ((CPU, service.millicores), (MEMORY, service.memory_bytes))
    pods = []
    for number in range(service.replicas):
        name = f"{key}-{number}"
        pod = Pod(name, name, WorkloadClass.ONLINE, requests, now, ours=True, workload=key)
        load = PodLoad(
            name,
            WorkloadClass.ONLINE,
            service.millicores,
            service.memory_bytes,
            rates=service.rates,
            rates_step_seconds=service.rates_step_seconds,
            used_millicores=service.used_millicores,
        )
        pods.append(PlannedPod(pod, load))
    return pods


def pods_of_job(job: PlannedJob, now: float, *, reclaimed: bool) -> list[PlannedPod]:
    """Return the pods of a job that arrives now; ``reclaimed``: they request reclaimed capacity instead of plain
    capacity.
    """
    key = f"{NAMESPACE}/{job.name}"
    cpu, memory = (RECLAIMED_CPU, RECLAIMED_MEMORY) if reclaimed else (CPU, MEMORY)
    pods = []
    for number in range(job.completions):
        name = f"{key}-{number}"
        pod = Pod(
            name,
            name,
            job.workload_class,
            ((cpu, job.millicores), (memory, job.memory_bytes)),
            now,
            ours=True,
            job=key,
            job_priority=job.priority,
            type=job.type,
            input_bytes=job.input_bytes,
            requested_seconds=job.requested_seconds,
        )
        load = PodLoad(
            name,
            job.workload_class,
            job.millicores,
            job.memory_bytes,
            type=job.type,
            input_bytes=job.input_bytes,
            isolated_seconds=job.isolated_seconds,
        )
        pods.append(PlannedPod(pod, load))
    return pods
