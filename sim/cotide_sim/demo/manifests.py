"""A plan's services and jobs as the manifests that are applied through the Kubernetes API.

Called by `act`. The data that fake nodes need to play a pod (its true run time, its request rates) is in
``sim.cotide.dev/`` annotations, which the operator never reads: it must predict them.
"""

from __future__ import annotations

from typing import Any, Final

from cotide_core.units import CPU, MEMORY, format_amount
from cotide_sim.workloads.plan import PlannedJob, PlannedService

NAMESPACE: Final = "demo"
API_VERSION: Final = "cotide.dev/v1alpha1"
IMAGE: Final = "registry.invalid/played-by-fake-nodes"
"""Nothing is pulled; the reserved domain makes sure of it on a real cluster, too."""

Manifest = dict[str, Any]


def service_manifest(service: PlannedService, origin_seconds: float) -> Manifest:
    """Return the Workload of a planned service; its rates start at ``origin_seconds`` of simulated time."""
    annotations = {
        "sim.cotide.dev/rates": ",".join(f"{rate:.1f}" for rate in service.rates),
        "sim.cotide.dev/rates-step-seconds": f"{service.rates_step_seconds:g}",
        "sim.cotide.dev/rates-origin-seconds": f"{origin_seconds:.3f}",
    }
    if service.used_millicores:
        annotations["sim.cotide.dev/used-millicores"] = ",".join(f"{used:.1f}" for used in service.used_millicores)
    return {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {"name": service.name, "namespace": NAMESPACE},
        "spec": {
            "replicas": service.replicas,
            "qos": {"latencyP95Milliseconds": service.limit_milliseconds},
            "exclusive": service.exclusive,
            "template": {
                "metadata": {"labels": {"app": service.name}, "annotations": annotations},
                "spec": _pod_spec("serve", service.millicores, service.memory_bytes, "Always"),
            },
        },
    }


def job_manifest(job: PlannedJob) -> Manifest:
    """Return the Job of a planned job; its true lone run time is known to the fake nodes only."""
    spec: Manifest = {
        "class": job.workload_class.value,
        "type": job.type,
        "inputSize": str(job.input_bytes),
        "priority": job.priority,
        "completions": job.completions,
        "parallelism": job.completions,
        "template": {
            "metadata": {"annotations": {"sim.cotide.dev/lone-seconds": f"{job.isolated_seconds:.3f}"}},
            "spec": _pod_spec("work", job.millicores, job.memory_bytes, "Never"),
        },
    }
    if job.requested_seconds is not None:
        spec["requestedSeconds"] = round(job.requested_seconds, 3)
    return {
        "apiVersion": API_VERSION,
        "kind": "Job",
        "metadata": {"name": job.name, "namespace": NAMESPACE},
        "spec": spec,
    }


def _pod_spec(container: str, millicores: int, memory_bytes: int, restart_policy: str) -> Manifest:
    requests = {CPU: format_amount(CPU, millicores), MEMORY: format_amount(MEMORY, memory_bytes)}
    return {
        "restartPolicy": restart_policy,
        "containers": [{"name": container, "image": IMAGE, "resources": {"requests": requests}}],
    }
