"""All events that the engine can receive, as frozen values.

Made by translation (live) and by trace readers and simulated nodes (replay); consumed only by
`state.ClusterState.apply` and `queueing`. Every event can be written to a ledger and read back exactly.
Times are seconds since the epoch of the driver's clock; resources are integers (see `units`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from cotide_core.classes import WorkloadClass


class PodPhase(StrEnum):
    """The phases of a pod that matter to a scheduler."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node; ``effect`` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of a pod; an empty key with operator Exists tolerates everything, an empty effect any effect."""

    key: str
    operator: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Requirement:
    """One match expression: operator In, NotIn, Exists, DoesNotExist, Gt or Lt over a label (or metadata.name)."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """One required node-affinity term: all its requirements must hold; terms are alternatives."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


Selector = tuple[Requirement, ...]
"""A label selector: all requirements hold together, and none at all selects everything."""


@dataclass(frozen=True, slots=True)
class PodTerm:
    """One term of pod affinity or anti-affinity, as in its pod's spec."""

    topology_key: str
    selector: Selector | None = None
    """None selects nothing."""
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector | None = None
    """None selects none; without namespaces either, the pod's own counts."""
    match_label_keys: tuple[str, ...] = ()
    """Keys that must have the same value on other pods; an API server may have written them into ``selector``."""
    mismatch_label_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WeightedPodTerm:
    """A preference for nodes near matching pods; against them if the weight is negative."""

    weight: int
    term: PodTerm


@dataclass(frozen=True, slots=True)
class WeightedNodeTerm:
    """A preference for nodes."""

    weight: int
    term: NodeTerm


@dataclass(frozen=True, slots=True)
class Spread:
    """One topology spread constraint."""

    topology_key: str
    max_skew: int
    selector: Selector | None = None
    required: bool = True
    """``DoNotSchedule``; otherwise ``ScheduleAnyway``."""
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False
    match_label_keys: tuple[str, ...] = ()
    requires_labels: bool = True
    """Whether a preferred constraint leaves out nodes that lack a label of the pod's constraints; otherwise they are in
    no domain.
    """


@dataclass(frozen=True, slots=True)
class PodSelector:
    """The pods that a Service selects, or an owner controls."""

    owner: str
    """Kind of the object: ``Service``, ``ReplicaSet``, ``StatefulSet`` or ``ReplicationController``."""
    key: str
    """``namespace/name``."""
    selector: Selector
    """At least one requirement; those of a Service name one value each."""


