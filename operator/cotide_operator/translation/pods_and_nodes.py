"""Translates raw typed objects into core events: pure functions, the only place with both sides.

The loop calls it for each changed object, and the result goes to `Scheduler.handle` only. Invariant: the same object,
ownership and times give an equal value. A change without effect on scheduling (a heartbeat, a foreign label) is thus
found by comparison, and costs the engine nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from sys import intern
from typing import Any, Final

from cotide_core.classes import CLASS_LABEL, CLASSES, WorkloadClass, classify
from cotide_core.errors import InputError
from cotide_core.events import Node, NodeImage, Pod, PodPhase, PodRules, Taint, Workload
from cotide_core.limits import (
    IMAGE_CHARACTERS,
    INT32_MOST,
    LABEL_CHARACTERS,
    MAX_EXACT_INT,
    MAX_IMAGE_NAMES,
    MAX_INDEXES,
    MAX_LATENCY_MILLISECONDS,
    MAX_NODE_IMAGES,
    MAX_NODE_LABELS,
    MAX_NODE_RESOURCES,
    MAX_NODE_TAINTS,
    MAX_SECONDS,
    NUMBER_CHARACTERS,
    QUALIFIED_NAME_CHARACTERS,
)
from cotide_core.units import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    RECLAIMED_CPU,
    RECLAIMED_MEMORY,
    bounded_amount,
    resource_amount,
)
from cotide_kube.objects import Metadata, NodeImageObject, NodeObject, PodObject, Quantity
from cotide_kube.timestamps import parse_timestamp
from cotide_operator.cache.object_cache import CustomObject, ObjectCache, controller_of, key_of, owned_key
from cotide_operator.config.object_names import DEFAULT_SCHEDULER_NAME
from cotide_operator.translation.eviction_annotations import is_mirror, preferences_of
from cotide_operator.translation.gangs import gang_of
from cotide_operator.translation.kubelet_refusals import pressures
from cotide_operator.translation.namespace_limits import max_priorities
from cotide_operator.translation.pod_groups import DeclaredGang, declared
from cotide_operator.translation.pod_spec import SpecReader, reclaims
from cotide_operator.translation.pod_times import PodTimes
from cotide_operator.translation.volumes.claims import VolumeFacts

TYPE_ANNOTATION: Final = "cotide.dev/type"
INPUT_SIZE_ANNOTATION: Final = "cotide.dev/input-size"
REQUESTED_SECONDS_ANNOTATION: Final = "cotide.dev/requested-seconds"
JOB_PRIORITY_ANNOTATION: Final = "cotide.dev/job-priority"
CORDON_ANNOTATION: Final = "cotide.dev/cordoned-until"
"""On a node: time until which the overload monitor keeps batch and gratis pods off it."""
DEFAULT_LATENCY_MILLISECONDS: Final = 10.0
"""The service limit of Ou 2024, section 4.1, and the default of the Workload schema."""
DEFAULT_JOB_PRIORITY: Final = 100
JOB_PRIORITY_MAX: Final = 1000
NEVER: Final = "Never"
"""``preemptionPolicy`` of a pod that preempts no other pod."""
NO_VOLUMES: Final = VolumeFacts()
IMAGES_KEPT: Final = 8192
"""Images of nodes with names that are stored once (chosen: some MB; nodes have most of theirs in common)."""
REMEMBERED: Final = 1024
"""Cached contexts, and results for them; chosen: many pods share theirs, one takes a microsecond."""

_ALWAYS_COUNTED: Final = (CPU, MEMORY, PODS, EPHEMERAL_STORAGE, RECLAIMED_CPU, RECLAIMED_MEMORY)
_TYPE: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PHASES: Final = {phase.value: phase for phase in PodPhase}
_read_spec: Final = SpecReader()
_SELECTING: Final = {"ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "ReplicationController": "v1"}
LABELS_SHARED: Final = 64
"""Labels of a pod that are shared with others; chosen: most have ten, and a thousand of these take 25 MB at most."""


@dataclass(frozen=True, slots=True)
class PodOwnership:
    """Context of a pod in the cache that decides its class."""

    job: str | None = None
    workload: str | None = None
    owner_class: WorkloadClass | None = None
    owner_kind: str | None = None
    named_class: WorkloadClass | None = None
    """Class of the pod's PriorityClass name, by the configuration."""
    priority_class_value: int | None = None
    """Replaces the pod's priority if the server resolved none."""
    max_class: str | None = None
    job_priority: int | None = None
    """The priority of the Job that owns the pod; None if there is no such Job (any more)."""
    max_priority: int | None = None
    """Highest pod priority that counts in its namespace; the next field is the same for Job priorities."""
    max_job_priority: int | None = None
    job_succeeded: int = 0
    """Succeeded pods of the Job that owns the pod, if it is a gang; 0 for all others."""
    gang: DeclaredGang | None = None
    """The gang that a PodGroup or a Workload of ``scheduling.k8s.io`` declares; None for a pod that names neither."""


