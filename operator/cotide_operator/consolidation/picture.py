"""`Picture`: a cluster at one moment, as the engine's state and the facts about its pods that the engine does not keep.

`picture_of` makes it from an `ObjectCache` that the command (`official_client`) or the operator's reflectors filled;
`picture_of_ledger` makes it from a recorded ledger. The commands and the `controller` read it. Unlike the operator's
own translation, it keeps the constraints of running pods: they apply again when such a pod moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.consolidation.removal.stays import Constraints, MoveRules, PodFacts
from cotide_core.consolidation.removal.wanted import WantedNodes
from cotide_core.errors import InputError
from cotide_core.events import NamespaceUpserted, Node, NodeUpserted, Pod, PodPhase, PodUpserted, WorkloadUpserted
from cotide_core.limits import MAX_SECONDS
from cotide_core.recording.ledger import Ledger
from cotide_core.state.cluster_state import ClusterState
from cotide_core.units import counted
from cotide_kube.objects import PodObject
from cotide_kube.timestamps import parse_timestamp
from cotide_operator.cache.object_cache import ObjectCache, controller_of, key_of
from cotide_operator.config.object_names import DEFAULT_SCHEDULER_NAME
from cotide_operator.consolidation.carrier import is_unschedulable
from cotide_operator.scheduling.disruption_budgets import budgets_by_namespace, covering, drawn_on, goes_now
from cotide_operator.translation.eviction_annotations import (
    faults,
    is_mirror,
    loses_local_storage,
    node_annotation_faults,
    node_protection,
    preferences_of,
)
from cotide_operator.translation.namespace_limits import translate_namespace
from cotide_operator.translation.pod_times import PodTimes
from cotide_operator.translation.pods_and_nodes import (
    ownership_of,
    translate_node,
    translate_pod,
    translate_workload,
)

T = TypeVar("T")

SPREAD: Final = 2.0
"""p90 over p50 of a run time where only an estimate is known, as in the engine's own heuristic."""


@dataclass(frozen=True)
class Picture:
    """A cluster at one moment.

    Attributes
    ----------
    facts, budgets : in the form of `Constraints`.
    owners : by pod key, the uid of the controller that would make it again.
    kept_nodes : by name, why no program may take a node out of service.
    waiting : keys of the pods that wait for a node: ours, and those that another scheduler found unschedulable.
    warnings : one sentence for each thing that could not be read.
    config : of the engine that recorded the ledger; the default for a live cluster.
    """

    state: ClusterState
    now: float
    facts: Mapping[str, PodFacts]
    budgets: Mapping[str, int]
    owners: Mapping[str, str] = field(default_factory=dict)
    kept_nodes: Mapping[str, str] = field(default_factory=dict)
    waiting: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()
    config: SchedulerConfig = field(default_factory=SchedulerConfig)

    def constraints(self, rules: MoveRules) -> Constraints:
        """Return the constraints that decide whether a pod may move."""
        return Constraints(rules, self.facts, self.budgets)

    def holds_up(self) -> bool:
        """Whether a pod waits that some node could take if it were empty: then nothing is consolidated."""
        waiting = [record.pod for record in self.state.records() if record.pod.key in self.waiting]
        return WantedNodes().of(self.state, waiting, ()).hope


