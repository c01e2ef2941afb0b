"""The built-in kinds of every cluster, as far as this emulator serves them.

Called once by the server when it starts. Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs and CronJobs are
plain storage here: no controller creates pods for them. RBAC objects are stored and never enforced.

Source of names, scopes and short names: https://kubernetes.io/docs/reference/kubectl/#resource-types
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cotide_sim.apiserver.registry.columns import BUILTIN_COLUMNS
from cotide_sim.apiserver.registry.resources import Registry, Resource, ServedVersion

POD_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "spec.nodeName": ("spec", "nodeName"),
    "status.phase": ("status", "phase"),
    "spec.schedulerName": ("spec", "schedulerName"),
    "spec.restartPolicy": ("spec", "restartPolicy"),
    "spec.serviceAccountName": ("spec", "serviceAccountName"),
    "spec.hostNetwork": ("spec", "hostNetwork"),
    "status.podIP": ("status", "podIP"),
    "status.nominatedNodeName": ("status", "nominatedNodeName"),
}
EVENT_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    **{
        f"involvedObject.{name}": ("involvedObject", name)
        for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    },
    "reason": ("reason",),
    "reportingComponent": ("reportingComponent",),
    "source": ("source", "component"),
    "type": ("type",),
}

_NONE: Final[Mapping[str, tuple[str, ...]]] = {}


def _kind(
    group: str,
    version: str,
    plural: str,
    kind: str,
    *,
    namespaced: bool = True,
    short: tuple[str, ...] = (),
    everyday: bool = False,
    status: bool = False,
    subresources: tuple[str, ...] = (),
    selectable: Mapping[str, tuple[str, ...]] = _NONE,
    singular: str = "",
) -> Resource:
    key = f"{plural}.{group}" if group else plural
    return Resource(
        group=group,
        plural=plural,
        kind=kind,
        singular=singular,
        versions=(ServedVersion(version, BUILTIN_COLUMNS.get(key, ()), None, status),),
        namespaced=namespaced,
        short_names=short,
        categories=("all",) if everyday else (),
        subresources=frozenset(subresources),
        selectable=selectable,
        has_status=status,
    )


def register_builtins(registry: Registry) -> None:
    """Serve the built-in kinds."""
    for resource in (*_core(), *_workloads(), *_cluster()):
        registry.add(resource)


def _core() -> list[Resource]:
    return [
        _kind(
            "", "v1", "pods", "Pod", short=("po",), everyday=True, status=True,
            subresources=("binding", "eviction", "resize"), selectable=POD_FIELDS,
        ),
        _kind(
            "", "v1", "nodes", "Node", namespaced=False, short=("no",), status=True,
            selectable={"spec.unschedulable": ("spec", "unschedulable")},
        ),
        _kind(
            "", "v1", "namespaces", "Namespace", namespaced=False, short=("ns",), status=True,
            subresources=("finalize",), selectable={"status.phase": ("status", "phase")},
        ),
        _kind("", "v1", "events", "Event", short=("ev",), selectable=EVENT_FIELDS),
        _kind("", "v1", "services", "Service", short=("svc",), everyday=True, status=True,
              selectable={"spec.clusterIP": ("spec", "clusterIP"), "spec.type": ("spec", "type")}),
        _kind("", "v1", "configmaps", "ConfigMap", short=("cm",)),
        _kind("", "v1", "secrets", "Secret", selectable={"type": ("type",)}),
        _kind("", "v1", "serviceaccounts", "ServiceAccount", short=("sa",)),
        _kind("", "v1", "endpoints", "Endpoints", short=("ep",), singular="endpoints"),
        _kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short=("pvc",), status=True),
        _kind("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False, short=("pv",), status=True),
        _kind("", "v1", "replicationcontrollers", "ReplicationController", short=("rc",), everyday=True, status=True,
              subresources=("scale",)),
        _kind("", "v1", "limitranges", "LimitRange", short=("limits",)),
        _kind("", "v1", "resourcequotas", "ResourceQuota", short=("quota",), status=True),
        _kind("", "v1", "podtemplates", "PodTemplate"),
    ]  # fmt: skip


def _workloads() -> list[Resource]:
    scaled = {"everyday": True, "status": True, "subresources": ("scale",)}
    return [
        _kind("apps", "v1", "deployments", "Deployment", short=("deploy",), **scaled),  # type: ignore[arg-type] # one dict for three kinds
        _kind("apps", "v1", "replicasets", "ReplicaSet", short=("rs",), **scaled),  # type: ignore[arg-type] # as above
        _kind("apps", "v1", "statefulsets", "StatefulSet", short=("sts",), **scaled),  # type: ignore[arg-type] # as above
        _kind("apps", "v1", "daemonsets", "DaemonSet", short=("ds",), everyday=True, status=True),
        _kind("apps", "v1", "controllerrevisions", "ControllerRevision"),
        _kind("batch", "v1", "jobs", "Job", everyday=True, status=True),
        _kind("batch", "v1", "cronjobs", "CronJob", short=("cj",), everyday=True, status=True),
        _kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", short=("hpa",),
              everyday=True, status=True),
        _kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", short=("pdb",), status=True),
        _kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", short=("netpol",)),
        _kind("networking.k8s.io", "v1", "ingresses", "Ingress", short=("ing",), status=True),
        _kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    ]  # fmt: skip


def _cluster() -> list[Resource]:
    rbac = "rbac.authorization.k8s.io"
    return [
        _kind("coordination.k8s.io", "v1", "leases", "Lease"),
        # Stored as core events: `event_views` translates both ways.
        _kind("events.k8s.io", "v1", "events", "Event", short=("ev",)),
        _kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False, short=("pc",)),
        _kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False),
        _kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False, short=("sc",)),
        _kind("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False),
        _kind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False),
        _kind("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity"),
        _kind("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False, status=True),
        _kind(rbac, "v1", "roles", "Role"),
        _kind(rbac, "v1", "rolebindings", "RoleBinding"),
        _kind(rbac, "v1", "clusterroles", "ClusterRole", namespaced=False),
        _kind(rbac, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
        _kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
              namespaced=False, short=("crd", "crds"), status=True),
        _kind("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False, status=True),
        _kind("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations",
              "ValidatingWebhookConfiguration", namespaced=False),
        _kind("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations",
              "MutatingWebhookConfiguration", namespaced=False),
    ]  # fmt: skip
