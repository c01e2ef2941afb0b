"""Structural schemas: pruning, defaulting and validation of custom objects.

Called by `custom_kinds` for every write of a custom object, and by `tables` never: shown objects are stored objects.
`shape` changes an object in place (prunes unknown fields, fills in defaults) and `faults` reads it. CEL rules are those
of `rules`.

Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from __future__ import annotations

import copy
import math
import re
from functools import lru_cache
from typing import Any, Final

import orjson

from cotide_sim.apiserver.refusals import Cause
from cotide_sim.apiserver.registry.resources import Json

TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "integer": (int,),
    "number": (int, float),
}  # fmt: skip
_TOP: Final = frozenset({"apiVersion", "kind", "metadata"})
_LIMITS: Final = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_DATE_TIME: Final = re.compile(r"^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$")


def shape(obj: Json, schema: Json) -> list[str]:
    """Prune and default an object, in place; return the paths of the fields that were pruned."""
    pruned: list[str] = []
    _shape_object(obj, schema, "", pruned, top=True)
    return pruned


def _shape(value: Any, schema: Json, path: str, pruned: list[str]) -> None:
    if isinstance(value, dict):
        _shape_object(value, schema, path, pruned, top=bool(schema.get("x-kubernetes-embedded-resource")))
    elif isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for index, item in enumerate(value):
                if item is None and "default" in items and not items.get("nullable"):
                    value[index] = copy.deepcopy(items["default"])
                _shape(value[index], items, f"{path}[{index}]", pruned)


def _shape_object(value: Json, schema: Json, path: str, pruned: list[str], *, top: bool) -> None:
    properties: Json = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    keep = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    for key in list(value):
        inner_path = f"{path}.{key}" if path else key
        if top and key in _TOP:
            continue
        if key in properties:
            child = properties[key]
            # A forbidden null counts as absent; a default replaces it, if there is one.
            if value[key] is None and not child.get("nullable"):
                del value[key]
            else:
                _shape(value[key], child, inner_path, pruned)
        elif isinstance(others, dict):
            _shape(value[key], others, inner_path, pruned)
        elif not keep and others is not True:
            del value[key]
            pruned.append(inner_path)
    for key, child in properties.items():
        if key not in value and "default" in child:
            value[key] = copy.deepcopy(child["default"])
            _shape(value[key], child, f"{path}.{key}" if path else key, [])


def faults(value: Any, schema: Json, path: str = "") -> list[Cause]:
    """Return the faults of a value."""
    causes: list[Cause] = []
    _check(value, schema, path, causes, top=not path)
    return causes


def shown(value: Any) -> str:
    """Return a value as in messages."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return repr(value)


def _invalid(path: str, value: Any, rule: str) -> Cause:
    return Cause(path, f"Invalid value: {shown(value)}: {rule}")


def _bounds(path: str, value: Any, rule: str) -> Cause:
    """Return the fault of a value that breaks a bound; a real server repeats the path in it."""
    return _invalid(path, value, f"{path} in body {rule}")


def _wrong_type(path: str, value: Any, wanted: str) -> Cause:
    """Return the fault of a value of a wrong type: messages show that type, not the value."""
    kinds = (("boolean", bool), ("integer", int), ("number", float), ("string", str), ("array", list), ("object", dict))
    found = next((name for name, kind in kinds if isinstance(value, kind)), "null")
    text = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
    return Cause(path, text, "FieldValueTypeInvalid")


def _has_type(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, TYPES.get(kind, (object,)))


def _check(value: Any, schema: Json, path: str, causes: list[Cause], *, top: bool = False) -> None:
    if value is None:
        if not schema.get("nullable") and (schema.get("type") or schema.get("x-kubernetes-int-or-string")):
            causes.append(_wrong_type(path, value, schema.get("type", "integer or string")))
        return
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            causes.append(_wrong_type(path, value, "integer or string"))
            return
    elif (kind := schema.get("type")) and not _has_type(value, kind):
        causes.append(_wrong_type(path, value, kind))
        return
    _check_plain(value, schema, path, causes)
    if isinstance(value, dict):
        _check_object(value, schema, path, causes, top=top)
    elif isinstance(value, list):
        _check_list(value, schema, path, causes)
    elif isinstance(value, str):
        _check_text(value, schema, path, causes)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        _check_number(value, schema, path, causes)
    _check_combined(value, schema, path, causes)


def _check_plain(value: Any, schema: Json, path: str, causes: list[Cause]) -> None:
    options = schema.get("enum")
    if options is not None and not any(option == value and type(option) is type(value) for option in options):
        listed = ", ".join(map(shown, options))
        text = f"Unsupported value: {shown(value)}: supported values: {listed}"
        causes.append(Cause(path, text, "FieldValueNotSupported"))


