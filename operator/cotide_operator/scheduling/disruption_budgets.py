"""Which evictions a disruption budget does not allow, as the API server decides.

Called by `evictor` for the victims of one pod, which help only together, by `consolidation` for the pods of a plan and
for a gang that leaves as a whole. The API server has the last word; this look at the cache saves pods that would be
evicted beside one that then stays. Pure. Invariant: as many pods of a budget pass as the budget lets go now, in the
order of asking.

Source: Kubernetes, pkg/registry/core/pod/storage/eviction.go, and
https://kubernetes.io/docs/tasks/run-application/configure-pdb/#unhealthy-pod-eviction-policy
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from cotide_kube.objects import PodDisruptionBudgetObject, PodObject
from cotide_operator.cache.label_selectors import selects
from cotide_operator.cache.object_cache import ObjectCache, key_of

ALWAYS_ALLOW: Final = "AlwaysAllow"
MAX_DISRUPTED_PODS: Final = 2000
"""Pods on their way out that the status of a budget holds (MaxDisruptedPodSize); with more it lets no pod go."""
_WITHOUT_BUDGET: Final = ("Pending", "Succeeded", "Failed")
"""Phases of pods that go whatever their budgets state: they serve no request."""


def kept_by_budgets(victims: Iterable[PodObject], cache: ObjectCache) -> dict[str, str]:
    """Return, by pod key, a sentence for each victim that a budget keeps, the others going before it."""
    left: dict[str, int] = {}
    kept: dict[str, str] = {}
    by_namespace = budgets_by_namespace(cache)
    for pod in victims:
        key = key_of(pod.metadata)
        drawn = drawn_on(pod, covering(pod, by_namespace))
        if len(drawn) > 1:
            kept[key] = f"{len(drawn)} disruption budgets cover it, which the API server lets nobody evict"
        elif drawn:
            name = key_of(drawn[0].metadata)
            allowed = left.setdefault(name, goes_now(drawn[0]))
            if allowed <= 0:
                kept[key] = f"disruption budget {name} lets no further pod go now"
            left[name] = allowed - 1
    return kept


def budgets_by_namespace(cache: ObjectCache) -> dict[str, list[PodDisruptionBudgetObject]]:
    """Return the budgets of each namespace that has any."""
    found: dict[str, list[PodDisruptionBudgetObject]] = {}
    for budget in cache.poddisruptionbudgets.values():
        found.setdefault(budget.metadata.namespace, []).append(budget)
    return found


def covering(
    pod: PodObject, by_namespace: Mapping[str, Sequence[PodDisruptionBudgetObject]]
) -> list[PodDisruptionBudgetObject]:
    """Return the budgets that count a pod."""
    return [budget for budget in by_namespace.get(pod.metadata.namespace, ()) if _covers(budget, pod)]


def drawn_on(pod: PodObject, budgets: Sequence[PodDisruptionBudgetObject]) -> list[PodDisruptionBudgetObject]:
    """Return which of the budgets over a pod its eviction draws on; of more than one the API server evicts no pod.

    A pod that serves no request draws on none: one that is pending, ended or on its way out. A pod that is not ready
    draws on its budget unless the policy is ``AlwaysAllow``, or the budget's healthy pods suffice without it.
    """
    if pod.status.phase in _WITHOUT_BUDGET or pod.metadata.deletion_timestamp is not None:
        return []
    if len(budgets) == 1 and not _ready(pod) and _lets_unhealthy_go(budgets[0]):
        return []
    return list(budgets)


def goes_now(budget: PodDisruptionBudgetObject) -> int:
    """Return how many pods a budget lets go now; 0 while its status is behind its spec."""
    status = budget.status
    if status.observed_generation < budget.metadata.generation or len(status.disrupted_pods) > MAX_DISRUPTED_PODS:
        return 0
    return max(0, status.disruptions_allowed)


def _lets_unhealthy_go(budget: PodDisruptionBudgetObject) -> bool:
    if budget.spec.unhealthy_pod_eviction_policy == ALWAYS_ALLOW:
        return True
    status = budget.status
    return status.current_healthy >= status.desired_healthy > 0


def _covers(budget: PodDisruptionBudgetObject, pod: PodObject) -> bool:
    selector = budget.spec.selector
    if selector is None:
        return False
    # In policy/v1 an empty selector covers the namespace; only a missing one covers no pod.
    everyone = not (selector.match_labels or selector.match_expressions)
    return everyone or selects(selector, pod.metadata.labels)


def _ready(pod: PodObject) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)
