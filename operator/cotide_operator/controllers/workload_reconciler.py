"""What a Workload needs next: a pure comparison of the wanted with the observed state.

`controllers` calls it for each Workload with changed pods, spec or decisions. A Workload with a template runs the pods
``<name>-0`` to ``<name>-<replicas - 1>``, as a StatefulSet names them. A fixed name makes creation idempotent (a
restarted operator can't run a pod twice) and keeps a service's series together in dashboards. So an ended pod is
deleted before its successor is made. A Workload with a selector only labels the pods it adopts. Invariant: at most one
outdated pod is deleted at a time, and only while all others are ready.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cotide_operator.apis.types import WorkloadSpec
from cotide_operator.controllers.child_pods import ChildPod, template_hash

RETRY_BASE_SECONDS: Final = 1.0
"""Wait before the second successor of an index in a row; chosen: a refusal by one kubelet is often over at once."""
RETRY_MAX_SECONDS: Final = 60.0
"""Chosen: a pod that every node refuses must not be made and deleted all the time."""


@dataclass(slots=True)
class ReconcilerCache:
    """State that the controller keeps between two reconciliations, and may lose in a restart."""

    losses: dict[int, int] = field(default_factory=dict)
    """Number of an index's pods that ended in a row without being ready."""
    counted: set[str] = field(default_factory=set)
    """Uids of ended pods that are in ``losses`` already."""
    not_before: dict[int, float] = field(default_factory=dict)
    """Clock second by index, before which no successor is made."""


@dataclass(frozen=True, slots=True)
class WorkloadPlan:
    """Pods to make (by index) and to delete."""

    make: tuple[int, ...] = ()
    delete: tuple[ChildPod, ...] = ()
    recheck_seconds: float | None = None


def replicas_of(spec: WorkloadSpec) -> int:
    """Return how many pods a Workload with a template wants."""
    return 1 if spec.replicas is None else spec.replicas


def plan_workload(
    spec: WorkloadSpec, pods: Sequence[ChildPod], memory: ReconcilerCache, now_seconds: float
) -> WorkloadPlan:
    """Return the next steps of a Workload that runs its own pods; empty for one that adopts.

    Parameters
    ----------
    spec : WorkloadSpec
        The wanted state.
    pods : sequence of ChildPod
        All its own children.
    memory : ReconcilerCache
        The state of this Workload; changed in place.
    now_seconds : float
        The operator's clock.
    """
    if spec.template is None:
        return WorkloadPlan()
    wanted = replicas_of(spec)
    _count_losses(pods, memory, now_seconds)
    delete = [pod for pod in pods if (pod.done or pod.index >= wanted) and not pod.deleting]
    present = {pod.index for pod in pods}
    make: list[int] = []
    waits: list[float] = []
    for index in range(wanted):
        if index in present:
            continue
        earliest = memory.not_before.get(index, now_seconds)
        if earliest > now_seconds:
            waits.append(earliest)
        else:
            make.append(index)
    if not make and not waits and not delete:
        delete = _outdated(spec, [pod for pod in pods if pod.index < wanted])
    return WorkloadPlan(tuple(make), tuple(delete), min(waits, default=None))


def _count_losses(pods: Sequence[ChildPod], memory: ReconcilerCache, now_seconds: float) -> None:
    """Count pods that ended, once each; one that became ready clears its index."""
    for pod in pods:
        if pod.ready:
            memory.losses.pop(pod.index, None)
            memory.not_before.pop(pod.index, None)
        elif pod.done and pod.uid not in memory.counted:
            losses = memory.losses[pod.index] = memory.losses.get(pod.index, 0) + 1
            if losses > 1:
                doublings = min(losses - 2, 10)  # 1 s * 2^10 is far beyond the maximum
                memory.not_before[pod.index] = now_seconds + min(RETRY_MAX_SECONDS, RETRY_BASE_SECONDS * 2.0**doublings)
    memory.counted = {pod.uid for pod in pods if pod.done}


def _outdated(spec: WorkloadSpec, pods: Sequence[ChildPod]) -> list[ChildPod]:
    """Return at most one pod of an earlier template: one that is not ready, or the last while all are ready."""
    if spec.template is None:
        return []
    current = template_hash(spec.template)
    old = [pod for pod in pods if pod.template != current]
    idle = [pod for pod in old if not pod.ready]
    if any(pod.deleting for pod in pods):
        return []
    if idle:
        return idle[-1:]
    return old[-1:] if all(pod.ready for pod in pods) else []
