"""Pods with rules that a later cycle compares with other pods, because this cycle has used its share of comparisons.

Owned by `cycle.Scheduler`. Such a pod is in no queue, so that no decision uses an old state of it. The namespaces take
turns from cycle to cycle. Invariant: pods of one namespace leave in order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cotide_core.events import Pod
from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.state.namespace_use import namespace_of

Deferred = tuple[Pod, QueuedPod | None]
"""A pod as it is now, and its entry in the queue where it waited before."""


class DeferredPods:
    """Pods by namespace and key."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, Deferred]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_namespace.values()))

    def __bool__(self) -> bool:
        return bool(self._by_namespace)

    def has(self, namespace: str) -> bool:
        """Whether older pods of a namespace wait here and go first."""
        return namespace in self._by_namespace

    def get(self, key: str) -> Deferred | None:
        """Return a pod by ``namespace/name``."""
        return self._by_namespace.get(key.partition("/")[0], {}).get(key)

    def put(self, pod: Pod, known: QueuedPod | None) -> None:
        """Add a pod, or replace its state."""
        self._by_namespace.setdefault(namespace_of(pod), {})[pod.key] = (pod, known)

    def drop(self, key: str) -> None:
        """Drop a pod that no longer waits, if it is here."""
        name = key.partition("/")[0]
        pods = self._by_namespace.get(name)
        if pods is not None and pods.pop(key, None) is not None and not pods:
            del self._by_namespace[name]

    def take(self, is_spent: Callable[[str], bool]) -> Iterator[Deferred]:
        """Take out the pods of the namespaces that may still compare in this cycle. The other namespaces go first in
        the next cycle.
        """
        for name in list(self._by_namespace):
            while name in self._by_namespace and not is_spent(name):
                pods = self._by_namespace[name]
                key = next(iter(pods))
                found = pods[key]
                self.drop(key)
                yield found
            if name in self._by_namespace:
                self._by_namespace[name] = self._by_namespace.pop(name)
