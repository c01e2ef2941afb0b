"""Keys that wait, by namespace: each namespace has its turn, so that the crowd of one does not hold up the others.

Used by whatever works through keys of all tenants: the low-priority lane, the controllers' work queue and the refresh
of statuses. In a single queue a tenant's ten thousand Jobs would be ten thousand places before another's one.
Invariant: a key waits once; of one namespace the oldest is next; between two turns of a namespace every other one that
has keys, and may take a turn, has had one. Adding, dropping and taking cost the same however many wait.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class NamespaceTurns(Generic[K]):
    """See the module."""

    def __init__(self) -> None:
        self._namespace_of: dict[K, str] = {}
        self._keys: OrderedDict[str, OrderedDict[K, None]] = OrderedDict()
        """Keys of each namespace that has any, the oldest first; whose turn is next comes first."""

    def __len__(self) -> int:
        return len(self._namespace_of)

    def __contains__(self, key: object) -> bool:
        return key in self._namespace_of

    def add(self, key: K, namespace: str) -> None:
        """Have a key wait; one that does already keeps its place."""
        before = len(self._namespace_of)
        self._namespace_of.setdefault(key, namespace)
        if len(self._namespace_of) == before:
            return
        keys = self._keys.get(namespace)
        if keys is None:
            keys = self._keys[namespace] = OrderedDict()
        keys[key] = None

    def drop(self, key: K) -> None:
        """Forget a key, if it waits."""
        namespace = self._namespace_of.pop(key, None)
        if namespace is None:
            return
        keys = self._keys[namespace]
        del keys[key]
        if not keys:
            del self._keys[namespace]

    def count(self, namespace: str) -> int:
        """Return how many keys of a namespace wait."""
        keys = self._keys.get(namespace)
        return 0 if keys is None else len(keys)

    def turn(self, may: Callable[[str], bool] = lambda _: True) -> str | None:
        """Return whose turn it is among the namespaces that ``may`` take one; None when nobody is there."""
        for namespace in self._keys:  # no generator: it is asked twice for each write of the lane
            if may(namespace):
                return namespace
        return None

    def take(self, namespace: str) -> K:
        """Return the oldest key of a namespace, which then waits for all others' turns.

        Raises
        ------
        KeyError
            When none of its keys waits.
        """
        keys = self._keys[namespace]
        key, _ = keys.popitem(last=False)
        del self._namespace_of[key]
        if keys:
            self._keys.move_to_end(namespace)
        else:
            del self._keys[namespace]
        return key
