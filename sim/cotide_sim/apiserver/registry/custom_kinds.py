"""Custom kinds: the requirements of a CustomResourceDefinition, and the rules of the objects of its kind.

Called through `kind_rules` and by `reactions` (a stored definition is served). Invariant: an accepted definition can be
served: its names, versions, schema and columns were all understood.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cotide_sim.apiserver.cluster import Write
from cotide_sim.apiserver.patch.json_path import compile_path
from cotide_sim.apiserver.refusals import Cause
from cotide_sim.apiserver.registry.columns import AGE, NAME, Age
from cotide_sim.apiserver.registry.known_fields import report_unknown
from cotide_sim.apiserver.registry.resources import Column, Json, Resource, ServedVersion
from cotide_sim.apiserver.registry.rules import compile_faults, has_rules, rule_faults
from cotide_sim.apiserver.registry.schema import TYPES, faults, shape

_BLOCKING: Final = frozenset(
    {"FieldValueRequired", "FieldValueTypeInvalid", "FieldValueNotSupported", "FieldValueTooLong"}
)
"""Reasons that leave the rules unchecked: an expression might fail on such a value."""
_UNCHECKED: Final = Cause(
    "<nil>",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation",
)


def default_definition(write: Write) -> None:
    """Fill in the names, and report at once that the kind is served."""
    obj = write.obj
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return
    names = spec.get("names")
    if isinstance(names, dict) and isinstance(names.get("kind"), str):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", names["kind"] + "List")
    spec.setdefault("conversion", {"strategy": "None"})
    if write.old is None:
        now = write.cluster.timestamp()
        versions: Any = spec.get("versions")
        versions = versions if isinstance(versions, list) else []
        obj["status"] = {
            "acceptedNames": names,
            "conditions": [
                {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found",
                 "lastTransitionTime": now},
                {"type": "Established", "status": "True", "reason": "InitialNamesAccepted",
                 "message": "the initial names have been accepted", "lastTransitionTime": now},
            ],
            "storedVersions": [
                version.get("name") for version in versions if isinstance(version, dict) and version.get("storage")
            ],
        }  # fmt: skip


def check_definition(write: Write) -> list[Cause]:
    """Refuse a definition that cannot be served."""
    obj = write.obj
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return [_required("spec")]
    names: Any = spec.get("names")
    names = names if isinstance(names, dict) else {}
    causes = [_required(f"spec.names.{field}") for field in ("plural", "kind") if not names.get(field)]
    causes += [_required(f"spec.{field}") for field in ("group", "scope") if not spec.get(field)]
    if causes:
        return causes
    expected = f"{names['plural']}.{spec['group']}"
    if obj["metadata"]["name"] != expected:
        text = f'Invalid value: "{obj["metadata"]["name"]}": must be spec.names.plural+"."+spec.group'
        causes.append(Cause("metadata.name", text))
    if spec["scope"] not in ("Namespaced", "Cluster"):
        text = f'Unsupported value: "{spec["scope"]}": supported values: "Cluster", "Namespaced"'
        causes.append(Cause("spec.scope", text, "FieldValueNotSupported"))
    versions = spec.get("versions")
    if not isinstance(versions, list) or not versions or not all(isinstance(version, dict) for version in versions):
        return [*causes, _required("spec.versions")]
    if sum(version.get("storage") is True for version in versions) != 1:
        causes.append(Cause("spec.versions", "Invalid value: must have exactly one version marked as storage version"))
    for index, version in enumerate(versions):
        causes += _check_version(version, f"spec.versions[{index}]")
    return causes


def _required(field: str) -> Cause:
    return Cause(field, "Required value", "FieldValueRequired")


def _check_version(one: Json, path: str) -> list[Cause]:
    causes = [] if one.get("name") else [_required(f"{path}.name")]
    schema = (one.get("schema") or {}).get("openAPIV3Schema")
    if not isinstance(schema, dict):
        return [*causes, Cause(f"{path}.schema.openAPIV3Schema", "Required value: schemas are required",
                               "FieldValueRequired")]  # fmt: skip
    causes += _check_structural(schema, f"{path}.schema.openAPIV3Schema", top=True)
    for index, column in enumerate(one.get("additionalPrinterColumns") or ()):
        try:
            compile_path(str(column.get("jsonPath", "")))
        except ValueError as error:
            causes.append(Cause(f"{path}.additionalPrinterColumns[{index}].jsonPath", f"Invalid value: {error}"))
    return causes


def _check_words(schema: Json, path: str) -> list[Cause]:
    """Refuse keywords of a schema with values of a wrong type, so that validation can rely on them."""
    causes = []
    for word, value in schema.items():
        rule = _WORDS.get(word)
        if rule is not None and not rule[1](value):
            causes.append(Cause(f"{path}.{word}", f"Invalid value: must be {rule[0]}", "FieldValueTypeInvalid"))
    return causes


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _are_schemas(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) and not _check_words(item, "") for item in value)


_WORDS: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "properties": ("an object of schemas", lambda v: isinstance(v, dict) and _are_schemas(list(v.values()))),
    "items": ("one schema", lambda v: isinstance(v, dict)),
    "additionalProperties": ("a schema, true or false", lambda v: isinstance(v, (dict, bool))),
    "not": ("a schema", lambda v: _are_schemas([v])),
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), ("a list of schemas", _are_schemas)),
    **dict.fromkeys(("required", "x-kubernetes-list-map-keys"), ("a list of strings", _are_texts)),
    "enum": ("a list", lambda v: isinstance(v, list)),
    **dict.fromkeys(("minimum", "maximum"), ("a number", _is_number)),
    "multipleOf": ("a number above 0", lambda v: _is_number(v) and v > 0),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        ("a whole number of at least 0", _is_count),
    ),
    **dict.fromkeys(("pattern", "format", "description"), ("a string", lambda v: isinstance(v, str))),
    "x-kubernetes-validations": ("a list of rules", lambda v: isinstance(v, list)),
    "type": ("one of " + ", ".join(TYPES), lambda v: isinstance(v, str) and v in TYPES),
}


def _check_structural(schema: Json, path: str, *, top: bool = False) -> list[Cause]:
    """Refuse references and missing types: a structural schema has none."""
    if causes := _check_words(schema, path):
        return causes
    causes = [
        Cause(f"{path}.{word}", "Forbidden: a structural schema has no references", "FieldValueForbidden")
        for word in ("$ref", "definitions", "$defs")
        if word in schema
    ]
    free = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    kind = schema.get("type")
    if top and kind != "object":
        causes.append(Cause(f"{path}.type", f'Invalid value: "{kind}": must be object at the root'))
    elif not kind and not free:
        causes.append(_required(f"{path}.type"))
    for key, child in (schema.get("properties") or {}).items():
        if isinstance(child, dict):
            causes += _check_structural(child, f"{path}.properties[{key}]")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            causes += _check_structural(schema[word], f"{path}.{word}")
    if kind == "array" and "items" not in schema:
        causes.append(_required(f"{path}.items"))
    return causes + compile_faults(schema, path)


def default_object(write: Write) -> None:
    """Prune unknown fields (or refuse them, on request), and fill in defaults."""
    if write.old is None and write.resource.has_status:
        write.obj.pop("status", None)
    served = write.resource.served(write.version)
    if served is None or served.schema is None:
        return
    unknown = shape(write.obj, served.schema)
    if unknown:
        report_unknown(unknown, write.options)


def check_object(write: Write) -> list[Cause]:
    """Check an object against its schema, and then against the schema's rules."""
    served = write.resource.served(write.version)
    if served is None or served.schema is None:
        return []
    causes = faults(write.obj, served.schema)
    if any(cause.reason in _BLOCKING for cause in causes):
        return [*causes, *([_UNCHECKED] if has_rules(served.schema) else [])]
    return causes + rule_faults(write.obj, served.schema, write.old)


