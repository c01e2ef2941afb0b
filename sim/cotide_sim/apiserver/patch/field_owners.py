"""The managers of an object's fields, from its first server-side apply on.

Called by `server_side_apply` for the first apply, and by `writing` for every other change of an object that was applied
once. Pure. A real server keeps managers from an object's creation on. Here an object without an apply has none, which
costs nothing. At its first apply all its fields count as written by one manager with the name that a real server uses
for such objects. Status is left out: it belongs to another endpoint, and is written often.

Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cotide_sim.apiserver.patch.field_sets import Fields, decode_fields, encode_fields, fields_of
from cotide_sim.apiserver.registry.resources import Json

BEFORE_FIRST_APPLY: Final = "before-first-apply"


class Writer(NamedTuple):
    """A writer: its name, version, subresource and time."""

    manager: str
    api_version: str
    subresource: str
    at: str


def first_owners(live: Json, schema: Json | None, api_version: str, at: str, *, custom: bool) -> list[Json]:
    """Return the managers of an object before its first apply: one that wrote all of it."""
    return [_mark(Writer(BEFORE_FIRST_APPLY, api_version, "", at), set(_written(live, schema, custom=custom)))]


def owners_after(old: Json, new: Json, schema: Json | None, writer: Writer, *, custom: bool) -> list[Json]:
    """Return the managers of an object after an update: the writer alone owns changed fields, and removed fields have
    no owner.
    """
    before, after = _written(old, schema, custom=custom), _written(new, schema, custom=custom)
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    gone = before.keys() - after.keys()
    managers: list[Json] = old["metadata"]["managedFields"]
    if not changed and not gone:
        return managers
    kept, own = [], set(changed)
    for manager in managers:
        held = decode_fields(manager.get("fieldsV1") or {})
        if _is(manager, writer):
            own |= held - gone
        elif left := held - gone - changed:
            kept.append(manager if left == held else {**manager, "fieldsV1": encode_fields(left)})
    return [*kept, _mark(writer, own)] if own else kept


def _written(obj: Json, schema: Json | None, *, custom: bool) -> Fields:
    return fields_of({key: value for key, value in obj.items() if key != "status"}, schema, custom=custom)


def _is(one: Json, writer: Writer) -> bool:
    same = one.get("manager") == writer.manager and one.get("operation") == "Update"
    return same and (one.get("subresource") or "") == writer.subresource


def _mark(writer: Writer, paths: set[tuple[str, ...]]) -> Json:
    mark = {
        "manager": writer.manager, "operation": "Update", "apiVersion": writer.api_version, "time": writer.at,
        "fieldsType": "FieldsV1", "fieldsV1": encode_fields(paths),
    }  # fmt: skip
    return mark | ({"subresource": writer.subresource} if writer.subresource else {})
