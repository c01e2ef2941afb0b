"""A kubelet's handling of a resize: it grants, defers or permanently refuses it, and reports the result.

Called by `residents`. Pure. A request beyond the node's capacity is Infeasible. One that does not fit with the other
pods is Deferred, and retried when room is given back. One that fits is reserved at once and set a moment later::

    none --wish--> Infeasible | Deferred       condition PodResizePending; the pod keeps what it holds
      |               (a new wish, or for Deferred room that was given back: from the start)
      `--wish that fits--> in progress --RESIZE_SECONDS--> set      condition PodResizeInProgress until then

Source: k8s.io/kubernetes v1.35.4, pkg/kubelet/allocation (handlePodResourcesResize, canResizePod). Not imitated: resize
policies that restart a container, and failures to set the resources.
"""

from __future__ import annotations

from typing import Any, Final

from cotide_core.units import CPU, MEMORY
from cotide_kube.objects import PodSpec, Resources
from cotide_sim.kubelets.admission import Amounts, NodeRoom, Refusal

RESIZE_SECONDS: Final = 1.0
"""Simulated seconds from a grant until the container runs with it. Chosen: a kubelet and containerd took between half a
second and two here (tests/node).
"""
INFEASIBLE: Final = "Infeasible"
DEFERRED: Final = "Deferred"
PENDING: Final = "PodResizePending"
IN_PROGRESS: Final = "PodResizeInProgress"
Held = tuple[tuple[str, Resources], ...]
"""Containers of a pod, by name, with their held resources."""


def held_by(spec: PodSpec) -> Held:
    """Return the requests of each container of a spec."""
    return tuple((container.name, container.resources) for container in spec.containers)


def obstacle(room: NodeRoom, holds: Amounts, wanted: Amounts) -> Refusal | None:
    """Return why a pod cannot hold its wanted resources in place of the held ones, in a kubelet's wording; None when it
    can.

    ``reason`` is `INFEASIBLE` or `DEFERRED`.
    """
    for name in (MEMORY, CPU):
        if wanted.get(name, 0) > room.allocatable.get(name, 0):
            text = f"{name}, requested: {wanted[name]}, capacity: {room.allocatable.get(name, 0)}"
            return Refusal(INFEASIBLE, f"Node didn't have enough capacity: {text}")
    for name in (CPU, MEMORY):
        used = room.taken[name] - holds.get(name, 0)
        amount, capacity = wanted.get(name, 0), room.allocatable.get(name, 0)
        if amount and used + amount > capacity:
            text = f"{name}, requested: {amount}, used: {used}, capacity: {capacity}"
            return Refusal(DEFERRED, f"Node didn't have enough resource: {text}")
    return None


def conditions(pending: Refusal | None, *, in_progress: bool, at: str) -> list[dict[str, Any]]:
    """Return the conditions of a pod that was ever resized, as in a patch: conditions that no longer hold are
    deleted.
    """
    shown: list[dict[str, Any]] = []
    if pending is None:
        shown.append({"type": PENDING, "$patch": "delete"})
    else:
        why = {"reason": pending.reason, "message": pending.message}
        shown.append({"type": PENDING, "status": "True", "lastTransitionTime": at, **why})
    if in_progress:
        shown.append({"type": IN_PROGRESS, "status": "True", "lastTransitionTime": at})
    else:
        shown.append({"type": IN_PROGRESS, "$patch": "delete"})
    return shown


def as_json(resources: Resources) -> dict[str, Any]:
    """Return ``resources`` of a container's status."""
    given = {"requests": resources.requests, "limits": resources.limits}
    return {name: dict(amounts) for name, amounts in given.items() if amounts}
