"""Child pods of our resources: what is read of them, and how their manifests are made.

Called by `controllers`; `job_reconciler` and `workload_reconciler` decide on the values made here. Pure. Invariant: a
child's name follows from its owner, its index and the number of its index's earlier pods. So a repeated creation makes
one pod and returns one answer "already exists".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from cotide_core.classes import CLASS_LABEL, WorkloadClass
from cotide_core.errors import InputError
from cotide_core.units import CPU, MEMORY, format_amount
from cotide_kube.objects import ContainerStatus, Metadata, PodObject, PodStatus
from cotide_kube.timestamps import parse_timestamp
from cotide_operator.apis.names import (
    JOB_LABEL,
    KUEUE_GROUP_LABEL,
    KUEUE_QUEUE_LABEL,
    LEARNED_PHASES_ANNOTATION,
    TRACKING_FINALIZER,
)
from cotide_operator.apis.types import (
    API_VERSION,
    INDEX_LABEL,
    INPUT_SIZE_ANNOTATION,
    JOB_PRIORITY_ANNOTATION,
    REQUESTED_SECONDS_ANNOTATION,
    RETRY_ANNOTATION,
    TEMPLATE_ANNOTATION,
    TYPE_ANNOTATION,
    WORKLOAD_LABEL,
    JobSpec,
    JobTemplate,
    WorkloadSpec,
    WorkloadTemplate,
)
from cotide_operator.cache.object_cache import controller_of
from cotide_operator.reclaimed.pod_requests import reclaimed
from cotide_operator.translation.gangs import GANG_ANNOTATION, MIN_MEMBER_ANNOTATION, TIMEOUT_ANNOTATION
from cotide_operator.translation.kubelet_refusals import exceeded_its_own_limit
from cotide_operator.translation.pod_phases import NO_PHASES, Phases, written

Manifest = dict[str, Any]

REFUSED_BY_NODE: Final = frozenset(
    {"Evicted", "Preempting", "Preempted", "NodeAffinity", "NodeShutdown", "NodeLost", "Shutdown", "Terminated"}
    | {"UnexpectedAdmissionError", "TopologyAffinityError", "TaintToleration", "DeadNode", "Terminating"}
)
"""Reasons of a failed pod that do not concern its work; ``OutOf...`` (OutOfcpu, OutOfpods) belong to them, too."""
CANNOT_START: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"}
    | {"SignatureValidationFailed", "RegistryUnavailable", "CreateContainerConfigError", "CreateContainerError"}
)
"""Waiting reasons of a container that never ran and that the kubelet tries to start for ever. Source: kubelet 1.35,
``pkg/kubelet/images/types.go`` and ``kuberuntime_container.go``."""
BEING_CREATED: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""Waiting reasons of a container without a kubelet error, the latter where the pod has init containers. Source: kubelet
1.35, ``pkg/kubelet/kubelet_pods.go``."""
SANDBOX_READY: Final = "PodReadyToStartContainers"
"""A pod's condition: its volumes are mounted and its network is ready. Source: KEP-3085, on by default since 1.29."""
MESSAGE_CHARACTERS: Final = 300
"""Maximum length of a kubelet's message in a Cotide status; chosen."""
CLOCKS_APART_SECONDS: Final = 5.0
"""A deletion requested this long after a pod's end did not cause that end. Chosen: it allows for the difference between
a node's clock and the API server's, which is smaller."""

KUEUE_GROUP_COUNT_ANNOTATION: Final = "kueue.x-k8s.io/pod-group-total-count"
"""Number of pods in a group of Kueue's pod integration."""


