"""Nodes that reach a volume: its node affinity, its zone and region, the topologies of its storage class.

`reader` and `free_volumes` call it. Pure. Semantics: kube-scheduler's plugins VolumeBinding and VolumeZone. Invariant:
a node must match one alternative of each returned tuple.
"""

from __future__ import annotations

from itertools import product
from typing import Final

from cotide_core.events import NodeTerm, Requirement
from cotide_core.limits import MAX_REQUIREMENTS
from cotide_kube.objects import ClaimObject, NodeSelector, StorageClassObject, VolumeObject
from cotide_operator.translation.node_terms import MATCHES_NOTHING, alternatives
from cotide_operator.translation.volumes.claims import Blocked, lost

_NEW_LABEL_OF: Final = {  # by the label that clouds wrote before Kubernetes 1.17
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_ZONE_LABELS: Final = (*_NEW_LABEL_OF, *_NEW_LABEL_OF.values())
"""Labels of a volume that its node must share, if nodes have any of them (VolumeZone)."""


def bound_terms(claim: ClaimObject, volume: VolumeObject | None) -> list[tuple[NodeTerm, ...]]:
    """Return the nodes that reach a bound claim: its volume's node affinity, and its zone and region."""
    if volume is None:
        raise Blocked(lost(claim.metadata.name, claim.spec.volume_name))
    required = required_nodes(volume)
    if entries(required) > MAX_REQUIREMENTS:
        name = volume.metadata.name
        raise Blocked(f'persistentvolume "{name}" has a node affinity of more than {MAX_REQUIREMENTS} entries')
    return reach(volume)


def reach(volume: VolumeObject) -> list[tuple[NodeTerm, ...]]:
    """Return the nodes that reach a volume: one of each tuple of alternatives must match."""
    required = required_nodes(volume)
    found = [alternatives(required)] if required is not None else []
    zones = [
        (key, tuple(volume.metadata.labels[key].split("__"))) for key in _ZONE_LABELS if key in volume.metadata.labels
    ]
    if zones:
        none = NodeTerm(labels=tuple(Requirement(key, "DoesNotExist") for key in _ZONE_LABELS))
        found.append(
            (none, *(NodeTerm(labels=sum(chosen, ())) for chosen in product(*(_zone(*pair) for pair in zones))))
        )
    return found


def _zone(key: str, values: tuple[str, ...]) -> list[tuple[Requirement, ...]]:
    """Return the alternatives for one label: a node without the old label needs the new one."""
    own = (Requirement(key, "In", values),)
    if key not in _NEW_LABEL_OF:
        return [own]
    return [own, (Requirement(key, "DoesNotExist"), Requirement(_NEW_LABEL_OF[key], "In", values))]


def topologies(storage_class: StorageClassObject) -> tuple[NodeTerm, ...]:
    """Return where volumes of a class may be created; empty for everywhere."""
    count = sum(
        1 + len(expression.values)
        for term in storage_class.allowed_topologies
        for expression in term.match_label_expressions
    )
    if count > MAX_REQUIREMENTS:
        raise Blocked(
            f'storageclass "{storage_class.metadata.name}" has topologies of more than {MAX_REQUIREMENTS} entries'
        )
    return tuple(
        NodeTerm(
            labels=tuple(
                Requirement(expression.key, "In", expression.values) for expression in term.match_label_expressions
            )
        )
        if term.match_label_expressions
        else MATCHES_NOTHING
        for term in storage_class.allowed_topologies
    )


def required_nodes(volume: VolumeObject) -> NodeSelector | None:
    """Return the node affinity of a volume."""
    return volume.spec.node_affinity.required if volume.spec.node_affinity is not None else None


def entries(required: NodeSelector | None) -> int:
    """Return the number of terms, labels and values in an affinity."""
    if required is None:
        return 0
    terms = required.node_selector_terms[: MAX_REQUIREMENTS + 1]
    return sum(
        1 + sum(1 + len(expression.values) for expression in (*term.match_expressions, *term.match_fields))
        for term in terms
    )
