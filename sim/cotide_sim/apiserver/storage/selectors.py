"""Label and field selectors: parsed once per request, matched against the slim index of the store.

Called by lists, watches, collection deletes and disruption budgets. Pure. Invariant: a selector never reads an object's
bytes; the `Entry` has all that it needs.

Source of the grammar: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from cotide_sim.apiserver.refusals import bad_request
from cotide_sim.apiserver.registry.resources import METADATA_FIELDS, Resource
from cotide_sim.apiserver.storage.store import Entry

Requirement = Callable[[Mapping[str, str]], bool]

_SET: Final = re.compile(r"^\s*([^\s!=(),]+)\s+(in|notin)\s*\(([^()]*)\)\s*$")
_EQUAL: Final = re.compile(r"^\s*([^\s!=<>(),]+)\s*(==|=|!=|<|>)\s*([^\s!=<>(),]*)\s*$")
_EXISTS: Final = re.compile(r"^\s*(!?)\s*([^\s!=<>(),]+)\s*$")


class Selection:
    """The selection of a list or watch: label requirements and field requirements; both must hold."""

    __slots__ = ("_fields", "_labels", "name", "node", "space")

    def __init__(self, resource: Resource, labels: str = "", fields: str = "") -> None:
        self._labels = parse_labels(labels)
        self.name: str | None = None
        self.space: str | None = None
        self.node: str | None = None
        self._fields: list[tuple[int | str, bool, str]] = []
        for key, equal, value in _field_terms(fields):
            if key == "metadata.name":
                self._fields.append(("name", equal, value))
                self.name = value if equal else self.name
            elif key == "metadata.namespace":
                self._fields.append(("namespace", equal, value))
                self.space = value if equal else self.space
            elif key in resource.selectable:
                self._fields.append((list(resource.selectable).index(key), equal, value))
                if key == "spec.nodeName" and equal and value:
                    # Pods without a node are in no index: finding them takes a scan of all.
                    self.node = value
            else:
                known = ", ".join([*METADATA_FIELDS, *resource.selectable])
                raise bad_request(f"field label not supported: {key} (of {resource.qualified}: {known})")

    @property
    def everything(self) -> bool:
        """Whether there is no requirement, so that matching can be left out."""
        return not self._labels and not self._fields

    def matches(self, entry: Entry | None) -> bool:
        """Return whether an object is selected; an absent object never is."""
        if entry is None:
            return False
        for where, equal, value in self._fields:
            if isinstance(where, int):
                actual = entry.fields[where]
            else:
                actual = entry.name if where == "name" else entry.namespace
            if (actual == value) is not equal:
                return False
        return all(requirement(entry.labels) for requirement in self._labels)


def _field_terms(text: str) -> list[tuple[str, bool, str]]:
    terms = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        for operator, equal in (("!=", False), ("==", True), ("=", True)):
            key, found, value = part.partition(operator)
            if found:
                terms.append((key.strip(), equal, value.strip()))
                break
        else:
            raise bad_request(f"invalid field selector: {part!r}; write key=value or key!=value")
    return terms


def _split_outside_brackets(text: str) -> list[str]:
    return [part for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def parse_labels(text: str) -> list[Requirement]:
    """Return the requirements of a label selector.

    Raises
    ------
    Refusal
        400 when the text is not a selector.
    """
    requirements: list[Requirement] = []
    for part in _split_outside_brackets(text):
        if match := _SET.match(part):
            key, operator, listed = match.groups()
            requirements.append(_one_of(key, operator, frozenset(value.strip() for value in listed.split(","))))
        elif match := _EXISTS.match(part):
            absent, key = match.groups()
            requirements.append(_one_of(key, "DoesNotExist" if absent else "Exists", frozenset()))
        elif match := _EQUAL.match(part):
            key, operator, value = match.groups()
            operator = {"=": "in", "==": "in", "!=": "notin", "<": "Lt", ">": "Gt"}[operator]
            requirements.append(_one_of(key, operator, frozenset([value])))
        else:
            raise bad_request(f"unable to parse requirement: {part!r} in the label selector {text!r}")
    return requirements


def _one_of(key: str, operator: str, values: frozenset[str]) -> Requirement:
    match operator:
        case "in" | "In":
            return lambda labels: labels.get(key) in values
        case "notin" | "NotIn":
            return lambda labels: labels.get(key) not in values
        case "Exists":
            return lambda labels: key in labels
        case "DoesNotExist":
            return lambda labels: key not in labels
    try:
        bound = int(next(iter(values), ""))
    except ValueError:
        raise bad_request(f"the label selector compares {key!r} with {set(values)}, which is not an integer") from None
    return _compared(key, bound, greater=operator == "Gt")


def _compared(key: str, bound: int, *, greater: bool) -> Requirement:
    def holds(labels: Mapping[str, str]) -> bool:
        try:
            value = int(labels[key])
        except (KeyError, ValueError):
            return False
        return value > bound if greater else value < bound

    return holds


def label_selector_of(selector: Mapping[str, Any] | None) -> list[Requirement] | None:
    """Return the requirements of a `LabelSelector` object; None (selects nothing) when there is no selector."""
    if selector is None:
        return None
    requirements = [
        _one_of(key, "In", frozenset([value])) for key, value in (selector.get("matchLabels") or {}).items()
    ]
    requirements += [
        _one_of(term.get("key", ""), term.get("operator", ""), frozenset(term.get("values") or ()))
        for term in selector.get("matchExpressions") or ()
    ]
    return requirements
