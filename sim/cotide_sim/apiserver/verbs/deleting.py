"""Deletion: preconditions, grace, finalizers, propagation, and the end of a namespace.

Called by `dispatch`, `writing` (a removed finalizer), `pod_subresources` (evictions) and `garbage`.

::

    live --delete--> terminating (deletionTimestamp) --last finalizer off, grace over--> gone
    live --delete, no finalizer, no grace--------------------------------------------> gone

Invariant: an object with finalizers, and a bound pod before its kubelet lets it go, are never removed from the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cotide_sim.apiserver.cluster import Cluster
from cotide_sim.apiserver.refusals import Cause, bad_option, bad_request, conflict, forbidden
from cotide_sim.apiserver.registry.resources import Json, Resource
from cotide_sim.apiserver.registry.shapes import DELETE_OPTIONS, check_body_shape
from cotide_sim.apiserver.storage.selectors import Selection
from cotide_sim.apiserver.storage.store import Entry, at_version, encode

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_KEPT_NAMESPACES: Final = frozenset({"default", "kube-system", "kube-public"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """The options of a delete."""

    grace_seconds: int | None = None
    propagation: str = ""
    uid: str = ""
    version: str = ""
    dry_run: bool = False

    @classmethod
    def read(cls, body: Json, query: dict[str, str]) -> DeleteOptions:
        """Return the options of a request; the body wins over the query."""
        check_body_shape(body, DELETE_OPTIONS, "delete options")
        conditions = body.get("preconditions") or {}
        grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
        propagation = str(body.get("propagationPolicy") or query.get("propagationPolicy") or "")
        orphan = body.get("orphanDependents", query.get("orphanDependents"))
        if propagation not in ("", "Background", "Foreground", "Orphan"):
            known = '"Foreground", "Background", "Orphan", "nil"'
            text = f'Unsupported value: "{propagation}": supported values: {known}'
            raise bad_option("DeleteOptions", Cause("propagationPolicy", text, "FieldValueNotSupported"))
        if orphan is not None and propagation:
            text = f'Invalid value: "{propagation}": orphanDependents and deletionPropagation cannot be both set'
            raise bad_option("DeleteOptions", Cause("propagationPolicy", text))
        if orphan is not None:
            propagation = "Orphan" if orphan in (True, "true") else "Background"
        try:
            seconds = None if grace is None else int(grace)
        except (TypeError, ValueError):
            raise bad_request(f"gracePeriodSeconds: {grace!r} is not a whole number of seconds") from None
        return cls(
            grace_seconds=seconds,
            propagation=propagation,
            uid=str(conditions.get("uid") or ""),
            version=str(conditions.get("resourceVersion") or ""),
            dry_run=bool(body.get("dryRun") or query.get("dryRun")),
        )


def delete(cluster: Cluster, resource: Resource, entry: Entry, options: DeleteOptions) -> tuple[bytes, bool]:
    """Delete one object; return its last JSON and whether it is already deleted.

    Raises
    ------
    Refusal
        409 when a precondition does not hold, 403 for a namespace that every cluster has.
    """
    if resource.key == "namespaces" and entry.name in _KEPT_NAMESPACES:
        raise forbidden(resource, entry.name, "this namespace may not be deleted")
    for what, wanted, actual in (
        ("UID", options.uid, entry.uid),
        ("ResourceVersion", options.version, str(entry.version)),
    ):
        if wanted and wanted != actual:
            why = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {actual}"
            raise conflict(resource, entry.name, why)
    obj = entry.decode()
    metadata = obj["metadata"]
    if resource.key == "pods" and _is_awaited(metadata, options):
        return entry.raw, False
    grace = _grace(resource, obj, options)
    finalizers = _finalizers_by(options, list(metadata.get("finalizers") or ()))
    emptying = resource.key == "namespaces"
    if not grace and not finalizers and not emptying:
        if resource.key == "pods":
            return _let_go(cluster, resource, entry, obj, dry_run=options.dry_run), True
        if options.dry_run:
            return entry.raw, True
        version = cluster.store.remove(cluster.store.collection(resource), entry)
        return at_version(entry, version), True
    if finalizers:
        metadata["finalizers"] = finalizers
    _mark(obj, grace)
    if emptying:
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    if obj == entry.decode():
        return entry.raw, False
    if options.dry_run:
        return encode(obj), False
    return cluster.write(resource, obj, entry).raw, False


def _is_awaited(metadata: Json, options: DeleteOptions) -> bool:
    """Whether a pod is already terminating, without a request for an earlier end: then even its finalizers stay
    unchanged.
    """
    left = metadata.get("deletionGracePeriodSeconds", 0)
    return left > 0 and (options.grace_seconds is None or options.grace_seconds >= left)


def _finalizers_by(options: DeleteOptions, finalizers: list[str]) -> list[str]:
    """Return an object's finalizers after a deletion. Of the two for its dependents it keeps the requested one or,
    without a request, its own.
    """
    ours = [finalizer for finalizer in finalizers if finalizer in (ORPHAN, FOREGROUND)]
    kept = {"Orphan": [ORPHAN], "Foreground": [FOREGROUND], "Background": []}.get(options.propagation, ours[:1])
    if sorted(ours) == kept:
        return finalizers
    return [finalizer for finalizer in finalizers if finalizer not in ours] + kept


def _mark(obj: Json, grace: int) -> None:
    """Mark an object as terminating, with the time; its generation counts that once."""
    metadata = obj["metadata"]
    first = "deletionTimestamp" not in metadata
    if first or grace < metadata.get("deletionGracePeriodSeconds", 0):
        now = asked = datetime.now(UTC)
        if not first:  # a shorter grace counts from the time of the deletion request, as on a real server
            due = datetime.strptime(metadata["deletionTimestamp"], _TIME).replace(tzinfo=UTC)
            asked = due - timedelta(seconds=metadata.get("deletionGracePeriodSeconds", 0))
        ends = asked + timedelta(seconds=grace)
        if ends < now:  # over already: the kubelet still has to see it, and gets the least grace
            ends, grace = now, min(grace, 1)
        metadata["deletionTimestamp"] = ends.strftime(_TIME)
        metadata["deletionGracePeriodSeconds"] = grace
        if first and "generation" in metadata:
            metadata["generation"] += 1


def _let_go(cluster: Cluster, resource: Resource, entry: Entry, obj: Json, *, dry_run: bool) -> bytes:
    """Remove a pod without any remaining grace, and return its last form.

    As on a real server, watchers see it marked as terminating before they see it deleted.
    """
    _mark(obj, 0)
    if dry_run:
        return encode(obj)
    if obj != entry.decode():
        entry = cluster.write(resource, obj, entry)
    version = cluster.store.remove(cluster.store.collection(resource), entry)
    return at_version(entry, version)


def _grace(resource: Resource, obj: Json, options: DeleteOptions) -> int:
    """Return the seconds that a kubelet has to stop a pod; every object except a bound, unfinished pod goes at once."""
    if resource.key != "pods":
        return 0
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    wanted = options.grace_seconds
    if wanted is None:
        wanted = int(spec.get("terminationGracePeriodSeconds", 30))
    if "deletionTimestamp" in obj["metadata"]:
        wanted = min(wanted, int(obj["metadata"].get("deletionGracePeriodSeconds", wanted)))
    return wanted if wanted >= 0 else 1


def finish_deletion(cluster: Cluster, resource: Resource, entry: Entry, new: Json) -> bool:
    """Remove an object after its last finalizer was removed; return whether it is deleted."""
    metadata = new["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if resource.key == "namespaces" and (new.get("spec") or {}).get("finalizers"):
        return False
    if resource.key == "pods" and metadata.get("deletionGracePeriodSeconds", 0) > 0:  # its kubelet has not let it go
        return False
    # As on a real server, watchers see the last stored form of the object, its last finalizer included. The answer has
    # the version from before, so that a watch from that version sees the deletion.
    cluster.store.remove(cluster.store.collection(resource), entry)
    metadata["resourceVersion"] = str(entry.version)
    return True


def delete_collection(
    cluster: Cluster, resource: Resource, namespace: str | None, selection: Selection, options: DeleteOptions
) -> list[bytes]:
    """Delete every selected object and return their former JSON, as a real server does."""
    entries = cluster.store.collection(resource).entries(namespace, node=selection.node)
    selected = [entry for entry in entries if selection.matches(entry)]
    for entry in selected:
        delete(cluster, resource, entry, options)
    return [entry.raw for entry in selected]


def empty_namespace(cluster: Cluster, name: str) -> bool:
    """Delete the contents of a terminating namespace, and the namespace once it is empty; return whether it is
    deleted.
    """
    left = False
    for collection in list(cluster.store.collections.values()):
        if not collection.resource.namespaced:
            continue
        for entry in collection.entries(name):
            _, gone = delete(cluster, collection.resource, entry, DeleteOptions(propagation="Background"))
            left = left or not gone
    spaces = cluster.collection("namespaces")
    space = spaces.get("", name)
    if space is None:
        return True
    obj = space.decode()
    if left or obj["metadata"].get("finalizers"):
        return False
    obj["spec"] = {}
    return finish_deletion(cluster, spaces.resource, space, obj)
