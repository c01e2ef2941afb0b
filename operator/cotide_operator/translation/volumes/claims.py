"""The claims of a pod, and the demands of a claim on a volume.

The other modules of this package and `volume_binder` call it. Pure. Semantics: the Kubernetes documentation,
"Persistent Volumes". Invariant: an invalid claim raises `Blocked` with the reason for its owner.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from cotide_core.events import NodeTerm, OpenClaim
from cotide_core.limits import MAX_CLAIMS
from cotide_kube.objects import ClaimObject, ClaimSpec, PodObject, VolumeSpec

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""Annotation of a claim: the node for its new volume."""
BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
"""Annotation of a claim or a volume: its storage class, from before the field existed."""
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
DEMANDS_KEPT: Final = 1024
"""Different claims of one storage class with cached answers, in one generation. Chosen."""


class VolumeFacts(NamedTuple):
    """See the fields of the same names of `events.Pod`."""

    volume_terms: tuple[tuple[NodeTerm, ...], ...] = ()
    open_claims: tuple[OpenClaim, ...] = ()
    attachments: tuple[tuple[str, str], ...] = ()
    sole_claims: tuple[str, ...] = ()
    blocked: str = ""


class WaitingClaim(NamedTuple):
    """A claim that waits for its pod."""

    claim: ClaimObject
    choice: OpenClaim
    asked: int
    """Bytes."""


class Blocked(Exception):
    """The reason why a pod must wait; its owner sees the text."""


def claim_names(pod: PodObject) -> list[tuple[str, bool]]:
    """Return the key of each claim that a pod names, and whether it is of an ephemeral volume; at most the limit."""
    namespace, own = pod.metadata.namespace, pod.metadata.name
    found: dict[str, bool] = {}
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            found[f"{namespace}/{volume.persistent_volume_claim.claim_name}"] = False
        elif volume.ephemeral is not None:
            found[f"{namespace}/{own}-{volume.name}"] = True
        if len(found) > MAX_CLAIMS:
            break
    return list(found.items())


def is_bound(claim: ClaimObject) -> bool:
    """Whether claim and volume are bound to each other."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def storage_class_of(claim: ClaimObject) -> str:
    """Return the name of a claim's storage class; empty for none."""
    return claim.metadata.annotations.get(BETA_CLASS) or claim.spec.storage_class_name or ""


def lost(claim: str, volume: str) -> str:
    """Return the reason of a claim without its volume, in the words of kube-scheduler."""
    return f'persistentvolumeclaim "{claim}" bound to non-existent persistentvolume "{volume}"'


def kind_of_volume(spec: ClaimSpec | VolumeSpec) -> tuple[str, str]:
    """Return the properties that a claim and its volume must share: volume mode and class of attributes."""
    return spec.volume_mode or "Filesystem", spec.volume_attributes_class_name or ""


def entries_of_selector(selector: Any) -> int:
    """Return the number of labels and values in a selector."""
    return len(selector.match_labels) + sum(1 + len(expression.values) for expression in selector.match_expressions)
