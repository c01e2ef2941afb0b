"""The shape of fields that the server itself reads. A field of a wrong type is refused before any code reads it.

Called by `writing` for every new form of an object; by `deleting`, `scaling` and `pod_subresources` for their bodies.
It corresponds to a real server's decoding into typed structs, which answers 400. Invariant: after this check, code may
assume that a named field has its type, or is absent or null.

A shape is one of these: a type (``str``, ``int``, ``bool``); a dict (an object with these fields, if present). Or it is
a list with one shape (a list of that shape), ``WORDS`` (a map of text to text); or ``MAP`` (a map to plain values).
"""

from __future__ import annotations

from typing import Any, Final

from cotide_sim.apiserver.refusals import bad_request
from cotide_sim.apiserver.registry.resources import Json

WORDS: Final = "a map of text to text"
MAP: Final = "a map to plain values"
_NAMES: Final = {str: "a string", int: "a whole number", bool: "true or false"}

_METADATA: Final[Json] = {
    "name": str, "generateName": str, "namespace": str, "uid": str, "resourceVersion": str, "labels": WORDS,
    "annotations": WORDS, "finalizers": [str], "managedFields": [{"manager": str, "fieldsV1": {}}],
    "ownerReferences": [{"apiVersion": str, "kind": str, "name": str, "uid": str, "controller": bool,
                         "blockOwnerDeletion": bool}],
}  # fmt: skip
_CONDITIONS: Final = [{"type": str, "status": str, "reason": str}]
_SELECTOR: Final[Json] = {
    "matchLabels": WORDS, "matchExpressions": [{"key": str, "operator": str, "values": [str]}],
}  # fmt: skip
_CONTAINER: Final[Json] = {
    "name": str, "image": str, "imagePullPolicy": str, "env": [{}],
    "ports": [{"containerPort": int, "hostPort": int, "protocol": str, "name": str}],
    "resources": {"requests": MAP, "limits": MAP},
}  # fmt: skip
_POD: Final[Json] = {
    "spec": {
        "containers": [_CONTAINER], "initContainers": [_CONTAINER], "nodeName": str, "schedulerName": str,
        "serviceAccountName": str, "restartPolicy": str, "dnsPolicy": str, "preemptionPolicy": str,
        "nodeSelector": WORDS,
        "priorityClassName": str, "priority": int, "terminationGracePeriodSeconds": int, "activeDeadlineSeconds": int,
        "tolerations": [{"key": str, "operator": str, "value": str, "effect": str, "tolerationSeconds": int}],
        "schedulingGates": [{"name": str}], "affinity": {}, "readinessGates": [{}], "hostNetwork": bool,
    },
    "status": {
        "phase": str, "reason": str, "message": str, "podIP": str, "nominatedNodeName": str, "conditions": _CONDITIONS,
        "containerStatuses": [{"restartCount": int, "state": {"waiting": {"reason": str},
                                                              "terminated": {"reason": str}}}],
    },
}  # fmt: skip
_REPLICATED: Final[Json] = {
    "spec": {"replicas": int, "template": {}, "completions": int},
    "status": {"replicas": int, "readyReplicas": int, "conditions": _CONDITIONS},
}
_DEFINITION: Final[Json] = {
    "spec": {
        "group": str, "scope": str, "conversion": {},
        "names": {"plural": str, "singular": str, "kind": str, "listKind": str, "shortNames": [str],
                  "categories": [str]},
        "versions": [{
            "name": str, "served": bool, "storage": bool, "schema": {"openAPIV3Schema": {}},
            "subresources": {"status": {}, "scale": {"specReplicasPath": str, "statusReplicasPath": str}},
            "additionalPrinterColumns": [{"name": str, "type": str, "jsonPath": str, "priority": int, "format": str,
                                          "description": str}],
            "selectableFields": [{"jsonPath": str}],
        }],
    },
    "status": {"conditions": _CONDITIONS},
}  # fmt: skip
_WEBHOOKS: Final[Json] = {
    "webhooks": [{
        "name": str, "failurePolicy": str, "matchPolicy": str, "sideEffects": str, "reinvocationPolicy": str,
        "timeoutSeconds": int, "admissionReviewVersions": [str], "namespaceSelector": _SELECTOR,
        "objectSelector": _SELECTOR, "matchConditions": [{}],
        "clientConfig": {"url": str, "caBundle": str,
                         "service": {"namespace": str, "name": str, "path": str, "port": int}},
        "rules": [{"operations": [str], "apiGroups": [str], "apiVersions": [str], "resources": [str], "scope": str}],
    }],
}  # fmt: skip
_SHAPES: Final[dict[str, Json]] = {
    "pods": _POD,
    "nodes": {
        "spec": {"unschedulable": bool, "taints": [{"key": str, "value": str, "effect": str}]},
        "status": {"capacity": MAP, "allocatable": MAP, "conditions": _CONDITIONS, "nodeInfo": {},
                   "addresses": [{"type": str, "address": str}]},
    },
    "namespaces": {"spec": {"finalizers": [str]}, "status": {"phase": str}},
    "events": {
        "involvedObject": {"kind": str, "name": str, "namespace": str, "uid": str}, "series": {"lastObservedTime": str},
        "source": {"component": str}, "reason": str, "message": str, "type": str, "count": int,
        "firstTimestamp": str, "lastTimestamp": str, "eventTime": str, "reportingComponent": str,
    },
    "services": {"spec": {"ports": [{"port": int, "protocol": str}], "type": str, "clusterIP": str, "selector": WORDS},
                 "status": {}},
    "endpoints": {"subsets": [{"addresses": [{"ip": str}], "ports": [{"name": str, "port": int}]}]},
    "secrets": {"data": WORDS, "stringData": WORDS, "type": str},
    "configmaps": {"data": WORDS, "binaryData": WORDS},
    "poddisruptionbudgets.policy": {"spec": {"selector": _SELECTOR}, "status": {"conditions": _CONDITIONS}},
    "priorityclasses.scheduling.k8s.io": {"value": int, "globalDefault": bool, "preemptionPolicy": str},
    "leases.coordination.k8s.io": {
        "spec": {"holderIdentity": str, "leaseDurationSeconds": int, "leaseTransitions": int, "renewTime": str,
                 "acquireTime": str},
    },
    "customresourcedefinitions.apiextensions.k8s.io": _DEFINITION,
    "replicationcontrollers": _REPLICATED,
    **dict.fromkeys(("mutatingwebhookconfigurations.admissionregistration.k8s.io",
                     "validatingwebhookconfigurations.admissionregistration.k8s.io"), _WEBHOOKS),
    **dict.fromkeys(("deployments.apps", "replicasets.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch"),
                    _REPLICATED),
}  # fmt: skip
BINDING: Final[Json] = {
    "metadata": {"name": str, "uid": str, "resourceVersion": str, "annotations": WORDS, "labels": WORDS},
    "target": {"name": str, "kind": str},
}
DELETE_OPTIONS: Final[Json] = {
    "preconditions": {"uid": str, "resourceVersion": str}, "gracePeriodSeconds": int, "propagationPolicy": str,
    "orphanDependents": bool, "dryRun": [str],
}  # fmt: skip
EVICTION: Final[Json] = {"metadata": {"name": str}, "deleteOptions": DELETE_OPTIONS}
SCALE: Final[Json] = {"metadata": {"resourceVersion": str}, "spec": {"replicas": int}}