def picture_of(
    cache: ObjectCache,
    now: float,
    known: Mapping[str, Pod] = MappingProxyType({}),
    scheduler_names: tuple[str, ...] = (DEFAULT_SCHEDULER_NAME,),
) -> Picture:
    """Translate the objects of a cache.

    Parameters
    ----------
    now : epoch seconds, or those of the operator's clock.
    known : pods in the engine's state, by key: their times are more exact than those of the API, which are cut to
        seconds.
    scheduler_names : of the pods that Cotide places; the engine decides about those in ``known``.

    An object that can't be translated is left out with a warning; a pod is left out with its node.
    """
    state = ClusterState()
    warnings: list[str] = []
    for key, workload in cache.workloads.items():
        found = _read(f"Workload {key}", partial(translate_workload, workload), warnings)
        if found is not None:
            state.apply(WorkloadUpserted(found))
    for name, namespace in cache.namespaces.items():
        labelled = _read(f"namespace {name}", partial(translate_namespace, namespace, labels=True), warnings)
        if labelled is not None:
            state.apply(NamespaceUpserted(labelled))
    pods = {
        key: _read(f"pod {key}", partial(_translated, pod, cache, scheduler_names), warnings)
        for key, pod in cache.pods.items()
    }
    # Without one of its pods a node might look empty, and be freed.
    holds = {cache.pods[key].spec.node_name: key for key, pod in pods.items() if pod is None}
    for name, node in cache.nodes.items():
        if name in holds:
            warnings.append(f"node {name} is left out: pod {holds[name]} on it can't be read")
            continue
        offered = _read(f"node {name}", partial(translate_node, node), warnings)
        if offered is not None:
            state.apply(NodeUpserted(offered))
    facts: dict[str, PodFacts] = {}
    owners: dict[str, str] = {}
    by_namespace = budgets_by_namespace(cache)
    for key, pod in cache.pods.items():
        translated = pods[key]
        if translated is None:
            continue
        as_known = known.get(key)
        if as_known is not None and as_known.uid == translated.uid:
            translated = translated._replace(
                created_seconds=as_known.created_seconds,
                started_seconds=as_known.started_seconds,
                ours=as_known.ours,
            )
        state.apply(PodUpserted(translated))
        owner = controller_of(pod.metadata)
        if owner is not None:
            owners[key] = owner.uid
        drawn = drawn_on(pod, covering(pod, by_namespace))
        facts[key] = _facts(
            pod,
            translated,
            cache,
            tuple(key_of(pod_disruption_budget_object.metadata) for pod_disruption_budget_object in drawn),
            now,
        )
    budgets = {key: goes_now(budget) for key, budget in cache.poddisruptionbudgets.items()}
    warnings += _unreadable("pod", {key: faults(pod.metadata.annotations) for key, pod in cache.pods.items()})
    warnings += _unreadable("node", {name: node_annotation_faults(node) for name, node in cache.nodes.items()})
    kept = {
        name: why
        for name, node in cache.nodes.items()
        if (why := node_protection(node.metadata.labels, node.metadata.annotations))
    }
    waiting = frozenset(
        record.pod.key
        for record in state.records()
        if _waits(record.pod) and (record.pod.ours or is_unschedulable(cache.pods[record.pod.key]))
    )
    return Picture(state, now, facts, budgets, owners, kept, waiting, tuple(warnings))


def _waits(pod: Pod) -> bool:
    return pod.node is None and pod.phase is PodPhase.PENDING and not pod.terminating and not pod.gates


def _unreadable(kind: str, found: Mapping[str, list[str]]) -> list[str]:
    """Return one warning for each unreadable annotation: its first object, and the number of further ones."""
    first: dict[str, str] = {}
    more: dict[str, int] = {}
    for name, sentences in found.items():
        for sentence in sentences:
            annotation = sentence.partition(": ")[0]
            if annotation in first:
                more[annotation] = more.get(annotation, 0) + 1
            first.setdefault(annotation, f"{kind} {name}: {sentence}")
    further = {annotation: f"; the same on {counted(count, 'more ' + kind)}" for annotation, count in more.items()}
    return [sentence + further.get(annotation, "") for annotation, sentence in first.items()]


def _read(what: str, translate: Callable[[], T | None], warnings: list[str]) -> T | None:
    """Return the translation of an object; None, and a warning, when it fails: a faulty object affects only itself."""
    try:
        return translate()
    except Exception as error:  # noqa: BLE001 - one faulty object must not end the plan for all others
        why = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error!s:.200}"
        warnings.append(f"{what} is left out: {why}")
        return None


def _translated(pod: PodObject, cache: ObjectCache, scheduler_names: tuple[str, ...]) -> Pod:
    """Translate a pod as if it had to be placed, with its constraints, and put it on its node."""
    free = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
    created = _seconds(pod.metadata.creation_timestamp)
    times = PodTimes(pod.metadata.uid, created or 0.0, _seconds(pod.status.start_time))
    translated = translate_pod(free, ownership_of(pod, cache), times, (pod.spec.scheduler_name,))
    return translated._replace(node=pod.spec.node_name or None, ours=pod.spec.scheduler_name in scheduler_names)


def _facts(pod: PodObject, translated: Pod, cache: ObjectCache, budgets: tuple[str, ...], now: float) -> PodFacts:
    wish = preferences_of(pod.metadata.annotations)
    p50, p90 = _remaining(translated, cache, now)
    local = loses_local_storage(pod.metadata.annotations, pod.spec.volumes)
    return PodFacts(
        controlled=controller_of(pod.metadata) is not None or wish.movable,
        goes_with_node=goes_with_node(pod),
        keeps_node=wish.keeps_node,
        local_storage=local and not wish.movable,
        budgets=budgets,
        remaining_p50=p50,
        remaining_p90=p90,
    )


