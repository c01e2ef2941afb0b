"""Capacity in the operator's cache: nodes of known types, and the pods that need room on them.

Called by `controller`: `nodes_of` at each look in the loop's thread, `live_view` for each plan in a thread, on copies.
A waiting pod counts only if a new machine of a known type would take it: a pod that no node can help must not start
one. Pods that ask for reclaimed capacity run in the slack of other pods. They need a machine only as far as the slack
of the open nodes does not hold the waiting ones. Free room does not count on a node that refuses all waiting pods,
because of a taint or a shortage of disk. Invariant: a node counts as lost only when it has been not ready for longer
than a boot may take: a node that boots must not be replaced.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import nan
from typing import Final, NamedTuple

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.errors import InputError
from cotide_core.events import Node, Pod, PodPhase, Taint, Toleration
from cotide_core.placement.node_predicates import refusal
from cotide_core.provisioning.node_orders import NodeView
from cotide_core.state.shapes import Constraints
from cotide_core.units import CPU, MEMORY, RECLAIMED_CPU, RECLAIMED_MEMORY, resource_amount
from cotide_kube.objects import NodeObject, PodObject
from cotide_kube.timestamps import parse_timestamp
from cotide_operator.cache.object_cache import ObjectCache, controller_of
from cotide_operator.clock import Clock
from cotide_operator.config.provisioning_settings import ProvisioningSettings
from cotide_operator.provisioning.cluster_view import ORDER_LABEL, ClusterView, made_view
from cotide_operator.translation.eviction_annotations import is_mirror
from cotide_operator.translation.pods_and_nodes import translate_node

HOSTNAME: Final = "kubernetes.io/hostname"
CONDITION_PREFIX: Final = "node.kubernetes.io/"
"""Prefix of the taints that the node controller sets for a node's conditions."""
OVER: Final = (PodPhase.SUCCEEDED, PodPhase.FAILED)
MAX_TAINTS: Final = 16
"""Different sets of taints that are considered for the nodes of one type; chosen: pools have one or two."""
_WAITS: Final = 4
"""Column of a row: whether the pod waits."""
RECLAIMED: Final = ((RECLAIMED_CPU, CPU), (RECLAIMED_MEMORY, MEMORY))


@dataclass(frozen=True, slots=True)
class NodeNow:
    """A node of a known type.

    Attributes
    ----------
    since : when it came, in seconds of the clock. lost : whether it has been not ready for longer than a boot may take.
    """

    view: NodeView
    since: float
    lost: bool


@dataclass(frozen=True, slots=True, eq=False)
class LiveView:
    """The pods and nodes of a plan.

    Attributes
    ----------
    hopeless : waiting pods that no machine would help; the view omits them.
    longest_wait_seconds : of the other waiting pods.
    """

    view: ClusterView
    hopeless: tuple[str, ...]
    longest_wait_seconds: float


class _Wanting(NamedTuple):
    """A pod of the view: its row, the types that take it, and its tolerations."""

    row: tuple[float, ...]
    able: tuple[bool, ...]
    tolerations: tuple[Toleration, ...] = ()


def nodes_of(
    nodes: Mapping[str, NodeObject], settings: ProvisioningSettings, clock: Clock
) -> tuple[list[NodeNow], list[str]]:
    """Return the nodes of known types, and the names of the others."""
    kinds = {kind.name for kind in settings.machine_types}
    known, unknown = [], []
    now = clock.now()
    for name, node in nodes.items():
        kind = node.metadata.labels.get(settings.node_type_label, "")
        if kind not in kinds:
            unknown.append(name)
            continue
        order, uid = node.metadata.labels.get(ORDER_LABEL), node.metadata.uid
        view = NodeView(name, kind, order, node.spec.unschedulable, uid=uid)
        came = _seconds(node.metadata.creation_timestamp, clock, now)
        ready = next((condition for condition in node.status.conditions if condition.type == "Ready"), None)
        lost = False
        if ready is None or ready.status != "True":
            since = came if ready is None else max(came, _seconds(ready.last_transition_time, clock, came))
            lost = now - since > settings.boot_deadline_seconds
        known.append(NodeNow(view, came, lost))
    return known, unknown


def _seconds(text: str | None, clock: Clock, missing: float) -> float:
    try:
        return missing if text is None else clock.from_wall(parse_timestamp(text))
    except InputError:
        return missing


def comes_with_node(pod: PodObject) -> bool:
    """Whether a pod is a DaemonSet's or a mirror pod: each node has its own, and it does not wait for a machine."""
    owner = controller_of(pod.metadata)
    return (owner is not None and owner.kind in ("DaemonSet", "Node")) or is_mirror(pod.metadata.annotations)


