"""The pods that may be tried now, in the order in which they are.

Owned by `scheduling_queue.SchedulingQueue`. One heap, where a pod's key says it all; under an order by shares one heap
for each namespace, since with each start the namespace's share rises, and with it the rank of all its pods at once.
Invariant: `pop` gives the first of all that were pushed and are still valid.
"""

from __future__ import annotations

from typing import Final, Protocol

from cotide_core.queueing.lazy_heap import LazyHeap
from cotide_core.queueing.ordering import Key
from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.state.fair_usage import FairUsage
from cotide_core.state.namespace_use import namespace_of

Item = tuple[Key, int, QueuedPod]
"""Key, the ticket that the pod must still carry, and the pod."""
_LEVEL: Final = 2
"""Parts of a full key before the order's own: class and priority."""


def carries_ticket(item: tuple[object, int, QueuedPod]) -> bool:
    """Whether a pod still stands where it stood when an item was made of it."""
    return item[2].ticket == item[1]


class ActivePods(Protocol):
    """Pods by key."""

    def push(self, item: Item) -> None:
        """Put a pod in."""
        ...

    def pop(self) -> Item | None:
        """Take the first valid pod out; None where there is none."""
        ...


class HeapByNamespace:
    """Class and priority first, then the namespace with the smallest share, then the order's own key.

    Both cost O(log n), and `pop` a look at each namespace that has pods here.
    """

    def __init__(self, usage: FairUsage) -> None:
        self._usage = usage
        self._heaps: dict[str, LazyHeap[Item]] = {}

    def push(self, item: Item) -> None:
        """Put a pod in."""
        name = namespace_of(item[2].pod)
        heap = self._heaps.get(name)
        if heap is None:
            heap = self._heaps[name] = LazyHeap(carries_ticket)
        heap.push(item)

    def pop(self) -> Item | None:
        """Take the first valid pod out."""
        best: tuple[Key, float, Key] | None = None
        chosen = ""
        for name in list(self._heaps):
            first = self._heaps[name].first()
            if first is None:
                del self._heaps[name]
                continue
            key = first[0]
            rank = (key[:_LEVEL], self._usage.share(name), key[_LEVEL:])
            if best is None or rank < best:
                best, chosen = rank, name
        return None if best is None else self._heaps[chosen].pop()