@dataclass(frozen=True, slots=True)
class ChildPod:
    """The parts of a child pod that a controller needs. Times are epoch seconds of the wall."""

    name: str
    uid: str
    index: int
    retry: int = 0
    phase: str = "Pending"
    reason: str = ""
    node: str | None = None
    deleting: bool = False
    tracked: bool = False
    """Whether it carries our finalizer: it stays in the API until we take that off."""
    let_go: bool = False
    """Whether only finalizers keep it: without ours it would be gone, whatever its phase."""
    disrupted: bool = False
    """Whether its condition DisruptionTarget holds: it was evicted from its node."""
    own_limit: bool = False
    """Whether its kubelet evicted it for exceeding its own storage limit: a failure like any other."""
    cannot_start: str = ""
    """Why its kubelet can't start one of its containers, in the kubelet's words."""
    creating: str = ""
    """What its kubelet still does before it starts one of its containers; empty when the kubelet reports an
    obstacle."""
    ready: bool = False
    gates: tuple[str, ...] = ()
    """Names of its scheduling gates: while it has one, no scheduler decides about it."""
    kueue_group: bool = False
    """Whether it belongs to a group of Kueue, which keeps its quota until the whole group is over or gone."""
    template: str = ""
    started_seconds: float | None = None
    finished_seconds: float | None = None
    doomed_seconds: float | None = None
    """Time of the request for its deletion."""

    @property
    def done(self) -> bool:
        """Whether it will never run again."""
        return self.phase in ("Succeeded", "Failed") or (self.tracked and self.let_go)

    @property
    def alive(self) -> bool:
        """Whether it runs or may run."""
        return not self.done

    @property
    def lost_its_node(self) -> bool:
        """Whether a failed pod failed for an external reason."""
        if self.own_limit:
            return False
        if self.disrupted or self.reason in REFUSED_BY_NODE or self.reason.startswith("OutOf"):
            return True
        return self.deleting and not self._failed_before_its_deletion

    @property
    def _failed_before_its_deletion(self) -> bool:
        if self.phase != "Failed" or self.finished_seconds is None or self.doomed_seconds is None:
            return False
        return self.finished_seconds < self.doomed_seconds - CLOCKS_APART_SECONDS


def see_child(pod: PodObject, owner_uid: str) -> ChildPod | None:
    """Return the needed parts of an owner's pod; None for a pod without an index or of another owner, including an
    earlier owner of the same name."""
    owner = controller_of(pod.metadata)
    return see(pod) if owner is not None and owner.uid == owner_uid and index_of(pod) >= 0 else None


def by_index(found: Iterable[ChildPod | None]) -> list[ChildPod]:
    """Return the children among them in order."""
    return sorted([child for child in found if child is not None], key=attrgetter("index", "retry"))


def index_of(pod: PodObject) -> int:
    """Return the index that a pod carries, -1 for none."""
    return _number(pod.metadata.labels.get(INDEX_LABEL), -1)


def see(pod: PodObject) -> ChildPod:
    """Return the needed parts of a pod; index -1 when it carries none."""
    metadata, status = pod.metadata, pod.status
    conditions = {condition.type: condition.status for condition in status.conditions}
    terminated = [
        container_status.state.terminated
        for container_status in status.container_statuses
        if container_status.state.terminated is not None
    ]
    running = [
        container_status.state.running
        for container_status in status.container_statuses
        if container_status.state.running is not None
    ]
    starts = [state.started_at for state in terminated] + [state.started_at for state in running]
    started = [moment for text in starts if (moment := _seconds(text)) is not None]
    finished = [moment for state in terminated if (moment := _seconds(state.finished_at)) is not None]
    grace = metadata.deletion_grace_period_seconds or 0
    due = _seconds(metadata.deletion_timestamp)
    return ChildPod(
        name=metadata.name,
        uid=metadata.uid,
        index=index_of(pod),
        retry=_number(metadata.annotations.get(RETRY_ANNOTATION), 0),
        phase=status.phase,
        reason=status.reason,
        node=pod.spec.node_name or None,
        deleting=metadata.deletion_timestamp is not None,
        tracked=TRACKING_FINALIZER in metadata.finalizers,
        let_go=metadata.deletion_timestamp is not None and not grace,
        disrupted=conditions.get("DisruptionTarget") == "True",
        own_limit=exceeded_its_own_limit(status),
        cannot_start=why_it_cannot_start(status),
        creating=what_is_created(pod),
        ready=conditions.get("Ready") == "True",
        gates=tuple(gate.name for gate in pod.spec.scheduling_gates),
        kueue_group=KUEUE_GROUP_LABEL in metadata.labels,
        template=metadata.annotations.get(TEMPLATE_ANNOTATION, ""),
        started_seconds=min(started) if started else _seconds(status.start_time),
        finished_seconds=max(finished) if finished else None,
        doomed_seconds=due - grace if due is not None else None,
    )