def _check_object(value: Json, schema: Json, path: str, causes: list[Cause], *, top: bool) -> None:
    prefix = f"{path}." if path else ""
    missing = [key for key in schema.get("required") or () if key not in value]
    causes += [Cause(prefix + key, "Required value", "FieldValueRequired") for key in missing]
    properties: Json = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    for key, item in value.items():
        if top and key in _TOP:
            # A schema may bound the name in the metadata, and nothing else.
            bound = ((properties.get("metadata") or {}).get("properties") or {}).get("name")
            if key == "metadata" and bound:
                _check(item.get("name", ""), bound, "metadata.name", causes)
        elif key in properties:
            _check(item, properties[key], prefix + key, causes)
        elif isinstance(others, dict):
            _check(item, others, prefix + key, causes)
    if len(value) < schema.get("minProperties", 0):
        causes.append(_bounds(path, value, f"should have at least {schema['minProperties']} properties"))
    if len(value) > schema.get("maxProperties", math.inf):
        causes.append(_bounds(path, value, f"should have at most {schema['maxProperties']} properties"))


def _check_list(value: list[Any], schema: Json, path: str, causes: list[Cause]) -> None:
    if len(value) < schema.get("minItems", 0):
        causes.append(_bounds(path, len(value), f"should have at least {schema['minItems']} items"))
    if len(value) > schema.get("maxItems", math.inf):
        text = f"Too many: {len(value)}: must have at most {schema['maxItems']} items"
        causes.append(Cause(path, text, "FieldValueTooLong"))
    items = schema.get("items")
    if isinstance(items, dict):
        for index, item in enumerate(value):
            _check(item, items, f"{path}[{index}]", causes)
    kind = schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    if kind in ("set", "map") or schema.get("uniqueItems"):
        seen: set[bytes] = set()
        for index, item in enumerate(value):
            mark = {key: item.get(key) for key in keys} if kind == "map" and isinstance(item, dict) else item
            encoded = orjson.dumps(mark, option=orjson.OPT_SORT_KEYS)
            if encoded in seen:
                causes.append(Cause(f"{path}[{index}]", f"Duplicate value: {shown(mark)}", "FieldValueDuplicate"))
            seen.add(encoded)


@lru_cache(maxsize=512)
def _pattern(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text)
    except re.error:
        # A pattern that only Go's engine can read is not checked here.
        return None


def _check_text(value: str, schema: Json, path: str, causes: list[Cause]) -> None:
    if len(value) < schema.get("minLength", 0):
        causes.append(_bounds(path, value, f"should be at least {schema['minLength']} chars long"))
    if len(value) > schema.get("maxLength", math.inf):
        text = f"Too long: may not be more than {schema['maxLength']} bytes"
        causes.append(Cause(path, text, "FieldValueTooLong"))
    pattern = schema.get("pattern")
    if pattern is not None and (compiled := _pattern(pattern)) is not None and not compiled.search(value):
        causes.append(_bounds(path, value, f"should match '{pattern}'"))
    if schema.get("format") == "date-time" and not _DATE_TIME.match(value):
        causes.append(_invalid(path, value, "must be of type date-time"))


def _bound_text(bound: float) -> str:
    """Return a bound as a real server shows it: whole numbers in full, others in the shortest form (``8.64e+07``)."""
    if isinstance(bound, int):
        return str(bound)
    return text if float(text := f"{bound:g}") == bound else repr(bound)


def _check_number(value: float, schema: Json, path: str, causes: list[Cause]) -> None:
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    if value < low or (schema.get("exclusiveMinimum") and value == low):
        word = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        causes.append(_bounds(path, value, f"should be {word} {_bound_text(low)}"))
    if value > high or (schema.get("exclusiveMaximum") and value == high):
        word = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        causes.append(_bounds(path, value, f"should be {word} {_bound_text(high)}"))
    step = schema.get("multipleOf")
    if step and not math.isclose(value / step, round(value / step), abs_tol=1e-9):
        causes.append(_bounds(path, value, f"should be a multiple of {step}"))
    limits = _LIMITS.get(schema.get("format", ""))
    if limits is not None and not limits[0] <= value <= limits[1]:
        causes.append(_invalid(path, value, f"must be a value of type {schema['format']}"))


def _check_combined(value: Any, schema: Json, path: str, causes: list[Cause]) -> None:
    for part in schema.get("allOf") or ():
        _check(value, part, path, causes)
    for word in ("anyOf", "oneOf"):
        parts = schema.get(word)
        # The int-or-string pair that tools write out is already checked by its own mark.
        if not parts or (schema.get("x-kubernetes-int-or-string") and word == "anyOf"):
            continue
        fitting = sum(not faults(value, part, path) for part in parts)
        if fitting == 0 or (word == "oneOf" and fitting > 1):
            causes.append(_invalid(path, value, f"must validate {'at least' if word == 'anyOf' else 'exactly'} one "
                                   f"schema ({word})"))  # fmt: skip
    negated = schema.get("not")
    if negated is not None and not faults(value, negated, path):
        causes.append(_invalid(path, value, "must not validate the schema (not)"))
