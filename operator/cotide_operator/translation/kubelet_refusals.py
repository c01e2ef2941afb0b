"""The node's fault in a kubelet's refusal or eviction of a pod, from the pod's status.

`event_source` calls it when a pod has failed. Pure. Source of the words: the kubelet's eviction manager and its
admission of pods (pkg/kubelet/eviction/helpers.go and pkg/kubelet/lifecycle/predicate.go of Kubernetes 1.35).
Invariant: an eviction for the pod's own limit (``emptyDir``, ephemeral storage) is no refusal, so that no tenant closes
a node that way.
"""

from __future__ import annotations

from typing import Final

from cotide_core.state.node_refusals import PRESSURES, is_of_the_node
from cotide_kube.objects import Condition, PodStatus

CLOSING_CONDITIONS: Final = (*PRESSURES, "NetworkUnavailable")
"""Conditions of a node that keep pods away while they are True."""
LONGEST_REASON: Final = 300
"""Characters of a reason that are read; chosen: a resource's name has 253 + 64 at most, and none is that long."""
EVICTED: Final = "Evicted"
_OWN_LIMITS: Final = (
    "Usage of EmptyDir volume",
    "exceeded its local ephemeral storage limit",
    "ephemeral local storage usage exceeds the total limit of containers",
)
_LOW: Final = "The node was low on resource: "
_HAD: Final = "The node had condition: "
_OF_RESOURCE: Final = {
    "memory": "MemoryPressure",
    "ephemeral-storage": "DiskPressure",
    "inodes": "DiskPressure",
    "pids": "PIDPressure",
}


def refusal_of(status: PodStatus) -> str | None:
    """Return the node's fault in a kubelet's message about a pod, or None if the message names none."""
    if status.phase != "Failed" or len(status.reason) > LONGEST_REASON:
        return None
    if status.reason == EVICTED:
        return _pressure(status.message)
    return status.reason if is_of_the_node(status.reason) else None


def pressures(conditions: tuple[Condition, ...]) -> tuple[str, ...]:
    """Return the conditions of a node that keep pods away now, sorted."""
    return tuple(
        sorted(
            {
                condition.type
                for condition in conditions
                if condition.type in CLOSING_CONDITIONS and condition.status == "True"
            }
        )
    )


def exceeded_its_own_limit(status: PodStatus) -> bool:
    """Whether a kubelet evicted a pod for more storage than its limit: no fault of the node."""
    return status.reason == EVICTED and any(words in status.message for words in _OWN_LIMITS)


def _pressure(message: str) -> str | None:
    _, low, rest = message.partition(_LOW)
    if low:
        return _OF_RESOURCE.get(rest[:64].partition(".")[0].strip())
    _, had, rest = message.partition(_HAD)
    if not had:
        return None
    named = rest[:128].partition("]")[0].lstrip("[").replace(",", " ").split()
    return next((text for text in named if text in PRESSURES), None)
