"""The scale subresource of replicated kinds.

Called by `dispatch` (`kubectl scale`).
"""

from __future__ import annotations

from cotide_sim.apiserver.cluster import Cluster, WriteOptions
from cotide_sim.apiserver.refusals import Cause, invalid
from cotide_sim.apiserver.registry.resources import Json, Resource
from cotide_sim.apiserver.registry.shapes import SCALE, check_body_shape, misfit
from cotide_sim.apiserver.verbs import writing


def _paths(resource: Resource) -> tuple[list[str], list[str]]:
    paths = resource.scale_paths or {}
    wanted = str(paths.get("specReplicasPath", ".spec.replicas"))
    actual = str(paths.get("statusReplicasPath", ".status.replicas"))
    return wanted.strip(".").split("."), actual.strip(".").split(".")


def _read(obj: Json, path: list[str]) -> int:
    value: object = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, int) else 0


def scale_of(resource: Resource, obj: Json) -> Json:
    """Return the Scale of an object."""
    wanted, actual = _paths(resource)
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: value for key, value in obj["metadata"].items() if key in kept},
        "spec": {"replicas": _read(obj, wanted)},
        "status": {"replicas": _read(obj, actual)},
    }


def change_scale(
    cluster: Cluster,
    resource: Resource,
    version: str,
    namespace: str,
    name: str,
    scale: Json,
    options: WriteOptions,
    *,
    patched: bool = False,
) -> Json:
    """Write the replicas of a Scale into its object and return the new Scale; ``patched`` is whether it came from a
    patch.
    """
    if patched and (found := misfit(scale, SCALE, "")) is not None:  # a patch that spoils the Scale
        raise invalid(resource, name, [Cause("patch", f"Invalid value: {found.removeprefix(': ')}")])
    check_body_shape(scale, SCALE, "scale")
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        raise invalid(resource, name, [Cause("spec.replicas", f"Invalid value: {replicas!r}: must be 0 or more")])
    entry = cluster.find(resource, namespace, name)
    obj = entry.decode()
    obj["metadata"]["resourceVersion"] = (scale.get("metadata") or {}).get("resourceVersion") or str(entry.version)
    *steps, last = _paths(resource)[0]
    parent = obj
    for step in steps:
        inner = parent.setdefault(step, {})
        if not isinstance(inner, dict):
            raise invalid(resource, name, [Cause(".".join(steps), "Invalid value: must be an object")])
        parent = inner
    parent[last] = replicas
    raw = writing.change(cluster, resource, version, entry, obj, "", options)
    return scale_of(resource, writing.decode_json(raw))