def why_it_cannot_start(status: PodStatus) -> str:
    """Return the kubelet's reason and message for a container that can't start; empty when all can."""
    if status.phase != "Pending":
        return ""
    for init_container_status in (*status.init_container_statuses, *status.container_statuses):
        waiting = init_container_status.state.waiting
        if waiting is not None and waiting.reason in CANNOT_START:
            return f"{waiting.reason}: {waiting.message}"[:MESSAGE_CHARACTERS].removesuffix(": ")
    return ""


def what_is_created(pod: PodObject) -> str:
    """Return the work before the start of a pod's next container; "" when it has started, or can't start."""
    status = pod.status
    if status.phase != "Pending" or why_it_cannot_start(status) or not _next_is_being_created(pod):
        return ""
    # A kubelet writes False before it mounts, and keeps it until a pull is over: only True is a sure sign.
    prepared = any(condition.type == SANDBOX_READY and condition.status == "True" for condition in status.conditions)
    return f"containers are being created{', volumes and network are ready' if prepared else ''}"


def _next_is_being_created(pod: PodObject) -> bool:
    """Whether a container waits for its creation, and not for an earlier init container."""
    if not (pod.status.init_container_statuses or pod.status.container_statuses):  # no kubelet has reported yet
        return False
    sidecars = {container.name for container in pod.spec.init_containers if container.restart_policy == "Always"}
    for status in pod.status.init_container_statuses:
        ended = status.state.terminated is not None and status.state.terminated.exit_code == 0
        if not ended and not (status.state.running is not None and status.name in sidecars):
            return _is_being_created(status)
    return any(_is_being_created(status) for status in pod.status.container_statuses)


def _is_being_created(container: ContainerStatus) -> bool:
    return container.state.waiting is not None and container.state.waiting.reason in BEING_CREATED


def job_pod_name(job: str, index: int, retry: int) -> str:
    """Return ``<job>-<index>``, with ``-r<n>`` for the n-th further pod of the index.

    A further pod gets a new name because the failed one stays: the user wants to read its log.
    """
    return f"{job}-{index}-r{retry}" if retry else f"{job}-{index}"


def workload_pod_name(workload: str, index: int) -> str:
    """Return ``<workload>-<index>``, as a StatefulSet names them: each index has at most one pod, even after a
    restart."""
    return f"{workload}-{index}"


