"""Validation rules of custom objects: the CEL expressions of ``x-kubernetes-validations``.

Called by `custom_kinds`: `rule_faults` for every write of an object that its schema otherwise accepts, `compile_faults`
when a definition arrives. Of a rule it supports ``rule``, ``message``, ``reason`` and ``fieldPath``; rules that read
``oldSelf`` are evaluated on updates only. It lacks some parts of a real server: limits of cost, ``messageExpression``,
and Kubernetes' own CEL libraries (quantities, URLs, CIDRs). Invariant: a rule that cannot be evaluated refuses the
object and states why, as on a real server; it never accepts one.

Source: https://kubernetes.io/docs/reference/using-api/cel/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from cotide_sim.apiserver.refusals import Cause
from cotide_sim.apiserver.registry.resources import Json
from cotide_sim.apiserver.registry.schema import shown

if TYPE_CHECKING:
    import cel

_NOTHING: Final = object()
_OLD: Final = re.compile(r"\boldSelf\b")


def rule_faults(value: Any, schema: Json, old: Any = None) -> list[Cause]:
    """Return the faults of an object under the rules of a schema.

    Parameters
    ----------
    value : the object, shaped and otherwise valid.
    schema : its schema.
    old : the object before an update, None for a new one.
    """
    return list(_walk(value, schema, "", _NOTHING if old is None else old))


def has_rules(schema: Any) -> bool:
    """Whether a schema holds a rule anywhere."""
    if isinstance(schema, dict):
        return bool(schema.get("x-kubernetes-validations")) or any(map(has_rules, schema.values()))
    return isinstance(schema, list) and any(map(has_rules, schema))


def compile_faults(schema: Json, path: str) -> list[Cause]:
    """Return the rules of a schema that are not valid CEL, or not rules."""
    rules = schema.get("x-kubernetes-validations")
    causes = []
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        location = f"{path}.x-kubernetes-validations[{index}]"
        if not isinstance(rule, dict) or not isinstance(rule.get("rule"), str) or not rule["rule"].strip():
            causes.append(Cause(f"{location}.rule", "Required value: rule is not specified", "FieldValueRequired"))
            continue
        try:
            _program(rule["rule"])
        except ValueError as error:
            why = " ".join(str(error).split())
            causes.append(Cause(f"{location}.rule", f"Invalid value: {shown(rule['rule'])}: compilation failed: {why}"))
    return causes


def _walk(value: Any, schema: Json, path: str, old: Any) -> Iterator[Cause]:
    if value is None:
        return
    for rule in schema.get("x-kubernetes-validations") or ():
        if old is not _NOTHING or not _OLD.search(rule["rule"]):
            yield from _judged(rule, value, path, old)
    prefix = f"{path}." if path else ""
    if isinstance(value, dict):
        properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, item in value.items():
            child = properties.get(key, others)
            if isinstance(child, dict):
                yield from _walk(item, child, prefix + key, old.get(key, _NOTHING) if isinstance(old, dict) else old)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            # Without list keys an item's former value is unknown: such rules do not read `oldSelf`.
            yield from _walk(item, schema["items"], f"{path}[{index}]", _NOTHING)


def _judged(rule: Json, value: Any, path: str, old: Any) -> Iterator[Cause]:
    field = f"{path}{rule.get('fieldPath') or ''}".lstrip(".")
    try:
        known = {"self": value} if old is _NOTHING else {"self": value, "oldSelf": old}
        holds = _program(rule["rule"]).execute(known)
    except Exception as error:  # noqa: BLE001  whatever an expression of somebody else's leads to is his to read
        why = " ".join(str(error).split())
        yield Cause(field, f"Invalid value: {shown(rule['rule'])}: rule evaluation error: {why}")
        return
    if holds is not True:
        message = rule.get("message") or f"failed rule: {rule['rule']}"
        amount = "" if isinstance(value, (dict, list)) else f"{shown(value)}: "
        yield Cause(field, f"Invalid value: {amount}{message}", rule.get("reason") or "FieldValueInvalid")


@lru_cache(maxsize=512)
def _program(text: str) -> cel.Program:
    # Imported late: it takes a while, and a server without custom kinds does not need it.
    import cel

    return cel.compile(text)
