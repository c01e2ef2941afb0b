"""Matches the labels and fields that a pod demands with all nodes at once.

Called by `feasibility` to match many nodes. A pod may name a thousand requirements, and a loop over a thousand
requirements and five thousand nodes would take seconds. Each label key is a column of value numbers, made at its first
use; a requirement is then one lookup of numpy. Invariant: the answer for a row equals that of `node_predicates` for its
node. Values and keys that no node carries any more are removed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.events import Node, NodeTerm, Requirement
from cotide_core.placement.node_predicates import integer
from cotide_core.state.shapes import Constraints
from cotide_core.state.snapshot import Snapshot

Mask = NDArray[np.bool_]
ABSENT: Final = -1
NAME: Final = "\0metadata.name"
"""The column of the only field; no label key may contain this character."""
SPARE_VALUES: Final = 64
"""Removal starts when a key has this many values more than twice the number of rows. Chosen."""


@dataclass(slots=True)
class _Key:
    numbers: NDArray[np.int32]
    """(capacity,) number of the row's value; `ABSENT` if it has none."""
    values: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    """Number of rows with a value."""
    integers: tuple[NDArray[np.int64], Mask] | None = None
    """The values as whole numbers, and which of them are; None until the first comparison."""


class LabelIndex:
    """Labels of all nodes by key."""

    def __init__(self) -> None:
        self._keys: dict[str, _Key] = {}
        self._labels: list[tuple[tuple[str, str], ...]] = []
        self._seen = -1

    def matches(self, constraints: Constraints, snapshot: Snapshot) -> Mask:
        """Return (N,) whether labels and fields of each row satisfy selector and terms; dead rows have no meaning."""
        self._refresh(snapshot)
        size = snapshot.size
        found = np.ones(size, np.bool_)
        for key, value in constraints.node_selector:
            found &= self._holds(key, "In", (value,), size)
        if constraints.node_terms:
            found &= self._any(constraints.node_terms, size)
        return found

    def domains(self, key: str, snapshot: Snapshot) -> tuple[NDArray[np.int32], int]:
        """Return (N,) number of each row's value of a label, `ABSENT` if it has none, and an upper bound of the
        numbers.
        """
        self._refresh(snapshot)
        known = self._keys.get(key)
        if known is None:
            return np.full(snapshot.size, ABSENT, np.int32), 0
        return known.numbers[: snapshot.size], len(known.values)

    def term(self, term: NodeTerm, snapshot: Snapshot) -> Mask:
        """Return (N,) whether each row satisfies one term; an empty one matches none."""
        self._refresh(snapshot)
        return self._any((term,), snapshot.size)

    def any_of(self, terms: tuple[NodeTerm, ...], snapshot: Snapshot) -> Mask:
        """Return (N,) whether each row satisfies one of the terms."""
        self._refresh(snapshot)
        return self._any(terms, snapshot.size)

    def _any(self, terms: tuple[NodeTerm, ...], size: int) -> Mask:
        found = np.zeros(size, np.bool_)
        for term in terms:
            if not term.labels and not term.fields:
                continue  # Kubernetes: an empty term matches no node
            found |= self._term(term, size)
            if found.all():
                break
        return found

    def _term(self, term: NodeTerm, size: int) -> Mask:
        found: Mask | None = None
        for label in term.labels:
            mask = self._requirement(label.key, label, size)
            found = mask if found is None else found & mask
        for requirement in term.fields:
            mask = self._requirement(NAME if requirement.key == "metadata.name" else "\0", requirement, size)
            found = mask if found is None else found & mask
        return np.zeros(size, np.bool_) if found is None else found

    def _requirement(self, key: str, requirement: Requirement, size: int) -> Mask:
        return self._holds(key, requirement.operator, requirement.values, size)

    def _holds(self, key: str, operator: str, values: tuple[str, ...], size: int) -> Mask:
        known = self._keys.get(key)
        if known is None:
            return np.full(size, operator in ("NotIn", "DoesNotExist"), np.bool_)
        numbers = known.numbers[:size]
        match operator:
            case "Exists":
                return np.asarray(numbers != ABSENT)
            case "DoesNotExist":
                return np.asarray(numbers == ABSENT)
            case "In" | "NotIn":
                wanted = [number for value in values if (number := known.values.get(value)) is not None]
                if len(wanted) == 1:
                    inside = np.asarray(numbers == wanted[0])
                else:
                    table = np.zeros(len(known.values) + 1, np.bool_)  # the last entry represents `ABSENT`
                    table[wanted] = True
                    inside = table[numbers]
                return inside if operator == "In" else ~inside
            case "Gt" | "Lt":
                bound = integer(values[0]) if len(values) == 1 else None
                if bound is None:
                    return np.zeros(size, np.bool_)
                amounts, whole = self._integers(known)
                holds = whole & (amounts > bound if operator == "Gt" else amounts < bound)
                return np.append(holds, False)[numbers]
            case _:
                return np.zeros(size, np.bool_)

    @staticmethod
    def _integers(known: _Key) -> tuple[NDArray[np.int64], Mask]:
        if known.integers is None or len(known.integers[0]) != len(known.values):
            read = [integer(value) for value in known.values]
            whole = np.array([value is not None for value in read], np.bool_)
            known.integers = (np.array([value or 0 for value in read], np.int64), whole)
        return known.integers

    def _refresh(self, snapshot: Snapshot) -> None:
        clock = snapshot.columns.spec_clock
        if clock == self._seen and len(self._labels) >= snapshot.size:
            return
        self._labels += [()] * (snapshot.size - len(self._labels))
        capacity = snapshot.columns.capacity
        for known in self._keys.values():  # includes values that no current node carries: each answer is for all rows
            missing = capacity - len(known.numbers)
            if missing > 0:
                known.numbers = np.concatenate([known.numbers, np.full(missing, ABSENT, np.int32)])
        for row in np.flatnonzero(snapshot.spec_versions > self._seen).tolist():
            node = snapshot.nodes[row]
            now = () if node is None else _labels(node)
            before = self._labels[row]
            if before == now:
                continue
            self._labels[row] = now
            for key, _ in before:
                self._take(key, row)
            for key, value in now:
                self._put(key, value, row, capacity)
        self._seen = clock
        for key in [key for key, known in self._keys.items() if not known.rows]:
            del self._keys[key]
        for known in self._keys.values():
            if len(known.values) > 2 * snapshot.size + SPARE_VALUES:
                _renumber(known)

    def _take(self, key: str, row: int) -> None:
        known = self._keys[key]
        known.numbers[row] = ABSENT
        known.rows -= 1

    def _put(self, key: str, value: str, row: int, capacity: int) -> None:
        known = self._keys.get(key)
        if known is None:
            known = self._keys[key] = _Key(np.full(capacity, ABSENT, np.int32))
        number = known.values.setdefault(value, len(known.values))
        known.numbers[row] = number
        known.rows += 1


def _labels(node: Node) -> tuple[tuple[str, str], ...]:
    return (*node.labels, (NAME, node.name))


def _renumber(known: _Key) -> None:
    """Remove the values that no row has any more."""
    used, numbers = np.unique(known.numbers, return_inverse=True)
    names = list(known.values)
    absent = int(used[0] == ABSENT)
    known.values = {names[number]: index for index, number in enumerate(used[absent:].tolist())}
    known.numbers = (numbers - absent).astype(np.int32)
    known.integers = None
