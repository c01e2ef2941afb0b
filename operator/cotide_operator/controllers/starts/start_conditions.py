"""The condition of a Job or Workload about pods that hold a node and do not start, and how the next pod avoids that
node.

Called by `job_controller` and `workload_controller`. Pure.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final

from cotide_core.units import counted
from cotide_operator.controllers.child_pods import ChildPod, Manifest

STARTED: Final = "PodsStarted"
"""Condition of a Job or a Workload: False from the first pod that its kubelet can't start, or starts slowly, until a
pod runs."""
CANNOT_START: Final = "CannotStart"
NOT_STARTED: Final = "NotStarted"
NAMED: Final = 3
"""Pods that a condition names; chosen: each brings up to 300 characters of a kubelet's words."""
_AVERSION: Final = 100
"""Weight of a preference against a node, the largest that the API takes."""

Condition = dict[str, Any]


def started_condition(
    pods: Sequence[ChildPod],
    slow: Container[str],
    before: Iterable[Mapping[str, Any]],
    *,
    held_back: int = 0,
    kept: bool = False,
) -> Condition | None:
    """Return the condition `STARTED`, without its times; None leaves it as it is.

    Parameters
    ----------
    slow : uids of pods that create their containers for long.
    before : the present conditions.
    held_back : pods that are made only once one runs.
    kept : whether pods that can't be started are kept: then the obstacle is over once no pod is left.
    """
    stuck = [(pod, pod.cannot_start) for pod in pods if pod.cannot_start and pod.alive]
    creating = [(pod, pod.creating) for pod in pods if pod.creating and pod.uid in slow and pod.alive]
    rest = f"; {counted(held_back, 'more pod')} made once one runs" if held_back else ""
    if stuck:
        sentence = f"{counted(len(stuck), 'pod')} can't be started: {_named(stuck)}{rest}"
        return {"type": STARTED, "status": "False", "reason": CANNOT_START, "message": sentence}
    if creating:
        sentence = f"{counted(len(creating), 'pod')} not started yet: {_named(creating)}{rest}"
        return {"type": STARTED, "status": "False", "reason": NOT_STARTED, "message": sentence}
    refused = any(condition.get("type") == STARTED and condition.get("status") == "False" for condition in before)
    if refused and (any(pod.phase in ("Running", "Succeeded") for pod in pods) or (kept and not pods)):
        return {"type": STARTED, "status": "True", "reason": "Started", "message": "pods are started"}
    return None


def _named(pods: Sequence[tuple[ChildPod, str]]) -> str:
    named = "; ".join(f"{pod.name} on {pod.node}: {why}" for pod, why in pods[:NAMED])
    return f"{named}; and {len(pods) - NAMED} more" if len(pods) > NAMED else named


def avoiding(pod: Manifest, nodes: Iterable[str]) -> Manifest:
    """Return a pod that prefers all nodes but these, where its template leaves a choice."""
    terms = [
        {
            "weight": _AVERSION,
            "preference": {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [node]}]},
        }
        for node in nodes
    ]
    if not terms:
        return pod
    found = copy.deepcopy(pod)
    affinity = found["spec"].get("affinity") or {}
    of_nodes = affinity.get("nodeAffinity") or {}
    preferred = of_nodes.get("preferredDuringSchedulingIgnoredDuringExecution") or []
    of_nodes["preferredDuringSchedulingIgnoredDuringExecution"] = [*preferred, *terms]
    found["spec"]["affinity"] = {**affinity, "nodeAffinity": of_nodes}
    return found
