"""Typed views of the few API objects that we read, with just the fields that we need.

Decoded by `decoding` straight from bytes, used by the operator's translation and by the fake nodes. A struct of the
needed fields costs a tenth of the time and memory of the official client's object. Unknown fields are skipped. All
structs are frozen, and sequences are tuples: all readers share one object. The garbage collector follows neither. With
20,000 pods held, its passes over lists took three times as long as the decoding. Quantities and times stay as written
(see `cotide_core.units` and `timestamps`).
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, field

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""No number of the API is larger (k8s.io/api has int32 and int64); one of 400 digits would be no float and no row."""
Quantity = str | Int64 | float
"""As the API writes it; `cotide_core.units.resource_amount` reads it."""


class ApiStruct(msgspec.Struct, rename="camel", frozen=True, gc=False, omit_defaults=True):
    """Base of all views: camelCase on the wire, no cycles (hence not tracked by the collector)."""


class OwnerReference(ApiStruct, frozen=True):
    """The owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class Metadata(ApiStruct, frozen=True):
    """``metadata`` of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class Resources(ApiStruct, frozen=True):
    """``resources`` of a container."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class Present(ApiStruct, frozen=True):
    """An object that only needs to be present."""


class ContainerPort(ApiStruct, frozen=True):
    """A port of a container; only host ports matter to a scheduler."""

    container_port: Int64 = 0
    host_port: Int64 = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(ApiStruct, frozen=True):
    """A container or init container; ``restartPolicy: Always`` on the latter makes it a sidecar."""

    name: str = ""
    image: str = ""
    resources: Resources = Resources()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str | None = None
    readiness_probe: Present | None = None


class MatchExpression(ApiStruct, frozen=True):
    """One requirement of a node selector or label selector."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(ApiStruct, frozen=True):
    """Requirements that must hold together."""

    match_expressions: tuple[MatchExpression, ...] = ()
    match_fields: tuple[MatchExpression, ...] = ()


class NodeSelector(ApiStruct, frozen=True):
    """Alternatives of required node affinity."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredNodeTerm(ApiStruct, frozen=True):
    """A soft node-affinity term."""

    weight: Int64 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(ApiStruct, frozen=True):
    """``affinity.nodeAffinity``."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredNodeTerm, ...] = ()


class LabelSelector(ApiStruct, frozen=True):
    """A label selector of a budget, a rule of a pod or one of our resources."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[MatchExpression, ...] = ()


class PodAffinityTerm(ApiStruct, frozen=True):
    """One term of pod affinity or anti-affinity."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(ApiStruct, frozen=True):
    """A soft one."""

    weight: Int64 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(ApiStruct, frozen=True):
    """``affinity.podAffinity`` or ``podAntiAffinity``."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(ApiStruct, frozen=True):
    """``spec.affinity``."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TolerationObject(ApiStruct, frozen=True):
    """One of ``spec.tolerations``."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class SpreadConstraint(ApiStruct, frozen=True):
    """One of ``spec.topologySpreadConstraints``."""

    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    max_skew: Int64 = 1
    label_selector: LabelSelector | None = None
    min_domains: Int64 | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class SchedulingGate(ApiStruct, frozen=True):
    """One of ``spec.schedulingGates``."""

    name: str = ""


class ClaimVolume(ApiStruct, frozen=True):
    """``persistentVolumeClaim`` of a volume."""

    claim_name: str = ""


SAFE_LOCAL_VOLUMES_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
"""On a pod: names of local volumes, separated by commas, that may lose their content."""


class EmptyDir(ApiStruct, frozen=True):
    """``emptyDir`` of a volume: on the node's disk, or in its memory."""

    medium: str = ""


class Volume(ApiStruct, frozen=True):
    """A volume, as far as it can tie a pod to nodes."""

    name: str = ""
    """It is part of the name of an ephemeral volume's claim, and an annotation may name local volumes. Other names are
    random in most pods, and not kept.
    """
    empty_dir: EmptyDir | None = None
    host_path: Present | None = None
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: dict[str, Any] | None = None
    gce_persistent_disk: Present | None = None
    aws_elastic_block_store: Present | None = None
    iscsi: Present | None = None
    rbd: Present | None = None


class PodResourceClaim(ApiStruct, frozen=True):
    """One of ``spec.resourceClaims`` (dynamic resource allocation)."""

    name: str = ""


