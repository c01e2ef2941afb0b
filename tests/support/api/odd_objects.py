"""One valid object of each kind that commands read, and what a broken server may make of it at any depth."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from cotide_core.classes import CLASS_LABEL
from cotide_operator.apis.names import JOB_LABEL
from cotide_operator.translation.decision_annotation import DECISION_ANNOTATION

Object = dict[str, Any]
Path = tuple[str | int, ...]

TIME: Final = "2026-11-20T13:00:00Z"
_SELECTOR: Final[Object] = {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "app", "operator": "Exists"}]}
_NODE_TERM: Final[Object] = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}
POD: Final[Object] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "a",
        "namespace": "default",
        "uid": "u-a",
        "resourceVersion": "7",
        "creationTimestamp": TIME,
        "labels": {"app": "a", CLASS_LABEL: "batch", JOB_LABEL: "a"},
        "annotations": {"cotide.dev/type": "count", DECISION_ANNOTATION: "{}", "cotide.dev/granted-phase": "read"},
        "ownerReferences": [
            {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "name": "a", "uid": "u-job", "controller": True}
        ],
        "finalizers": ["example.dev/keep"],
    },
    "spec": {
        "schedulerName": "cotide",
        "nodeName": "n",
        "priority": 5,
        "priorityClassName": "batch",
        "nodeSelector": {"zone": "z"},
        "overhead": {"cpu": "1m"},
        "containers": [
            {
                "name": "c",
                "image": "i",
                "resources": {"requests": {"cpu": "100m", "cotide.dev/reclaimed-cpu": "200"}, "limits": {"cpu": "1"}},
                "ports": [{"containerPort": 80, "hostPort": 80}],
            }
        ],
        "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"memory": "1Mi"}}}],
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_NODE_TERM]}},
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "labelSelector": _SELECTOR, "namespaces": ["default"]}
                ]
            },
        },
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}],
        "topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1, "labelSelector": _SELECTOR}],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "persistentVolumeClaim": {"claimName": "w"}}],
    },
    "status": {
        "phase": "Running",
        "reason": "Words",
        "message": "more words",
        "startTime": TIME,
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": TIME}],
        "containerStatuses": [
            {
                "name": "c",
                "restartCount": 1,
                "state": {"terminated": {"exitCode": 0, "startedAt": TIME, "finishedAt": TIME}},
                "resources": {"requests": {"cpu": "100m"}},
                "allocatedResources": {"cpu": "100m"},
            }
        ],
    },
}
NODE: Final[Object] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "n",
        "uid": "u-n",
        "creationTimestamp": TIME,
        "labels": {"zone": "z", "node.kubernetes.io/instance-type": "small"},
        "annotations": {"cotide.dev/consolidation": "freed", "cotide.dev/reclaimed-forecast": "words"},
    },
    "spec": {"unschedulable": False, "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": TIME}]},
    "status": {
        "capacity": {"cpu": "8", "memory": "8Gi", "pods": "110"},
        "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110", "cotide.dev/reclaimed-cpu": "500"},
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": TIME}],
        "images": [{"names": ["i"], "sizeBytes": 5}],
    },
}
JOB: Final[Object] = {
    "apiVersion": "cotide.dev/v1alpha1",
    "kind": "Job",
    "metadata": {"name": "a", "namespace": "default", "uid": "u-job", "labels": {"app": "a"}},
    "spec": {
        "class": "batch",
        "type": "count",
        "inputSize": "1Gi",
        "priority": 5,
        "completions": 2,
        "parallelism": 1,
        "gang": {"minMember": 2, "timeoutSeconds": 60},
        "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}},
    },
    "status": {
        "phase": "Running",
        "queuePosition": 1,
        "attempts": 2,
        "startTime": TIME,
        "predictedStart": TIME,
        "predictedSeconds": {"p50": 5.0, "p90": 9.0},
        "nodes": ["n"],
        "conditions": [{"type": "Scheduled", "status": "False", "reason": "R", "lastTransitionTime": TIME}],
    },
}
WORKLOAD: Final[Object] = {
    "apiVersion": "cotide.dev/v1alpha1",
    "kind": "Workload",
    "metadata": {"name": "web", "namespace": "default", "uid": "u-web"},
    "spec": {"selector": _SELECTOR, "qos": {"latencyP95Milliseconds": 10}},
    "status": {"ready": 1, "conditions": [{"type": "RateUnknown", "status": "True", "message": "words"}]},
}
NAMESPACE: Final[Object] = {"metadata": {"name": "default", "uid": "u-d", "labels": {"cotide.dev/max-class": "batch"}}}
PRIORITY: Final[Object] = {"metadata": {"name": "batch", "uid": "u-p"}, "value": 2000, "globalDefault": False}
BUDGET: Final[Object] = {
    "metadata": {"name": "b", "namespace": "default", "uid": "u-b"},
    "spec": {"selector": _SELECTOR, "minAvailable": 1},
    "status": {"disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
}
EVENT: Final[Object] = {
    "metadata": {"name": "e", "namespace": "default", "uid": "u-e", "creationTimestamp": TIME},
    "involvedObject": {"kind": "Pod", "name": "a", "uid": "u-a"},
    "type": "Normal",
    "reason": "Scheduled",
    "message": "words",
    "count": 2,
    "lastTimestamp": TIME,
}
WORLD: Final[dict[str, Object]] = {
    "/api/v1/nodes": NODE,
    "/api/v1/pods": POD,
    "/api/v1/namespaces": NAMESPACE,
    "/api/v1/namespaces/default/events": EVENT,
    "/apis/scheduling.k8s.io/v1/priorityclasses": PRIORITY,
    "/apis/policy/v1/poddisruptionbudgets": BUDGET,
    "/apis/cotide.dev/v1alpha1/jobs": JOB,
    "/apis/cotide.dev/v1alpha1/workloads": WORKLOAD,
}
"""By path of the collection, its one object."""
ODD: Final[tuple[Any, ...]] = (
    None, True, 1, -1, 2.5, 10**400, 1e308, "", "text",
    [], {}, [1], [None], ["text"], [[]], [{}], {"a": 1}, {"a": None},
)  # fmt: skip
"""What may stand in the place of anything."""


def places(found: Any, at: Path = ()) -> Iterator[Path]:
    """Yield where an object has something, at every depth."""
    for key, value in found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ():
        yield (*at, key)
        yield from places(value, (*at, key))


def spoilt(found: Object, at: Path, value: Any) -> Object:
    """Return a copy with another value at a place."""
    copied = copy.deepcopy(found)
    inside: Any = copied
    for key in at[:-1]:
        inside = inside[key]
    inside[at[-1]] = value
    return copied