def template_hash(template: JobTemplate | WorkloadTemplate) -> str:
    """Return twelve hex digits that change with the template."""
    text = json.dumps(template.model_dump(by_alias=True, mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def job_pod(
    job: Metadata,
    spec: JobSpec,
    *,
    index: int,
    retry: int,
    workload_class: WorkloadClass,
    scheduler_name: str,
    reclaim: bool = False,
    learned: Phases = NO_PHASES,
) -> Manifest:
    """Return the manifest of a Job's pod.

    With ``reclaim`` it requests its cpu and memory as reclaimed capacity: see `reclaimed.pod_requests`. A pod with
    phases does not, because `scheduling.phase_resizer` resizes it. With learned phases it first requests the amounts of
    its template, and is resized from there.

    Raises
    ------
    InputError
        When an amount of the template can't be read; names its field.
    """
    annotations = {
        TYPE_ANNOTATION: spec.type,
        INPUT_SIZE_ANNOTATION: str(spec.input_size),
        JOB_PRIORITY_ANNOTATION: str(spec.priority),
        RETRY_ANNOTATION: str(retry),
    }
    if spec.requested_seconds is not None:
        annotations[REQUESTED_SECONDS_ANNOTATION] = f"{spec.requested_seconds:g}"
    if not spec.type:
        del annotations[TYPE_ANNOTATION]
    if spec.gang is not None:
        annotations[GANG_ANNOTATION] = job.name
        annotations[MIN_MEMBER_ANNOTATION] = str(spec.gang_size)
        annotations[TIMEOUT_ANNOTATION] = f"{spec.gang.timeout_seconds:g}"
    labels = {CLASS_LABEL: workload_class.value, JOB_LABEL: job.name, INDEX_LABEL: str(index)}
    queue_labels, queue_annotations = queued_by_kueue(job, spec)
    pod = _pod(
        {
            "name": job_pod_name(job.name, index, retry),
            "namespace": job.namespace,
            "ownerReferences": [_owner("Job", job.name, job.uid)],
            "finalizers": [TRACKING_FINALIZER],
        },
        spec.template,
        labels=labels | queue_labels,
        annotations=annotations | queue_annotations,
        scheduler_name=scheduler_name,
    )
    if spec.phases:
        # Plain requests: extended resources can't be resized.
        _ask_for_largest(pod["spec"]["containers"][0], spec)
    elif reclaim:
        pod["spec"] = reclaimed(pod["spec"])
    elif learned:
        pod["metadata"]["annotations"][LEARNED_PHASES_ANNOTATION] = written(learned)
    return pod


def queued_by_kueue(job: Metadata, spec: JobSpec) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and annotations for Kueue's pod integration, which admits the pods of a Job that names its
    queue.

    Pods that all run at once are one group, which is admitted as a whole. Pods that run one after another are admitted
    one by one: a group never has more pods than its count.
    """
    queue = job.labels.get(KUEUE_QUEUE_LABEL)
    if not queue:
        return {}, {}
    if spec.completions > spec.parallelism:
        return {KUEUE_QUEUE_LABEL: queue}, {}
    labels = {KUEUE_QUEUE_LABEL: queue, KUEUE_GROUP_LABEL: job.name}
    return labels, {KUEUE_GROUP_COUNT_ANNOTATION: str(spec.completions)}


def _ask_for_largest(container: Manifest, spec: JobSpec) -> None:
    """Request the largest need of all phases for a container: its node then has room for each phase, and soon gets the
    rest back."""
    requests = container.setdefault("resources", {}).setdefault("requests", {})
    requests[CPU] = format_amount(CPU, max(phase.millicores for phase in spec.phases))
    memory = max(phase.memory_bytes for phase in spec.phases)
    if memory:
        requests[MEMORY] = format_amount(MEMORY, memory)


def workload_pod(
    *,
    name: str,
    namespace: str,
    uid: str,
    spec: WorkloadSpec,
    index: int,
    workload_class: WorkloadClass,
    scheduler_name: str,
) -> Manifest:
    """Return the manifest of a Workload's pod; the spec must have a template."""
    if spec.template is None:
        raise InputError("has no template to make pods from", field="spec.template")
    owner = _owner("Workload", name, uid)
    return _pod(
        {"name": workload_pod_name(name, index), "namespace": namespace, "ownerReferences": [owner]},
        spec.template,
        labels={CLASS_LABEL: workload_class.value, WORKLOAD_LABEL: name, INDEX_LABEL: str(index)},
        annotations={TEMPLATE_ANNOTATION: template_hash(spec.template)},
        scheduler_name=scheduler_name,
    )


def _pod(
    metadata: Manifest,
    template: JobTemplate | WorkloadTemplate,
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    scheduler_name: str,
) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **metadata,
            "labels": {**template.metadata.labels, **labels},
            "annotations": {**template.metadata.annotations, **annotations},
        },
        "spec": {**template.spec.model_dump(by_alias=True, mode="json"), "schedulerName": scheduler_name},
    }


def _owner(kind: str, name: str, uid: str) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else otherwise


def _seconds(text: str | None) -> float | None:
    if not text:
        return None
    try:
        return parse_timestamp(text)
    except InputError:  # a foreign kubelet's odd time must not stop the Job
        return None