class WorkloadReference(ApiStruct, frozen=True):
    """``spec.workloadRef`` of a pod (1.35, alpha): its group in a Workload of ``scheduling.k8s.io``."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class SchedulingGroup(ApiStruct, frozen=True):
    """``spec.schedulingGroup`` of a pod (1.36, in the place of ``workloadRef``): its PodGroup in its namespace."""

    pod_group_name: str = ""


class PodSpec(ApiStruct, frozen=True):
    """``spec`` of a pod."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: dict[str, Quantity] = {}
    resources: Resources | None = None
    """Pod-level resources."""
    node_selector: dict[str, str] = {}
    node_name: str = ""
    scheduler_name: str = ""
    affinity: Affinity | None = None
    tolerations: tuple[TolerationObject, ...] = ()
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    workload_ref: WorkloadReference | None = None
    scheduling_group: SchedulingGroup | None = None
    priority: Int64 | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    restart_policy: str = "Always"
    host_network: bool = False
    termination_grace_period_seconds: Int64 | None = None
    active_deadline_seconds: Int64 | None = None


class Condition(ApiStruct, frozen=True):
    """A condition of any status."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    last_heartbeat_time: str | None = None
    observed_generation: Int64 | None = None


class RunningState(ApiStruct, frozen=True):
    """``state.running`` of a container."""

    started_at: str | None = None


class TerminatedState(ApiStruct, frozen=True):
    """``state.terminated`` of a container."""

    exit_code: Int64 = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class WaitingState(ApiStruct, frozen=True):
    """``state.waiting`` of a container."""

    reason: str = ""
    message: str = ""


class ContainerState(ApiStruct, frozen=True):
    """One of waiting, running, terminated."""

    waiting: WaitingState | None = None
    running: RunningState | None = None
    terminated: TerminatedState | None = None


class ContainerStatus(ApiStruct, frozen=True):
    """One of ``status.containerStatuses``."""

    name: str = ""
    container_id: str = field(default="", name="containerID")
    ready: bool = False
    restart_count: Int64 = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    resources: Resources | None = None
    """Resources that the kubelet has set for it; they lag behind the spec during a resize."""
    allocated_resources: dict[str, Quantity] = {}
    """Resources that the kubelet has allocated to it."""


class PodStatus(ApiStruct, frozen=True):
    """``status`` of a pod."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    start_time: str | None = None
    pod_ip: str = field(default="", name="podIP")
    qos_class: str = ""
    nominated_node_name: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resources: Resources | None = None
    """The same two for pod-level resources."""
    allocated_resources: dict[str, Quantity] = {}
    resize: str = ""
    """``Infeasible`` and the like, up to Kubernetes 1.32; a condition replaces it since then."""
    observed_generation: Int64 | None = None
    """Of the spec that its kubelet has read; set from Kubernetes 1.34 on."""


class PodObject(ApiStruct, frozen=True):
    """A pod."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class TaintObject(ApiStruct, frozen=True):
    """One of ``spec.taints`` of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(ApiStruct, frozen=True):
    """``spec`` of a node."""

    unschedulable: bool = False
    taints: tuple[TaintObject, ...] = ()
    provider_id: str = field(default="", name="providerID")


class NodeImageObject(ApiStruct, frozen=True):
    """An image that a node has."""

    names: tuple[str, ...] = ()
    size_bytes: Int64 = 0


class NodeStatus(ApiStruct, frozen=True):
    """``status`` of a node."""

    capacity: dict[str, Quantity] = {}
    allocatable: dict[str, Quantity] = {}
    conditions: tuple[Condition, ...] = ()
    images: tuple[NodeImageObject, ...] = ()


class NodeObject(ApiStruct, frozen=True):
    """A node."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class PriorityClassObject(ApiStruct, frozen=True):
    """A priority class."""

    metadata: Metadata
    value: Int64 = 0
    global_default: bool = False
    preemption_policy: str = ""


class ServiceSpec(ApiStruct, frozen=True):
    """``spec`` of a Service or a ReplicationController, which select by plain labels."""

    selector: dict[str, str] = {}


class ServiceObject(ApiStruct, frozen=True):
    """A Service or a ReplicationController: which pods it selects."""

    metadata: Metadata
    spec: ServiceSpec = ServiceSpec()


class ReplicaSetSpec(ApiStruct, frozen=True):
    """``spec`` of a ReplicaSet or a StatefulSet."""

    selector: LabelSelector | None = None


class ReplicaSetObject(ApiStruct, frozen=True):
    """A ReplicaSet or a StatefulSet: which pods it controls."""

    metadata: Metadata
    spec: ReplicaSetSpec = ReplicaSetSpec()


class DisruptionBudgetSpec(ApiStruct, frozen=True):
    """``spec`` of a PodDisruptionBudget."""

    selector: LabelSelector | None = None
    min_available: Int64 | str | None = None
    max_unavailable: Int64 | str | None = None
    unhealthy_pod_eviction_policy: str = ""
    """``AlwaysAllow`` or ``IfHealthyBudget``; empty for the latter."""


class DisruptionBudgetStatus(ApiStruct, frozen=True):
    """``status`` of a PodDisruptionBudget."""

    observed_generation: Int64 = 0
    disruptions_allowed: Int64 = 0
    current_healthy: Int64 = 0
    desired_healthy: Int64 = 0
    expected_pods: Int64 = 0
    disrupted_pods: dict[str, str | None] = {}
    """Evicted pods that it counts already, with the time of each."""


class PodDisruptionBudgetObject(ApiStruct, frozen=True):
    """A PodDisruptionBudget."""

    metadata: Metadata
    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()


class NamespaceObject(ApiStruct, frozen=True):
    """A namespace: only its labels and annotations matter, which tenants may not write."""

    metadata: Metadata


class ClaimSpec(ApiStruct, frozen=True):
    """``spec`` of a PersistentVolumeClaim."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] = ()
    volume_mode: str | None = None
    selector: LabelSelector | None = None
    resources: Resources = Resources()
    volume_attributes_class_name: str | None = None


