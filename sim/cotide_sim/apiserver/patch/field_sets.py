"""Sets of field paths, as in managedFields: the fields that a manager has applied.

Called by `server_side_apply`. Pure. A path is a tuple of steps. A step is a field (``f:name``), a list item by its keys
(``k:{...}``) or an item of a set (``v:...``), in the text form of `fieldsV1`, so that encoding is only nesting.

Source of the form: https://kubernetes.io/docs/reference/using-api/server-side-apply/
"""

from __future__ import annotations

from typing import Any

import orjson

from cotide_sim.apiserver.patch.merge_keys import merge_keys
from cotide_sim.apiserver.registry.resources import Json

Path = tuple[str, ...]
Fields = dict[Path, Any]
"""Each leaf path with its value: a plain value, a list that is replaced as a whole, or an empty object."""

_SKIPPED = frozenset({"apiVersion", "kind"})
_IDENTITY = frozenset({"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
                       "managedFields", "generateName", "selfLink", "deletionTimestamp"})  # fmt: skip


def list_keys(field: str, schema: Json | None, *lists: Any, custom: bool) -> tuple[str, ...] | None:
    """Return how a list merges: by these keys, as a set (empty), or not at all (None)."""
    if custom and schema is not None:
        kind = schema.get("x-kubernetes-list-type")
        if kind == "map":
            return tuple(schema.get("x-kubernetes-list-map-keys") or ())
        return () if kind == "set" else None
    return merge_keys(field, *lists)


def item_step(item: Any, keys: tuple[str, ...]) -> str:
    """Return the step that names a list item."""
    if keys and isinstance(item, dict):
        return "k:" + orjson.dumps({key: item.get(key) for key in keys}, option=orjson.OPT_SORT_KEYS).decode()
    return "v:" + orjson.dumps(item, option=orjson.OPT_SORT_KEYS).decode()


def child_schema(schema: Json | None, field: str) -> Json | None:
    """Return the schema of a field, if known."""
    if schema is None:
        return None
    found = (schema.get("properties") or {}).get(field)
    if found is None and isinstance(schema.get("additionalProperties"), dict):
        found = schema["additionalProperties"]
    return found


def fields_of(obj: Json, schema: Json | None, *, custom: bool) -> Fields:
    """Return the fields that an applied object claims: every leaf except its name and type."""
    found: Fields = {}
    for key, value in obj.items():
        if key in _SKIPPED:
            continue
        part = {inner: item for inner, item in value.items() if inner not in _IDENTITY} if key == "metadata" else value
        if key == "metadata" and not part:
            continue
        _collect(part, key, child_schema(schema, key), ("f:" + key,), found, custom=custom and key != "metadata")
    return found


def _collect(value: Any, field: str, schema: Json | None, path: Path, found: Fields, *, custom: bool) -> None:
    if isinstance(value, dict) and value and (schema or {}).get("x-kubernetes-map-type") != "atomic":
        for key, item in value.items():
            _collect(item, key, child_schema(schema, key), (*path, "f:" + key), found, custom=custom)
        return
    if isinstance(value, list):
        keys = list_keys(field, schema, value, custom=custom)
        if keys is not None:
            inner = (schema or {}).get("items")
            for item in value:
                inner_path = (*path, item_step(item, keys))
                if keys and isinstance(item, dict):
                    found[(*inner_path, ".")] = None
                    for key, part in item.items():
                        _collect(part, key, child_schema(inner, key), (*inner_path, "f:" + key), found, custom=custom)
                else:
                    found[inner_path] = item
            return
    found[path] = value


def encode_fields(paths: set[Path]) -> Json:
    """Return the `fieldsV1` form of a set of paths."""
    tree: Json = {}
    for path in sorted(paths):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
    return tree


def decode_fields(tree: Json) -> set[Path]:
    """Return the set of paths of a `fieldsV1` form."""
    found: set[Path] = set()

    def walk(node: Json, path: Path) -> None:
        if not node:
            found.add(path)
        for step, inner in node.items():
            walk(inner if isinstance(inner, dict) else {}, (*path, step))

    for step, inner in tree.items():
        walk(inner if isinstance(inner, dict) else {}, (step,))
    return found
