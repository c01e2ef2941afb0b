"""Many selectors and many label sets, each found by a label that both must have: a match checks few of many.

Used wherever selectors of one tenant meet labels of many objects: rules of pods, default spreads, budgets and
Workloads. A selector is listed under the rarest label that it requires: a pair of key and value, each of several pairs,
or a key alone. A selector that requires none is compared in time that grows with the labels, not with the selector.
Invariant: `matching` returns the items with a selector that satisfies `selectors.selects`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from cotide_core.events import Selector
from cotide_core.state.selection.selectors import holds

T = TypeVar("T")
V = TypeVar("V")
Labels = tuple[tuple[str, str], ...]
"""Sorted by key."""
_Label = tuple[str, str | None]
"""Key and value; without a value the key alone."""
_ANY: tuple[_Label | None, ...] = (None,)


def labels_of(labels: Mapping[str, str]) -> Labels:
    """Return labels in the form of look-ups here."""
    return tuple(sorted(labels.items()))


def _ways(selector: Selector) -> list[tuple[_Label, ...]] | None:
    """Return the satisfying labels of each requirement that needs a label; None if one never holds."""
    ways: list[tuple[_Label, ...]] = []
    for requirement in selector:
        if requirement.operator == "In":
            ways.append(tuple((requirement.key, value) for value in dict.fromkeys(requirement.values)))
        elif requirement.operator == "Exists":
            ways.append(((requirement.key, None),))
        elif requirement.operator not in ("NotIn", "DoesNotExist"):
            return None
    return ways


class SelectorTest:
    """A selector in a form for comparison with many label sets: forbidden labels are looked up.

    Invariant: `passes` equals `selectors.selects`.
    """

    __slots__ = ("_absent", "_present")

    def __init__(self, selector: Selector) -> None:
        self._absent: dict[str, tuple[str, ...] | None] = {}
        """By key the refused values; None for all."""
        for requirement in selector:
            if requirement.operator == "DoesNotExist":
                self._absent[requirement.key] = None
            elif requirement.operator == "NotIn":
                known = self._absent.get(requirement.key, ())
                self._absent[requirement.key] = None if known is None else known + requirement.values
        self._present = tuple(
            requirement for requirement in selector if requirement.operator not in ("NotIn", "DoesNotExist")
        )

    def passes(self, labels: Mapping[str, str]) -> bool:
        """Whether labels satisfy the selector."""
        absent = self._absent
        for key, value in labels.items():
            if key in absent:
                refused = absent[key]
                if refused is None or value in refused:
                    return False
        return all(holds(requirement, labels) for requirement in self._present)


class SelectorIndex(Generic[T]):
    """Items with a selector each; compared by equality.

    Attributes
    ----------
    pairs : selectors that were compared with labels so far.
    """

    def __init__(self) -> None:
        self._by_label: dict[_Label | None, dict[T, None]] = {}
        self._tests: dict[T, SelectorTest] = {}
        self._listed_under: dict[T, tuple[_Label | None, ...]] = {}
        """The labels that list each item."""
        self.pairs = 0

    def __len__(self) -> int:
        return len(self._tests)

    def __contains__(self, item: T) -> bool:
        return item in self._tests

    def add(self, item: T, selector: Selector | None) -> None:
        """Add an item, or replace its selector; an item that selects nothing is in no answer."""
        self.remove(item)
        ways = None if selector is None else _ways(selector)
        if selector is None or ways is None:
            return
        rarest = min(ways, key=self._crowd) if ways else None
        buckets = _ANY if rarest is None else rarest
        self._tests[item] = SelectorTest(selector)
        self._listed_under[item] = buckets
        for label in buckets:
            self._by_label.setdefault(label, {})[item] = None

    def remove(self, item: T) -> None:
        """Remove an item, if it is there."""
        self._tests.pop(item, None)
        for label in self._listed_under.pop(item, ()):
            items = self._by_label[label]
            del items[item]
            if not items:
                del self._by_label[label]

    def matching(self, labels: Labels) -> list[T]:
        """Return the items that select these labels."""
        found: list[T] = []
        tests, read = self._tests, dict(labels)
        for item in self._near(labels):
            self.pairs += 1
            test = tests.get(item)  # another thread may read while an item leaves
            if test is not None and test.passes(read):
                found.append(item)
        return found

    def passes(self, item: T, labels: Labels) -> bool:
        """Whether one item selects these labels."""
        self.pairs += 1
        test = self._tests.get(item)
        return test is not None and test.passes(dict(labels))

    def _near(self, labels: Labels) -> Iterator[T]:
        by_label = self._by_label
        yield from list(by_label.get(None, ()))
        for key, value in labels:
            yield from list(by_label.get((key, value), ()))
            yield from list(by_label.get((key, None), ()))

    def _crowd(self, labels: tuple[_Label, ...]) -> tuple[int, int]:
        return sum(len(self._by_label.get(label, ())) for label in labels), len(labels)


class LabelSets(Generic[V]):
    """Label sets with a value each, found by a selector."""

    def __init__(self) -> None:
        self._values: dict[Labels, V] = {}
        self._by_label: dict[_Label, dict[Labels, None]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Labels]:
        return iter(self._values)

    def get(self, labels: Labels) -> V | None:
        """Return the value of a label set."""
        return self._values.get(labels)

    def put(self, labels: Labels, value: V) -> None:
        """Set the value of a label set."""
        if labels not in self._values:
            for key, worth in labels:
                self._by_label.setdefault((key, worth), {})[labels] = None
                self._by_label.setdefault((key, None), {})[labels] = None
        self._values[labels] = value

    def drop(self, labels: Labels) -> None:
        """Drop a label set that is there."""
        del self._values[labels]
        for key, worth in labels:
            for label in ((key, worth), (key, None)):
                sets = self._by_label[label]
                sets.pop(labels, None)
                if not sets:
                    del self._by_label[label]

    def near(self, selector: Selector | None) -> Iterable[Labels]:
        """Return the label sets that a selector may select, each once."""
        ways = None if selector is None else _ways(selector)
        if ways is None:
            return ()
        if not ways:
            return self._values
        nearest = min(ways, key=self._crowd)
        return [labels for label in nearest for labels in self._by_label.get(label, ())]

    def _crowd(self, labels: tuple[_Label, ...]) -> tuple[int, int]:
        return sum(len(self._by_label.get(label, ())) for label in labels), len(labels)
