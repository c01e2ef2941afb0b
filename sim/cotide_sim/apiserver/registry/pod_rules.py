"""The defaults of a pod: the defaulting and the priority admission of a real server.

Called through `kind_rules`; the refusals are in `pod_validation`. Invariant: a default never replaces a given value.

Source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

from typing import Any, Final

from cotide_sim.apiserver.cluster import Cluster, Write
from cotide_sim.apiserver.refusals import Cause, forbidden
from cotide_sim.apiserver.registry.known_fields import drop_unknown
from cotide_sim.apiserver.registry.plain_kinds import write_quantities
from cotide_sim.apiserver.registry.pod_validation import pod_causes, update_causes
from cotide_sim.apiserver.registry.resources import Json, Resource

_SPEC_DEFAULTS: Final[tuple[tuple[str, Any], ...]] = (
    ("restartPolicy", "Always"),
    ("terminationGracePeriodSeconds", 30),
    ("dnsPolicy", "ClusterFirst"),
    ("serviceAccountName", "default"),
    ("schedulerName", "default-scheduler"),
    ("enableServiceLinks", True),
)
_NOT_READY_SECONDS: Final = 300
"""The DefaultTolerationSeconds admission plugin's default."""


def default(write: Write) -> None:
    """Set the defaults of a real server; an existing pod got them when it was made."""
    obj, cluster = write.obj, write.cluster
    if write.old is None:
        drop_unknown(obj, write.options)
    spec = obj.get("spec")
    if write.old is not None or not isinstance(spec, dict):
        return
    for field, value in _SPEC_DEFAULTS:
        if spec.get(field) is None:
            spec[field] = value
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    spec.setdefault("securityContext", {})
    _give_priority(cluster, write.resource, obj)
    _give_tolerations(spec)
    for field in ("initContainers", "containers"):
        containers = spec.get(field)
        if isinstance(containers, list):
            for container in containers:
                if isinstance(container, dict):
                    _default_container(container)
    status: Json = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": None,
             "message": "Scheduling is blocked due to non-empty scheduling gates",
             "lastTransitionTime": cluster.timestamp()}
        ]  # fmt: skip
    obj["status"] = status


def _default_container(container: Json) -> None:
    image = container.get("image")
    if "imagePullPolicy" not in container and isinstance(image, str):
        tag = image.rpartition("/")[2].partition(":")[2]
        container["imagePullPolicy"] = "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent"
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources = container.setdefault("resources", {})
    if isinstance(resources, dict):
        write_quantities(resources.get("requests"))
        write_quantities(resources.get("limits"))
    if isinstance(resources, dict) and isinstance(resources.get("limits"), dict):
        requests = resources.setdefault("requests", {})
        if isinstance(requests, dict):
            for name, quantity in resources["limits"].items():
                requests.setdefault(name, quantity)
    for port in container.get("ports") or ():
        if isinstance(port, dict):
            port.setdefault("protocol", "TCP")


def _give_tolerations(spec: Json) -> None:
    tolerations = spec.setdefault("tolerations", [])
    if not isinstance(tolerations, list):
        return
    for condition in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{condition}"
        covered = any(
            isinstance(toleration, dict)
            and toleration.get("key") in (key, None, "")
            and toleration.get("effect") in ("NoExecute", None, "")
            for toleration in tolerations
        )
        if not covered:
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _NOT_READY_SECONDS}
            )


def _give_priority(cluster: Cluster, resource: Resource, obj: Json) -> None:
    """Resolve the priority class, as the Priority admission plugin does."""
    spec = obj["spec"]
    name = spec.get("priorityClassName")
    policy = "PreemptLowerPriority"
    if name:
        entry = cluster.collection("priorityclasses.scheduling.k8s.io").get("", name)
        if entry is None:
            raise forbidden(resource, str(obj["metadata"]["name"]), f"no PriorityClass with name {name} was found")
        found = entry.decode()
        value, policy = found.get("value", 0), found.get("preemptionPolicy", policy)
    else:
        name, value = cluster.priority_default
        if name:
            spec["priorityClassName"] = name
    if spec.get("priority") is not None and spec["priority"] != value:
        why = f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority admission"
        raise forbidden(resource, str(obj["metadata"]["name"]), f"{why} computed {value} from the given PriorityClass")
    spec["priority"] = value
    spec.setdefault("preemptionPolicy", policy)


def qos_class(spec: Json) -> str:
    """Return Guaranteed, Burstable or BestEffort, by cpu and memory of all containers."""
    guaranteed, asked = True, False
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = container.get("resources") if isinstance(container, dict) else None
        resources = resources if isinstance(resources, dict) else {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            asked = asked or name in requests or name in limits
            if name not in limits or str(requests.get(name)) != str(limits[name]):
                guaranteed = False
    if not asked:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def check(write: Write) -> list[Cause]:
    """Return the faults of a pod, or of a change of one."""
    return pod_causes(write.obj) if write.old is None else update_causes(write.obj, write.old)