def ownership_of(pod: PodObject, cache: ObjectCache) -> PodOwnership:
    """Look up a pod's owner, selecting Workload, named PriorityClass and namespace cap."""
    key = key_of(pod.metadata)
    return _ownership(pod, cache, cache.job_of(key), cache.workload_of(key))


def affiliation_of_new(pod: PodObject, cache: ObjectCache) -> PodOwnership:
    """Look up the same for a pod that is being created, and hence is in no index yet."""
    return _ownership(pod, cache, owned_key(pod.metadata, "Job"), cache.workload_for(pod))


def _ownership(pod: PodObject, cache: ObjectCache, job_key: str | None, workload_key: str | None) -> PodOwnership:
    owner_class: WorkloadClass | None = None
    job_priority: int | None = None
    succeeded = 0
    if job_key is not None:
        job = cache.jobs.get(job_key)
        spec: Mapping[str, Any] = job.spec if job is not None else {}
        owner_class = CLASSES.get(str(spec.get("class")), WorkloadClass.BATCH)
        job_priority = _bounded_priority(spec.get("priority")) if job is not None else None
        succeeded = succeeded_of(job)
    elif workload_key is not None:
        owner_class = WorkloadClass.ONLINE
    name = pod.spec.priority_class_name
    named = cache.priorityclasses.get(name) if name else None
    namespace = cache.namespaces.get(pod.metadata.namespace)
    return _interned(
        job_key,
        workload_key,
        owner_class,
        _owner_kind(pod.metadata),
        cache.class_by_priority_class.get(name) if name else None,
        named.value if named is not None else None,
        cache.max_class_of(pod.metadata.namespace),
        job_priority,
        *(max_priorities(namespace) if namespace is not None else (None, None)),
        succeeded,
        declared(pod, cache),
    )


def succeeded_of(job: CustomObject | None) -> int:
    """Return the number of succeeded pods of a gang from its Job's status; 0 for a Job without a gang."""
    if job is None or job.spec.get("gang") is None:  # an empty gang requires all of parallelism
        return 0
    succeeded = job.status.get("succeeded")
    return min(max(0, succeeded), MAX_INDEXES) if isinstance(succeeded, int) else 0


_interned: Final = lru_cache(REMEMBERED)(PodOwnership)


def _owner_kind(metadata: Metadata) -> str | None:
    owner = controller_of(metadata)
    if owner is None:
        return None
    group = owner.api_version.partition("/")[0] if "/" in owner.api_version else ""
    # Stored for comparison: no server bounds its length.
    return (f"{owner.kind}.{group}" if group else owner.kind)[:QUALIFIED_NAME_CHARACTERS]


def _controller(metadata: Metadata) -> str:
    """Return ``Kind/name`` of a controller if its selector counts for a default spread; otherwise empty."""
    owner = controller_of(metadata)
    if owner is None or _SELECTING.get(owner.kind) != owner.api_version:
        return ""
    return intern(f"{owner.kind}/{owner.name}")


def class_of(pod: PodObject, ownership: PodOwnership) -> WorkloadClass:
    """Return the present class of a pod; a static pod is always online, since it can't be evicted."""
    return _class_of(pod, ownership, reclaims(pod.spec))


