"""The pods that may be tried now, in the order of the policy.

Owned by `scheduling_queue.SchedulingQueue`. Under most orders a pod's key is complete, and one heap holds all pods. An
order by shares needs one heap for each namespace: each start raises the share of its namespace, which changes the rank
of all its pods. Invariant: `pop` returns the first of all pods that were pushed and are still valid.
"""

from __future__ import annotations

from bisect import insort
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
MOST_IN_FRONT: Final = 128
"""Pods that `OneHeap` keeps sorted. Chosen: a few times the usual look-ahead, and still cheap to move."""


def carries_ticket(item: tuple[object, int, QueuedPod]) -> bool:
    """Whether a pod still stands where it stood when the item was made."""
    return item[2].ticket == item[1]


class ActivePods(Protocol):
    """Pods by key."""

    def push(self, item: Item) -> None:
        """Add a pod."""
        ...

    def pop(self) -> Item | None:
        """Remove and return the first valid pod; None if there is none."""
        ...

    def ahead(self, count: int) -> list[Item]:
        """Return the next pods that `pop` would return, at most `count`, without removing them."""
        ...


class OneHeap:
    """Pods with complete keys.

    Pods that a look-ahead returned stay sorted in front of the heap. A look-ahead after each pod then costs only the
    new pods. Invariant: no pod in the heap sorts before a pod in front.
    """

    def __init__(self) -> None:
        self._heap: LazyHeap[Item] = LazyHeap(carries_ticket)
        self._front: list[Item] = []

    def push(self, item: Item) -> None:
        """Add a pod."""
        front = self._front
        if not front or front[-1] < item:
            self._heap.push(item)
            return
        insort(front, item)
        if len(front) > MOST_IN_FRONT:
            self._heap.push(front.pop())

    def pop(self) -> Item | None:
        """Remove and return the first valid pod."""
        front = self._front
        while front:
            item = front.pop(0)
            if item[2].ticket == item[1]:
                return item
        return self._heap.pop()

    def ahead(self, count: int) -> list[Item]:
        """Return the next pods that `pop` would return."""
        self._front = front = [item for item in self._front if item[2].ticket == item[1]]
        while len(front) < count and (item := self._heap.pop()) is not None:
            front.append(item)
        return front[:count]


class HeapByNamespace:
    """Class and priority first, then the namespace with the smallest share, then the order's own key.

    Both operations cost O(log n); `pop` also looks at each namespace that has pods here.
    """

    def __init__(self, usage: FairUsage) -> None:
        self._usage = usage
        self._heaps: dict[str, LazyHeap[Item]] = {}

    def push(self, item: Item) -> None:
        """Add a pod."""
        name = namespace_of(item[2].pod)
        heap = self._heaps.get(name)
        if heap is None:
            heap = self._heaps[name] = LazyHeap(carries_ticket)
        heap.push(item)

    def pop(self) -> Item | None:
        """Remove and return the first valid pod."""
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

    def ahead(self, count: int) -> list[Item]:
        """Return the next pods that `pop` would return."""
        taken: list[Item] = []
        while len(taken) < count and (item := self.pop()) is not None:
            taken.append(item)
        for item in taken:
            self.push(item)
        return taken