def _column(given: Json) -> Column:
    read = compile_path(str(given["jsonPath"]))
    kind = given.get("type", "string")

    def value(obj: Json) -> Any:
        found = read(obj)
        if not found or found[0] is None:
            return None
        if kind == "date":
            return Age(found[0])
        if kind in ("integer", "number", "boolean"):
            return found[0]
        # As kubectl prints them: a list found by a wildcard is joined, anything else is its own text.
        return ",".join(_cell_text(cell) for cell in found)

    return Column(
        given.get("name", ""), value, kind, int(given.get("priority", 0)), given.get("description", ""),
        given.get("format", ""),
    )  # fmt: skip


def _cell_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ",".join(f'"{item}"' if isinstance(item, str) else str(item) for item in value) + "]"
    return str(value)


def _version(given: Json) -> ServedVersion:
    columns = tuple(_column(column) for column in given.get("additionalPrinterColumns") or ())
    return ServedVersion(
        given["name"],
        (NAME, *columns) if columns else (NAME, AGE),
        (given.get("schema") or {}).get("openAPIV3Schema"),
        "status" in (given.get("subresources") or {}),
        bool(given.get("deprecated")),
    )


def _path_of(text: str) -> tuple[str, ...]:
    return tuple(text.strip(".").split("."))


def resource_of(definition: Json) -> Resource:
    """Return the resource that an accepted definition describes; the stored version comes first."""
    spec = definition["spec"]
    names = spec["names"]
    served = sorted((version for version in spec["versions"] if version.get("served", True)), key=_not_stored)
    first = served[0] if served else {}
    subresources = first.get("subresources") or {}
    selectable: dict[str, tuple[str, ...]] = {
        field["jsonPath"].strip("."): _path_of(field["jsonPath"]) for field in first.get("selectableFields") or ()
    }
    of: Callable[[str], tuple[str, ...]] = lambda field: tuple(names.get(field) or ())  # noqa: E731 - read twice below
    return Resource(
        group=spec["group"],
        plural=names["plural"],
        kind=names["kind"],
        versions=tuple(map(_version, served)),
        singular=names.get("singular", ""),
        namespaced=spec["scope"] == "Namespaced",
        short_names=of("shortNames"),
        categories=of("categories"),
        subresources=frozenset(["scale"] if "scale" in subresources else []),
        selectable=selectable,
        has_status="status" in subresources,
        custom=True,
        list_kind=names.get("listKind", ""),
        scale_paths=subresources.get("scale"),
    )


def _not_stored(one: Json) -> bool:
    return one.get("storage") is not True
