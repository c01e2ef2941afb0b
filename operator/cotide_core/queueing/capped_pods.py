"""Batch and gratis pods that wait for a limit of their namespace, and the amounts that count against it.

Owned by `scheduling_queue.SchedulingQueue`, which reports where each pod stands. Two limits hold. The limit on pods in
the queue is checked when a pod arrives; the limit on held resources is checked when a pod has its turn. Pods that a
planning policy took over count as held, because they start without another check. A pod that is admitted after a
release may find no node, or may wait for others of its gang; then the next pod of its namespace gets its turn. The
first pod of a gang waits until its namespace may hold the whole gang. Only namespaces with limits are counted.
Invariant: admitted pods keep their namespace within its limits, even when several start in the same cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cotide_core.classes import WorkloadClass
from cotide_core.events import Namespace
from cotide_core.queueing.active_pods import Item, carries_ticket
from cotide_core.queueing.lazy_heap import LazyHeap
from cotide_core.queueing.ordering import Key
from cotide_core.queueing.queued_pod import QueuedPod, QueueState, Together
from cotide_core.state.namespace_use import (
    MAX_BATCH_CPU,
    MAX_BATCH_MEMORY,
    MAX_QUEUED_PODS,
    NamespaceUse,
    namespace_of,
)
from cotide_core.units import CPU, MEMORY, RECLAIMED_CPU, RECLAIMED_MEMORY, format_amount

MOST_CHECKED: Final = 64
"""Pods of a namespace that are checked against the released amount (chosen: bounds the work of a cycle)."""
_QUEUED: Final = frozenset(
    {
        QueueState.ACTIVE,
        QueueState.BACKOFF,
        QueueState.PARKED,
        QueueState.PLANNED,
        QueueState.IN_HAND,
        QueueState.ASIDE,
    }
)
"""Pods that wait outside a full queue enter it without another check of this limit."""
_GIVEN_UP: Final = frozenset({QueueState.PARKED, QueueState.GATED, QueueState.ASIDE, QueueState.HELD, QueueState.GANG})


@dataclass(frozen=True, slots=True)
class Capped:
    """The limit that stops a pod, and the sentence that explains it."""

    limit: str
    """Name of the annotation."""
    message: str


@dataclass(slots=True)
class _Waiting:
    queued: int = 0
    millicores: int = 0
    """Millicores of planned pods; `planned_bytes` likewise."""
    memory_bytes: int = 0


@dataclass(slots=True)
class _Hopeless:
    """Capped pods that alone, or as a gang, need more than their namespace may ever hold.

    The queue skips them until the limits change, so that thousands of them do not delay the pods behind them.
    """

    limits: Namespace | None
    items: dict[QueuedPod, Item] = field(default_factory=dict)


class CappedPods:
    """Limits of namespaces as the queue sees them.

    Attributes
    ----------
    counted : what was counted of a pod: its namespace, and millicores and bytes while it is planned. While it is empty
        and no namespace has limits, this object needs no calls.
    """

    def __init__(self, use: NamespaceUse) -> None:
        self._use = use
        self._heaps: dict[str, LazyHeap[Item]] = {}
        self._hopeless: dict[str, _Hopeless] = {}
        """By namespace with a heap."""
        self._waiting: dict[str, _Waiting] = {}
        self.counted: dict[QueuedPod, tuple[str, int, int]] = {}

    def moved(self, entry: QueuedPod, queue_state: QueueState | None) -> None:
        """Record where a pod stands now; None when it left the queue."""
        if not (self._use.limits or self.counted):
            return
        before = self.counted.pop(entry, None)
        if before is not None:
            self._count(before, -1)
        name = namespace_of(entry.pod)
        if (hopeless := self._hopeless.get(name)) is not None:
            hopeless.items.pop(entry, None)
        if queue_state in _QUEUED and _is_limited(entry) and name in self._use.limits:
            amounts = amounts_of(entry) if queue_state is QueueState.PLANNED else (0, 0)
            counted = self.counted[entry] = (name, *amounts)
            self._count(counted, 1)
        if name in self._heaps and (queue_state is None or queue_state in _GIVEN_UP):
            # The pod does not use the amount that admitted it; the next pod may use it.
            self._use.eased.add(name)

    def keep(self, entry: QueuedPod, key: Key, together: Together | None) -> None:
        """Store a capped pod with its key in the policy's order and the gang members that must start with it."""
        entry.together = together
        name = namespace_of(entry.pod)
        heap = self._heaps.get(name)
        if heap is None:
            heap = self._heaps[name] = LazyHeap(carries_ticket)
        heap.push((key, entry.ticket, entry))

    def over_queued(self, entry: QueuedPod) -> Capped | None:
        """Return the limit on waiting pods that one more pod would break."""
        limits = self._limits(entry)
        if limits is None or limits.queued_pods is None:
            return None
        waiting = self._waiting.get(limits.name)
        if (0 if waiting is None else waiting.queued) < limits.queued_pods:
            return None
        words = f"its namespace may have {limits.queued_pods} batch and gratis pods in the queue ({MAX_QUEUED_PODS})"
        return Capped(MAX_QUEUED_PODS, f"{words}; it is kept and admitted in turn")

    def over_held(self, entry: QueuedPod, extra: tuple[int, int] = (0, 0)) -> Capped | None:
        """Return the limit on held resources that a pod would break by starting.

        Parameters
        ----------
        extra : millicores and bytes that also count as held.
        """
        return self._over(entry, Together(1, *amounts_of(entry)), extra)

    def over_held_together(self, entries: Sequence[QueuedPod]) -> Capped | None:
        """Return the limit on held resources that the pods of one gang would break by starting together."""
        return self._over(entries[0], together_of(entries), (0, 0)) if entries else None

    def _over(self, entry: QueuedPod, asked: Together, extra: tuple[int, int]) -> Capped | None:
        """Return the limit that the given amount would break in a pod's namespace."""
        limits = self._limits(entry)
        if limits is None:
            return None
        waiting = self._waiting.get(limits.name) or _Waiting()
        held = self._use.held(limits.name)
        for resource, annotation, most, taken, more in (
            (CPU, MAX_BATCH_CPU, limits.batch_millicores, held[0] + waiting.millicores + extra[0], asked.millicores),
            (
                MEMORY,
                MAX_BATCH_MEMORY,
                limits.batch_memory_bytes,
                held[1] + waiting.memory_bytes + extra[1],
                asked.memory_bytes,
            ),
        ):
            if most is not None and more and taken + more > most:
                return Capped(annotation, _words(resource, annotation, most, more, asked.pods))
        return None

    def keeps_waiting(self, entry: QueuedPod) -> bool:
        """Whether other pods of a pod's namespace wait while its request counts as held."""
        counted = self.counted.get(entry)
        if counted is None or counted[0] not in self._heaps or not any(counted[1:]):
            return False
        return self._heaps[counted[0]].first() is not None

    def alone(self, entry: QueuedPod) -> None:
        """Check a capped pod by itself again, because its gang lacks other pods than before."""
        entry.together = None
        name = namespace_of(entry.pod)
        if name in self._hopeless and (item := self._hopeless[name].items.pop(entry, None)) is not None:
            self._heaps[name].push(item)
        self._use.eased.add(name)

    @property
    def due(self) -> bool:
        """Whether `released` may have pods to admit."""
        return not self._use.eased.isdisjoint(self._heaps)

    def released(self) -> list[QueuedPod]:
        """Return the pods that may try now, by namespace and in order; for each namespace as many as may fit."""
        if not self._use.eased:
            return []
        out: list[QueuedPod] = []
        for name in sorted(self._use.eased & self._heaps.keys()):
            out.extend(self._released_of(name))
        self._use.eased.clear()
        return out

    def _released_of(self, name: str) -> list[QueuedPod]:
        heap, out, kept = self._heaps[name], list[QueuedPod](), list[Item]()
        limits, waiting = self._use.limits.get(name), self._waiting.get(name)
        hopeless = self._hopeless.setdefault(name, _Hopeless(limits))
        if hopeless.limits != limits:
            for again in hopeless.items.values():
                heap.push(again)
            hopeless = self._hopeless[name] = _Hopeless(limits)
        room = None if limits is None or limits.queued_pods is None else limits.queued_pods
        if room is not None and waiting is not None:
            room -= waiting.queued
        extra = (0, 0)
        while len(kept) < MOST_CHECKED and (room is None or len(out) < room) and (item := heap.pop()) is not None:
            entry = item[2]
            asked = entry.together or Together(1, *amounts_of(entry))
            if self._over(entry, asked, extra) is not None:
                if limits is not None and _is_above(asked, limits):
                    hopeless.items[entry] = item
                else:
                    kept.append(item)
                continue
            extra = (extra[0] + asked.millicores, extra[1] + asked.memory_bytes)
            out.append(entry)
        for item in kept:
            heap.push(item)
        if heap.first() is None and not hopeless.items:
            del self._heaps[name], self._hopeless[name]
        return out

    def _limits(self, entry: QueuedPod) -> Namespace | None:
        if not self._use.limits or not _is_limited(entry):
            return None
        return self._use.limits.get(namespace_of(entry.pod))

    def _count(self, counted: tuple[str, int, int], sign: int) -> None:
        name, millicores, memory_bytes = counted
        waiting = self._waiting.setdefault(name, _Waiting())
        waiting.queued += sign
        waiting.millicores += sign * millicores
        waiting.memory_bytes += sign * memory_bytes
        if not waiting.queued:
            del self._waiting[name]