def misfit(value: Any, shape: Any, path: str) -> str | None:
    """Return the first field of a wrong type, and its correct type; None when all are."""
    if value is None:
        return None
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{path}: must be an object"
        for field, inner in shape.items():
            item = value.get(field)
            # Nearly every field is absent or correct: those need no call and no path.
            if item is None or type(item) is inner:
                continue
            if found := misfit(item, inner, f"{path}.{field}" if path else field):
                return found
        return None
    if isinstance(shape, list):
        return _misfit_list(value, shape[0], path)
    if isinstance(shape, str):
        if not isinstance(value, dict):
            return f"{path}: must be an object"
        kinds = str if shape is WORDS else (str, int, float)
        wrong = next((key for key, item in value.items() if not isinstance(item, kinds)), None)
        return None if wrong is None else f"{path}.{wrong}: must be a {'string' if shape is WORDS else 'quantity'}"
    fits = isinstance(value, shape) and (shape is bool or not isinstance(value, bool))
    return None if fits else f"{path}: must be {_NAMES[shape]}"


def _misfit_list(value: Any, shape: Any, path: str) -> str | None:
    if not isinstance(value, list):
        return f"{path}: must be a list"
    if not shape and all(type(item) is dict for item in value):
        return None
    for index, item in enumerate(value):
        if item is None:
            return f"{path}[{index}]: must not be null"
        if found := misfit(item, shape, f"{path}[{index}]"):
            return found
    return None


def check_object_shape(key: str, kind: str, obj: Json, *, custom: bool) -> None:
    """Refuse an object with a field of a wrong type.

    Raises
    ------
    Refusal
        400 that names the field.
    """
    found = misfit(obj.get("metadata"), _METADATA, "metadata")
    if found is None and not custom and (shape := _SHAPES.get(key)) is not None:
        found = misfit(obj, shape, "")
    if found is not None:
        raise bad_request(f"the object provided can't be read as a {kind}: {found}")


def check_body_shape(body: Any, shape: Json, what: str) -> None:
    """Refuse the body of a subresource or of a delete with a field of a wrong type (400)."""
    found = misfit(body if body is not None else [], shape, "")
    if found is not None:
        raise bad_request(f"the {what} can't be read: {found.removeprefix(': ')}")
