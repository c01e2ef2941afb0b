"""Capacity of the cluster: nodes by machine type, and pods as tasks.

Called by `cotide capacity`; the operator makes the same from its cache (`live_view`). First step of the flow: API
objects to values. Invariants: a pod that its class does not show as batch or gratis counts as online; nodes without a
known type are reported and stay unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from cotide_core.classes import CLASS_LABEL
from cotide_core.errors import InputError
from cotide_core.limits import INT32_MOST
from cotide_core.provisioning.node_orders import NodeView
from cotide_core.units import CPU, MEMORY, resource_amount
from cotide_kube.objects import PodSpec
from cotide_kube.plain_objects import OddObjectError, named
from cotide_kube.timestamps import parse_timestamp
from cotide_operator.translation.eviction_annotations import is_mirror, node_protection
from cotide_operator.translation.pod_requests import effective_requests

Floats = NDArray[np.float64]

ORDER_LABEL: Final = "cotide.dev/node-order"
"""A node that was started for an order carries its id here: the actuator sets it by the kubelet's ``--node-labels``."""
NOT_ONLINE: Final = ("batch", "gratis")
_OVER: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, eq=False)
class ClusterView:
    """Nodes and pods at one moment.

    Attributes
    ----------
    nodes : of known types; ``unknown`` are names of the others, and of nodes that stay unchanged.
    need : (n, 2) millicores and bytes of the pods that run on nodes of known types or wait.
    priority, age : (n,) the pod's priority, and seconds since its start; 0 for one that waits.
    waiting : (n,) whether it waits.
    online : (n,) whether it is an online service's, which no forecast ends.
    free : (nodes, 2) millicores and bytes that no pod on a node requests; NaN where a node reports no capacity.
    takes : (n, types) whether a machine of a type would take the pod; None where sizes alone decide.
    closed : orders of nodes that stay unchanged since a person has cordoned them.
    others : names of nodes of no known type, and whether each is cordoned.
    shut : nodes that refuse the waiting pods, whatever is free on them.
    """

    nodes: tuple[NodeView, ...]
    unknown: tuple[str, ...]
    need: Floats
    priority: Floats
    age: Floats
    waiting: NDArray[np.bool_]
    online: NDArray[np.bool_]
    free: Floats
    takes: NDArray[np.bool_] | None = None
    closed: frozenset[str] = frozenset()
    others: Mapping[str, bool] = field(default_factory=dict)
    shut: frozenset[str] = frozenset()


def view_of(
    nodes: Sequence[Mapping[str, Any]],
    pods: Sequence[Mapping[str, Any]],
    label: str,
    kinds: Sequence[str],
    now: float,
    ours: Set[str] = frozenset(),
    freed: Set[str] = frozenset(),
    *,
    lost: Set[str] = frozenset(),
) -> ClusterView:
    """Return the view of nodes and pods that `plain_objects` has checked.

    ``ours``: nodes that Cotide cordoned in order to stop them. Any other cordoned node belongs to a person and stays
    unchanged, and so do its pods. ``freed``: nodes of ``ours`` that consolidation has emptied. ``lost``: nodes that
    have been not ready for longer than a boot may take: they stay unchanged, too, unless they should stop.

    Raises
    ------
    OddObjectError
        When an amount or a time of a pod can't be read; it names the pod.
    """
    on_node: dict[str, list[Mapping[str, Any]]] = {}
    for pod in pods:
        on_node.setdefault(pod.get("spec", {}).get("nodeName") or "", []).append(pod)
    views, unknown, free, closed = [], [], [], set[str]()
    others: dict[str, bool] = {}
    for node in nodes:
        meta = node["metadata"]
        labels = meta.get("labels") or {}
        kind = labels.get(label, "")
        cordoned = bool(node.get("spec", {}).get("unschedulable"))
        if kind not in kinds:
            unknown.append(meta["name"])
            others[meta["name"]] = cordoned
            continue
        if (cordoned or meta["name"] in lost) and meta["name"] not in ours:
            unknown.append(meta["name"])
            closed.add(labels.get(ORDER_LABEL, ""))
            continue
        there = [pod for pod in on_node.get(meta["name"], []) if needs_node(pod)]
        online = sum(_is_online(pod) for pod in there)
        views.append(
            NodeView(
                meta["name"],
                kind,
                labels.get(ORDER_LABEL),
                cordoned,
                len(there),
                online,
                meta["name"] in freed,
                meta.get("uid", ""),
                is_kept(node),
            )
        )
        free.append(_free(node, on_node.get(meta["name"], ())))
    known = {view.name for view in views} | {""}
    rows = [
        (
            *_need(pod),
            _priority(pod),
            _age(pod, now),
            float(not _spec(pod).get("nodeName")),
            float(_is_online(pod)),
        )
        for name, found in on_node.items()
        if name in known
        for pod in found
        if needs_node(pod)
    ]
    return replace(made_view(views, unknown, rows, free), closed=frozenset(closed - {""}), others=others)