def live_view(
    cache: ObjectCache,
    known: Mapping[str, Pod],
    nodes: Sequence[NodeView],
    unknown: Sequence[str],
    slack: Iterable[tuple[int, int]],
    settings: ProvisioningSettings,
    now: float,
    *,
    young: Set[str] = frozenset(),
) -> LiveView:
    """Return the view of nodes and pods.

    Parameters
    ----------
    cache : a copy that no other task changes. known : pods as the engine received them, by key.
    nodes : the nodes that count. slack : reclaimed millicores and bytes that are free on each open node.
    young : nodes that may still be booting: a taint that is removed after the boot closes none of them.
    """
    held = Counter({node.name: 0 for node in nodes})
    samples = _samples(cache, settings)
    takes: dict[tuple[object, ...], tuple[bool, ...]] = {}
    rows: list[_Wanting] = []
    hopeless, wanting, longest = [], [], 0.0
    for key, pod in known.items():
        found = cache.pods.get(key)
        if found is None or pod.phase in OVER or pod.gates or comes_with_node(found):
            continue
        if pod.node is not None:
            if pod.node in held:
                held[pod.node] += 1
                rows.append(_Wanting(_row(pod, dict(pod.requests), now), (True,) * len(samples)))
            continue
        if pod.terminating:
            continue
        shape = (pod.requests, pod.node_selector, pod.node_terms, pod.tolerations, pod.volume_terms)
        if shape not in takes:
            takes[shape] = tuple(any(_takes(sample, pod) for sample in alike) for alike in samples)
        if not any(takes[shape]):
            hopeless.append(key)
            continue
        longest = max(longest, now - pod.created_seconds)
        if any(amount for name, amount in pod.requests if name in (RECLAIMED_CPU, RECLAIMED_MEMORY)):
            wanting.append((pod, takes[shape]))
        else:
            rows.append(_Wanting(_row(pod, dict(pod.requests), now), takes[shape], pod.tolerations))
    beyond = {pod.key for pod in beyond_slack((pod for pod, _ in wanting), slack)}
    rows += [
        _Wanting(_row(pod, _as_plain(pod), now), able, pod.tolerations) for pod, able in wanting if pod.key in beyond
    ]
    needing = [row for row in rows if row.row[0] or row.row[1]]
    machines = _translated(cache, nodes)
    free = _free(machines, known.values(), nodes)
    views = [replace(node, pods=held[node.name]) for node in nodes]
    view = made_view(views, unknown, [one.row for one in needing], free, [one.able for one in needing])
    kinds = [kind.name for kind in settings.machine_types]
    old = [(node, room) for node, room in zip(nodes, free, strict=True) if node.name not in young]
    shut = _shut(old, machines, [one for one in needing if one.row[_WAITS]], kinds)
    return LiveView(replace(view, shut=shut), tuple(hopeless), longest)


def _translated(cache: ObjectCache, nodes: Sequence[NodeView]) -> dict[str, Node]:
    """Return the readable nodes as the engine sees them."""
    found = {}
    for node in nodes:
        with contextlib.suppress(InputError, KeyError):
            found[node.name] = translate_node(cache.nodes[node.name])
    return found


def _free(machines: Mapping[str, Node], pods: Iterable[Pod], nodes: Sequence[NodeView]) -> list[tuple[float, float]]:
    """Return the millicores and bytes of each node that no pod on it requests; DaemonSet pods count too."""
    used: dict[str, list[float]] = {node.name: [0.0, 0.0] for node in nodes}
    for pod in pods:
        if pod.node in used and pod.phase not in OVER:
            asked = dict(pod.requests)
            used[pod.node][0] += asked.get(CPU, 0)
            used[pod.node][1] += asked.get(MEMORY, 0)
    found = []
    for node in nodes:
        machine = machines.get(node.name)
        has: Mapping[str, float] = {} if machine is None else dict(machine.allocatable)
        cpu, memory = used[node.name]
        found.append((has.get(CPU, nan) - cpu, has.get(MEMORY, nan) - memory))
    return found


