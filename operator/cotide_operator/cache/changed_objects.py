"""Objects that changed since the last collection, each once however often it changed.

`event_source` owns it. Objects that existed at the start of a new engine come before all later changes, in their own
order and without turns, because no decision is made before all of them are collected. Later changes take turns by
namespace, see `fair_queue`. `FanOuts` holds the changed objects that pods depend on. Invariant: every uncollected
change is in here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from cotide_operator.cache.fair_queue import FairQueue
from cotide_operator.cache.object_cache import Kind, namespace_of_key


class ChangedObjects:
    """Keys of changed objects, by kind.

    Parameters
    ----------
    kinds : iterable of Kind
        Kinds of the objects.

    Attributes
    ----------
    began : bool
        Whether the objects of the start are known.
    """

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._changed: dict[Kind, FairQueue[str]] = {kind: FairQueue() for kind in kinds}
        self._first: dict[Kind, OrderedDict[str, None]] = {kind: OrderedDict() for kind in self._changed}
        """Uncollected objects of the start."""
        self.began = False

    def __bool__(self) -> bool:
        return any(self._changed.values()) or any(self._first.values())

    def add(self, kind: Kind, key: str) -> None:
        """Add a changed object."""
        self._changed[kind].add(key, namespace_of_key(key))

    def update(self, kind: Kind, keys: Iterable[str]) -> None:
        """Add many changed objects, for any reason."""
        changed = self._changed[kind]
        for key in keys:
            changed.add(key, namespace_of_key(key))

    def begin(self, order_of_pods: Callable[[str], Any]) -> None:
        """Take the present keys as the objects of the start, pods in their own order."""
        for kind, changed in self._changed.items():
            self._first[kind] = OrderedDict.fromkeys(sorted(changed, key=order_of_pods) if kind == "pods" else changed)
            changed.clear()
        self.began = True

    def restart(self) -> None:
        """Start again with a new engine; the caller then adds all existing objects."""
        for first in self._first.values():
            first.clear()
        self.began = False

    def first_left(self, kind: Kind | None = None) -> bool:
        """Whether any object of the start is uncollected, of one kind or of all."""
        return any(self._first.values()) if kind is None else bool(self._first[kind])

    def has(self, kind: Kind, key: str) -> bool:
        """Whether an object waits for collection."""
        return key in self._changed[kind] or key in self._first[kind]

    def take(self, kind: Kind, most: int, spent: Callable[[str], bool] | None = None) -> Iterator[str]:
        """Yield the next waiting objects of a kind, at most ``most``; each is removed as it is yielded.

        Parameters
        ----------
        spent : callable, optional
            Whether a namespace has to wait now. Objects of the start do not wait.
        """
        first, changed = self._first[kind], self._changed[kind]
        for _ in range(min(most, len(first) + len(changed))):
            key: str | None
            if first:
                key, _ = first.popitem(last=False)
                changed.drop(key)
            else:
                key = changed.pop(spent)
            if key is None:
                return
            yield key


class FanOuts:
    """Changed objects that pods depend on, until all of these pods are marked.

    The thousands of pods that name an object are marked once, however often it changes in between. The pods of one
    object may be marked in parts. Invariant: each of these pods is marked after the latest change of the object.
    """

    def __init__(self) -> None:
        self._waiting: FairQueue[tuple[Kind, str]] = FairQueue()
        self._left: dict[tuple[Kind, str], Iterator[str]] = {}
        """Unmarked pods, of objects that have begun."""
        self._again: set[tuple[Kind, str]] = set()
        """Objects that changed since they began."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, kind: Kind, key: str) -> None:
        """Add a changed object."""
        if (kind, key) in self._left:
            self._again.add((kind, key))
        self._waiting.add((kind, key), namespace_of_key(key))

    def clear(self) -> None:
        """Drop all of them."""
        self._waiting.clear()
        self._left.clear()
        self._again.clear()

    def take(
        self, dependents: Callable[[Kind, str], Iterable[str]], most: int, spent: Callable[[str], bool]
    ) -> tuple[str, list[str]] | None:
        """Return the namespace of the next object and at most ``most`` of its pods; None if none may go on now.

        Parameters
        ----------
        dependents : callable
            Returns the pods that depend on an object.
        spent : callable
            Whether a namespace has to wait now.
        """
        changed = self._waiting.pop(spent)
        if changed is None:
            return None
        namespace = namespace_of_key(changed[1])
        left = self._left.pop(changed, None)
        pods = iter(dependents(*changed)) if left is None else left
        taken = list(islice(pods, most))
        if len(taken) == most:
            self._left[changed] = pods
        if changed in self._left or changed in self._again:
            self._waiting.add(changed, namespace)
        if changed not in self._left:
            self._again.discard(changed)
        return namespace, taken
