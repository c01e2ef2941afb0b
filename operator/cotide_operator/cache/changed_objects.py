"""Which objects changed since they were last collected, each once however often it changed.

Owned by `event_source`. What was there when an engine that knew nothing was first told comes before all that changed
later, in its own order and without turns, because nothing is decided before all of it is told. Later changes take turns
by namespace, see `fair_queue`. Invariant: an object that changed and was not collected since is in here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
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

    def take(self, kind: Kind, most: int) -> Iterator[str]:
        """Yield the next objects of a kind, up to so many of those that wait now; each is removed as it is yielded."""
        first, changed = self._first[kind], self._changed[kind]
        for _ in range(min(most, len(first) + len(changed))):
            key: str | None
            if first:
                key, _ = first.popitem(last=False)
                changed.drop(key)
            else:
                key = changed.pop()
            if key is None:
                return
            yield key
