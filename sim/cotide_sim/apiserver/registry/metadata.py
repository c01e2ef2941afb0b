"""The rules of metadata for every kind: names, labels, the fields that a client may set and those that only the server
sets.

Called by `writing`. Pure, except for the uid and the time, which come from the `Cluster`.

Source of the name rules: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
"""

from __future__ import annotations

import re
from typing import Any, Final

from cotide_sim.apiserver.cluster import Cluster
from cotide_sim.apiserver.refusals import Cause, bad_request
from cotide_sim.apiserver.registry.resources import Json, Resource

_SUBDOMAIN: Final = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_LABEL: Final = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_PATH_SEGMENT: Final = re.compile(r"^(?!\.{1,2}$)[^/%]+$")
_LABEL_VALUE: Final = re.compile(r"^(|[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)$")
_LABEL_KEY: Final = re.compile(
    r"^([a-z0-9][-a-z0-9.]{0,251}[a-z0-9]/|[a-z0-9]/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
_ANNOTATIONS_LIMIT: Final = 256 * 1024
"""Bytes of all annotations of an object, as Kubernetes limits them."""

_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_FREE_FINALIZERS: Final = frozenset(
    {"leases.coordination.k8s.io", "poddisruptionbudgets.policy", "customresourcedefinitions.apiextensions.k8s.io"}
    | {f"{kind}webhookconfigurations.admissionregistration.k8s.io" for kind in ("mutating", "validating")}
)
"""Built-in kinds with finalizers that need no domain, like those of custom kinds."""
_LOOSE_NAMES: Final = frozenset(
    {"roles", "rolebindings", "clusterroles", "clusterrolebindings", "events", "poddisruptionbudgets"}
)
_LABEL_NAMES: Final = frozenset({"namespaces", "services"})
_UNCOUNTED: Final = frozenset(
    {"nodes", "namespaces", "services", "persistentvolumes", "persistentvolumeclaims", "resourcequotas"}
)
"""Seen on a server of 1.35."""
_KEPT: Final = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds",
                "generateName")  # fmt: skip
_GIVEN: Final = ("labels", "annotations", "ownerReferences", "finalizers", "managedFields")
"""Fields that a writer may set at any time."""


def fresh(cluster: Cluster, resource: Resource, namespace: str, obj: Json) -> None:
    """Complete the metadata of a new object, in place."""
    given = obj.get("metadata") or {}
    if not isinstance(given, dict):
        raise bad_request("metadata: must be an object")
    name = given.get("name") or ""
    prefix = given.get("generateName") or ""
    if not name and prefix:
        name = str(prefix)[:58] + cluster.name_suffix()
    own_namespace = given.get("namespace")
    if own_namespace and own_namespace != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
            if resource.namespaced
            else f"namespace may not be set on {resource.plural}, which have none"
        )
    metadata: Json = {"name": name}
    if resource.namespaced:
        metadata["namespace"] = namespace
    metadata["uid"] = cluster.new_uid()
    metadata["resourceVersion"] = ""
    if counts_generations(resource):
        metadata["generation"] = 1
    metadata["creationTimestamp"] = cluster.timestamp()
    for field in ("generateName", *_GIVEN):
        if given.get(field):
            metadata[field] = given[field]
    obj["metadata"] = metadata


def counts_generations(resource: Resource) -> bool:
    """Whether objects of a kind count the changes of their spec; some with a status do not."""
    return resource.has_status and resource.key not in _UNCOUNTED


def carried(new: Json, old: Json) -> None:
    """Restore the server's own fields in a changed object's metadata, in place."""
    before, given = old["metadata"], new["metadata"]
    metadata: Json = {"resourceVersion": before["resourceVersion"], "name": before["name"]}
    if "namespace" in before:
        metadata["namespace"] = before["namespace"]
    for field in _KEPT:
        if field in before:
            metadata[field] = before[field]
    for field in _GIVEN:
        if given.get(field):
            metadata[field] = given[field]
    if "managedFields" not in given and "managedFields" in before:  # leaving them out does not remove them
        metadata["managedFields"] = before["managedFields"]
    new["metadata"] = metadata


