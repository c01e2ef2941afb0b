"""Annotations of owners about disruption: on pods, on nodes, by the roles of nodes, and disruption budgets.

Only this module reads these words; docs/features/preemption.md has their table. `translation`, `evictor` and
`consolidation` call it; `event_source` and `picture` log the result of `faults` and `node_annotation_faults`. Pure.
Invariant: an unreadable protection protects; an unreadable permission, preference or cost is ignored.

Sources: https://karpenter.sh/docs/reference/annotations/ (pkg/utils/pod/scheduling.go, pkg/controllers/state/
statenode.go), https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md,
https://github.com/kubernetes-sigs/descheduler#pod-evictions,
https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#pod-deletion-cost,
https://kubernetes.io/docs/reference/labels-annotations-taints/#node-role-kubernetes-io-control-plane
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from cotide_core.errors import InputError
from cotide_core.events import Budget, protects
from cotide_core.limits import INT32_MOST
from cotide_kube.objects import (
    SAFE_LOCAL_VOLUMES_ANNOTATION,
    NodeObject,
    PodDisruptionBudgetObject,
    PodObject,
    Volume,
)
from cotide_kube.timestamps import parse_timestamp
from cotide_operator.cache.label_selectors import label_selector
from cotide_operator.clock import Clock

DO_NOT_DISRUPT_ANNOTATION: Final = "karpenter.sh/do-not-disrupt"
"""On pods ``"true"`` or, since Karpenter 1.12, a duration from the pod's start; on nodes ``"true"``."""
DISRUPTION_COST_ANNOTATION: Final = "karpenter.sh/disruption-cost"
"""On pods; Karpenter reads it before the deletion cost."""
SAFE_TO_EVICT_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SCALE_DOWN_DISABLED_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
"""On nodes."""
MEMORY_MEDIUM: Final = "Memory"
EVICT_ANNOTATION: Final = "descheduler.alpha.kubernetes.io/evict"
PREFER_NO_EVICTION_ANNOTATION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
"""The descheduler checks only the presence of these two, and reads no value."""
DELETION_COST_ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
"""On the mirror of a static pod: a file on its node defines the pod, and deleting the mirror ends nothing
(https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/)."""
CONTROL_PLANE_ROLES: Final = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",  # before Kubernetes 1.24
    "node-role.kubernetes.io/controlplane",  # RKE
    "node-role.kubernetes.io/etcd",  # RKE and RKE2
)
"""Labels of nodes that run the control plane, with any value."""

_COSTS: Final = (DISRUPTION_COST_ANNOTATION, DELETION_COST_ANNOTATION)
"""The first that is readable counts."""
_READ: Final = frozenset(
    (
        DO_NOT_DISRUPT_ANNOTATION,
        SAFE_TO_EVICT_ANNOTATION,
        EVICT_ANNOTATION,
        PREFER_NO_EVICTION_ANNOTATION,
        *_COSTS,
    )
)

_COST: Final = re.compile(r"0|[1-9][0-9]*|-[0-9]+")
"""As Kubernetes reads it: no plus sign, no leading zero (pkg/apis/core/helper, GetDeletionCostFromPodAnnotations)."""
_COST_LIMIT: Final = 2**31
_BOOLEANS: Final = ("true", "false")
_UNIT_SECONDS: Final = {
    "ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0,
}  # fmt: skip
"""Units of a duration, as of https://pkg.go.dev/time#ParseDuration."""
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_MAX_DURATION_SECONDS: Final = 2**63 / 1e9
_DURATION_CHARACTERS: Final = 64
"""Chosen: a longer text is unreadable, and costs no time."""
_SHOWN: Final = 40
"""Characters of an unreadable value in a sentence; chosen."""
DURATIONS_KEPT: Final = 256
"""Cached durations; chosen: pods of one template have the same."""


@dataclass(frozen=True, slots=True)
class EvictionPreferences:
    """Annotations of one pod; the first two, the preference and the cost are the fields of `events.Pod`.

    Attributes
    ----------
    keeps_node : whether Karpenter's annotation protects the pod, which keeps its node even for a DaemonSet's pod.
    movable : whether its owner permits a move although it has no controller, or has local storage.
    """

    do_not_disrupt: bool = False
    protected_seconds: float | None = None
    prefer_no_eviction: bool = False
    deletion_cost: int = 0
    keeps_node: bool = False
    movable: bool = False


NO_PREFERENCES: Final = EvictionPreferences()


def preferences_of(annotations: Mapping[str, str]) -> EvictionPreferences:
    """Return the preferences of an owner on a pod; a protection takes precedence over a permission."""
    if _READ.isdisjoint(annotations):
        return NO_PREFERENCES
    lasting, seconds = _do_not_disrupt(annotations.get(DO_NOT_DISRUPT_ANNOTATION))
    safe = annotations.get(SAFE_TO_EVICT_ANNOTATION)
    costs = (_cost(annotations.get(name)) for name in _COSTS)
    return EvictionPreferences(
        do_not_disrupt=lasting or safe not in (None, "true"),
        protected_seconds=seconds,
        prefer_no_eviction=PREFER_NO_EVICTION_ANNOTATION in annotations,
        deletion_cost=next((cost for cost in costs if cost is not None), 0),
        keeps_node=lasting or seconds is not None,
        movable=safe == "true" or EVICT_ANNOTATION in annotations,
    )