def _shut(
    nodes: Sequence[tuple[NodeView, tuple[float, float]]],
    machines: Mapping[str, Node],
    waiting: Sequence[_Wanting],
    kinds: Sequence[str],
) -> frozenset[str]:
    """Return the nodes that refuse every waiting pod that their type would take and their free room would hold.

    They refuse because of their own taint or condition: a person reserves the node, or its disk is full.
    """
    wishes = list({(wanting.row[:2], wanting.able, wanting.tolerations) for wanting in waiting})
    needs = np.array([need for need, _, _ in wishes], np.float64).reshape(-1, 2)
    able = np.array([types for _, types, _ in wishes], np.bool_).reshape(-1, len(kinds))
    tolerances = {tolerations: number for number, tolerations in enumerate({pair for _, _, pair in wishes})}
    tolerance = np.array([tolerances[pair] for _, _, pair in wishes], np.int64)
    known: dict[tuple[object, ...], tuple[bool, ...]] = {}
    found = []
    for node, room in nodes:
        machine = machines.get(node.name)
        if machine is None or not (machine.pressures or _own_taints(machine)):
            continue
        key = machine.taints, machine.pressures
        if key not in known:
            plain = replace(machine, taints=_own_taints(machine), unschedulable=False, ready=True)
            known[key] = tuple(
                refusal(plain, Constraints((), (), tolerations, ()), labelled=True, volumes="") is not None
                for tolerations in tolerances
            )
        # All pods at once: thousands of nodes may have a taint, and thousands of pods wait.
        fits = able[:, kinds.index(node.kind)] & ~(needs > np.array(room)).any(axis=1)
        asks = np.bincount(tolerance[fits], minlength=len(tolerances)) > 0
        if asks.any() and np.array(known[key])[asks].all():
            found.append(node.name)
    return frozenset(found)


def _own_taints(node: Node) -> tuple[Taint, ...]:
    """Return the taints that keep pods away, except those of its conditions, which come and go."""
    return tuple(
        taint
        for taint in node.taints
        if taint.effect in ("NoSchedule", "NoExecute") and not taint.key.startswith(CONDITION_PREFIX)
    )


def beyond_slack(waiting: Iterable[Pod], slack: Iterable[tuple[int, int]]) -> list[Pod]:
    """Return the pods that ask for reclaimed capacity and do not find it: first fit, in the given order."""
    left = [list(amounts) for amounts in slack]
    found = []
    for pod in waiting:
        asked = dict(pod.requests)
        need = [asked.get(name, 0) for name, _ in RECLAIMED]
        free = next((group for group in left if all(has >= more for has, more in zip(group, need, strict=True))), None)
        if free is None:
            found.append(pod)
        else:
            free[:] = [has - more for has, more in zip(free, need, strict=True)]
    return found


def _as_plain(pod: Pod) -> dict[str, int]:
    """Return the requests of a pod, with reclaimed capacity as plain capacity of the machine that would offer it."""
    asked = dict(pod.requests)
    return {plain: asked.get(plain, 0) + asked.get(name, 0) for name, plain in RECLAIMED}


def _row(pod: Pod, asked: Mapping[str, int], now: float) -> tuple[float, ...]:
    waits = pod.node is None
    age = 0.0 if waits or pod.started_seconds is None else max(now - pod.started_seconds, 0.0)
    online = pod.workload_class is WorkloadClass.ONLINE
    return float(asked.get(CPU, 0)), float(asked.get(MEMORY, 0)), float(pod.priority), age, float(waits), float(online)


def _samples(cache: ObjectCache, settings: ProvisioningSettings) -> list[list[tuple[Node, dict[str, int]]]]:
    """Return machines of each type as they would come: like the existing ones, otherwise with the label only.

    There is one for each set of taints that nodes of the type have: a taint that a person set does not predict the next
    machine. A type without machines has None.
    """
    kinds = {kind.name for kind in settings.machine_types}
    seen: dict[str, dict[tuple[Taint, ...], Node]] = {name: {} for name in kinds}
    for one in cache.nodes.values():
        alike = seen.get(one.metadata.labels.get(settings.node_type_label, ""))
        if alike is None or len(alike) == MAX_TAINTS or (() in alike and not one.spec.taints):
            continue
        with contextlib.suppress(InputError):
            node = _another(translate_node(one))
            alike.setdefault(node.taints, node)
    found: list[list[tuple[Node, dict[str, int]]]] = []
    for kind in settings.machine_types:
        amounts = {CPU: resource_amount(CPU, kind.cpu), MEMORY: resource_amount(MEMORY, kind.memory)}
        bare = Node(kind.name, tuple(amounts.items()), labels=((settings.node_type_label, kind.name),))
        offered = amounts | {name: amounts[plain] for name, plain in RECLAIMED}
        nodes = list(seen[kind.name].values()) or [bare]
        found.append([(node, {**dict(node.allocatable), **offered}) for node in nodes] if kind.count else [])
    return found


def _another(node: Node) -> Node:
    """Return a node like this one under an unused name, without the conditions and marks of this one."""
    labels = tuple((key, value) for key, value in node.labels if key != HOSTNAME)
    return replace(
        node, name="", labels=labels, taints=_own_taints(node), unschedulable=False, ready=True, pressures=()
    )


def _takes(sample: tuple[Node, dict[str, int]], pod: Pod) -> bool:
    node, offers = sample
    if any(amount > offers.get(name, 0) for name, amount in pod.requests if amount):
        return False
    wished = Constraints(pod.node_selector, pod.node_terms, pod.tolerations, pod.volume_terms)
    return refusal(node, wished) is None
