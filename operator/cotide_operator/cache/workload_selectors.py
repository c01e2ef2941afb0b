"""The Workload that selects a pod, cached for each label set of a namespace.

`object_cache` owns it. A changed selector is compared with the label sets that have one of its required labels; a pod
mostly has a cached answer. Invariant: if several Workloads of a namespace select a pod, the first by name gets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cotide_core.events import Selector
from cotide_core.state.selection.selector_index import Labels, LabelSets, SelectorIndex, labels_of


@dataclass(eq=False, slots=True)
class _Alike:
    """Pods with equal labels."""

    workload: str | None
    pods: dict[str, None] = field(default_factory=dict)


class WorkloadSelectors:
    """Selectors of the Workloads of one namespace that have one, and the known pods."""

    def __init__(self) -> None:
        self._index: SelectorIndex[str] = SelectorIndex()
        self._selectors: dict[str, Selector] = {}
        self._sets: LabelSets[_Alike] = LabelSets()
        self._labels: dict[str, Labels] = {}
        """By pod."""

    def __bool__(self) -> bool:
        return bool(self._selectors)

    def put(self, key: str, selector: Selector | None) -> list[str]:
        """Set a Workload's selector, None for none; return the known pods that change their Workload."""
        before = self._selectors.pop(key, None)
        if before == selector:
            if selector is not None:
                self._selectors[key] = selector
            return []
        self._index.remove(key)
        moved: list[str] = []
        for labels in list(self._sets.near(before)):
            alike = self._sets.get(labels)
            if alike is not None and alike.workload == key:
                alike.workload = self._first(labels)
                moved += alike.pods
        if selector is not None:
            self._selectors[key] = selector
            self._index.add(key, selector)
            moved += self._claim(key, selector)
        return moved

    def of_pod(self, pod: str, labels: Mapping[str, str]) -> str | None:
        """Return the Workload that selects a pod of the namespace, and add the pod to the known ones."""
        now = labels_of(labels)
        if self._labels.get(pod) != now:
            self.forget_pod(pod)
            self._labels[pod] = now
        alike = self._sets.get(now)
        if alike is None:
            alike = _Alike(self._first(now))
            self._sets.put(now, alike)
        alike.pods[pod] = None
        return alike.workload

    def of_labels(self, labels: Mapping[str, str]) -> str | None:
        """Return the Workload that selects pods with such labels."""
        asked = labels_of(labels)
        alike = self._sets.get(asked)
        return self._first(asked) if alike is None else alike.workload

    def forget_pod(self, pod: str) -> None:
        """Drop a deleted pod."""
        labels = self._labels.pop(pod, None)
        alike = None if labels is None else self._sets.get(labels)
        if labels is not None and alike is not None:
            alike.pods.pop(pod, None)
            if not alike.pods:
                self._sets.drop(labels)

    def _first(self, labels: Labels) -> str | None:
        return min(self._index.matching(labels), default=None)

    def _claim(self, key: str, selector: Selector) -> list[str]:
        """Assign the pods that a Workload selects and no earlier one does; return them."""
        taken: list[str] = []
        for labels in list(self._sets.near(selector)):
            alike = self._sets.get(labels)
            if alike is None or (alike.workload is not None and alike.workload < key):
                continue
            if self._index.passes(key, labels):
                alike.workload = key
                taken += alike.pods
        return taken
