"""What owners say about evictions: by annotations that other programs know, too, and by disruption budgets.

Called by `translation`; `faults` by `event_source`, which says once what could not be read; `is_mirror` by `explain`
and `consolidation`, too. Pure. Invariant: what can't be read counts as not written, as in the programs that these
annotations come from.

Sources: https://karpenter.sh/docs/concepts/disruption/#pod-level-controls,
https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md (safe-to-evict),
https://github.com/kubernetes-sigs/descheduler#pod-evictions,
https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#pod-deletion-cost
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cotide_core.events import Budget
from cotide_core.limits import INT32_MOST
from cotide_kube.objects import SAFE_LOCAL_VOLUMES_ANNOTATION, PodDisruptionBudgetObject, Volume
from cotide_operator.cache.label_selectors import label_selector

DO_NOT_DISRUPT_ANNOTATION: Final = "karpenter.sh/do-not-disrupt"
SAFE_TO_EVICT_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
MEMORY_MEDIUM: Final = "Memory"
PREFER_NO_EVICTION_ANNOTATION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
DELETION_COST_ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
"""On the mirror of a static pod: a file on its node is the pod, and deleting the mirror ends nothing
(https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/)."""
_READ: Final = frozenset(
    (
        DO_NOT_DISRUPT_ANNOTATION,
        SAFE_TO_EVICT_ANNOTATION,
        PREFER_NO_EVICTION_ANNOTATION,
        DELETION_COST_ANNOTATION,
    )
)

_COST: Final = re.compile(r"0|[1-9][0-9]*|-[0-9]+")
"""As Kubernetes reads it: no plus sign, no leading zero (pkg/apis/core/helper, GetDeletionCostFromPodAnnotations)."""
_COST_LIMIT: Final = 2**31
_BOOLEANS: Final = ("true", "false")


@dataclass(frozen=True, slots=True)
class EvictionPreferences:
    """See the fields of the same names of `events.Pod`."""

    do_not_disrupt: bool = False
    prefer_no_eviction: bool = False
    deletion_cost: int = 0


NO_PREFERENCES: Final = EvictionPreferences()


def preferences_of(annotations: Mapping[str, str]) -> EvictionPreferences:
    """Return what is written; a value that can't be read is no wish."""
    if _READ.isdisjoint(annotations):
        return NO_PREFERENCES
    never = annotations.get(DO_NOT_DISRUPT_ANNOTATION) == "true"
    unsafe = annotations.get(SAFE_TO_EVICT_ANNOTATION) == "false"
    cost = _cost(annotations.get(DELETION_COST_ANNOTATION))
    # The descheduler looks whether it is there, not what it says.
    return EvictionPreferences(
        never or unsafe, PREFER_NO_EVICTION_ANNOTATION in annotations, 0 if cost is None else cost
    )


def faults(annotations: Mapping[str, str]) -> list[str]:
    """Return one sentence for each of these annotations whose value can't be read."""
    if _READ.isdisjoint(annotations):
        return []
    found = [
        f"annotation {name}: {annotations[name][:40]!r} is neither true nor false, and counts as not written"
        for name in (DO_NOT_DISRUPT_ANNOTATION, SAFE_TO_EVICT_ANNOTATION)
        if annotations.get(name, "true") not in _BOOLEANS
    ]
    text = annotations.get(DELETION_COST_ANNOTATION)
    if text is not None and _cost(text) is None:
        sentence = "is no whole number of 32 bits, and counts as not written"
        found.append(f"annotation {DELETION_COST_ANNOTATION}: {text[:40]!r} {sentence}")
    return found


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
    """Whether a pod mirrors a static one. Who only writes the annotation gains nothing: kubelets delete such a pod."""
    return MIRROR_ANNOTATION in annotations


def _cost(text: str | None) -> int | None:
    if text is None or len(text) > len(str(-_COST_LIMIT)) or _COST.fullmatch(text) is None:
        return None
    cost = int(text)
    return cost if -_COST_LIMIT <= cost < _COST_LIMIT else None


def translate_budget(key: str, budget: PodDisruptionBudgetObject) -> Budget:
    """Return what the engine must know of a disruption budget."""
    status = budget.status
    allowed = min(max(0, status.disruptions_allowed), INT32_MOST)
    selector = label_selector(budget.spec.selector) or ()
    return Budget(key, selector, allowed, tuple(sorted(status.disrupted_pods)))
