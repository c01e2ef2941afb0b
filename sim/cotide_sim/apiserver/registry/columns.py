"""The columns of `kubectl get` for the built-in kinds.

Called by `builtins` (each resource carries its columns) and by `tables` (ages, generic columns). Pure: values come from
the object and from the caller's `now` for ages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cotide_sim.apiserver.registry.resources import Column, Json


class Age(str):
    """A timestamp that the table shows as the time since."""

    __slots__ = ()


def at(*path: str, default: Any = "") -> Callable[[Json], Any]:
    """Return a function that reads one path of an object."""

    def value(obj: Json) -> Any:
        found: Any = obj
        for step in path:
            if not isinstance(found, dict):
                return default
            found = found.get(step)
        return default if found is None else found

    return value


def age_at(*path: str) -> Callable[[Json], Any]:
    """Return a function that reads a timestamp as an age."""
    read = at(*path)
    return lambda obj: Age(read(obj))


NAME: Final = Column("Name", at("metadata", "name"), description="Name, unique in its namespace.", format="name")
AGE: Final = Column("Age", age_at("metadata", "creationTimestamp"), description="Time since creation.")


def pod_status(pod: Json) -> str:
    """Return the one word that kubectl shows for a pod."""
    status = pod.get("status") or {}
    word = str(status.get("reason") or status.get("phase") or "Unknown")
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        for kind in ("waiting", "terminated"):
            reason = (state.get(kind) or {}).get("reason")
            word = str(reason) if reason and not status.get("reason") else word
    if word == "Pending":
        for condition in status.get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
                word = "SchedulingGated"
    return "Terminating" if pod["metadata"].get("deletionTimestamp") else word


def _pod_ready(pod: Json) -> str:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    ready = sum(bool(status.get("ready")) for status in statuses)
    return f"{ready}/{len((pod.get('spec') or {}).get('containers') or ())}"


def _pod_restarts(pod: Json) -> int:
    return sum(
        int(status.get("restartCount") or 0) for status in (pod.get("status") or {}).get("containerStatuses") or ()
    )


def _pod_gates(pod: Json) -> str:
    gates = (pod.get("spec") or {}).get("readinessGates") or ()
    return f"0/{len(gates)}" if gates else "<none>"


def node_status(node: Json) -> str:
    """Return Ready, NotReady or Unknown, and whether the node is cordoned."""
    ready = {c.get("type"): c.get("status") for c in (node.get("status") or {}).get("conditions") or ()}.get("Ready")
    words = ["Ready" if ready == "True" else "NotReady" if ready else "Unknown"]
    if (node.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(node: Json) -> str:
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key[len(prefix) :] for key in node["metadata"].get("labels") or () if key.startswith(prefix))
    return ",".join(filter(None, roles)) or "<none>"


def _node_address(kind: str) -> Callable[[Json], str]:
    def value(node: Json) -> str:
        for address in (node.get("status") or {}).get("addresses") or ():
            if address.get("type") == kind:
                return str(address.get("address"))
        return "<none>"

    return value


def _event_object(event: Json) -> str:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _event_seen(event: Json) -> Age:
    series = event.get("series") or {}
    return Age(
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
        or ""
    )


def _of(*path: str) -> Callable[[Json], str]:
    """Return a function that shows "ready/wanted" of a replicated kind."""
    ready = at("status", *path, default=0)
    return lambda obj: f"{ready(obj)}/{(obj.get('spec') or {}).get('replicas', 1)}"


def _condition(kind: str) -> Callable[[Json], str]:
    def value(obj: Json) -> str:
        conditions = (obj.get("status") or {}).get("conditions") or ()
        return next((str(c.get("status")) for c in conditions if c.get("type") == kind), "")

    return value


def _ports(service: Json) -> str:
    ports = (service.get("spec") or {}).get("ports") or ()
    return ",".join(f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in ports) or "<none>"


def _count(field: str) -> Callable[[Json], int]:
    return lambda obj: len(obj.get(field) or ())


BUILTIN_COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    "pods": (
        NAME,
        Column("Ready", _pod_ready),
        Column("Status", pod_status),
        Column("Restarts", _pod_restarts),
        AGE,
        Column("IP", at("status", "podIP", default="<none>"), priority=1),
        Column("Node", at("spec", "nodeName", default="<none>"), priority=1),
        Column("Nominated Node", at("status", "nominatedNodeName", default="<none>"), priority=1),
        Column("Readiness Gates", _pod_gates, priority=1),
    ),
    "nodes": (
        NAME,
        Column("Status", node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", at("status", "nodeInfo", "kubeletVersion")),
        Column("Internal-IP", _node_address("InternalIP"), priority=1),
        Column("External-IP", _node_address("ExternalIP"), priority=1),
        Column("OS-Image", at("status", "nodeInfo", "osImage", default="<unknown>"), priority=1),
        Column("Kernel-Version", at("status", "nodeInfo", "kernelVersion", default="<unknown>"), priority=1),
        Column(
            "Container-Runtime", at("status", "nodeInfo", "containerRuntimeVersion", default="<unknown>"), priority=1
        ),
    ),
    "namespaces": (NAME, Column("Status", at("status", "phase")), AGE),
    "events": (
        Column("Last Seen", _event_seen),
        Column("Type", at("type")),
        Column("Reason", at("reason")),
        Column("Object", _event_object),
        Column("Subobject", at("involvedObject", "fieldPath"), priority=1),
        Column("Source", at("source", "component"), priority=1),
        Column("Message", at("message")),
        Column("First Seen", age_at("firstTimestamp"), priority=1),
        Column("Count", at("count", default=1), priority=1),
        Column("Name", at("metadata", "name"), priority=1),
    ),
    "services": (
        NAME,
        Column("Type", at("spec", "type")),
        Column("Cluster-IP", at("spec", "clusterIP", default="<none>")),
        Column("External-IP", lambda _: "<none>"),
        Column("Port(s)", _ports),
        AGE,
    ),
    "configmaps": (NAME, Column("Data", _count("data"), type="integer"), AGE),
    "secrets": (NAME, Column("Type", at("type")), Column("Data", _count("data"), type="integer"), AGE),
    "deployments.apps": (
        NAME,
        Column("Ready", _of("readyReplicas")),
        Column("Up-to-date", at("status", "updatedReplicas", default=0)),
        Column("Available", at("status", "availableReplicas", default=0)),
        AGE,
    ),
    "replicasets.apps": (
        NAME,
        Column("Desired", at("spec", "replicas", default=1)),
        Column("Current", at("status", "replicas", default=0)),
        Column("Ready", at("status", "readyReplicas", default=0)),
        AGE,
    ),
    "statefulsets.apps": (NAME, Column("Ready", _of("readyReplicas")), AGE),
    "jobs.batch": (
        NAME,
        Column("Status", lambda job: "Complete" if _condition("Complete")(job) == "True" else "Running"),
        Column("Completions", lambda job: f"{at('status', 'succeeded', default=0)(job)}/"
               f"{at('spec', 'completions', default=1)(job)}"),
        AGE,
    ),
    "poddisruptionbudgets.policy": (
        NAME,
        Column("Min Available", at("spec", "minAvailable", default="N/A")),
        Column("Max Unavailable", at("spec", "maxUnavailable", default="N/A")),
        Column("Allowed Disruptions", at("status", "disruptionsAllowed", default=0), type="integer"),
        AGE,
    ),
    "leases.coordination.k8s.io": (NAME, Column("Holder", at("spec", "holderIdentity")), AGE),
    "priorityclasses.scheduling.k8s.io": (
        NAME,
        Column("Value", at("value", default=0), type="integer"),
        Column("Global-Default", at("globalDefault", default=False), type="boolean"),
        AGE,
        Column("PreemptionPolicy", at("preemptionPolicy", default="PreemptLowerPriority")),
    ),
    **dict.fromkeys(
        (
            "mutatingwebhookconfigurations.admissionregistration.k8s.io",
            "validatingwebhookconfigurations.admissionregistration.k8s.io",
        ),
        (NAME, Column("Webhooks", _count("webhooks"), type="integer"), AGE),
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (
        NAME,
        Column("Created At", at("metadata", "creationTimestamp"), type="date"),
    ),
}  # fmt: skip
