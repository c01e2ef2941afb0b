"""Server-side apply: an upsert that tracks the manager of each field.

Called by `dispatch`. The fields that a manager applied are kept in `metadata.managedFields`. A field that it applied
before and does not apply now is removed, unless another manager applies it too. A field that another manager applied
with another value is a conflict (409) unless forced. `field_owners` handles other writes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cotide_sim.apiserver.cluster import Cluster, WriteOptions
from cotide_sim.apiserver.patch.field_owners import first_owners
from cotide_sim.apiserver.patch.field_sets import (
    Fields,
    Path,
    child_schema,
    decode_fields,
    encode_fields,
    fields_of,
    item_step,
    list_keys,
)
from cotide_sim.apiserver.refusals import Refusal, bad_request
from cotide_sim.apiserver.registry.resources import Json, Resource
from cotide_sim.apiserver.verbs import writing


def apply(
    cluster: Cluster,
    resource: Resource,
    version: str,
    namespace: str,
    name: str,
    body: Any,
    subresource: str,
    options: WriteOptions,
) -> tuple[bytes, int]:
    """Create an object, or merge the applied fields into it; return its JSON and the HTTP status.

    Raises
    ------
    Refusal
        400 for a body that is not an object; 409 when another manager holds a field; and all errors of a write.
    """
    if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
        raise bad_request("the applied configuration must be an object")
    body.setdefault("metadata", {}).setdefault("name", name)
    if body["metadata"].get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    body["metadata"].pop("managedFields", None)
    served = resource.served(version)
    schema = served.schema if served is not None else None
    applied = fields_of(body, schema, custom=resource.custom)
    said, at = resource.api_version(version), cluster.timestamp()
    mark = {
        "manager": options.manager, "operation": "Apply", "apiVersion": said, "time": at,
        "fieldsType": "FieldsV1", "fieldsV1": encode_fields(set(applied)),
    } | ({"subresource": subresource} if subresource else {})  # fmt: skip
    entry = cluster.store.collection(resource).get(namespace, name)
    if entry is None:
        if subresource:
            cluster.find(resource, namespace, name)
        body["metadata"]["managedFields"] = [mark]
        return writing.create(cluster, resource, version, namespace, body, options), 201

    def merged(live: Json) -> Json:
        managers = live["metadata"].get("managedFields")
        if not managers:
            managers = first_owners(live, schema, said, at, custom=resource.custom)
        mine = [manager for manager in managers if _is(manager, options.manager, subresource)]
        others = [manager for manager in managers if not _is(manager, options.manager, subresource)]
        before = {path for entry in mine for path in decode_fields(entry.get("fieldsV1") or {})}
        others = _without_conflicts(live, others, applied, schema, resource, options)
        held = {path for other in others for path in decode_fields(other.get("fieldsV1") or {})}
        result: Json = _merge(live, body, schema, custom=resource.custom)
        # An applied empty object does not claim its later contents.
        within = {path[:length] for path in applied.keys() | held for length in range(1, len(path) + 1)}
        # Whole list items go first: without its key field an item could not be found any more.
        for path in sorted(before - within, key=lambda steps: (steps[-1] != ".", -len(steps))):
            _remove(result, path)
        unchanged = mine and mine[0].get("fieldsV1") == mark["fieldsV1"]
        result["metadata"]["managedFields"] = [*others, mine[0] if unchanged else mark]
        return result

    return writing.patch(
        cluster, resource, version, namespace, name, merged, subresource, replace(options, applies=True)
    ), 200


def _is(one: Json, manager: str, subresource: str) -> bool:
    same = one.get("manager") == manager and one.get("operation") == "Apply"
    return same and (one.get("subresource") or "") == subresource


def _without_conflicts(
    live: Json, others: list[Json], applied: Fields, schema: Json | None, resource: Resource, options: WriteOptions
) -> list[Json]:
    """Return the other managers, without the fields that this one takes by force."""
    actual = fields_of(live, schema, custom=resource.custom)
    kept, conflicts = [], []
    for other in others:
        held = decode_fields(other.get("fieldsV1") or {})
        taken = {path for path in held if path in applied and actual.get(path) != applied[path]}
        conflicts += [(str(other.get("manager")), path) for path in sorted(taken)]
        if held - taken:
            kept.append({**other, "fieldsV1": encode_fields(held - taken)} if taken else other)
    if conflicts and not options.force:
        causes = [
            {"reason": "FieldManagerConflict", "message": f'conflict with "{manager}"', "field": _shown(path)}
            for manager, path in conflicts
        ]
        listed = ", ".join(f'conflict with "{manager}": {_shown(path)}' for manager, path in conflicts)
        count = f"{len(conflicts)} conflict{'s' if len(conflicts) > 1 else ''}"
        raise Refusal(409, "Conflict", f"Apply failed with {count}: {listed}", details={"causes": causes})
    return kept


def _shown(path: Path) -> str:
    return "".join(f".{step[2:]}" if step.startswith("f:") else f"[{step[2:]}]" for step in path if step != ".")


def _merge(live: Any, applied: Any, schema: Json | None, *, custom: bool, field: str = "") -> Any:
    if isinstance(applied, dict) and isinstance(live, dict):
        if (schema or {}).get("x-kubernetes-map-type") == "atomic":
            return applied
        for key, value in applied.items():
            inner = custom and key != "metadata"
            if key in live:
                live[key] = _merge(live[key], value, child_schema(schema, key), custom=inner, field=key)
            else:
                live[key] = value
        return live
    if isinstance(applied, list) and isinstance(live, list):
        keys = list_keys(field, schema, live, applied, custom=custom)
        if keys is None:
            return applied
        positions = {item_step(item, keys): index for index, item in enumerate(live)}
        for item in applied:
            position = positions.get(item_step(item, keys))
            if position is None:
                live.append(item)
            elif keys:
                live[position] = _merge(live[position], item, (schema or {}).get("items"), custom=custom)
        return live
    return applied


def _remove(value: Any, path: Path) -> None:
    """Remove one path from an object, and the lists and objects that become empty."""
    step, rest = path[0], path[1:]
    if step.startswith("f:") and isinstance(value, dict):
        key = step[2:]
        if key not in value:
            return
        if rest:
            _remove(value[key], rest)
        if not rest or value[key] in ({}, []):
            del value[key]
    elif isinstance(value, list):
        for index, item in enumerate(value):
            keys = tuple(_keys_of(step))
            if item_step(item, keys) == step:
                if rest and rest != (".",):
                    _remove(item, rest)
                else:
                    del value[index]
                return


def _keys_of(step: str) -> list[str]:
    if not step.startswith("k:"):
        return []
    return list(writing.decode_json(step[2:].encode()))
