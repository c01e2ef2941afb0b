"""PodDisruptionBudgets: their status as a disruption controller would keep it, and whether an eviction is allowed.

Called by `pod_subresources` (evictions) and `reactions` (a budget or one of its pods changed).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from cotide_sim.apiserver.cluster import Cluster
from cotide_sim.apiserver.refusals import Cause, Refusal, too_many
from cotide_sim.apiserver.registry.resources import Json
from cotide_sim.apiserver.storage.selectors import label_selector_of
from cotide_sim.apiserver.storage.store import Entry

_FINISHED = ("Succeeded", "Failed")


def _selector_of(budget: Json) -> Callable[[Entry], bool]:
    """Return a predicate for the pods of a budget; policy/v1: an empty selector covers all, an absent one none."""
    requirements = label_selector_of((budget.get("spec") or {}).get("selector"))
    if requirements is None:
        return lambda _pod: False
    return lambda pod: all(requirement(pod.labels) for requirement in requirements)


def _unfinished(cluster: Cluster, namespace: str) -> list[Entry]:
    pods = cluster.collection("pods")
    phase = list(pods.resource.selectable).index("status.phase")
    return [pod for pod in pods.entries(namespace) if pod.fields[phase] not in _FINISHED]


def _healthy(pod: Json) -> bool:
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def _scaled(bound: Any, total: int) -> int:
    if isinstance(bound, str):
        return math.ceil(int(bound.rstrip("%")) * total / 100)
    return int(bound)


def _counts(budget: Json, covered: Sequence[Entry], healthy: int) -> dict[str, int]:
    """Return the status counts of a budget.

    The expected number is the number of pods that the budget covers: no controllers with replicas run here.
    """
    spec = budget.get("spec") or {}
    if spec.get("maxUnavailable") is not None:
        desired = max(0, len(covered) - _scaled(spec["maxUnavailable"], len(covered)))
    else:
        desired = _scaled(spec.get("minAvailable", 1), len(covered))
    return {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": max(0, healthy - desired) if covered else 0,
        "expectedPods": len(covered),
    }


class BudgetCounter:
    """Counts all budgets of a namespace in one go.

    Each version of a pod is read once, and a selector runs once for all pods with the same labels. With 40 budgets over
    3,000 pods, a count over each pod for each budget takes longer than the time between two counts.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._health: dict[str, dict[str, tuple[int, bool]]] = {}
        """By namespace and uid: the version of the pod that was read, and whether it is healthy."""

    def refresh(self, namespace: str) -> None:
        """Update the status of each budget with changed counts."""
        alike: dict[tuple[tuple[str, str], ...], list[Entry]] = {}
        before, now = self._health.pop(namespace, {}), dict[str, tuple[int, bool]]()
        for pod in _unfinished(self._cluster, namespace):
            alike.setdefault(tuple(pod.labels.items()), []).append(pod)
        for entry in list(self._cluster.collection("poddisruptionbudgets.policy").entries(namespace)):
            budget = entry.decode()
            covers = _selector_of(budget)
            covered = [pod for pods in alike.values() if covers(pods[0]) for pod in pods]
            for pod in covered:
                known = now.get(pod.uid) or before.get(pod.uid)
                now[pod.uid] = known if known and known[0] == pod.version else (pod.version, _healthy(pod.decode()))
            _write(self._cluster, entry, budget, _counts(budget, covered, sum(now[pod.uid][1] for pod in covered)))
        if now:
            self._health[namespace] = now


def _write(cluster: Cluster, entry: Entry, budget: Json, figures: dict[str, int]) -> None:
    """Write a budget's status, if it changed."""
    budgets = cluster.collection("poddisruptionbudgets.policy")
    status = {"observedGeneration": budget["metadata"].get("generation", 1), **figures}
    allowed = figures["disruptionsAllowed"] > 0
    old = budget.get("status") or {}
    if {key: old.get(key) for key in status} == status:
        return
    status["conditions"] = [
        {
            "type": "DisruptionAllowed", "status": "True" if allowed else "False",
            "reason": "SufficientPods" if allowed else "InsufficientPods", "message": "",
            "lastTransitionTime": cluster.timestamp(),
            "observedGeneration": status["observedGeneration"],
        }
    ]  # fmt: skip
    budget["status"] = status
    cluster.store.put(budgets, budget, entry)


def allow_eviction(cluster: Cluster, pod: Entry, *, dry_run: bool = False) -> None:
    """Return when no budget objects to the eviction of a pod; else raise.

    A pod that is unbound, finished or terminating affects no budget and is always let go.

    Raises
    ------
    Refusal
        429 when a budget has no disruption left; 500 when more than one budget covers the pod.
    """
    covering = [
        entry
        for entry in cluster.collection("poddisruptionbudgets.policy").entries(pod.namespace)
        if _selector_of(entry.decode())(pod)
    ]
    obj = pod.decode()
    status = obj.get("status") or {}
    if not covering or status.get("phase") in (*_FINISHED, "Pending") or obj["metadata"].get("deletionTimestamp"):
        return
    if len(covering) > 1:
        raise Refusal(500, "InternalError", "This pod has more than one PodDisruptionBudget, which the eviction "
                      "subresource does not support.")  # fmt: skip
    budget = covering[0].decode()
    covers = _selector_of(budget)
    covered = [candidate for candidate in _unfinished(cluster, pod.namespace) if covers(candidate)]
    figures = _counts(budget, covered, sum(_healthy(candidate.decode()) for candidate in covered))
    # An unhealthy pod may go while the budget is met without it (policy IfHealthyBudget, the default).
    always = (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
    if not _healthy(obj) and (always or figures["currentHealthy"] >= figures["desiredHealthy"] > 0):
        return
    if figures["disruptionsAllowed"] <= 0:
        name = covering[0].name
        needs = f"The disruption budget {name} needs {figures['desiredHealthy']} healthy pods and has "
        raise too_many(
            "Cannot evict pod as it would violate the pod's disruption budget.",
            10,
            [Cause("", f"{needs}{figures['currentHealthy']} currently", "DisruptionBudget")],
        )
    del dry_run
