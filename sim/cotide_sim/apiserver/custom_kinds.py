"""Custom kinds: what a CustomResourceDefinition must say, and the rules of the objects of its kind.

Called through `kind_rules` and by `reactions` (a stored definition is served).
"""

from __future__ import annotations

from cotide_sim.apiserver.cluster import Cluster, WriteOptions
from cotide_sim.apiserver.refusals import Cause
from cotide_sim.apiserver.resources import Json, Resource, ServedVersion


def default_definition(
    cluster: Cluster, resource: Resource, version: str, obj: Json, old: Json | None, options: WriteOptions
) -> None:
    """Fill the names in and say at once that the kind is served."""
    spec = obj.get("spec") or {}
    names = spec.get("names") or {}
    if isinstance(names, dict) and isinstance(names.get("kind"), str):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", names["kind"] + "List")
    spec.setdefault("conversion", {"strategy": "None"})
    if old is None:
        now = cluster.timestamp()
        obj["status"] = {
            "acceptedNames": names,
            "conditions": [
                {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found",
                 "lastTransitionTime": now},
                {"type": "Established", "status": "True", "reason": "InitialNamesAccepted",
                 "message": "the initial names have been accepted", "lastTransitionTime": now},
            ],
            "storedVersions": [one.get("name") for one in spec.get("versions") or () if one.get("storage")],
        }  # fmt: skip


def check_definition(cluster: Cluster, resource: Resource, version: str, obj: Json, old: Json | None) -> list[Cause]:
    """Refuse a definition that cannot be served."""
    return []


def default_object(
    cluster: Cluster, resource: Resource, version: str, obj: Json, old: Json | None, options: WriteOptions
) -> None:
    """Prune unknown fields, and fill defaults in."""
    if old is None and resource.has_status:
        obj.pop("status", None)


def check_object(cluster: Cluster, resource: Resource, version: str, obj: Json, old: Json | None) -> list[Cause]:
    """Hold an object against its schema."""
    return []


def resource_of(definition: Json) -> Resource:
    """Return the resource that a definition describes."""
    spec = definition["spec"]
    names = spec["names"]
    served = [one for one in spec["versions"] if one.get("served", True)]
    served.sort(key=lambda one: not one.get("storage"))
    versions = tuple(
        ServedVersion(
            one["name"],
            (),
            (one.get("schema") or {}).get("openAPIV3Schema"),
            "status" in (one.get("subresources") or {}),
        )
        for one in served
    )
    return Resource(
        group=spec["group"],
        plural=names["plural"],
        kind=names["kind"],
        versions=versions,
        singular=names.get("singular", ""),
        namespaced=spec.get("scope") == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        has_status=versions[0].has_status,
        custom=True,
        list_kind=names.get("listKind", ""),
    )
