"""The latest state of every object that matters to scheduling, as the reflectors received it.

One task per reflected resource fills it (`follow`); the loop and the controllers read it. All run in the operator's own
event loop. Position in the flow: watch event -> cache -> translation -> core event.

Invariant: the indexes (pods of a Job, pods kept for a Job, pods of a Workload) agree with the objects after `apply`. If
the selector of a Workload changes among many pods, its index agrees once `settle` has no work left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

import msgspec

from cotide_core.classes import CLASSES, MAX_CLASS_LABEL, SHIPPED_PRIORITY_CLASSES, UNRAISED
from cotide_core.errors import InputError
from cotide_kube.objects import (
    ApiStruct,
    AttachmentObject,
    ClaimObject,
    CsiDriverObject,
    CsiNodeObject,
    Metadata,
    NamespaceObject,
    NodeObject,
    OwnerReference,
    PodDisruptionBudgetObject,
    PodObject,
    PriorityClassObject,
    ReplicaSetObject,
    ServiceObject,
    StorageCapacityObject,
    StorageClassObject,
    VolumeObject,
)
from cotide_operator.apis.names import GROUP, JOB_LABEL, TRACKING_FINALIZER
from cotide_operator.cache.fair_queue import FairQueue
from cotide_operator.cache.label_selectors import label_selector, read_selector
from cotide_operator.cache.pod_interning import NodeKeeping, PodKeeping, keep_selector
from cotide_operator.cache.quarantine import Quarantine
from cotide_operator.cache.workload_selectors import WorkloadSelectors

Kind = Literal[
    "nodes",
    "priorityclasses",
    "namespaces",
    "workloads",
    "jobs",
    "poddisruptionbudgets",
    "persistentvolumeclaims",
    "persistentvolumes",
    "storageclasses",
    "csinodes",
    "csidrivers",
    "csistoragecapacities",
    "volumeattachments",
    "services",
    "replicasets",
    "statefulsets",
    "replicationcontrollers",
    "pods",
    "podgroups",
    "gangworkloads",
    "gangpodgroups",
]
SELECTOR_KINDS: Final[dict[Kind, str]] = {
    "services": "Service",
    "replicasets": "ReplicaSet",
    "statefulsets": "StatefulSet",
    "replicationcontrollers": "ReplicationController",
}
"""Objects that define which pods are spread together, with the names of their kinds. Without the right to read them,
all else works."""
OPTIONAL_KINDS: Final[tuple[Kind, ...]] = ("podgroups", "gangworkloads", "gangpodgroups")
"""Kinds that a server may lack: PodGroups of coscheduling, Workloads of ``scheduling.k8s.io`` (1.35, alpha) and its
PodGroups (1.36 and newer), which state the size of a gang. The start does not wait for their first list; until then a
pod that names one waits."""
KINDS: Final[tuple[Kind, ...]] = tuple(kind for kind in get_args(Kind) if kind not in OPTIONAL_KINDS)
SETTLE_SECONDS: Final = 0.01
"""Longest call of `settle`; chosen: a fifth of the limit for one piece of work."""
Listener = Callable[[Kind, str], None]


class CustomObject(ApiStruct, frozen=True):
    """A Workload or a Job of ours, or a gang object of another API; a schema has checked its spec."""

    metadata: Metadata
    api_version: str = ""
    kind: str = ""
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


Mirrored = (
    PodObject
    | NodeObject
    | PriorityClassObject
    | PodDisruptionBudgetObject
    | NamespaceObject
    | CustomObject
    | ClaimObject
    | VolumeObject
    | StorageClassObject
    | CsiNodeObject
    | CsiDriverObject
    | StorageCapacityObject
    | AttachmentObject
    | ServiceObject
    | ReplicaSetObject
)
PATHS: Final[dict[Kind, str]] = {
    "nodes": "/api/v1/nodes",
    "priorityclasses": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "namespaces": "/api/v1/namespaces",
    "workloads": "/apis/cotide.dev/v1alpha1/workloads",
    "jobs": "/apis/cotide.dev/v1alpha1/jobs",
    "poddisruptionbudgets": "/apis/policy/v1/poddisruptionbudgets",
    "persistentvolumeclaims": "/api/v1/persistentvolumeclaims",
    "persistentvolumes": "/api/v1/persistentvolumes",
    "storageclasses": "/apis/storage.k8s.io/v1/storageclasses",
    "csinodes": "/apis/storage.k8s.io/v1/csinodes",
    "csidrivers": "/apis/storage.k8s.io/v1/csidrivers",
    "csistoragecapacities": "/apis/storage.k8s.io/v1/csistoragecapacities",
    "volumeattachments": "/apis/storage.k8s.io/v1/volumeattachments",
    "services": "/api/v1/services",
    "replicasets": "/apis/apps/v1/replicasets",
    "statefulsets": "/apis/apps/v1/statefulsets",
    "replicationcontrollers": "/api/v1/replicationcontrollers",
    "pods": "/api/v1/pods",
    "podgroups": "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
    "gangworkloads": "/apis/scheduling.k8s.io/v1alpha1/workloads",
    "gangpodgroups": "/apis/scheduling.k8s.io/v1beta1/podgroups",
}
OLDER_PATHS: Final[dict[Kind, tuple[str, ...]]] = {
    "gangpodgroups": tuple(f"/apis/scheduling.k8s.io/{version}/podgroups" for version in ("v1alpha3", "v1alpha2"))
}
"""Paths on a server that does not serve the path above, newest first; the fields that are read are the same."""
KEPT_AS: Final[dict[Kind, Callable[[], Callable[[Any], Any]]]] = {
    "pods": PodKeeping,
    "nodes": NodeKeeping,
    **dict.fromkeys(SELECTOR_KINDS, lambda: keep_selector),
}
"""Factories of the functions that turn a decoded object into the cached one."""
TYPES: Final[dict[Kind, type[Any]]] = {
    "nodes": NodeObject,
    "priorityclasses": PriorityClassObject,
    "namespaces": NamespaceObject,
    "workloads": CustomObject,
    "jobs": CustomObject,
    "poddisruptionbudgets": PodDisruptionBudgetObject,
    "persistentvolumeclaims": ClaimObject,
    "persistentvolumes": VolumeObject,
    "storageclasses": StorageClassObject,
    "csinodes": CsiNodeObject,
    "csidrivers": CsiDriverObject,
    "csistoragecapacities": StorageCapacityObject,
    "volumeattachments": AttachmentObject,
    "services": ServiceObject,
    "replicasets": ReplicaSetObject,
    "statefulsets": ReplicaSetObject,
    "replicationcontrollers": ServiceObject,
    "pods": PodObject,
    "podgroups": CustomObject,
    "gangworkloads": CustomObject,
    "gangpodgroups": CustomObject,
}


def key_of(metadata: Metadata) -> str:
    """Return ``namespace/name``, or the name of an object without a namespace."""
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def namespace_of_key(key: str) -> str:
    """Return the namespace of such a key; empty for an object without a namespace."""
    return key.rpartition("/")[0]


def controller_of(metadata: Metadata) -> OwnerReference | None:
    """Return the owner that controls an object, or None."""
    for owner in metadata.owner_references:
        if owner.controller:
            return owner
    return None


def owned_key(metadata: Metadata, kind: str) -> str | None:
    """Return the key of the controlling owner if it is a resource of ours of this kind."""
    owner = controller_of(metadata)
    if owner is None or owner.kind != kind or not owner.api_version.startswith(f"{GROUP}/"):
        return None
    return f"{metadata.namespace}/{owner.name}"


def keeper_of(pod: PodObject) -> str | None:
    """Return the key of the Job that our finalizer keeps a pod for, None for a pod without the finalizer.

    The Job is the pod's owner. If a user removed the owner (a Job that was deleted with its pods orphaned), it is the
    Job that the label names. A pod with neither gives a key without a name.
    """
    if TRACKING_FINALIZER not in pod.metadata.finalizers:
        return None
    owner = owned_key(pod.metadata, "Job")
    return owner or f"{pod.metadata.namespace}/{pod.metadata.labels.get(JOB_LABEL, '')}"


class ObjectCache:
    """Latest objects by key, and listeners that receive each change.

    `objects` returns services and controllers.

    Attributes
    ----------
    pods, nodes, priorityclasses, poddisruptionbudgets, namespaces, workloads, jobs, persistentvolumeclaims,
    persistentvolumes, storageclasses, csinodes, csidrivers, csistoragecapacities, volumeattachments, podgroups,
    gangworkloads, gangpodgroups :
        latest object by ``namespace/name`` (or name): views, which only `apply` changes.
    quarantine :
        objects that made a part of the operator raise; see its module.
    max_class_without_label :
        highest class in a namespace without ``cotide.dev/max-class``: a class, or `UNRAISED`.
    class_by_priority_class :
        class of a pod by the name of its PriorityClass; other names give no class.
    served :
        the path of the last list of each kind that a server may lack.
    pods_version :
        the server's version of the last applied change of pods; empty before the first list.
    """

    def __init__(self) -> None:
        self.max_class_without_label = UNRAISED
        self.class_by_priority_class = SHIPPED_PRIORITY_CLASSES
        self._objects: dict[Kind, dict[str, Any]] = {kind: {} for kind in (*KINDS, *OPTIONAL_KINDS)}
        self._views: dict[Kind, Mapping[str, Any]] = {
            kind: MappingProxyType(objects) for kind, objects in self._objects.items()
        }
        self.pods: Mapping[str, PodObject] = self._views["pods"]
        self.nodes: Mapping[str, NodeObject] = self._views["nodes"]
        self.priorityclasses: Mapping[str, PriorityClassObject] = self._views["priorityclasses"]
        self.poddisruptionbudgets: Mapping[str, PodDisruptionBudgetObject] = self._views["poddisruptionbudgets"]
        self.namespaces: Mapping[str, NamespaceObject] = self._views["namespaces"]
        self.workloads: Mapping[str, CustomObject] = self._views["workloads"]
        self.jobs: Mapping[str, CustomObject] = self._views["jobs"]
        self.persistentvolumeclaims: Mapping[str, ClaimObject] = self._views["persistentvolumeclaims"]
        self.persistentvolumes: Mapping[str, VolumeObject] = self._views["persistentvolumes"]
        self.storageclasses: Mapping[str, StorageClassObject] = self._views["storageclasses"]
        self.csinodes: Mapping[str, CsiNodeObject] = self._views["csinodes"]
        self.csidrivers: Mapping[str, CsiDriverObject] = self._views["csidrivers"]
        self.csistoragecapacities: Mapping[str, StorageCapacityObject] = self._views["csistoragecapacities"]
        self.volumeattachments: Mapping[str, AttachmentObject] = self._views["volumeattachments"]
        self.podgroups: Mapping[str, CustomObject] = self._views["podgroups"]
        self.gangworkloads: Mapping[str, CustomObject] = self._views["gangworkloads"]
        self.gangpodgroups: Mapping[str, CustomObject] = self._views["gangpodgroups"]
        self.served: dict[Kind, str] = {}
        self.pods_version = ""
        self.quarantine = Quarantine()
        self._synced: set[Kind] = set()
        self._listeners: list[Listener] = []
        self._pods_by_job: dict[str, dict[str, None]] = {}
        self._pods_by_workload: dict[str, dict[str, None]] = {}
        self._kept_by_job: dict[str, dict[str, None]] = {}
        self._job_of: dict[str, str] = {}
        self._keeper_of: dict[str, str] = {}
        self._workload_of: dict[str, str] = {}
        self._selectors: dict[str, WorkloadSelectors] = {}
        """By namespace, if a Workload there has a selector."""
        self._pods_by_namespace: dict[str, dict[str, None]] = {}
        self._unsettled: FairQueue[str] = FairQueue()
        """Pods that a changed selector may move to another Workload, and that are not checked yet."""

    @property
    def synced(self) -> bool:
        """Whether every kind was listed once: no decision is made before."""
        return len(self._synced) == len(KINDS)

    def missing(self) -> list[Kind]:
        """Return the kinds that are not listed yet."""
        return [kind for kind in KINDS if kind not in self._synced]

    def is_gone(self, namespace: str) -> bool:
        """Whether a namespace does not exist; False before the first list of namespaces."""
        return "namespaces" in self._synced and namespace not in self.namespaces

    def subscribe(self, listener: Listener) -> None:
        """Call ``listener(kind, key)`` after each change, in the loop's own thread; it must not block."""
        self._listeners.append(listener)

    def mark_synced(self, kind: Kind) -> None:
        """Record that a kind was listed in full, and call the listeners with an empty key."""
        if not self.synced:
            while self.settle():
                pass
        if kind not in OPTIONAL_KINDS:
            self._synced.add(kind)
        self._notify(kind, "")

    def objects(self, kind: Kind) -> Mapping[str, Any]:
        """Return the latest objects of a kind by key."""
        if kind not in self._views:
            raise InputError(f"the cache holds no {kind!r}")
        return self._views[kind]

    def pods_of_job(self, job_key: str) -> list[PodObject]:
        """Return the pods that a Job of ours controls, in the order of their first appearance."""
        keys = list(self._pods_by_job.get(job_key, ()))  # another thread may read, too
        return [pod for key in keys if (pod := self.pods.get(key)) is not None]

    def pods_in(self, namespace: str) -> list[str]:
        """Return the keys of the pods of a namespace."""
        return list(self._pods_by_namespace.get(namespace, ()))

    def pods_of_workload(self, workload_key: str) -> list[PodObject]:
        """Return the pods that a Workload of ours controls or selects."""
        return [self.pods[key] for key in self._pods_by_workload.get(workload_key, ())]

    def pod_count(self, kind: Literal["jobs", "workloads"], key: str) -> int:
        """Return the number of pods of a Job or a Workload of ours."""
        return len((self._pods_by_job if kind == "jobs" else self._pods_by_workload).get(key, ()))

    def pods_kept_for(self, job_key: str) -> list[PodObject]:
        """Return the pods that our finalizer keeps for a Job, which may be deleted: see `keeper_of`."""
        return [self.pods[key] for key in self._kept_by_job.get(job_key, ())]

    def keepers(self) -> list[str]:
        """Return the keys of all Jobs with kept pods, whether or not the Job exists."""
        return list(self._kept_by_job)

    def keeper_of(self, pod_key: str) -> str | None:
        """Return the key of the Job that our finalizer keeps a pod for."""
        return self._keeper_of.get(pod_key)

    def job_of(self, pod_key: str) -> str | None:
        """Return the key of the Job that controls a pod."""
        return self._job_of.get(pod_key)

    def workload_of(self, pod_key: str) -> str | None:
        """Return the key of the Workload that controls or selects a pod."""
        return self._workload_of.get(pod_key)

    def copied(self) -> ObjectCache:
        """Return a copy of the cache for another thread; it receives no later changes."""
        copy = ObjectCache()
        copy.max_class_without_label = self.max_class_without_label
        copy.class_by_priority_class = self.class_by_priority_class
        for kind, objects in self._objects.items():
            copy._objects[kind].update(objects)
        copy._job_of.update(self._job_of)
        copy._workload_of.update(self._workload_of)
        return copy

    def apply(self, kind: Kind, change: str, item: Mirrored) -> None:
        """Apply one change (ADDED, MODIFIED or DELETED) and call the listeners; a faulty object never raises here."""
        key = key_of(item.metadata)
        objects = self._objects[kind]
        if change == "DELETED":
            objects.pop(key, None)
            self.quarantine.forget(kind, key)
        else:
            objects[key] = item
            self.quarantine.changed(kind, key, item.metadata.resource_version)
        try:
            if kind == "pods":
                self._index(key)
            elif kind == "workloads":
                self._reselect(key, item.metadata.namespace)
        except Exception as error:  # noqa: BLE001 - one faulty object must not stop all others
            self.quarantine_object(kind, key, "indexes of the cache", error)
        self._notify(kind, key)
        if kind == "workloads":
            self.settle()

    def settle(self) -> bool:
        """Assign some of the pods of a changed selector to their Workloads; return whether more remain.

        A Workload may select 10,000 pods at once. The task that applies changes of Workloads calls this repeatedly,
        with a pause before each further call.
        """
        until = time.perf_counter() + SETTLE_SECONDS
        while (key := self._unsettled.pop()) is not None:
            before = self._workload_of.get(key)
            try:
                self._index(key)
            except Exception as error:  # noqa: BLE001 - one faulty object must not stop all others
                self.quarantine_object("pods", key, "indexes of the cache", error)
            if self._workload_of.get(key) != before:
                self._notify("pods", key)
            if time.perf_counter() >= until:
                break
        return bool(self._unsettled)

    def look_again(self, kind: Kind, key: str) -> None:
        """Call the listeners for an unchanged object with changed derived data."""
        self._notify(kind, key)

    def quarantine_object(self, kind: Kind, key: str, part: str, error: BaseException | str) -> None:
        """Quarantine an object at its cached version."""
        item = self.objects(kind).get(key)
        metadata = item.metadata if item is not None else Metadata()
        self.quarantine.put(kind, key, part, error, uid=metadata.uid, version=metadata.resource_version)

    def _notify(self, kind: Kind, key: str) -> None:
        for listener in self._listeners:
            try:
                listener(kind, key)
            except Exception as error:  # noqa: BLE001 - the other listeners must still receive the change
                self.quarantine_object(
                    kind, key, f"listener {getattr(listener, '__qualname__', 'of the cache')}", error
                )

    def _index(self, key: str) -> None:
        pod = self.pods.get(key)
        _move(self._job_of, self._pods_by_job, key, owned_key(pod.metadata, "Job") if pod else None)
        _move(self._keeper_of, self._kept_by_job, key, keeper_of(pod) if pod else None)
        namespace = namespace_of_key(key)
        known = self._pods_by_namespace.get(namespace)
        if pod is not None:
            if known is None:
                known = self._pods_by_namespace[namespace] = {}
            known[key] = None
        elif known is not None:
            known.pop(key, None)
            if not known:
                del self._pods_by_namespace[namespace]
        _move(self._workload_of, self._pods_by_workload, key, self._workload_by_selector(namespace, key, pod))

    def max_class_of(self, namespace: str) -> str:
        """Return the highest class for pods of a namespace: its label, or the value for namespaces without one."""
        found = self.namespaces.get(namespace)
        label = found.metadata.labels.get(MAX_CLASS_LABEL) if found is not None else None
        return label if label in CLASSES else self.max_class_without_label

    def workload_for(self, pod: PodObject) -> str | None:
        """Return the key of the Workload that controls or selects a pod; the pod may be missing in the cache."""
        owned = owned_key(pod.metadata, "Workload")
        if owned is not None:
            return owned
        selectors = self._selectors.get(pod.metadata.namespace)
        return None if selectors is None else selectors.of_labels(pod.metadata.labels)

    def _workload_by_selector(self, namespace: str, key: str, pod: PodObject | None) -> str | None:
        """Return the Workload that controls or selects an existing pod; None for a deleted pod."""
        owned = None if pod is None else owned_key(pod.metadata, "Workload")
        selectors = self._selectors.get(namespace)
        if selectors is None:
            return owned
        if pod is None or owned is not None:
            selectors.forget_pod(key)
            return owned
        return selectors.of_pod(key, pod.metadata.labels)

    def _reselect(self, key: str, namespace: str) -> None:
        """Apply a Workload's changed selector: `settle` assigns the affected pods to their Workloads."""
        workload = self.workloads.get(key)
        selector = (label_selector(read_selector(workload.spec)) if workload else None) or None
        known = self._selectors.get(namespace)
        if known is None:
            if selector is None:
                return
            known = self._selectors[namespace] = WorkloadSelectors()
            self._unsettle(self._pods_by_namespace.get(namespace, ()), namespace)
        self._unsettle(known.put(key, selector), namespace)
        if not known:
            del self._selectors[namespace]

    def _unsettle(self, pods: Iterable[str], namespace: str) -> None:
        for pod in pods:
            self._unsettled.add(pod, namespace)


def _move(owner_of: dict[str, str], owned: dict[str, dict[str, None]], key: str, owner: str | None) -> None:
    """Set the owner of a pod in both directions of an index; None removes the pod."""
    before = owner_of.get(key)
    if before == owner:
        return
    if before is not None:
        del owned[before][key]
        if not owned[before]:
            del owned[before]
        del owner_of[key]
    if owner is not None:
        owner_of[key] = owner
        owned.setdefault(owner, {})[key] = None