def _class_of(pod: PodObject, ownership: PodOwnership, reclaiming: bool) -> WorkloadClass:
    if pod.spec.node_name and is_mirror(pod.metadata.annotations):
        return WorkloadClass.ONLINE
    return _class(
        pod.metadata.labels.get(CLASS_LABEL),
        ownership.owner_class,
        ownership.named_class,
        ownership.owner_kind,
        ownership.max_class,
        reclaiming,
    )


@lru_cache(REMEMBERED)
def _class(
    label: str | None,
    owner_class: WorkloadClass | None,
    named_class: WorkloadClass | None,
    owner_kind: str | None,
    max_class: str | None,
    reclaims: bool,
) -> WorkloadClass:
    return classify(
        label=label,
        owner_class=owner_class,
        named_class=named_class,
        owner_kind=owner_kind,
        max_class=max_class,
        reclaims=reclaims,
    )


def translate_pod(
    pod: PodObject,
    ownership: PodOwnership,
    seen: PodTimes,
    scheduler_names: tuple[str, ...] = (DEFAULT_SCHEDULER_NAME,),
    volumes: VolumeFacts | None = None,
    key: str | None = None,
) -> Pod:
    """Return the engine's view of a pod.

    Parameters
    ----------
    scheduler_names : a pod that names one of them is ours to place.
    key : its ``namespace/name``, from a caller that has it: cache and engine then share one string of 70 bytes a pod.
    volumes : the demands of its claims; without it a pod that names claims is Misconfigured.

    A pod of another scheduler counts as usage only: its constraints are not read. A request that is unreadable (API
    servers refuse such requests) or larger than any node makes a pod Misconfigured; it never counts as an empty
    request.
    """
    metadata, spec = pod.metadata, pod.spec
    ours = spec.scheduler_name in scheduler_names
    facts = _read_spec(spec, pod.status)
    annotations = metadata.annotations
    preferences = preferences_of(annotations)
    priority = spec.priority if spec.priority is not None else (ownership.priority_class_value or 0)
    node = spec.node_name or None
    to_place = ours and node is None
    held = volumes or NO_VOLUMES
    gang, lacks = gang_of(
        metadata.namespace, metadata.labels, annotations, ownership.job_succeeded, ownership.gang, spec
    )
    return Pod(
        key=key or key_of(metadata),
        uid=metadata.uid,
        workload_class=_class_of(pod, ownership, facts.reclaims),
        requests=facts.requests,
        created_seconds=seen.created_seconds,
        phase=_PHASES.get(pod.status.phase, PodPhase.PENDING),
        node=node,
        ours=ours,
        terminating=metadata.deletion_timestamp is not None,
        priority=_at_most(min(INT32_MOST, max(-INT32_MOST - 1, priority)), ownership.max_priority),
        job=ownership.job,
        workload=ownership.workload,
        job_priority=_job_priority(annotations, ownership),
        type=_type(annotations.get(TYPE_ANNOTATION)),
        input_bytes=_bytes(annotations.get(INPUT_SIZE_ANNOTATION)),
        requested_seconds=_positive(annotations.get(REQUESTED_SECONDS_ANNOTATION)),
        node_selector=facts.node_selector if to_place else (),
        node_terms=facts.node_terms if to_place else (),
        tolerations=facts.tolerations if to_place else (),
        host_ports=facts.host_ports,
        gates=facts.gates if node is None else (),
        unsupported=facts.unsupported + (facts.claims if volumes is None else ()) + lacks if to_place else (),
        attempts=seen.attempts,
        demotions=seen.demotions,
        started_seconds=seen.started_seconds,
        finished_seconds=seen.finished_seconds,
        do_not_disrupt=preferences.do_not_disrupt,
        protected_seconds=preferences.protected_seconds,
        prefer_no_eviction=preferences.prefer_no_eviction,
        deletion_cost=preferences.deletion_cost,
        nominated_node=(pod.status.nominated_node_name or None) if to_place else None,
        preempts=spec.preemption_policy != NEVER,
        labels=_labels(metadata.labels),
        rules=facts.rules if to_place or concerns_others(facts.rules) else None,
        volume_terms=held.volume_terms if to_place else (),
        open_claims=held.open_claims if to_place else (),
        attachments=held.attachments,
        sole_claims=held.sole_claims,
        blocked=held.blocked if to_place else "",
        gang=gang if ours else None,
        image=spec.containers[0].image[:IMAGE_CHARACTERS] if spec.containers else "",
        images=facts.images if to_place else (),
        unrequested_millicores=facts.unrequested[0],
        unrequested_memory_bytes=facts.unrequested[1],
        controller=_controller(metadata) if to_place else "",
    )


