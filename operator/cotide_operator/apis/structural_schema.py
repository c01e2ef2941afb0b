"""Pydantic's JSON schema made structural, as a CustomResourceDefinition requires.

Only `crd_generation` calls it. Pydantic writes JSON Schema 2020 (``$defs``, ``anyOf`` with null, titles, numeric
``exclusiveMinimum``); an API server takes a dialect of OpenAPI 3.0 with one type for each value. Invariant: the result
holds no ``$ref`` and no ``title``, ``anyOf`` only for int-or-string and for rules, and a type for every value.

Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel

Node = dict[str, Any]

_DROPPED: Final = frozenset({"title", "$defs", "x-not-null"})


def structural(model: type[BaseModel]) -> Node:
    """Return the structural schema of a model, references inlined, in the order of the model's fields."""
    raw = model.model_json_schema(by_alias=True, mode="validation")
    definitions: Node = raw.get("$defs", {})
    return _convert(raw, definitions)


def _convert(node: Node, definitions: Node) -> Node:
    node = _inlined(_without_null(_inlined(node, definitions)), definitions)
    result: Node = {}
    for key, value in node.items():
        if key in _DROPPED or (key == "default" and value is None):
            continue
        if key == "properties":
            result[key] = {name: _convert(child, definitions) for name, child in value.items()}
        elif key == "items":
            result[key] = _convert(value, definitions)
        elif key == "additionalProperties":
            # True allows any value, as the preserve-unknown-fields marker already does.
            if isinstance(value, dict):
                result[key] = _convert(value, definitions)
        elif key == "const":
            result["enum"] = [value]
        elif key in ("exclusiveMinimum", "exclusiveMaximum"):
            result["minimum" if key == "exclusiveMinimum" else "maximum"] = value
            result[key] = True
        else:
            result[key] = value
    if result.get("x-kubernetes-int-or-string"):
        result.pop("type", None)
    return result


def _inlined(node: Node, definitions: Node) -> Node:
    """Replace a reference by its definition; keys next to the reference take precedence."""
    if "$ref" not in node:
        return node
    target = definitions[node["$ref"].rsplit("/", 1)[1]]
    siblings = {key: value for key, value in node.items() if key != "$ref"}
    return {**_inlined(target, definitions), **siblings, "$defs": {}}


def _without_null(node: Node) -> Node:
    """Turn "this or null" into ``nullable``."""
    choices = node.get("anyOf")
    if choices is None:
        return node
    values = [choice for choice in choices if choice.get("type") != "null"]
    rest = {key: value for key, value in node.items() if key != "anyOf"}
    if len(values) > 1:
        return {**rest, "anyOf": values}
    nullable: Node = {} if node.get("x-not-null") else {"nullable": True}
    return {**values[0], **rest, **nullable}
