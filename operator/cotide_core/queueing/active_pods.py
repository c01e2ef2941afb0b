"""The pods that may be tried now, in the order in which they are.

Owned by `scheduling_queue.SchedulingQueue`. One heap, where a pod's key says it all; under an order by shares one heap
for each namespace, since with each start the namespace's share rises, and with it the rank of all its pods at once.
Invariant: `pop` gives the first of all that were pushed and are still valid.
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
"""Pods that `OneHeap` keeps sorted; chosen: a few times what is looked at ahead, and still moved in no time."""


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

    def ahead(self, count: int) -> list[Item]:
        """Return the next that `pop` would give, at most so many, without taking them."""
        ...


class OneHeap:
    """Pods whose keys say it all.

    Those that were looked at ahead stay sorted in front of the heap, so that looking again after each pod costs what is
    new and not all of them. Invariant: none in the heap is before one in front.
    """

    def __init__(self) -> None:
        self._heap: LazyHeap[Item] = LazyHeap(carries_ticket)
        self._front: list[Item] = []

    def push(self, item: Item) -> None:
        """Put a pod in."""
        front = self._front
        if not front or front[-1] < item:
            self._heap.push(item)
            return
        insort(front, item)
        if len(front) > MOST_IN_FRONT:
            self._heap.push(front.pop())

    def pop(self) -> Item | None:
        """Take the first valid pod out."""
        front = self._front
        while front:
            item = front.pop(0)
            if item[2].ticket == item[1]:
                return item
        return self._heap.pop()

    def ahead(self, count: int) -> list[Item]:
        """Return the next that `pop` would give."""
        self._front = front = [item for item in self._front if item[2].ticket == item[1]]
        while len(front) < count and (item := self._heap.pop()) is not None:
            front.append(item)
        return front[:count]


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

    def ahead(self, count: int) -> list[Item]:
        """Return the next that `pop` would give."""
        taken: list[Item] = []
        while len(taken) < count and (item := self.pop()) is not None:
            taken.append(item)
        for item in taken:
            self.push(item)
        return taken