def is_protected(pod: PodObject, clock: Clock) -> bool:
    """Return whether the owner of a pod forbids any disruption by a program at this time."""
    wish = preferences_of(pod.metadata.annotations)
    if wish.protected_seconds is None:
        return wish.do_not_disrupt
    return protects(wish.do_not_disrupt, wish.protected_seconds, _started(pod, clock), clock.now())


def _started(pod: PodObject, clock: Clock) -> float | None:
    try:
        return None if pod.status.start_time is None else clock.from_wall(parse_timestamp(pod.status.start_time))
    except InputError:
        return None


def node_protection(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return why no program may take a node out of service; empty if it may."""
    role = next((name for name in CONTROL_PLANE_ROLES if name in labels), None)
    if role is not None:
        return f"its label {role} names it a node of the control plane"
    for name in (DO_NOT_DISRUPT_ANNOTATION, SCALE_DOWN_DISABLED_ANNOTATION):
        if annotations.get(name) not in (None, "false"):
            return f"its annotation {name} keeps it"
    return ""


def faults(annotations: Mapping[str, str]) -> list[str]:
    """Return one sentence for each unreadable annotation of these on a pod."""
    if _READ.isdisjoint(annotations):
        return []
    found = []
    text = annotations.get(DO_NOT_DISRUPT_ANNOTATION, "true")
    if text not in _BOOLEANS and _positive_seconds(text) is None:
        found.append(_protects(DO_NOT_DISRUPT_ANNOTATION, text, "is neither true nor false nor a duration above 0"))
    text = annotations.get(SAFE_TO_EVICT_ANNOTATION, "true")
    if text not in _BOOLEANS:
        found.append(_protects(SAFE_TO_EVICT_ANNOTATION, text, "is neither true nor false"))
    for name in _COSTS:
        if name in annotations and _cost(annotations[name]) is None:
            shown = annotations[name][:_SHOWN]
            found.append(f"annotation {name}: {shown!r} is no whole number of 32 bits, and is ignored")
    return found


def node_annotation_faults(node: NodeObject) -> list[str]:
    """Return one sentence for each annotation of a node that should protect it and is unreadable."""
    annotations = node.metadata.annotations
    return [
        _protects(name, annotations[name], "is neither true nor false")
        for name in (DO_NOT_DISRUPT_ANNOTATION, SCALE_DOWN_DISABLED_ANNOTATION)
        if annotations.get(name, "true") not in _BOOLEANS
    ]


def _protects(name: str, text: str, why: str) -> str:
    return f"annotation {name}: {text[:_SHOWN]!r} {why}, and protects"


def _do_not_disrupt(text: str | None) -> tuple[bool, float | None]:
    """Return whether Karpenter's annotation protects permanently, else for how many seconds from the start."""
    if text is None or text == "false":
        return False, None
    seconds = None if text == "true" else _positive_seconds(text)
    return seconds is None, seconds


@lru_cache(DURATIONS_KEPT)
def _positive_seconds(text: str) -> float | None:
    """Return the seconds of a duration as Go writes it (``1h30m``, ``.5s``); None unless it is above 0."""
    body = text.removeprefix("+")
    if not body or len(text) > _DURATION_CHARACTERS or not re.fullmatch(f"(?:{_PART.pattern})+", body):
        return None
    seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(body))
    return seconds if 0 < seconds < _MAX_DURATION_SECONDS else None


def loses_local_storage(annotations: Mapping[str, str], volumes: Iterable[Volume]) -> bool:
    """Return whether an eviction loses local storage that its owner may want.

    As in Cluster Autoscaler (``HasBlockingLocalStorage`` of its utils/drain): hostPath and emptyDir volumes count, but
    neither one in memory nor one that the annotation names. Names are compared as they stand, with the spaces around.
    """
    named = annotations.get(SAFE_LOCAL_VOLUMES_ANNOTATION)
    safe = named.split(",") if named else ()
    return any(is_local(volume) and volume.name not in safe for volume in volumes)


def is_local(volume: Volume) -> bool:
    """Return whether the content of a volume is lost with its node, and may matter."""
    on_disk = volume.empty_dir is not None and volume.empty_dir.medium != MEMORY_MEDIUM
    return volume.host_path is not None or on_disk


def is_mirror(annotations: Mapping[str, str]) -> bool:
    """Whether a pod mirrors a static one. A pod with a forged annotation gains nothing: kubelets delete it."""
    return MIRROR_ANNOTATION in annotations


def _cost(text: str | None) -> int | None:
    if text is None or len(text) > len(str(-_COST_LIMIT)) or _COST.fullmatch(text) is None:
        return None
    cost = int(text)
    return cost if -_COST_LIMIT <= cost < _COST_LIMIT else None


def translate_budget(key: str, budget: PodDisruptionBudgetObject) -> Budget:
    """Return the engine's view of a disruption budget."""
    status = budget.status
    allowed = min(max(0, status.disruptions_allowed), INT32_MOST)
    selector = label_selector(budget.spec.selector) or ()
    return Budget(key, selector, allowed, tuple(sorted(status.disrupted_pods)))