def amounts_of(entry: QueuedPod) -> tuple[int, int]:
    """Return the millicores and bytes that a pod requests, plain and reclaimed."""
    memory = sum(amount for name, amount in entry.pod.requests if name in (MEMORY, RECLAIMED_MEMORY))
    return sum(amount for name, amount in entry.pod.requests if name in (CPU, RECLAIMED_CPU)), memory


def together_of(entries: Sequence[QueuedPod]) -> Together:
    """Return the total request of several pods."""
    amounts = [amounts_of(entry) for entry in entries]
    return Together(len(amounts), sum(amount[0] for amount in amounts), sum(amount[1] for amount in amounts))


def _is_above(asked: Together, limits: Namespace) -> bool:
    """Whether the amount exceeds what an empty namespace may hold."""
    cpu, memory = limits.batch_millicores, limits.batch_memory_bytes
    return (cpu is not None and asked.millicores > cpu) or (memory is not None and asked.memory_bytes > memory)


def _is_limited(entry: QueuedPod) -> bool:
    return entry.pod.workload_class is not WorkloadClass.ONLINE


def _words(resource: str, annotation: str, most: int, asked: int, pods: int) -> str:
    allowed = f"{format_amount(resource, most)} {resource} in batch and gratis pods ({annotation})"
    if asked > most and pods > 1:
        together = f"the {pods} that start together ask for {format_amount(resource, asked)}"
        return f"its namespace may hold {allowed}, and {together}"
    if asked > most:
        return f"its namespace may hold {allowed}, and this pod alone asks for {format_amount(resource, asked)}"
    return f"its namespace may hold {allowed}; it starts when others of the namespace end"
