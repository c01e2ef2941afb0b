"""Limits of a namespace, from the annotations of its Namespace object.

`event_source` and `pods_and_nodes` call it. The limits are annotations of the Namespace, like the label
``cotide.dev/max-class``, and not a ConfigMap in it. The right to write pods, Jobs or ConfigMaps in a namespace does not
include the right to write the namespace (the roles ``edit`` and ``admin`` of Kubernetes lack it). An administrator sees
the limits in force with ``kubectl get namespace``. Invariant: an unreadable limit counts as 0 and is logged. An
administrator's typing error thus shows at once, and never gives a tenant unlimited room.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from cotide_core.errors import InputError
from cotide_core.events import Namespace
from cotide_core.limits import MAX_EXACT_INT, NUMBER_CHARACTERS, QUANTITY_CHARACTERS
from cotide_core.state.namespace_use import MAX_BATCH_CPU, MAX_BATCH_MEMORY, MAX_QUEUED_PODS
from cotide_core.units import CPU, MEMORY, resource_amount
from cotide_kube.objects import NamespaceObject

FAIR_WEIGHT: Final = "cotide.dev/fair-weight"
"""Annotation: share of the namespace relative to others under the policy ``fair``."""
WEIGHT_LEAST: Final = 0.001
MAX_WEIGHT: Final = 1000.0
"""Chosen: a namespace of a million times another's weight would get everything."""
MAX_PRIORITY: Final = "cotide.dev/max-priority"
"""Annotation: highest pod priority that counts for the order of the queue; higher ones count as this."""
MAX_JOB_PRIORITY: Final = "cotide.dev/max-job-priority"
"""The same for the priority of a Job of ours, 0-1000."""
PRIORITY_MIN: Final = -(1 << 31)
"""Of a pod: an int32 (https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/)."""
_INTEGERS: Final = (MAX_QUEUED_PODS, MAX_PRIORITY, MAX_JOB_PRIORITY)


def translate_namespace(namespace: NamespaceObject, *, labels: bool = False) -> Namespace | None:
    """Return the engine's view of a namespace; None if it has no limits.

    Parameters
    ----------
    labels : whether pods select namespaces by label.
    """
    annotations = namespace.metadata.annotations
    millicores = _read(annotations, MAX_BATCH_CPU)
    memory_bytes = _read(annotations, MAX_BATCH_MEMORY)
    queued = _read(annotations, MAX_QUEUED_PODS)
    label_pairs = tuple(sorted(namespace.metadata.labels.items())) if labels else ()
    weight = _weight(annotations.get(FAIR_WEIGHT)) or 1.0
    if millicores is None and memory_bytes is None and queued is None and not label_pairs and weight == 1.0:
        return None
    return Namespace(namespace.metadata.name, millicores, memory_bytes, queued, label_pairs, weight)


def max_priorities(namespace: NamespaceObject) -> tuple[int | None, int | None]:
    """Return the highest pod priority and Job priority that count in a namespace; None for no limit."""
    annotations = namespace.metadata.annotations
    return _read(annotations, MAX_PRIORITY), _read(annotations, MAX_JOB_PRIORITY)


def limit_faults(namespace: NamespaceObject) -> list[str]:
    """Return a sentence for each unreadable limit."""
    found = []
    for annotation in (MAX_BATCH_CPU, MAX_BATCH_MEMORY, *_INTEGERS):
        text = namespace.metadata.annotations.get(annotation)
        if text is not None and _parsed(annotation, text) is None:
            kind = "whole number" if annotation in _INTEGERS else "quantity"
            shown = text[:QUANTITY_CHARACTERS]
            found.append(f"annotation {annotation}: {shown!r} is no {kind}; until it is corrected it counts as 0")
    weight = namespace.metadata.annotations.get(FAIR_WEIGHT)
    if weight is not None and _weight(weight) is None:
        shown = weight[:QUANTITY_CHARACTERS]
        found.append(
            f"annotation {FAIR_WEIGHT}: {shown!r} is no number from {WEIGHT_LEAST:g} to {MAX_WEIGHT:g}; it counts as 1"
        )
    return found


def _weight(text: str | None) -> float | None:
    """Return a weight; None without a valid one."""
    try:
        weight = float(text) if text is not None and len(text) <= NUMBER_CHARACTERS else 0.0
    except ValueError:
        return None
    return weight if WEIGHT_LEAST <= weight <= MAX_WEIGHT else None


def _read(annotations: Mapping[str, str], annotation: str) -> int | None:
    text = annotations.get(annotation)
    if text is None:
        return None
    parsed = _parsed(annotation, text)
    return 0 if parsed is None else parsed


@lru_cache(maxsize=1024)
def _parsed(annotation: str, text: str) -> int | None:
    """Return a limit, at most `MAX_EXACT_INT`; None for an invalid one."""
    if len(text) > QUANTITY_CHARACTERS:
        return None
    try:
        if annotation in _INTEGERS:
            value = int(text)
        else:
            value = resource_amount(CPU if annotation == MAX_BATCH_CPU else MEMORY, text)
    except (InputError, ValueError, ArithmeticError):
        return None
    least = PRIORITY_MIN if annotation == MAX_PRIORITY else 0
    return min(max(value, least), MAX_EXACT_INT)