class ClaimStatus(ApiStruct, frozen=True):
    """``status`` of a PersistentVolumeClaim."""

    phase: str = ""


class ClaimObject(ApiStruct, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: Metadata
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class ClaimReference(ApiStruct, frozen=True):
    """``claimRef`` of a PersistentVolume."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class CsiSource(ApiStruct, frozen=True):
    """``csi`` of a PersistentVolume."""

    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(ApiStruct, frozen=True):
    """``nodeAffinity`` of a PersistentVolume."""

    required: NodeSelector | None = None


class VolumeSpec(ApiStruct, frozen=True):
    """``spec`` of a PersistentVolume."""

    capacity: dict[str, Quantity] = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ClaimReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None
    volume_attributes_class_name: str | None = None


class VolumeStatus(ApiStruct, frozen=True):
    """``status`` of a PersistentVolume."""

    phase: str = ""


class VolumeObject(ApiStruct, frozen=True):
    """A PersistentVolume."""

    metadata: Metadata
    spec: VolumeSpec = VolumeSpec()
    status: VolumeStatus = VolumeStatus()


class TopologyRequirement(ApiStruct, frozen=True):
    """One of ``matchLabelExpressions`` of an allowed topology."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(ApiStruct, frozen=True):
    """One of ``allowedTopologies`` of a StorageClass."""

    match_label_expressions: tuple[TopologyRequirement, ...] = ()


class StorageClassObject(ApiStruct, frozen=True):
    """A StorageClass."""

    metadata: Metadata
    provisioner: str = ""
    volume_binding_mode: str = ""
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class AttachmentSource(ApiStruct, frozen=True):
    """``spec.source`` of a VolumeAttachment."""

    persistent_volume_name: str = ""


class AttachmentSpec(ApiStruct, frozen=True):
    """``spec`` of a VolumeAttachment."""

    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class AttachmentObject(ApiStruct, frozen=True):
    """A VolumeAttachment: a volume is attached to a node, or is to be."""

    metadata: Metadata
    spec: AttachmentSpec = AttachmentSpec()


class CsiDriverSpec(ApiStruct, frozen=True):
    """``spec`` of a CSIDriver."""

    storage_capacity: bool | None = None


class CsiDriverObject(ApiStruct, frozen=True):
    """The properties that a CSI driver declares, by its name."""

    metadata: Metadata
    spec: CsiDriverSpec = CsiDriverSpec()


class StorageCapacityObject(ApiStruct, frozen=True):
    """A CSIStorageCapacity: room for volumes of a class on nodes with these labels."""

    metadata: Metadata
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class DriverAllocatable(ApiStruct, frozen=True):
    """``allocatable`` of a driver on a node."""

    count: Int64 | None = None


class NodeDriver(ApiStruct, frozen=True):
    """One of ``spec.drivers`` of a CSINode."""

    name: str = ""
    allocatable: DriverAllocatable | None = None


class CsiNodeSpec(ApiStruct, frozen=True):
    """``spec`` of a CSINode."""

    drivers: tuple[NodeDriver, ...] = ()


class CsiNodeObject(ApiStruct, frozen=True):
    """The CSI drivers of a node, by the node's name."""

    metadata: Metadata
    spec: CsiNodeSpec = CsiNodeSpec()


class LeaseSpec(ApiStruct, frozen=True):
    """``spec`` of a Lease."""

    holder_identity: str = ""
    lease_duration_seconds: Int64 = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: Int64 = 0


class LeaseObject(ApiStruct, frozen=True):
    """A Lease of coordination.k8s.io."""

    metadata: Metadata
    spec: LeaseSpec = LeaseSpec()