def without_hopeless(view: ClusterView, machines: Floats) -> tuple[ClusterView, int]:
    """Return the view without waiting pods that are larger than any machine, and the number of such pods.

    No machine would help them, and their requests have no bounds. ``machines``: (M, 2) millicores and bytes.
    """
    fits = np.any(np.all(view.need[:, None] <= machines[None], axis=2), axis=1)
    kept = fits | ~view.waiting
    rows = {name: getattr(view, name)[kept] for name in ("need", "priority", "age", "waiting", "online")}
    takes = None if view.takes is None else view.takes[kept]
    return replace(view, **rows, takes=takes), int((~kept).sum())


def made_view(
    nodes: Sequence[NodeView],
    unknown: Sequence[str],
    rows: Sequence[tuple[float, ...]],
    free: Sequence[tuple[float, float]],
    takes: Sequence[Sequence[bool]] | None = None,
) -> ClusterView:
    """Return a view of rows of millicores, bytes, priority, age, and whether a pod waits and is online.

    ``free``: of each node. ``takes``: of each row.
    """
    table = np.array(rows, dtype=np.float64).reshape(-1, 6)
    return ClusterView(
        tuple(nodes),
        tuple(sorted(unknown)),
        table[:, :2],
        table[:, 2],
        table[:, 3],
        table[:, 4] > 0.5,
        table[:, 5] > 0.5,
        np.array(free, dtype=np.float64).reshape(-1, 2),
        np.array(takes, dtype=np.bool_) if takes else None,
    )


def is_kept(node: Mapping[str, Any]) -> bool:
    """Whether the owner or the role of a node forbids taking it out of service."""
    meta = node["metadata"]
    return bool(node_protection(meta.get("labels") or {}, meta.get("annotations") or {}))


def needs_node(pod: Mapping[str, Any]) -> bool:
    """Whether a pod needs a node: it has not ended, no gate holds it, and it does not come with each node.

    Pods that come with each node are those of DaemonSets, and mirror pods of static pods.
    """
    owners = pod["metadata"].get("ownerReferences") or []
    if any(owner.get("kind") in ("DaemonSet", "Node") for owner in owners):
        return False
    if is_mirror(pod["metadata"].get("annotations") or {}):
        return False
    if pod.get("spec", {}).get("schedulingGates"):
        return False
    return (pod.get("status") or {}).get("phase") not in _OVER


def _free(node: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> tuple[float, float]:
    has = (node.get("status") or {}).get("allocatable") or {}
    used = [_need(pod) for pod in pods if (pod.get("status") or {}).get("phase") not in _OVER]
    try:
        return (
            resource_amount(CPU, has[CPU]) - sum(cpu for cpu, _ in used) if CPU in has else np.nan,
            resource_amount(MEMORY, has[MEMORY]) - sum(memory for _, memory in used) if MEMORY in has else np.nan,
        )
    except InputError:
        return np.nan, np.nan


def _is_online(pod: Mapping[str, Any]) -> bool:
    return (pod["metadata"].get("labels") or {}).get(CLASS_LABEL) not in NOT_ONLINE


def _need(pod: Mapping[str, Any]) -> tuple[float, float]:
    try:
        asked = dict(effective_requests(msgspec.convert(_spec(pod), PodSpec)).amounts)
    except InputError as error:
        raise _odd(pod, error) from error
    return float(asked.get(CPU, 0)), float(asked.get(MEMORY, 0))


def _age(pod: Mapping[str, Any], now: float) -> float:
    started = (pod.get("status") or {}).get("startTime")
    if not started or not _spec(pod).get("nodeName"):
        return 0.0
    try:
        return max(now - parse_timestamp(started), 0.0)
    except InputError as error:
        raise _odd(pod, error) from error


def _priority(pod: Mapping[str, Any]) -> float:
    priority = _spec(pod).get("priority") or 0
    if abs(priority) > INT32_MOST + 1:
        raise _odd(pod, f"its priority has {len(str(abs(priority)))} digits")
    return float(priority)


def _spec(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return pod.get("spec") or {}


def _odd(pod: Mapping[str, Any], why: object) -> OddObjectError:
    return OddObjectError(f"{named(pod, 'pod')} is not what an API server sends: {why}")
