"""Which selectors of several namespaces match a pod's labels: compared once for each label set, then remembered.

Owned by `state.pod_matches`, once for counters and once for keepers. A later selector is compared with the remembered
label sets that have the rarest label which it requires; each answer is computed once. Invariant: an answer equals a
comparison of all items with the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

from cotide_core.events import Selector
from cotide_core.state.selection.selector_index import Labels, LabelSets, SelectorIndex

T = TypeVar("T")
MAX_LABEL_SETS: Final = 16_384
"""Label sets with remembered answers (chosen: some MB)."""
MAX_MATCHES: Final = 1_048_576
"""Remembered matches in all answers together (chosen: 8 MB)."""
BY_LABEL: Final = ""
"""Represents all namespaces that an item selects by their labels."""


class Matched(Generic[T]):
    """The items that match one label set.

    Attributes
    ----------
    summary : the reader's digest of the items; None after an addition.
    """

    __slots__ = ("items", "summary")

    def __init__(self, items: list[T]) -> None:
        self.items = items
        self.summary: Any = None


class ScopedMatches(Generic[T]):
    """Items by the namespaces that they name, and remembered answers about label sets.

    Parameters
    ----------
    within : whether an item that selects the labels means pods of a namespace with such labels.

    Attributes
    ----------
    changed : namespaces and label sets with other answers since the reader last emptied it.
    lost : whether items came since then while answers were forgotten, so that `changed` lacks some.
    pairs : items that were compared with label sets so far.
    """

    def __init__(self, within: Callable[[T, str, Labels], bool]) -> None:
        self._within = within
        self._by_namespace: dict[str, SelectorIndex[T]] = {}
        self._answers: dict[str, LabelSets[Matched[T]]] = {}
        self._sets = 0
        self._matches = 0
        self.changed: dict[tuple[str, Labels], None] = {}
        self.lost = False
        self._forgot = True
        """Whether the reader may rely on answers that are not remembered; true at first, before its first request."""
        self.pairs = 0

    def add(self, item: T, names: Iterable[str], selector: Selector | None) -> None:
        """Add an item under the namespaces that it names."""
        self.lost = self.lost or self._forgot
        for name in names if selector is not None else ():
            index = self._by_namespace.get(name)
            if index is None:
                index = self._by_namespace[name] = SelectorIndex()
            index.add(item, selector)
            for namespace in list(self._answers) if name == BY_LABEL else (name,):
                self._add_to_answers(item, namespace, index, selector)

    def remove(self, items: Iterable[tuple[T, Iterable[str]]]) -> None:
        """Remove items from the namespaces that they name, and drop the remembered answers about them."""
        for item, names in items:
            for name in names:
                index = self._by_namespace.get(name)
                if index is not None:
                    index.remove(item)
                if index is not None and not index:
                    del self._by_namespace[name]
        self._forget()

    def of(self, namespace: str, labels: Labels) -> Matched[T]:
        """Return the items that match pods of a namespace with these labels."""
        known = self._answers.get(namespace)
        found = None if known is None else known.get(labels)
        if found is None:
            found = self._match(namespace, labels)
        return found

    def relabel(self, namespace: str) -> None:
        """Forget the answers about a namespace with changed labels."""
        known = self._answers.pop(namespace, None)
        if known is not None:
            self._sets -= len(known)
            for labels in known:
                self._note_change(namespace, labels)

    def take_changed(self) -> Callable[[str, Labels], bool]:
        """Return a check of whether the answer about a namespace and a label set may differ from the one before the
        last call.

        The reader then computes all of them again.
        """
        changed, lost = self.changed, self.lost
        self.changed, self.lost, self._forgot = {}, False, self._forgot and not lost
        return lambda namespace, labels: lost or (namespace, labels) in changed

    def _forget(self) -> None:
        self._answers.clear()
        self._sets = self._matches = 0
        self._forgot = True

    def _match(self, namespace: str, labels: Labels) -> Matched[T]:
        if self._sets >= MAX_LABEL_SETS or self._matches >= MAX_MATCHES:
            self._forget()
        items: dict[T, None] = {}
        for name in (namespace, BY_LABEL):
            index = self._by_namespace.get(name)
            if index is not None:
                before = index.pairs
                found = index.matching(labels)
                self.pairs += index.pairs - before
                items.update((item, None) for item in found if self._within(item, namespace, labels))
        matched = Matched(list(items))
        known = self._answers.get(namespace)
        if known is None:
            known = self._answers[namespace] = LabelSets()
        known.put(labels, matched)
        self._sets += 1
        self._matches += len(items)
        return matched

    def _add_to_answers(self, item: T, namespace: str, index: SelectorIndex[T], selector: Selector | None) -> None:
        known = self._answers.get(namespace)
        if known is None:
            return
        for labels in known.near(selector):
            self.pairs += 1
            if not (index.passes(item, labels) and self._within(item, namespace, labels)):
                continue
            matched = known.get(labels)
            if matched is not None:
                matched.items.append(item)
                matched.summary = None
                self._matches += 1
                self._note_change(namespace, labels)

    def _note_change(self, namespace: str, labels: Labels) -> None:
        if len(self.changed) >= MAX_LABEL_SETS:  # without a reader they must not pile up
            self.changed.clear()
            self.lost = True
        self.changed[namespace, labels] = None
