"""Does one node satisfy what a pod demands of the node itself: labels, fields, taints?

Called by `feasibility` once for each (distinct constraints, changed node). Pure rules, one node at a time; the words
are kube-scheduler's. Source of the rules: the Kubernetes documentation, "Assigning Pods to Nodes" and "Taints and
Tolerations". A requirement that can't be understood matches nothing, as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cotide_core.events import Node, NodeTerm, OpenClaim, Requirement, Taint, Toleration
from cotide_core.state.selection.selectors import holds
from cotide_core.state.shapes import Constraints

UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""Taint of a cordoned node: a pod that tolerates it may still go there."""
_INT64_CHARACTERS = 20
CONDITION_TAINTS = {
    "MemoryPressure": Taint("node.kubernetes.io/memory-pressure", "", "NoSchedule"),
    "DiskPressure": Taint("node.kubernetes.io/disk-pressure", "", "NoSchedule"),
    "PIDPressure": Taint("node.kubernetes.io/pid-pressure", "", "NoSchedule"),
    "NetworkUnavailable": Taint("node.kubernetes.io/network-unavailable", "", "NoSchedule"),
}
"""Taint of a condition, applied as soon as the kubelet reports the condition; the node controller sets the taint some
time later. Source: the Kubernetes documentation, "Taints and Tolerations", taint nodes by condition.
"""
MISMATCH = "node(s) didn't match Pod's node affinity/selector"
VOLUME_MISMATCH = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
NO_ROOM = "node(s) did not have enough free storage"
NOT_MADE = "node(s) where volumes were recently not bound in time"


def refusal(
    node: Node, constraints: Constraints, *, labelled: bool | None = None, volumes: str | None = None
) -> str | None:
    """Return why a node can't take pods with these constraints, or None if it can.

    Parameters
    ----------
    labelled : whether its labels and fields match the demands, if that is known (see `label_index`).
    volumes : the result of `volume_refusal`, empty for no refusal, if it is known.
    """
    tolerations = constraints.tolerations
    if node.unschedulable and not tolerated(UNSCHEDULABLE_TAINT, tolerations):
        return "node(s) were unschedulable"
    if not node.ready:
        return "node(s) were not ready"
    if not (_labelled(node, constraints) if labelled is None else labelled):
        return MISMATCH
    for taint in node.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not tolerated(taint, tolerations):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    for condition in node.pressures:
        if condition not in CONDITION_TAINTS or not tolerated(CONDITION_TAINTS[condition], tolerations):
            return f"node(s) had condition {condition}"
    return (volume_refusal(node, constraints) if volumes is None else volumes) or None


def _labelled(node: Node, constraints: Constraints) -> bool:
    labels = dict(node.labels)
    if any(labels.get(key) != value for key, value in constraints.node_selector):
        return False
    return not constraints.node_terms or _any_matches(constraints.node_terms, labels, node.name)


def volume_refusal(node: Node, constraints: Constraints) -> str:
    """Return why a node can't take pods with these volumes; empty if it can."""
    labels = dict(node.labels)
    for terms in constraints.volume_terms:
        if not _any_matches(terms, labels, node.name):
            return VOLUME_MISMATCH
    if any(node.name in claim.avoided for claim in constraints.open_claims):
        return NOT_MADE
    return _volumes(node, constraints.open_claims)[1]


def volumes_for(node: Node, claims: tuple[OpenClaim, ...]) -> list[str] | None:
    """Return which volume each claim gets on a node, empty if one is to be created; None if a claim gets none.

    As in kube-scheduler: one claim after the other, each the first volume that is still free.
    """
    found, why = _volumes(node, claims)
    return None if why else found


def _volumes(node: Node, claims: tuple[OpenClaim, ...]) -> tuple[list[str], str]:
    """Return the volumes, and why a claim gets none; "no volume found" comes before "not enough storage"."""
    labels = dict(node.labels)
    found: list[str] = []
    why = ""
    for claim in claims:
        if claim.node and claim.node != node.name:
            return found, NO_VOLUME
        usable = (
            volume.name
            for volume in claim.volumes
            if volume.name not in found and (not volume.terms or _any_matches(volume.terms, labels, node.name))
        )
        chosen = next(usable, "")
        made = claim.provisions and (not claim.topologies or _any_matches(claim.topologies, labels, node.name))
        if not (chosen or made):
            return found, NO_VOLUME
        if not chosen and claim.rooms and not _any_matches(claim.rooms, labels, node.name):
            why = NO_ROOM
        found.append(chosen)
    return found, why


def _any_matches(terms: tuple[NodeTerm, ...], labels: Mapping[str, str], name: str) -> bool:
    return any(_term_matches(term, labels, name) for term in terms)


def uncordoned(node: Node) -> Node:
    """Return a node as it is when uncordoned: without the taint of cordoned nodes, which a controller adds."""
    taints = tuple(taint for taint in node.taints if taint.key != UNSCHEDULABLE_TAINT.key)
    return replace(node, unschedulable=False, taints=taints)


def hard_taints_tolerated(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> bool:
    """Whether these tolerations cover all taints that keep pods away."""
    hard = (taint for taint in taints if taint.effect in ("NoSchedule", "NoExecute"))
    return all(tolerated(taint, tolerations) for taint in hard)


def soft_taints(node: Node, tolerations: tuple[Toleration, ...]) -> int:
    """Return how many PreferNoSchedule taints of a node these tolerations leave untolerated."""
    return sum(taint.effect == "PreferNoSchedule" and not tolerated(taint, tolerations) for taint in node.taints)


def tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """Whether one of the tolerations covers a taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.operator in ("Equal", "") and toleration.value == taint.value


def _term_matches(term: NodeTerm, labels: Mapping[str, str], name: str) -> bool:
    if not term.labels and not term.fields:
        return False  # Kubernetes: an empty term matches no node
    fields = {"metadata.name": name}
    return all(_matches(r, labels) for r in term.labels) and all(_matches(r, fields) for r in term.fields)


def _matches(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    if requirement.operator not in ("Gt", "Lt"):
        return holds(requirement, labels)
    bound = integer(requirement.values[0]) if len(requirement.values) == 1 else None
    number = integer(labels.get(requirement.key))
    if bound is None or number is None:
        return False
    return number > bound if requirement.operator == "Gt" else number < bound


def integer(text: str | None) -> int | None:
    """Return a label's value as the int64 that Kubernetes compares; None if it is no integer."""
    if text is None or len(text) > _INT64_CHARACTERS or not (text.isascii() and text.lstrip("+-").isdecimal()):
        return None
    try:
        number = int(text)
    except ValueError:  # more than one sign
        return None
    return number if -(2**63) <= number < 2**63 else None