def mutated(before: Json, after: Json) -> Json:
    """Return a new object after webhooks, with the server's own fields restored."""
    metadata = dict(before["metadata"])
    for field in _GIVEN:
        metadata.pop(field, None)
        if after["metadata"].get(field):
            metadata[field] = after["metadata"][field]
    if not metadata.get("generateName") and after["metadata"].get("name"):
        metadata["name"] = after["metadata"]["name"]
    return {**after, "metadata": metadata}


def check(resource: Resource, obj: Json) -> list[Cause]:
    """Return the faults of an object's metadata."""
    metadata = obj["metadata"]
    causes = _check_name(resource, metadata["name"])
    labels = metadata.get("labels")
    if labels is not None:
        causes += _check_map(labels, "metadata.labels")
        if not causes:
            for key, value in labels.items():
                if not _LABEL_KEY.match(key):
                    causes.append(Cause("metadata.labels", f'Invalid value: "{key}": not a qualified label name'))
                if not _LABEL_VALUE.match(value):
                    causes.append(
                        Cause(
                            "metadata.labels",
                            f'Invalid value: "{value}": a valid label must be at most '
                            "63 letters, digits, '-', '_' or '.', and begin and end with a letter or digit",
                        )
                    )
    annotations = metadata.get("annotations")
    if annotations is not None:
        faults = _check_map(annotations, "metadata.annotations")
        causes += faults
        if not faults and sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
            causes.append(
                Cause(
                    "metadata.annotations",
                    f"Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes",
                    "FieldValueTooLong",
                )
            )
    if "ownerReferences" in metadata:
        causes += _check_owners(metadata["ownerReferences"])
    finalizers = metadata.get("finalizers") or []
    if not isinstance(finalizers, list) or not all(isinstance(finalizer, str) for finalizer in finalizers):
        causes.append(Cause("metadata.finalizers", "Invalid value: must be a list of strings"))
    else:
        needs_domain = not resource.custom and resource.key not in _FREE_FINALIZERS
        causes += [
            Cause(
                f"metadata.finalizers[{index}]",
                f'Invalid value: "{finalizer}": name is neither a standard finalizer name nor is it fully qualified',
            )
            for index, finalizer in enumerate(finalizers)
            if not _LABEL_KEY.match(finalizer)
            or (needs_domain and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS)
        ]
    return causes


def _check_name(resource: Resource, name: Any) -> list[Cause]:
    if not name:
        return [Cause("metadata.name", "Required value: name or generateName is required", "FieldValueRequired")]
    if not isinstance(name, str):
        return [Cause("metadata.name", "Invalid value: must be a string")]
    if resource.plural in _LOOSE_NAMES:
        fits, rule = bool(_PATH_SEGMENT.match(name)), "may not be '.' or '..' or contain '/' or '%'"
    elif resource.plural in _LABEL_NAMES and not resource.group:
        fits = len(name) <= 63 and bool(_LABEL.match(name))
        rule = "a lowercase RFC 1123 label: lower case letters, digits and '-', at most 63"
    else:
        fits = len(name) <= 253 and bool(_SUBDOMAIN.match(name))
        rule = "a lowercase RFC 1123 subdomain must consist of lower case letters, digits, '-' or '.', and start and end with a letter or digit"  # noqa: E501 - one sentence
    return [] if fits else [Cause("metadata.name", f'Invalid value: "{name}": {rule}')]


def _check_map(value: Any, field: str) -> list[Cause]:
    if isinstance(value, dict) and all(isinstance(text, str) for text in value.values()):
        return []
    return [Cause(field, "Invalid value: must be a map of strings to strings")]


def _check_owners(owners: Any) -> list[Cause]:
    if not isinstance(owners, list):
        return [Cause("metadata.ownerReferences", "Invalid value: must be a list")]
    causes: list[Cause] = []
    controllers = 0
    for index, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{index}]"
        if not isinstance(owner, dict):
            return [Cause(path, "Invalid value: must be an object")]
        causes += [
            Cause(f"{path}.{field}", "Required value: must not be empty", "FieldValueRequired")
            for field in ("apiVersion", "kind", "name", "uid")
            if not owner.get(field) or not isinstance(owner[field], str)
        ]
        controllers += owner.get("controller") is True
    if controllers > 1:
        causes.append(Cause("metadata.ownerReferences", "Invalid value: only one reference can have controller set"))
    return causes