def goes_with_node(pod: PodObject) -> bool:
    """Whether a pod is a DaemonSet's or a mirror pod, which needs no other node."""
    owner = controller_of(pod.metadata)
    return (owner is not None and owner.kind in ("DaemonSet", "Node")) or is_mirror(pod.metadata.annotations)


def _remaining(pod: Pod, cache: ObjectCache, now: float) -> tuple[float, float]:
    """Return p50 and p90 of the seconds until a pod ends: its Job's forecast, else its estimate, else infinity."""
    if pod.workload_class is WorkloadClass.ONLINE:
        return float("inf"), float("inf")
    job = cache.jobs.get(pod.job) if pod.job is not None else None
    predicted: Any = job.status.get("predictedSeconds") if job is not None else None
    lone: tuple[float, float] | None = None
    if isinstance(predicted, dict) and all(_is_time(predicted.get(text)) for text in ("p50", "p90")):
        lone = float(predicted["p50"]), float(predicted["p90"])
    elif pod.requested_seconds is not None:
        lone = pod.requested_seconds, SPREAD * pod.requested_seconds
    if lone is None:
        return float("inf"), float("inf")
    ran = 0.0 if pod.started_seconds is None else max(0.0, now - pod.started_seconds)
    return max(0.0, lone[0] - ran), max(0.0, lone[1] - ran)


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) <= MAX_SECONDS


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else parse_timestamp(text)
    except InputError:
        return None


def picture_of_ledger(lines: Iterable[bytes], at: float | None = None) -> Picture:
    """Read the cluster from a recorded ledger at a time (its own seconds), or at its end.

    Parts that a ledger does not hold count as no hindrance: owners, volumes and budgets. Estimates of run times are
    used as in the engine's heuristic.

    Raises
    ------
    InputError
        When the ledger has no record up to that time, or none at all.
    """
    state = ClusterState()
    ledger = Ledger(lines)
    asked: dict[str, Pod] = {}
    now: float | None = None
    begins: float | None = None
    for entry in ledger:
        if begins is None:
            begins = entry.now
        if at is not None and entry.now > at:
            break
        now = entry.now
        for event in entry.events:
            if isinstance(event, PodUpserted):
                event = PodUpserted(_with_constraints(event.pod, asked))  # noqa: PLW2901 - the same event, completed
            state.apply(event)
    if now is None:
        if begins is None:
            raise InputError("nothing was recorded in this ledger yet", field="--ledger")
        raise InputError(f"nothing was recorded up to this time: the ledger begins at {begins:.0f}", field="--at")
    facts = {}
    for record in state.records():
        p50, p90 = _remaining(record.pod, ObjectCache(), now)
        facts[record.pod.key] = PodFacts(remaining_p50=p50, remaining_p90=p90)
    warning = "a ledger holds no owners, volumes, budgets and annotations of nodes: they count as no hindrance"
    nodes = [node for node in state.columns.nodes if node is not None]
    kept = {node.name: why for node in nodes if (why := node_protection(dict(node.labels), {}))}
    waiting = frozenset(
        pod_record.pod.key for pod_record in state.records() if pod_record.pod.ours and _waits(pod_record.pod)
    )
    return Picture(state, now, facts, {}, kept_nodes=kept, waiting=waiting, warnings=(warning,), config=ledger.config)


def _with_constraints(pod: Pod, asked: dict[str, Pod]) -> Pod:
    """Give a placed pod the constraints from its record while it waited."""
    before = asked.get(pod.uid)
    if pod.node is None or before is None:
        asked[pod.uid] = pod
        return pod
    return pod._replace(
        node_selector=before.node_selector,
        node_terms=before.node_terms,
        tolerations=before.tolerations,
        unsupported=before.unsupported,
        rules=before.rules,
        volume_terms=before.volume_terms,
        open_claims=before.open_claims,
        sole_claims=before.sole_claims,
    )


def instance_types(nodes: Iterable[Node], label: str) -> dict[str, str]:
    """Return the instance type of each node that has one."""
    return {node.name: labels[label] for node in nodes if label in (labels := dict(node.labels))}