@dataclass(frozen=True, slots=True)
class PodRules:
    """The demands and preferences of a pod apart from the node itself: other pods, domains, and preferred nodes."""

    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    spreads: tuple[Spread, ...] = ()
    pod_preferences: tuple[WeightedPodTerm, ...] = ()
    node_preferences: tuple[WeightedNodeTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class HostPort:
    """A host port that a pod takes; host_ip 0.0.0.0 conflicts with every address."""

    protocol: str
    host_ip: str
    port: int


class NodeImage(NamedTuple):
    """A container image that a node has, by one of its names."""

    name: str
    """With its tag or digest."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Node:
    """The fields of a node that a scheduler needs."""

    name: str
    allocatable: tuple[tuple[str, int], ...]
    """(resource, amount) sorted by name; ``pods`` is one of them."""
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    cordoned_until_seconds: float | None = None
    """Until when the overload monitor, of this run or an earlier one, keeps batch and gratis pods off it."""
    pressures: tuple[str, ...] = ()
    """Conditions that hold and keep pods away, sorted; see `placement.node_predicates.CONDITION_TAINTS`."""
    attach_limits: tuple[tuple[str, int], ...] = ()
    """(CSI driver, how many different volumes of it can be attached), sorted; drivers without an entry have no limit.
    """
    attached: tuple[tuple[str, str], ...] = ()
    """(CSI driver, volume) that are attached to it, used by pods or not, sorted, of drivers with a limit."""
    images: tuple[NodeImage, ...] = ()
    """Its images, by each of their names, sorted."""


class VolumeChoice(NamedTuple):
    """A PersistentVolume that a claim may be bound to."""

    name: str
    terms: tuple[NodeTerm, ...] = ()
    """Alternatives of its node affinity; empty: it can be used everywhere."""


@dataclass(frozen=True, slots=True)
class OpenClaim:
    """A claim that is bound to a volume only when its pod has a node (``WaitForFirstConsumer``)."""

    volumes: tuple[VolumeChoice, ...] = ()
    """Sufficient volumes, the smallest first: a node takes the first one that it can use."""
    provisions: bool = False
    """Whether a volume can be created if none is found."""
    topologies: tuple[NodeTerm, ...] = ()
    """Where it can be created (``allowedTopologies``), alternatives; empty: everywhere."""
    node: str = ""
    """The node that a volume is being created for; empty before the request."""
    avoided: tuple[str, ...] = ()
    """Nodes without a volume in time recently, sorted."""
    rooms: tuple[NodeTerm, ...] = ()
    """Where its driver reports enough room (``CSIStorageCapacity``), alternatives; empty: not checked."""

    def __hash__(self) -> int:
        """Hash a part: equal claims share their volumes, up to a thousand of them, and the places with room."""
        parts = (len(self.volumes), self.volumes[:1], self.provisions, self.topologies, self.node, self.avoided)
        return hash((*parts, len(self.rooms)))


class Gang(NamedTuple):
    """Pods that start together or not at all."""

    key: str
    """``namespace/name``; pods with the same key are its members."""
    minimum: int
    """Members that must hold a node, or have succeeded, before any of them may run; 1 to `limits.MAX_GANG`."""
    timeout_seconds: float
    """For how long fewer members may hold nodes while others wait; then these nodes are released."""
    succeeded: int = 0
    """Members that its owner's status counts as succeeded: they may have gone before this engine began."""


class Pod(NamedTuple):
    """The fields of a pod that a scheduler needs.

    A tuple, and not a dataclass as the others. With 40 fields one is made in two microseconds instead of five, and
    copied with a change in one and a half instead of nine. A start of the operator makes one for each existing pod.
    """

    key: str
    """``namespace/name``."""
    uid: str
    workload_class: WorkloadClass
    requests: tuple[tuple[str, int], ...]
    """(resource, amount) sorted by name, init containers and overhead included; never the ``pods`` count."""
    created_seconds: float
    phase: PodPhase = PodPhase.PENDING
    node: str | None = None
    ours: bool = False
    """Whether this scheduler must place it (``schedulerName: cotide``)."""
    terminating: bool = False
    priority: int = 0
    """Pod priority (``spec.priority``): higher pods leave the queue first."""
    job: str | None = None
    """``namespace/name`` of our Job that owns it."""
    workload: str | None = None
    """``namespace/name`` of our Workload that owns or selects it."""
    job_priority: int = 100
    """``spec.priority`` of the Job, 0-1000: selects QPSM's sub-queue."""
    type: str = ""
    """The job's declared type (``wordcount``); empty for none."""
    input_bytes: int = 0
    requested_seconds: float | None = None
    node_selector: tuple[tuple[str, str], ...] = ()
    node_terms: tuple[NodeTerm, ...] = ()
    """Alternatives; empty means no required node affinity."""
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    gates: tuple[str, ...] = ()
    """Scheduling gates still present: the pod is not considered until they are gone."""
    unsupported: tuple[str, ...] = ()
    """Paths of constraints that Cotide does not support: the pod stays pending with a message."""
    attempts: int = 0
    """Placement attempts known from its Job's status when the operator restarted."""
    demotions: int = 0
    started_seconds: float | None = None
    finished_seconds: float | None = None
    do_not_disrupt: bool = False
    """Its owner forbids disruption by programs at any time; see `is_protected`."""
    protected_seconds: float | None = None
    """For how long from its start its owner forbids disruption by programs; None for no such time."""
    prefer_no_eviction: bool = False
    """Evicted only if no other pod would do."""
    deletion_cost: int = 0
    """From the ReplicaSet controller: the cheaper pod of two goes first."""
    nominated_node: str | None = None
    """Where an earlier run, or this one, keeps or frees space for it (``status.nominatedNodeName``)."""
    preempts: bool = True
    """False under ``preemptionPolicy: Never``: no pod is evicted for it."""
    labels: tuple[tuple[str, str], ...] = ()
    """Sorted by key; selectors of other pods and its own match them."""
    rules: PodRules | None = None
    """None without rules, as for most pods; the rules of a placed pod refuse others."""
    volume_terms: tuple[tuple[NodeTerm, ...], ...] = ()
    """Node affinity of each of its volumes: for each, one of the alternatives must hold."""
    open_claims: tuple[OpenClaim, ...] = ()
    """Claims with volumes that are chosen or created for its node, the smallest first."""
    attachments: tuple[tuple[str, str], ...] = ()
    """(CSI driver, volume) of its volumes, sorted, of drivers that a node limits."""
    sole_claims: tuple[str, ...] = ()
    """``namespace/name`` of its claims that only one pod at a time may use (ReadWriteOncePod)."""
    blocked: str = ""
    """Why the search for a node can't start yet, such as an unbound claim; empty if nothing is missing."""
    gang: Gang | None = None
    """Its gang; None starts alone."""
    image: str = ""
    """Of its first container: pods of one image are more alike (see `run_time.habits`)."""
    images: tuple[str, ...] = ()
    """Of all its containers, with their tags, sorted; a node with these images is preferred. Empty after placement."""
    growth_millicores: int = 0
    """Cpu that it will request beyond its requests, in the mean of its remaining phases; below 0 for less."""
    unrequested_millicores: int = 0
    """Cpu that scores count for its containers without a request, in addition to ``requests``."""
    unrequested_memory_bytes: int = 0
    """Memory that scores count likewise."""
    controller: str = ""
    """``Kind/name`` of the ReplicaSet, StatefulSet or ReplicationController that controls it; empty for none."""

    @property
    def importance(self) -> tuple[int, int]:
        """Rank of its class, then its priority: a pod may displace pods of lower importance only."""
        return (self.workload_class.rank, self.priority)

    def is_protected(self, now: float) -> bool:
        """Whether its owner forbids disruption by programs at this time.

        Consolidation leaves such a pod where it is. It is no victim of a node's relief or of a pod of a higher class.
        For a pod of its own class and higher priority it is the last choice, as if a disruption budget kept it.
        """
        return protects(self.do_not_disrupt, self.protected_seconds, self.started_seconds, now)


def protects(always: bool, seconds: float | None, started: float | None, now: float) -> bool:
    """Return whether an owner's annotation protects a pod at this time.

    Parameters
    ----------
    always : whether it holds at any time.
    seconds : for how long from its start it holds; None for no such time.
    started : when the pod started; None protects it, as in Karpenter.
    now : on the same clock as `started`.
    """
    if always or seconds is None:
        return always
    return started is None or now < started + seconds


@dataclass(frozen=True, slots=True)
class Workload:
    """An online service and the promise it makes."""

    key: str
    latency_p95_milliseconds: float = 10.0
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Namespace:
    """The limits that an administrator sets on the batch and gratis pods of a namespace; None is no limit."""

    name: str
    batch_millicores: int | None = None
    """Most cpu that they may hold together, plain and reclaimed."""
    batch_memory_bytes: int | None = None
    queued_pods: int | None = None
    """Most of them that may wait in the queue; further ones wait outside and are admitted in turn."""
    labels: tuple[tuple[str, str], ...] = ()
    """Sorted by key; reported once a pod selects namespaces by label."""
    weight: float = 1.0
    """Its weight relative to others, under an order by shares; above 0."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget, with the number of its pods that may go now."""

    key: str
    """``namespace/name``."""
    selector: Selector
    """Of pods of its namespace; an empty one selects none here, as in kube-scheduler's preemption."""
    allowed: int = 0
    """``status.disruptionsAllowed``."""
    disrupted: tuple[str, ...] = ()
    """Names of pods that it counts as gone already (``status.disruptedPods``), sorted."""


@dataclass(frozen=True, slots=True)
class NodeUpserted:
    """A node appeared or changed."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeDeleted:
    """A node is gone; its pods are reported on their own."""

    name: str


@dataclass(frozen=True, slots=True)
class PodUpserted:
    """A pod appeared or changed; also confirms a binding and reports a finish."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """A pod is gone from the API."""

    key: str
    uid: str


@dataclass(frozen=True, slots=True)
class WorkloadUpserted:
    """A Workload appeared or its promise changed."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class WorkloadDeleted:
    """A Workload is gone; its pods stay online pods without a promise."""

    key: str


@dataclass(frozen=True, slots=True)
class NamespaceUpserted:
    """A namespace with limits appeared, or its limits changed. Namespaces without limits are reported only with their
    labels, and only if pods select by them.
    """

    namespace: Namespace


@dataclass(frozen=True, slots=True)
class NamespaceDeleted:
    """A namespace is gone, or has no limits any more."""

    name: str


@dataclass(frozen=True, slots=True)
class SelectorUpserted:
    """A Service, ReplicaSet, StatefulSet or ReplicationController appeared, or selects other pods."""

    selector: PodSelector


@dataclass(frozen=True, slots=True)
class SelectorDeleted:
    """Such an object is gone, or selects no pods any more."""

    owner: str
    """Kind of the object."""
    key: str


@dataclass(frozen=True, slots=True)
class BudgetUpserted:
    """A disruption budget appeared, or allows more or less than before."""

    budget: Budget


@dataclass(frozen=True, slots=True)
class BudgetDeleted:
    """A disruption budget is gone."""

    key: str


@dataclass(frozen=True, slots=True)
class ServiceSampled:
    """Measured request rate and latency of one online pod."""

    pod: str
    """Key of the online pod."""
    requests_per_second: float
    latency_p95_milliseconds: float | None = None


@dataclass(frozen=True, slots=True)
class BindRefused:
    """The API server or the kubelet did not take a binding: the assumption is forgotten."""

    key: str
    uid: str
    node: str
    code: int
    """HTTP status, or 0 without an answer."""
    reason: str
    retry: bool
    """False if the pod is gone or already bound: then another event reports the outcome."""


@dataclass(frozen=True, slots=True)
class EvictRefused:
    """The API server refused an eviction, most often for a disruption budget: the victim stays for now."""

    key: str
    uid: str
    node: str
    code: int
    """HTTP status, or 0 without an answer."""
    reason: str
    retry: bool = False
    """True if the reason was not the victim's own: it may be tried again at once."""


@dataclass(frozen=True, slots=True)
class NodeUsageSampled:
    """The measured use of a node by its online pods; an impossible value counts as missing."""

    node: str
    at_seconds: float
    online_millicores: float
    online_memory_bytes: float


@dataclass(frozen=True, slots=True)
class NodeContended:
    """The competition for the cpu of a node, as measured by an agent on it; an impossible value counts as missing."""

    node: str
    at_seconds: float
    waiting_share: float | None = None
    """Highest share of its time that a service waits for a cpu; None without a report."""
    throttled: bool = False
    """Whether a service on it is throttled by its own limit."""


class PeakAhead(NamedTuple):
    """The highest use of the online pods of a node from now up to a moment beyond the coming slot."""

    until_seconds: float
    online_millicores: float
    online_memory_bytes: float


@dataclass(frozen=True, slots=True)
class NodeForecasted:
    """The predicted peak loads of a node over the next slot, made by the driver's `forecasts.HostLoadForecaster`."""

    node: str
    until_seconds: float
    """End of the slot, and of the forecast."""
    online_millicores: float
    online_memory_bytes: float
    batch_millicores: float
    """Upper bound of the holdings of batch and gratis pods together."""
    batch_memory_bytes: float
    ahead: tuple[PeakAhead, ...] = ()
    """Peaks of the online pods over longer horizons, the nearest first, for jobs that run that long."""


class RateForecast(NamedTuple):
    """The highest rate of an online pod from now to the end of each horizon."""

    pod: str
    requests_per_second: tuple[float, ...]
    """One for each horizon."""


@dataclass(frozen=True, slots=True)
class RatesForecasted:
    """Forecasts of request rates, made by the driver; pods without a new forecast keep the previous one."""

    horizons_seconds: tuple[float, ...]
    """Rising; the same for all pods: different horizons end all earlier forecasts."""
    until_seconds: float
    """End of the forecasts."""
    forecasts: tuple[RateForecast, ...]


@dataclass(frozen=True, slots=True)
class ForecastScored:
    """The outcome of a forecast, by node and slot. It changes nothing in the engine; the ledger keeps it."""

    node: str
    forecaster: str
    """``online-cpu``, ``online-memory``, ``batch-cpu`` or ``batch-memory``."""
    until_seconds: float
    """End of the slot that was forecast."""
    measured: float
    """Highest load in the slot, in millicores or bytes; the forecasts use the same unit."""
    point: float
    p50: float
    p90: float
    p99: float
    absolute_error_share: float
    """Mean over the recent slots, as a share of the allocatable amount."""
    bias_share: float
    """Mean of forecast - measured: positive means too high."""
    underestimate_share: float
    """Share of the recent slots with a load above the point."""
    coverage_p99: float
    """Share of the recent slots at or below their p99."""
    trusted: bool
    """Whether the forecaster is still trusted for this node."""


@dataclass(frozen=True, slots=True)
class OwnModels:
    """Models that were trained on a namespace's own pods and apply to it alone; ids as in `ModelsChanged`."""

    namespace: str
    qos: str = ""
    completion: str = ""


@dataclass(frozen=True, slots=True)
class ModelsChanged:
    """The driver put other models into the catalogue; ids are sha256 of the model file, empty for none."""

    qos: str = ""
    completion: str = ""
    own: tuple[OwnModels, ...] = ()
    """In order of their namespaces; without its own model of a kind, a namespace uses the pooled one above."""
    decides_for: tuple[str, ...] | None = None
    """Workloads that use a QoS model, while all others use the heuristic; None: the models for all."""


@dataclass(frozen=True, slots=True)
class PodRefused:
    """A kubelet refused or evicted a pod that was bound to it. Comes before the event of the pod's end."""

    key: str
    uid: str
    node: str
    reason: str
    """``OutOfcpu``, ``NodeAffinity``, ``MemoryPressure`` ...; see `state.node_refusals`."""
    at_seconds: float


@dataclass(frozen=True, slots=True)
class NodeBackoffRestored:
    """An earlier engine's back-off of a node that refused pods. Comes once, after the nodes and the pods."""

    node: str
    reason: str
    """As in `PodRefused`."""
    until_seconds: float
    """When the next pod may try the node."""
    refusals: int = 1
    """Consecutive refusals; at least 1."""
    requests: tuple[tuple[str, int], ...] = ()
    """(resource, amount) of the pod that was refused."""
    trying: str = ""
    """Key of the pod that tries the node; empty for none."""


@dataclass(frozen=True, slots=True)
class PodAssumed:
    """Another scheduler is about to bind a pod. The pod counts there until the watch reports it, or a `BindRefused`
    ends it.
    """

    key: str
    uid: str
    node: str
    at_seconds: float


class RunTimeForecast(NamedTuple):
    """How long one pod will run on an idle node; ``seconds_p90 >= seconds_p50 > 0``."""

    key: str
    uid: str
    seconds_p50: float
    seconds_p90: float


@dataclass(frozen=True, slots=True)
class RunTimesForecasted:
    """Run times of single pods, made by the driver from runs of similar pods: they count before the completion model's.
    Unknown pods and impossible forecasts are ignored.
    """

    forecasts: tuple[RunTimeForecast, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed and nothing else: back-offs may have run out."""


@dataclass(frozen=True, slots=True)
class MoreToCome:
    """More of the existing objects come with the next call: no decisions on a part of them."""


Event = (
    NodeUpserted
    | NodeDeleted
    | PodUpserted
    | PodDeleted
    | WorkloadUpserted
    | WorkloadDeleted
    | ServiceSampled
    | BindRefused
    | ModelsChanged
    | Tick
    | EvictRefused
    | NodeUsageSampled
    | NodeContended
    | NodeForecasted
    | ForecastScored
    | NamespaceUpserted
    | NamespaceDeleted
    | PodRefused
    | PodAssumed
    | RunTimesForecasted
    | NodeBackoffRestored
    | RatesForecasted
    | SelectorUpserted
    | SelectorDeleted
    | MoreToCome
    | BudgetUpserted
    | BudgetDeleted
)

EVENT_TYPES: tuple[type[Event], ...] = (
    NodeUpserted,
    NodeDeleted,
    PodUpserted,
    PodDeleted,
    WorkloadUpserted,
    WorkloadDeleted,
    ServiceSampled,
    BindRefused,
    ModelsChanged,
    Tick,
    EvictRefused,
    NodeUsageSampled,
    NodeContended,
    NodeForecasted,
    ForecastScored,
    NamespaceUpserted,
    NamespaceDeleted,
    PodRefused,
    PodAssumed,
    RunTimesForecasted,
    NodeBackoffRestored,
    RatesForecasted,
    SelectorUpserted,
    SelectorDeleted,
    MoreToCome,
    BudgetUpserted,
    BudgetDeleted,
)
