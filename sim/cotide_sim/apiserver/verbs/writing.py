"""Create, replace and patch: from a decoded body to a stored object, with all checks between.

Called by `dispatch`. The steps are the same for all three: take the new form, restore the server's own fields, split
status from the rest. Then default, prune and validate, and store if anything changed. Invariants: a stored object has
passed its kind's validation. A write without a change makes no new version. Generation moves exactly when a field
outside of metadata and status changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cotide_sim.apiserver.cluster import Cluster, Write, WriteOptions
from cotide_sim.apiserver.patch.field_owners import Writer, owners_after
from cotide_sim.apiserver.refusals import (
    Cause,
    Refusal,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
    stale,
)
from cotide_sim.apiserver.registry import metadata as meta
from cotide_sim.apiserver.registry.kind_rules import rules_for
from cotide_sim.apiserver.registry.pod_resize import resize_causes, resized_form
from cotide_sim.apiserver.registry.resources import Json, Resource
from cotide_sim.apiserver.registry.shapes import check_object_shape
from cotide_sim.apiserver.storage import deep_json
from cotide_sim.apiserver.storage.store import Entry, encode
from cotide_sim.apiserver.verbs.deleting import finish_deletion

_NAMES_ITS_VERSION: Final = frozenset(
    {"poddisruptionbudgets.policy", "leases.coordination.k8s.io", "runtimeclasses.node.k8s.io"}
    | {f"{kind}.storage.k8s.io" for kind in ("csidrivers", "csinodes", "csistoragecapacities", "volumeattachments")}
    | {f"{kind}webhookconfigurations.admissionregistration.k8s.io" for kind in ("mutating", "validating")}
)
"""Built-in kinds that require the old version in a replacement, as custom kinds do (no AllowUnconditionalUpdate)."""

Patch = Callable[[Json], Any]
"""Returns the patched form of a decoded object that it may change in place."""

_BESIDE: frozenset[str] = frozenset({"metadata", "status", "apiVersion", "kind"})

_MADE_BY_REPLACING: Final = frozenset({"events", "leases.coordination.k8s.io"})
"""Kinds with the strategy AllowCreateOnUpdate, of those that are compared with a real server."""


def create(
    cluster: Cluster, resource: Resource, version: str, namespace: str, obj: Json, options: WriteOptions
) -> bytes:
    """Store a new object and return its JSON.

    Raises
    ------
    Refusal
        400, 404 (no such namespace), 403 (a terminating namespace), 409, 422.
    """
    if obj.get("kind") != resource.kind or obj.get("apiVersion") != resource.api_version(version):
        _check_type(resource, version, obj)
    check_object_shape(resource.key, resource.kind, obj, custom=resource.custom)
    if resource.namespaced:
        _check_namespace(cluster, resource, namespace, obj)
    versioned = isinstance(obj.get("metadata"), dict) and obj["metadata"].get("resourceVersion")
    meta.fresh(cluster, resource, namespace, obj)
    if options.reviews is not None:
        obj["metadata"] |= options.reviews.given
    name = obj["metadata"]["name"]
    obj["apiVersion"] = resource.storage_version
    rules = rules_for(resource)
    write = Write(cluster, resource, version, obj, None, options)
    rules.default(write)
    if cluster.admission is not None and (mutated := cluster.admission.mutate(write, "")) is not None:
        obj = write.obj = meta.mutated(obj, mutated)
        name = obj["metadata"]["name"]
        check_object_shape(resource.key, resource.kind, obj, custom=resource.custom)
        rules.default(write)
    causes = meta.check(resource, obj)
    causes += rules.check(write)
    if causes:
        raise invalid(resource, str(name), causes)
    if cluster.admission is not None:
        cluster.admission.validate(write, "")
    if versioned and not options.dry_run:
        raise bad_request("resourceVersion should not be set on objects to be created")
    if cluster.store.collection(resource).get(namespace, name) is not None:
        raise already_exists(resource, name)
    if options.dry_run:
        obj["metadata"].pop("resourceVersion", None)
        return encode(obj)
    return cluster.write(resource, obj, None).raw


def made_by_replacing(cluster: Cluster, resource: Resource, namespace: str, name: str) -> bool:
    """Whether a replacement creates this object: it does not exist, and its kind allows that."""
    return resource.key in _MADE_BY_REPLACING and cluster.store.collection(resource).get(namespace, name) is None


def replace(
    cluster: Cluster,
    resource: Resource,
    version: str,
    namespace: str,
    name: str,
    obj: Json,
    subresource: str,
    options: WriteOptions,
) -> bytes:
    """Replace an object, or create it where the kind is `made_by_replacing`; return its JSON."""
    _check_type(resource, version, obj)
    given = obj.get("metadata")
    if not isinstance(given, dict):
        raise bad_request("metadata: must be an object")
    if not given.get("name"):
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if given["name"] != name:
        raise bad_request(f"the name of the object ({given['name']}) does not match the name on the URL ({name})")
    if given.get("namespace") and given["namespace"] != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    makes = not subresource and made_by_replacing(cluster, resource, namespace, name)
    entry = None if makes else cluster.find(resource, namespace, name)
    if given.get("resourceVersion") and not str(given["resourceVersion"]).isdigit():
        raise bad_request(f'strconv.ParseUint: parsing "{given["resourceVersion"]}": invalid syntax')
    if entry is None:
        given.pop("resourceVersion", None)
        return create(cluster, resource, version, namespace, obj, options)
    if (resource.custom or resource.key in _NAMES_ITS_VERSION) and not given.get("resourceVersion"):
        text = "Invalid value: 0: must be specified for an update"
        raise invalid(resource, name, [Cause("metadata.resourceVersion", text)])
    obj["apiVersion"] = resource.storage_version
    return change(cluster, resource, version, entry, obj, subresource, options)


def patch(
    cluster: Cluster,
    resource: Resource,
    version: str,
    namespace: str,
    name: str,
    patched: Patch,
    subresource: str,
    options: WriteOptions,
) -> bytes:
    """Apply a patch to an object and return its JSON."""
    entry = cluster.find(resource, namespace, name)
    obj = patched(resource.shown_as(version, entry.decode()))
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
        raise bad_request("the patch leaves no object with metadata")
    if obj["metadata"].get("name") != name:
        raise bad_request("the name of the object may not be patched")
    if obj["metadata"].get("uid") not in (None, "", entry.uid):
        text = f'Invalid value: "{obj["metadata"]["uid"]}": field is immutable'
        raise invalid(resource, name, [Cause("metadata.uid", text)])
    _check_type(resource, version, obj)
    obj = resource.to_storage(version, obj)
    obj["apiVersion"] = resource.storage_version
    try:
        check_object_shape(resource.key, resource.kind, obj, custom=resource.custom)
    except Refusal as wrong:  # a bad result of a patch on a good object is the patch's fault
        raise Refusal(422, "Invalid", f' "" is invalid: patch: Invalid value: {wrong.message}') from None
    return change(cluster, resource, version, entry, obj, subresource, options)


def change(
    cluster: Cluster,
    resource: Resource,
    version: str,
    entry: Entry,
    new: Json,
    subresource: str,
    options: WriteOptions,
) -> bytes:
    """Carry a new form of an object through the checks and into the store."""
    name = entry.name
    check_object_shape(resource.key, resource.kind, new, custom=resource.custom)
    given_version, given_uid = new["metadata"].get("resourceVersion"), new["metadata"].get("uid")
    if given_uid and given_uid != entry.uid:
        raise conflict(resource, name, f"Precondition failed: UID in precondition: {given_uid}, UID in object meta: "
                       f"{entry.uid}")  # fmt: skip
    if given_version and str(given_version) != str(entry.version):
        raise stale(resource, name)
    old = entry.decode()
    new = _split(resource, new, old, subresource)
    rules = rules_for(resource)
    write = Write(cluster, resource, version, new, old, options)
    rules.default(write)
    if cluster.admission is not None and (mutated := cluster.admission.mutate(write, subresource)) is not None:
        check_object_shape(resource.key, resource.kind, mutated, custom=resource.custom)
        new = write.obj = _split(resource, mutated, old, subresource)
        rules.default(write)
    causes = meta.check(resource, new)
    if old["metadata"].get("deletionTimestamp"):
        added = set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
        if added:
            causes.append(
                Cause(
                    "metadata.finalizers",
                    "Forbidden: no new finalizers can be added if the object is "
                    f"being deleted, found new finalizers {sorted(added)}",
                    "FieldValueForbidden",
                )
            )
    causes += resize_causes(new, old) if subresource == "resize" else rules.check(write)
    if causes:
        raise invalid(resource, name, causes)
    if cluster.admission is not None:
        cluster.admission.validate(write, subresource)
    if meta.counts_generations(resource) and subresource in ("", "resize") and _specified(new) != _specified(old):
        new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
    if not options.applies:
        _note_owners(cluster, resource, version, new, old, subresource, options)
    if new == old:
        return entry.raw
    if options.dry_run:
        return encode(new)
    if finish_deletion(cluster, resource, entry, new):
        return encode(new)
    return cluster.write(resource, new, entry).raw  # fmt: skip


def _note_owners(
    cluster: Cluster, resource: Resource, version: str, new: Json, old: Json, subresource: str, options: WriteOptions
) -> None:
    """Note the owners of the fields that an update changed. This is for objects with an earlier apply, and for updates
    that do not set the owners themselves.
    """
    managers = old["metadata"].get("managedFields")
    if not managers or new["metadata"].get("managedFields") != managers:
        return
    served = resource.served(version)
    schema = served.schema if served is not None else None
    writer = Writer(options.manager, resource.api_version(version), subresource, cluster.timestamp())
    after = owners_after(old, new, schema, writer, custom=resource.custom)
    new["metadata"]["managedFields"] = after


def _split(resource: Resource, new: Json, old: Json, subresource: str) -> Json:
    """Return the part of an object that a write through an endpoint may change: all except status, status alone, or
    resources alone.
    """
    if subresource == "resize":
        return resized_form(new, old)
    if subresource == "status":
        changed = dict(old)
        if "status" in new:
            changed["status"] = new["status"]
        else:
            changed.pop("status", None)
        if not resource.custom:
            # Built-in kinds take labels and annotations along with their status; custom ones do not.
            for field in ("labels", "annotations", "finalizers"):
                new["metadata"].setdefault(field, None)
            changed["metadata"] = {**old["metadata"], **new["metadata"]}
            meta.carried(changed, old)
        elif "managedFields" in new["metadata"]:
            changed["metadata"] = {**old["metadata"], "managedFields": new["metadata"]["managedFields"]}
        return changed
    meta.carried(new, old)
    if resource.has_status:
        if "status" in old:
            new["status"] = old["status"]
        else:
            new.pop("status", None)
    return new


def _specified(obj: Json) -> Json:
    return {key: value for key, value in obj.items() if key not in _BESIDE}


def _check_type(resource: Resource, version: str, obj: Json) -> None:
    expected = resource.api_version(version)
    kind, api_version = obj.get("kind"), obj.get("apiVersion")
    if resource.custom and api_version == expected and kind and kind != resource.kind:
        fault = Cause("kind", f'Invalid value: "{kind}": must be {resource.kind}')
        named = (obj.get("metadata") or {}).get("name") if isinstance(obj.get("metadata"), dict) else ""
        raise invalid(resource, str(named or ""), [fault], kind=str(kind))
    # Typed clients may leave both out: the URL has the kind.
    if (kind and kind != resource.kind) or (api_version and api_version != expected):
        raise bad_request(
            f"the object provided is a {api_version}, Kind={kind}, and the URL is of {expected}, Kind={resource.kind}"
        )
    obj["kind"], obj["apiVersion"] = resource.kind, expected


def _check_namespace(cluster: Cluster, resource: Resource, namespace: str, obj: Json) -> None:
    space = cluster.namespace(namespace)
    if space is None:
        spaces = cluster.registry.get("namespaces")
        assert spaces is not None  # noqa: S101 - a built-in kind
        raise not_found(spaces, namespace)
    if space.fields[0] == "Terminating":
        raise forbidden(
            resource,
            str((obj.get("metadata") or {}).get("name", "")),
            f"unable to create new content in namespace {namespace} because it is being terminated",
            [Cause("metadata.namespace", f"namespace {namespace} is being terminated", "NamespaceTerminating")],
        )


def decode_json(body: bytes) -> Any:
    """Return a decoded JSON body.

    Raises
    ------
    Refusal
        400 when it is not JSON.
    """
    try:
        return deep_json.loads(body)
    except ValueError as error:
        raise bad_request(f"the object provided can't be read as JSON: {error}") from None
