"""Finds the evictions that a disruption budget forbids, as the API server decides.

`evictor` calls it for the victims of one pod, which help only together; `consolidation` calls it for the pods of a plan
and for a gang that leaves as a whole. The API server decides finally; this check of the cache saves pods that would be
evicted in vain because another victim stays. Pure. Invariant: as many pods of a budget pass as the budget allows now,
in the order of the victims.

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
"""Terminating pods in the status of a budget (MaxDisruptedPodSize); with more it allows no eviction."""
_WITHOUT_BUDGET: Final = ("Pending", "Succeeded", "Failed")
"""Phases of pods that go whatever their budgets state: they serve no request."""


def kept_by_budgets(victims: Iterable[PodObject], cache: ObjectCache) -> dict[str, str]:
    """Return, by pod key, a sentence for each victim that a budget protects, once the others before it are evicted."""
    left: dict[str, int] = {}
    kept: dict[str, str] = {}
    by_namespace = budgets_by_namespace(cache)
    for pod in victims:
        key = key_of(pod.metadata)
        drawn = drawn_on(pod, covering(pod, by_namespace))
        if len(drawn) > 1:
            kept[key] = f"{len(drawn)} disruption budgets cover it, so that the API server refuses every eviction"
        elif drawn:
            name = key_of(drawn[0].metadata)
            allowed = left.setdefault(name, goes_now(drawn[0]))
            if allowed <= 0:
                kept[key] = f"disruption budget {name} allows no further eviction now"
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
    """Return the budgets that the eviction of a pod uses up; with more than one the API server refuses it.

    A pod that serves no request uses none: one that is pending, ended or terminating. A pod that is not ready uses its
    budget unless the policy is ``AlwaysAllow``, or the budget's healthy pods suffice without it.
    """
    if pod.status.phase in _WITHOUT_BUDGET or pod.metadata.deletion_timestamp is not None:
        return []
    if len(budgets) == 1 and not _ready(pod) and _lets_unhealthy_go(budgets[0]):
        return []
    return list(budgets)


def goes_now(budget: PodDisruptionBudgetObject) -> int:
    """Return how many evictions a budget allows now; 0 while its status is behind its spec."""
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