def _job_priority(annotations: Mapping[str, str], ownership: PodOwnership) -> int:
    """Return the priority of a pod's Job: the Job's present value takes precedence over the pod's annotation."""
    stated = ownership.job_priority
    return _at_most(_annotated_priority(annotations) if stated is None else stated, ownership.max_job_priority)


def concerns_others(rules: PodRules | None) -> bool:
    """Whether a placed pod, of any scheduler, repels others or attracts them to its node or another."""
    return rules is not None and bool(rules.anti_affinity or rules.affinity or rules.pod_preferences)


def _labels(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    found = tuple(sorted(labels.items()))
    return _same(found) if len(found) <= LABELS_SHARED else found


@lru_cache(maxsize=REMEMBERED)
def _same(labels: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return the same object for equal labels: pods of one template mostly have the same."""
    return labels


def _at_most(value: int, limit: int | None) -> int:
    return value if limit is None else min(value, limit)


def _annotated_priority(annotations: Mapping[str, str]) -> int:
    text = annotations.get(JOB_PRIORITY_ANNOTATION)
    if text is None:
        return DEFAULT_JOB_PRIORITY
    try:
        return _bounded_priority(int(text) if len(text) <= NUMBER_CHARACTERS else None)
    except ValueError:
        return DEFAULT_JOB_PRIORITY


def _bounded_priority(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        return DEFAULT_JOB_PRIORITY
    return min(JOB_PRIORITY_MAX, max(0, value))


def _type(text: str | None) -> str:
    """Return a valid job type; any other text, as from a copied manifest, counts as none."""
    return text if text and len(text) <= LABEL_CHARACTERS and _TYPE.fullmatch(text) else ""


def _bytes(text: str | None) -> int:
    """Return an input size; an unreadable or impossible one counts as none: predictors treat it as unknown, the pod
    runs."""
    if text is None:
        return 0
    try:
        return max(0, resource_amount("bytes", text))
    except InputError:
        return 0


def _positive(text: str | None) -> float | None:
    """Return a positive number; an unreadable one counts as none, one beyond `limits.MAX_SECONDS` as the maximum."""
    if text is None or len(text) > NUMBER_CHARACTERS:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return min(value, float(MAX_SECONDS)) if math.isfinite(value) and value > 0 else None


def annotation_faults(annotations: Mapping[str, str]) -> list[str]:
    """Return one sentence for each of our annotations with an invalid value."""
    found: list[str] = []
    kind = annotations.get(TYPE_ANNOTATION)
    if kind and not _type(kind):
        found.append(f"annotation {TYPE_ANNOTATION}: {kind[:40]!r} is no job type, and is ignored")
    size = annotations.get(INPUT_SIZE_ANNOTATION)
    if size is not None:
        try:
            resource_amount("bytes", size)
        except InputError as error:
            found.append(f"annotation {INPUT_SIZE_ANNOTATION}: {error}; it is ignored")
    seconds = annotations.get(REQUESTED_SECONDS_ANNOTATION)
    if seconds is not None and (_positive(seconds) is None or _positive(seconds) == MAX_SECONDS):
        found.append(
            f"annotation {REQUESTED_SECONDS_ANNOTATION}: {seconds[:40]!r} is no number of seconds between 0 and "
            f"{MAX_SECONDS}"
        )
    return found


def translate_node(
    node: NodeObject,
    from_wall: Callable[[float], float] = float,
    attach_limits: tuple[tuple[str, int], ...] = (),
    attached: tuple[tuple[str, str], ...] = (),
) -> Node:
    """Return the engine's view of a node; a node with a deletion time takes no more pods.

    Parameters
    ----------
    from_wall : maps epoch seconds of the machine to the operator's clock.
    attach_limits, attached : see `events.Node`; from its CSINode and VolumeAttachments.
    """
    metadata, spec, status = node.metadata, node.spec, node.status
    too_much = len(metadata.labels) > MAX_NODE_LABELS or len(spec.taints) > MAX_NODE_TAINTS
    ready = next((condition.status for condition in status.conditions if condition.type == "Ready"), "True")
    offered = status.allocatable or status.capacity
    return Node(
        name=metadata.name,
        allocatable=tuple(sorted((name, bounded_amount(name, offered[name])) for name in _counted(offered))),
        labels=() if too_much else tuple(sorted(metadata.labels.items())),
        taints=() if too_much else tuple(Taint(taint.key, taint.value, taint.effect) for taint in spec.taints),
        unschedulable=spec.unschedulable or too_much or metadata.deletion_timestamp is not None,
        ready=ready == "True",
        cordoned_until_seconds=_moment(metadata.annotations.get(CORDON_ANNOTATION), from_wall),
        pressures=pressures(status.conditions),
        attach_limits=attach_limits,
        attached=attached,
        images=node_images(status.images),
    )


def node_images(images: tuple[NodeImageObject, ...]) -> tuple[NodeImage, ...]:
    """Return the images of a node, once for each name, sorted; a repeated name has the size of its first entry."""
    sizes: dict[str, NodeImage] = {}
    for image in images[:MAX_NODE_IMAGES]:  # a kubelet reports the largest first
        for node_image in _named(image):
            sizes.setdefault(node_image.name, node_image)
    return tuple(sizes[name] for name in sorted(sizes))


@lru_cache(IMAGES_KEPT)
def _named(image: NodeImageObject) -> tuple[NodeImage, ...]:
    size = min(max(0, image.size_bytes), MAX_EXACT_INT)
    names = image.names[:MAX_IMAGE_NAMES]
    return tuple(NodeImage(intern(name), size) for name in names if 0 < len(name) <= IMAGE_CHARACTERS)


def node_faults(node: NodeObject) -> list[str]:
    """Return one sentence for each part of a node with more entries than are read."""
    offered = node.status.allocatable or node.status.capacity
    counts = (
        ("labels", len(node.metadata.labels), MAX_NODE_LABELS, "it takes no pods"),
        ("taints", len(node.spec.taints), MAX_NODE_TAINTS, "it takes no pods"),
        ("resources", len(offered), MAX_NODE_RESOURCES, "others are not counted"),
    )
    return [f"{count} {name}, at most {most} are read: {then}" for name, count, most, then in counts if count > most]


def _counted(offered: Mapping[str, Quantity]) -> list[str]:
    """Return the counted resources of a node: all, or with too many those that pods commonly request."""
    if len(offered) <= MAX_NODE_RESOURCES:
        return list(offered)
    first = [name for name in _ALWAYS_COUNTED if name in offered]
    return [*first, *sorted(offered.keys() - set(first))[: MAX_NODE_RESOURCES - len(first)]]


def _moment(text: str | None, from_wall: Callable[[float], float]) -> float | None:
    """Return a time; an unreadable one counts as none, so that a foreign text in our annotation closes no node."""
    if text is None:
        return None
    try:
        return from_wall(parse_timestamp(text))
    except InputError:
        return None


def translate_workload(workload: CustomObject) -> Workload:
    """Return the promise of a Workload; values that the schema would refuse count as absent."""
    qos = workload.spec.get("qos")
    limit = qos.get("latencyP95Milliseconds") if isinstance(qos, dict) else None
    valid = isinstance(limit, int | float) and not isinstance(limit, bool) and limit > 0
    return Workload(
        key=key_of(workload.metadata),
        latency_p95_milliseconds=(
            float(min(limit, MAX_LATENCY_MILLISECONDS)) if valid and limit is not None else DEFAULT_LATENCY_MILLISECONDS
        ),
        exclusive=workload.spec.get("exclusive") is True,
    )
