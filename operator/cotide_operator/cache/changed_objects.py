"""Which objects changed since they were last collected, each once however often it changed.

Owned by `event_source`. What was there when an engine that knew nothing was first told comes before all that changed
later, in its own order and without turns, because nothing is decided before all of it is told. Later changes take turns
by namespace, see `fair_queue`. `FanOuts` keeps the objects on which pods depend. Invariant: an object that changed and
was not collected since is in here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from cotide_operator.cache.fair_queue import FairQueue
from cotide_operator.cache.object_cache import Kind, namespace_of_key


class ChangedObjects:
    """Keys by kind.

    Parameters
    ----------
    kinds : iterable of Kind
        Those that are kept.

    Attributes
    ----------
    began : bool
        Whether what was there at first is known.
    """

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._changed: dict[Kind, FairQueue[str]] = {kind: FairQueue() for kind in kinds}
        self._first: dict[Kind, OrderedDict[str, None]] = {kind: OrderedDict() for kind in self._changed}
        """What is left of what was there at first."""
        self.began = False

    def __bool__(self) -> bool:
        return any(self._changed.values()) or any(self._first.values())

    def add(self, kind: Kind, key: str) -> None:
        """Note that an object changed."""
        self._changed[kind].add(key, namespace_of_key(key))

    def update(self, kind: Kind, keys: Iterable[str]) -> None:
        """Note that many objects changed, for whatever reason."""
        changed = self._changed[kind]
        for key in keys:
            changed.add(key, namespace_of_key(key))

    def begin(self, order_of_pods: Callable[[str], Any]) -> None:
        """Take all that is here as what was there at first, pods in an order of their own."""
        for kind, changed in self._changed.items():
            self._first[kind] = OrderedDict.fromkeys(sorted(changed, key=order_of_pods) if kind == "pods" else changed)
            changed.clear()
        self.began = True

    def restart(self) -> None:
        """Begin again with an engine that knows nothing; whoever calls this adds all that is there."""
        for first in self._first.values():
            first.clear()
        self.began = False

    def first_left(self, kind: Kind | None = None) -> bool:
        """Whether anything is left of what was there at first: of a kind, or of any."""
        return any(self._first.values()) if kind is None else bool(self._first[kind])

    def has(self, kind: Kind, key: str) -> bool:
        """Whether an object waits to be collected."""
        return key in self._changed[kind] or key in self._first[kind]

    def take(self, kind: Kind, most: int, spent: Callable[[str], bool] | None = None) -> Iterator[str]:
        """Yield the next objects of a kind, up to so many of those that wait now; each is removed as it is yielded.

        Parameters
        ----------
        spent : callable, optional
            Whether a namespace has to wait now. Of what was there at first nothing waits.
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
    """Objects that changed and on which pods depend, until all of these pods are put up.

    However often an object changes in between, the thousands of pods that name it are gone through once. Those of one
    object may be put up in parts. Invariant: each of these pods is put up after the latest change of the object.
    """

    def __init__(self) -> None:
        self._waiting: FairQueue[tuple[Kind, str]] = FairQueue()
        self._left: dict[tuple[Kind, str], Iterator[str]] = {}
        """Pods that are not put up yet, of objects that have begun."""
        self._again: set[tuple[Kind, str]] = set()
        """Objects that changed since they began."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, kind: Kind, key: str) -> None:
        """Note that an object changed."""
        if (kind, key) in self._left:
            self._again.add((kind, key))
        self._waiting.add((kind, key), namespace_of_key(key))

    def clear(self) -> None:
        """Forget all of them."""
        self._waiting.clear()
        self._left.clear()
        self._again.clear()

    def take(
        self, dependents: Callable[[Kind, str], Iterable[str]], most: int, spent: Callable[[str], bool]
    ) -> tuple[str, list[str]] | None:
        """Return the namespace of the next object and some of its pods, up to so many; None when none may go on now.

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
