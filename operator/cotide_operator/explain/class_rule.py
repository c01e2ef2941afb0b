"""The rule that gave a pod its class, derived from API objects.

`explain` calls it. The operator writes its own decision as the pod's label, so a label alone proves nothing: if another
rule gives the same class, that rule is the explanation. Invariant: the class equals that of translation under the
default of ``tenancy.maxClassWithoutLabel``, which is not in the API.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cotide_core.classes import (
    CLASS_LABEL,
    CLASSES,
    MAX_CLASS_LABEL,
    SHIPPED_PRIORITY_CLASSES,
    UNRAISED,
    WorkloadClass,
    classify,
)
from cotide_core.units import RECLAIMED_CPU, RECLAIMED_MEMORY
from cotide_operator.translation.eviction_annotations import is_mirror

Object = Mapping[str, Any]

MANAGER: Final = "cotide"
"""Field manager of the operator's writes: its User-Agent."""


@dataclass(frozen=True, slots=True)
class ClassContext:
    """Other objects that explain a pod; None if they are missing or may not be read."""

    owner: Object | None = None
    """The Workload or Job of ours that owns or selects it."""
    namespace: Object | None = None
    events: Sequence[Object] = ()
    node: Object | None = None
    """For a pod that requests reclaimed capacity: its node, or one that was refused for want of it."""
    neighbours: Sequence[Object] | None = None
    """All pods on that node."""
    claims: Sequence[Object] = ()
    """For a pod without a node: the volume claims that it names."""
    storage_classes: Mapping[str, Object] = field(default_factory=dict)
    """Storage classes of the claims, by name."""


def class_and_reason(pod: Object, context: ClassContext) -> tuple[WorkloadClass, str]:
    """Return a pod's class and the rule that gave it, in words."""
    if (pod.get("spec") or {}).get("nodeName") and is_mirror(pod["metadata"].get("annotations") or {}):
        return WorkloadClass.ONLINE, "because it is a static pod of its node, which can't be evicted"
    label = (pod["metadata"].get("labels") or {}).get(CLASS_LABEL)
    cap = (((context.namespace or {}).get("metadata") or {}).get("labels") or {}).get(MAX_CLASS_LABEL)
    rules = _rules(pod, context, cap)
    kept = classify(label=label, max_class=UNRAISED, **rules)
    if cap not in set(WorkloadClass) and kept != classify(label=label, **rules):
        return kept, f"because {_finite(rules)} is not made online without its namespace's label {MAX_CLASS_LABEL}"
    decided = classify(label=label, max_class=cap, **rules)
    if decided != classify(label=label, **rules):
        return decided, f"because its namespace allows {cap} at most"
    unlabelled = classify(**rules)
    if label in set(WorkloadClass) and label != unlabelled:
        if classify(max_class=cap, **rules) == label:
            return decided, f"because its namespace allows {cap} at most"
        return decided, f"by its label {CLASS_LABEL}"
    return decided, _why(pod, context, rules)


def _rules(pod: Object, context: ClassContext, cap: str | None) -> dict[str, Any]:
    """Return the arguments of `classify` except the label and the cap."""
    owner_class: WorkloadClass | None = None
    if context.owner is not None:
        declared = (context.owner.get("spec") or {}).get("class", "batch")
        owner_class = WorkloadClass.ONLINE
        if context.owner.get("kind") == "Job":
            owner_class = WorkloadClass(declared) if declared in set(WorkloadClass) else WorkloadClass.BATCH
    rules = {
        "owner_class": owner_class,
        "named_class": SHIPPED_PRIORITY_CLASSES.get((pod.get("spec") or {}).get("priorityClassName") or ""),
        "owner_kind": _owner_kind(pod),
        "reclaims": _reclaims(pod),
    }
    if owner_class is None:
        rules["named_class"] = _named_in_configuration(pod, rules, cap) or rules["named_class"]
    return rules


def _named_in_configuration(pod: Object, rules: Mapping[str, Any], cap: str | None) -> WorkloadClass | None:
    """Return the class that ``classes.byPriorityClass`` must give a pod's PriorityClass; None for none.

    That map is not in the API. Its effect is: a class label of the operator that no other rule gives.
    """
    label = CLASSES.get((pod["metadata"].get("labels") or {}).get(CLASS_LABEL) or "")
    named = (pod.get("spec") or {}).get("priorityClassName")
    if label is None or not named or not _is_labelled_by_operator(pod):
        return None
    return None if classify(max_class=cap if cap in CLASSES else UNRAISED, **rules) is label else label


def _is_labelled_by_operator(pod: Object) -> bool:
    """Whether the operator is the only manager of the class label at the API server.

    A write with a binding has no manager; a write by a user or a controller has theirs.
    """
    noted = pod["metadata"].get("managedFields") or ()
    managers = {
        entry.get("manager")
        for entry in noted
        if f"f:{CLASS_LABEL}" in (((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:labels") or ())
    }
    return bool(noted) and managers <= {MANAGER}


def _reclaims(pod: Object) -> bool:
    spec = pod.get("spec") or {}
    return any(
        name in (RECLAIMED_CPU, RECLAIMED_MEMORY)
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        for kind in ("requests", "limits")
        for name in ((container.get("resources") or {}).get(kind) or ())
    )


def _finite(rules: Mapping[str, Any]) -> str:
    owned = rules["owner_class"] not in (None, WorkloadClass.ONLINE) or rules["owner_kind"] == "Job.batch"
    return "work of a Job" if owned else "a pod that requests reclaimed capacity"


def _why(pod: Object, context: ClassContext, rules: Mapping[str, Any]) -> str:
    if context.owner is not None:
        return f"by its {context.owner.get('kind')} {context.owner['metadata']['name']}"
    if rules["named_class"] is not None:
        named = (pod.get("spec") or {}).get("priorityClassName")
        shipped = SHIPPED_PRIORITY_CLASSES.get(named or "") is rules["named_class"]
        return f"by its PriorityClass {named}{'' if shipped else ', which classes.byPriorityClass names'}"
    if rules["owner_kind"] == "Job.batch":
        return "because a batch/v1 Job owns it"
    return "by default: no other rule applies"


def _owner_kind(pod: Object) -> str | None:
    """Return the controlling owner as ``Kind.group``."""
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            group, slash, _ = str(owner.get("apiVersion", "")).partition("/")
            return f"{owner.get('kind')}.{group}" if slash else str(owner.get("kind"))
    return None
