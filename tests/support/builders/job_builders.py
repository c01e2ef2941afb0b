"""Builders of a Job's next steps: its spec, its pods as seen, and the plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from child_pod_builders import child_pod

from cotide_core.queueing.stepwise import finished
from cotide_operator.apis.types import JobSpec
from cotide_operator.controllers.child_pods import ChildPod, job_pod_name
from cotide_operator.controllers.job_reconciler import JobPlan, Progress, ReconcilerCache, plan_steps
from cotide_operator.controllers.starts.start_times import DEFAULT_LIMITS, StartLimits

LIMITS = StartLimits(refused_seconds=100.0, creating_seconds=300.0)


def spec(completions: int = 3, parallelism: int = 2, backoff_limit: int = 6) -> JobSpec:
    return JobSpec.model_validate(
        {
            "completions": completions,
            "parallelism": parallelism,
            "backoffLimit": backoff_limit,
            "template": {"spec": {"containers": [{"name": "work", "image": "none"}]}},
        }
    )


def pod(index: int, phase: str = "Pending", *, retry: int = 0, **more: Any) -> ChildPod:
    """The pod of an index, or the one that was made after it failed."""
    name = job_pod_name("count", index, retry)
    return child_pod(index, phase, **{"name": name, "uid": f"uid-{name}", "retry": retry, **more})


def plan_job(
    spec: JobSpec,
    progress: Progress,
    pods: Sequence[ChildPod],
    memory: ReconcilerCache,
    now_seconds: float,
    limits: StartLimits = DEFAULT_LIMITS,
) -> JobPlan:
    """All the steps at once."""
    return finished(plan_steps(spec, progress, pods, memory, now_seconds, limits))


def plan(
    pods: list[ChildPod], *, progress: Progress | None = None, memory: ReconcilerCache | None = None, **wanted: int
) -> JobPlan:
    return plan_job(spec(**wanted), progress or Progress(), pods, memory or ReconcilerCache(), now_seconds=1000.0)


class Reconciler:
    """A Job of one pod, looked at again and again; its pods have the times of `LIMITS` to start."""

    def __init__(self, backoff_limit: int = 6, completions: int = 1) -> None:
        self.memory, self.progress = ReconcilerCache(), Progress()
        self._spec = spec(completions, completions, backoff_limit)

    def at(self, seconds: float, *pods: ChildPod) -> JobPlan:
        found = plan_job(self._spec, self.progress, list(pods), self.memory, seconds, LIMITS)
        self.progress = found.progress
        return found
