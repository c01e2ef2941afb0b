"""PodDisruptionBudgets: their status as a disruption controller would keep it, and whether an eviction is allowed.

Called by `pod_subresources` (evictions) and `reactions` (a budget or one of its pods changed).
"""

from __future__ import annotations

import math
from typing import Any

from cotide_sim.apiserver.cluster import Cluster
from cotide_sim.apiserver.refusals import Cause, Refusal, too_many
from cotide_sim.apiserver.registry.resources import Json
from cotide_sim.apiserver.storage.selectors import label_selector_of
from cotide_sim.apiserver.storage.store import Entry

_FINISHED = ("Succeeded", "Failed")


def selects(budget: Json, pod: Entry) -> bool:
    """Say whether a budget covers a pod; policy/v1: an empty selector covers all, an absent one none."""
    requirements = label_selector_of((budget.get("spec") or {}).get("selector"))
    return requirements is not None and all(requirement(pod.labels) for requirement in requirements)


def _healthy(pod: Json) -> bool:
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _scaled(bound: Any, total: int) -> int:
    if isinstance(bound, str):
        return math.ceil(int(bound.rstrip("%")) * total / 100)
    return int(bound)


def counts(cluster: Cluster, budget: Json) -> dict[str, int]:
    """Return the status counts of a budget.

    The expected number is the number of pods that the budget covers: no controllers with replicas run here.
    """
    pods = cluster.collection("pods")
    phase = list(pods.resource.selectable).index("status.phase")
    covered = [
        pod.decode()
        for pod in pods.entries(budget["metadata"]["namespace"])
        if pod.fields[phase] not in _FINISHED and selects(budget, pod)
    ]
    healthy = sum(map(_healthy, covered))
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


def refresh(cluster: Cluster, entry: Entry) -> None:
    """Write a budget's status, if it changed."""
    budgets = cluster.collection("poddisruptionbudgets.policy")
    budget = entry.decode()
    figures = counts(cluster, budget)
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
    """Return when no budget objects to the eviction of a pod.

    A pod that is unbound, finished or going disturbs nobody and is always let go.

    Raises
    ------
    Refusal
        429 when a budget has no disruption left; 500 when more than one budget covers the pod.
    """
    covering = [
        entry
        for entry in cluster.collection("poddisruptionbudgets.policy").entries(pod.namespace)
        if selects(entry.decode(), pod)
    ]
    obj = pod.decode()
    status = obj.get("status") or {}
    if not covering or status.get("phase") in (*_FINISHED, "Pending") or obj["metadata"].get("deletionTimestamp"):
        return
    if len(covering) > 1:
        raise Refusal(500, "InternalError", "This pod has more than one PodDisruptionBudget, which the eviction "
                      "subresource does not support.")  # fmt: skip
    budget = covering[0].decode()
    figures = counts(cluster, budget)
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
