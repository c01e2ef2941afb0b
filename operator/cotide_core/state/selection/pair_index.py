"""Selectors by a label that they require, and placed pods by their labels: a match looks at few of many.

Used by `default_spreads` and `pod_matches` for each namespace. A namespace may have thousands of Services and of label
sets, and each pod that comes would else be compared with all of them. Invariant: what is left out does not match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from cotide_core.events import Pod, Selector

T = TypeVar("T")
Labels = tuple[tuple[str, str], ...]
"""Sorted by key."""
Held = tuple[Pod, int]
"""A placed pod and its row."""
_Pair = tuple[str, str]


def _pairs(selector: Selector | None) -> list[_Pair]:
    """Return the labels that a selector requires with their values."""
    return [(one.key, one.values[0]) for one in selector or () if one.operator == "In" and len(one.values) == 1]


class PairIndex(Generic[T]):
    """Items with a selector each; compared by equality."""

    def __init__(self) -> None:
        self._by_pair: dict[_Pair | None, dict[T, None]] = {}

    def add(self, item: T, selector: Selector | None) -> _Pair | None:
        """Add an item under the rarest label that it requires, which is returned; None where it requires none."""
        pair = min(_pairs(selector), key=lambda one: len(self._by_pair.get(one, ())), default=None)
        self._by_pair.setdefault(pair, {})[item] = None
        return pair

    def remove(self, item: T, pair: _Pair | None) -> None:
        """Remove an item that is under a label."""
        items = self._by_pair[pair]
        del items[item]
        if not items:
            del self._by_pair[pair]

    def near(self, labels: Labels) -> Iterator[T]:
        """Yield the items that may select these labels."""
        for pair in (None, *labels):
            yield from self._by_pair.get(pair, ())


class HeldPods:
    """Placed pods of one namespace by their labels."""

    def __init__(self) -> None:
        self._pods: dict[Labels, dict[str, Held]] = {}
        self._by_pair: dict[_Pair, dict[Labels, None]] = {}

    def hold(self, pod: Pod, row: int) -> None:
        """Take in a placed pod."""
        held = self._pods.get(pod.labels)
        if held is None:
            held = self._pods[pod.labels] = {}
            for pair in pod.labels:
                self._by_pair.setdefault(pair, {})[pod.labels] = None
        held[pod.key] = (pod, row)

    def drop(self, pod: Pod) -> None:
        """Take a pod out, with the labels that it came with."""
        held = self._pods.get(pod.labels)
        if held is None or held.pop(pod.key, None) is None or held:
            return
        del self._pods[pod.labels]
        for pair in pod.labels:
            sets = self._by_pair[pair]
            del sets[pod.labels]
            if not sets:
                del self._by_pair[pair]

    def near(self, selector: Selector | None) -> Iterable[Labels]:
        """Return the sets of labels that a selector may select."""
        pairs = _pairs(selector)
        if not pairs:
            return self._pods
        return min((self._by_pair.get(pair, {}) for pair in pairs), key=len)

    def having(self, labels: Labels) -> Iterable[Held]:
        """Return the pods with exactly these labels."""
        return self._pods[labels].values()
