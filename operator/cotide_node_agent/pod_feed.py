"""What the API server knows of this node: which of its pods are batch or gratis, and what the operator published.

Called by `service`. Classes come from the label that the operator writes on each pod that it binds, within what the
namespace may claim. A pod without it is a service's. When the API server is away, the last known pods remain valid: a
uid never comes again, and an unknown new pod has the kernel's defaults. The published room is no longer trusted then.
"""

from __future__ import annotations

import logging
from typing import Final

from cotide_core.classes import CLASS_LABEL, CLASSES, WorkloadClass
from cotide_core.errors import InputError
from cotide_core.units import CPU, RECLAIMED_CPU, RECLAIMED_MEMORY, resource_amount
from cotide_kube.client import KubeClient
from cotide_kube.objects import NodeObject, PodObject, PodSpec, Quantity
from cotide_kube.reflector import Reflector
from cotide_node_agent.agent import BatchPod

_LOG = logging.getLogger(__name__)

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
"""On the mirror of a static pod. Writing it on one's own pod gains nothing: kubelets delete such a pod."""
MILLICORES: Final = 1000


class PodFeed:
    """Follows the pods of one node, and the node.

    Parameters
    ----------
    client : KubeClient
    node : str
        Its name.
    """

    def __init__(self, client: KubeClient, node: str) -> None:
        self._pods = Reflector(client, "/api/v1/pods", PodObject, field_selector=f"spec.nodeName={node}")
        self._nodes = Reflector(client, "/api/v1/nodes", NodeObject, field_selector=f"metadata.name={node}")
        self._published = 0.0
        self.batch: dict[str, BatchPod] = {}
        """By uid, as a kubelet names the pod's control group."""
        self.capacity_cpus: float | None = None
        """None until the node was seen."""

    @property
    def published_cpus(self) -> float:
        """Room that the operator published, 0 while the API server cannot confirm it."""
        return 0.0 if self._nodes.failures else self._published

    async def follow_pods(self) -> None:
        """Keep `batch` up to date; never ends on its own."""
        async for change in self._pods:
            if change.object is None:
                continue
            known = None if change.kind == "DELETED" else batch_pod(change.object)
            if known is not None:
                self.batch[known.uid] = known
            else:
                self.batch.pop(change.object.metadata.uid, None)

    async def follow_node(self) -> None:
        """Keep capacity and what is published up to date; never ends on its own."""
        async for change in self._nodes:
            if change.object is None or change.kind == "DELETED":
                continue
            status = change.object.status
            self.capacity_cpus = _amount(CPU, status.capacity) / MILLICORES or None
            self._published = _amount(RECLAIMED_CPU, status.allocatable) / MILLICORES


def batch_pod(pod: PodObject) -> BatchPod | None:
    """Return what the agent needs to know about a batch or gratis pod; None for any other, and for one that has ended.

    Static pods are services whatever their labels are, as they are to the operator. A kubelet names their groups by an
    annotation, ``kubernetes.io/config.hash``. The agent ignores it, since on any other pod its author writes it and
    could name the group of another user's service.
    """
    if MIRROR_ANNOTATION in pod.metadata.annotations:
        return None
    decided = CLASSES.get(pod.metadata.labels.get(CLASS_LABEL, ""))
    if decided in (None, WorkloadClass.ONLINE) or pod.status.phase in ("Succeeded", "Failed"):
        return None
    asked = {resource: _asked(resource, pod.spec) for resource in (CPU, RECLAIMED_CPU, RECLAIMED_MEMORY)}
    return BatchPod(
        pod.metadata.uid,
        decided is WorkloadClass.GRATIS,
        asked[CPU] / MILLICORES,
        asked[RECLAIMED_CPU] / MILLICORES,
        asked[RECLAIMED_MEMORY],
    )


def _asked(resource: str, spec: PodSpec) -> int:
    """Return a pod's request as its node counts it: less would take from its init containers what is theirs.

    Containers and sidecars together, or an init container together with the sidecars before it, if that is more. A
    request of the whole pod replaces it.
    """
    if spec.resources is not None and resource in spec.resources.requests:
        return _amount(resource, spec.resources.requests)
    sidecars = most = 0
    for container in spec.init_containers:
        amount = _amount(resource, container.resources.requests)
        if container.restart_policy == "Always":
            sidecars += amount
        else:
            most = max(most, sidecars + amount)
    return max(most, sidecars + sum(_amount(resource, container.resources.requests) for container in spec.containers))


def _amount(resource: str, amounts: dict[str, Quantity]) -> int:
    try:
        return int(resource_amount(resource, amounts.get(resource, "0")))
    except InputError as error:
        _LOG.debug("an amount of %s is skipped: %s", resource, error)
        return 0
