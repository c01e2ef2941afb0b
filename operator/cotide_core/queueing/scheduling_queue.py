"""The scheduling queue: which pods wait, where, and which is next.

Owned by `cycle.Scheduler`. States of a waiting pod::

                 +-> GATED (scheduling gates)      +-> HELD (unsupported field, open claim: until the pod changes)
    arrival -----+-> ASIDE (the queue is full) ----+
                 +-> CAPPED (by its namespace) ----+   <--its turn, but its namespace holds all that it may-- in hand
                                                   |
                    GANG (another member tries)----+   <--its turn, but not enough of its gang can start-- in hand
                 v                                 v
               ACTIVE --pop--> in hand --placed--> out
                 ^                |  \\--bind refused--> BACKOFF --time--> ACTIVE
                 |                +--no node-----------> PARKED, by shape
                 +--woken by an event that could help, or flushed after a time--+

A policy that plans ahead (`planning`) keeps the pods that it received PLANNED until they start or change.

Pods of one shape are interchangeable to every filter and guard. Only the first pod of a parked shape wakes; when it is
placed the next follows, when it fails the others need no attempt. Many shapes may compete for the same released room.
Then each has its turn while parked (`hope`), and is taken up only if some room is left by then.

Released capacity wakes pods at once, so that it goes to the first pod in the order. A wake-up by falling request rates
or by the flush respects the pod's back-off, which doubles per attempt. Pushing and popping are O(log n). Invariant: an
added pod is in exactly one queue state until it is removed or placed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import Final

from cotide_core.config import SchedulerConfig
from cotide_core.queueing.active_pods import ActivePods, HeapByNamespace, Item, OneHeap, carries_ticket
from cotide_core.queueing.capped_pods import Capped, CappedPods, together_of
from cotide_core.queueing.lazy_heap import LazyHeap
from cotide_core.queueing.ordering import Key, Order, full_key
from cotide_core.queueing.queued_pod import QueuedPod, QueueState, Together
from cotide_core.state.namespace_use import NamespaceUse, namespace_of
from cotide_core.state.shapes import Shape

MOST_CHECKED: Final = 64
"""Pods that are checked for one that may leave a full queue. Chosen: the latest are hardly ever all in hand or planned.
"""
KEYS_A_STEP: Final = 1000
"""Number of keys that one step of an order computes. Chosen: a millisecond or two."""


def _by_key() -> LazyHeap[Item]:
    return LazyHeap(carries_ticket)


@dataclass(eq=False, slots=True)
class _Parked:
    heap: LazyHeap[Item] = field(default_factory=_by_key)
    scout: QueuedPod | None = None
    """The woken pod of the shape, until it is decided."""
    flush_seconds: float = -1.0
    """Latest time of its flush."""
    flush_ticket: int = -1
    """Ticket of the one heap item for that flush, which may carry an earlier time and is then put back; -1 for none."""


class SchedulingQueue:
    """Waiting pods in the order of a policy.

    Parameters
    ----------
    namespaces : of the engine's state; None for none with limits.
    """

    def __init__(self, order: Order, config: SchedulerConfig, namespaces: NamespaceUse | None = None) -> None:
        self._order = order
        self._config = config
        self._entries: dict[str, QueuedPod] = {}
        self._usage = namespaces.usage if namespaces is not None else None
        self._active: ActivePods = OneHeap() if self._usage is None else HeapByNamespace(self._usage)
        self._backoff: LazyHeap[tuple[float, int, QueuedPod]] = LazyHeap(carries_ticket)
        self._changes: LazyHeap[tuple[float, int, QueuedPod]] = LazyHeap(self._is_announced)
        self._flushes: LazyHeap[tuple[float, int, Shape]] = LazyHeap(self._is_flush)
        self._parked: dict[Shape, _Parked] = {}
        self._hoping: dict[Shape, None] = {}
        """Shapes with a turn from `hope` that has not come yet."""
        self._limits = namespaces.limits if namespaces is not None else {}
        self._capped = CappedPods(namespaces or NamespaceUse())
        self._counted = self._capped.counted
        self._aside: tuple[dict[str, QueuedPod], ...] = ({}, {}, {})
        """By rank of the class, in order of arrival."""
        self._trying: tuple[dict[str, QueuedPod], ...] = ({}, {}, {})
        """Those that may leave the queue for a higher class, ordered likewise."""
        self._held = (self._trying[1], self._trying[2], self._trying[0], *self._aside)
        """All of these, the shapes of most pods first; a pod is in one of them at most."""
        self.displaced: list[QueuedPod] = []
        """Pods that left the queue for a higher class since the reader last emptied this."""
        self._count = dict.fromkeys(QueueState, 0)
        self._tickets = 0
        first, most = config.backoff_initial_seconds, config.backoff_max_seconds
        self._backoffs = [float(min(first * 2.0**doublings, most)) for doublings in range(61)]
        """By attempts, from the first on."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(self._entries.values())

    def get(self, key: str) -> QueuedPod | None:
        """Return a waiting pod by ``namespace/name``."""
        return self._entries.get(key)

    def sizes(self) -> dict[str, int]:
        """Return how many pods wait in active, backoff, unschedulable and gated; their sum is all waiting pods."""
        count = self._count
        return {
            "active": count[QueueState.ACTIVE],
            "backoff": count[QueueState.BACKOFF],
            "unschedulable": sum(
                count[queue_state]
                for queue_state in (
                    QueueState.PARKED,
                    QueueState.PLANNED,
                    QueueState.ASIDE,
                    QueueState.HELD,
                    QueueState.CAPPED,
                    QueueState.GANG,
                )
            ),
            "gated": count[QueueState.GATED],
        }

    def is_full(self) -> bool:
        """Whether a further pod would have to wait outside the queue."""
        count = self._count
        trying = count[QueueState.ACTIVE] + count[QueueState.BACKOFF]
        return trying + count[QueueState.PARKED] + count[QueueState.PLANNED] >= self._config.max_queue

    def add(self, entry: QueuedPod, now: float) -> QueueState:
        """Add a pod, or add it again after it changed; returns where it stands."""
        self.remove(entry.pod.key, now)
        self._entries[entry.pod.key] = entry
        if entry.pod.unsupported or entry.pod.blocked:
            self._stand(entry, QueueState.HELD)
        elif entry.pod.gates:
            self._stand(entry, QueueState.GATED)
        elif self.over_queued(entry) is not None:
            self._keep_capped(entry, now)
        elif self.is_full() and not self._displace(entry.pod.workload_class.rank, now):
            self._stand_aside(entry)
        else:
            self._activate(entry, now)
            self._announce(entry, now)
            self._trying[entry.pod.workload_class.rank][entry.pod.key] = entry
        return entry.queue_state

    def _stand_aside(self, entry: QueuedPod) -> None:
        self._stand(entry, QueueState.ASIDE)
        self._aside[entry.pod.workload_class.rank][entry.pod.key] = entry

    def _displace(self, rank: int, now: float) -> bool:
        """Make room for a pod of a class: the latest pod of the lowest class leaves; False if no class is lower.

        A full queue bounds work and still keeps the order of the classes. Pods in hand or in a plan stay. If all pods
        are such, the queue may grow to twice its size.
        """
        for lower in range(rank):
            trying = self._trying[lower]
            for key in list(islice(reversed(trying), MOST_CHECKED)):
                entry = trying[key]
                if entry.queue_state in (QueueState.ACTIVE, QueueState.BACKOFF, QueueState.PARKED):
                    self._hand_on(entry, now)
                    del trying[key]
                    self._stand_aside(entry)
                    self.displaced.append(entry)
                    return True
        return any(self._trying[:rank]) and sum(map(len, self._trying)) < 2 * self._config.max_queue

    def remove(self, key: str, now: float) -> QueuedPod | None:
        """Remove a pod permanently: it is bound, finished or gone."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._hand_on(entry, now)
            for held in self._held:
                if held.pop(key, None) is not None:
                    break
            self._count[entry.queue_state] -= 1
            entry.queue_state, entry.ticket = QueueState.IN_HAND, -1
            if self._limits or self._counted:
                self._capped.moved(entry, None)
        return entry

    def pop(self) -> QueuedPod | None:
        """Take the next pod in hand; it must come back through `placed`, `failed` or `back_off`.

        A pod with a turn by `hope` stays PARKED: `failed` leaves it where it is, `take_up` takes it in hand.
        """
        item = self._active.pop()
        if item is None:
            return None
        entry = item[2]
        if entry.queue_state is QueueState.PARKED:
            self._hoping.pop(entry.shape, None)
        else:
            self._stand(entry, QueueState.IN_HAND)
        return entry

    def take_up(self, entry: QueuedPod) -> None:
        """Take a pod in hand that had its turn while parked."""
        self._parked[entry.shape].scout = entry
        self._stand(entry, QueueState.IN_HAND)

    def ahead(self, count: int) -> list[QueuedPod]:
        """Return the next pods that `pop` would return, without taking them: one model call then serves them all."""
        return [entry for _, _, entry in self._active.ahead(count)]

    def plan(self, entry: QueuedPod) -> None:
        """Leave a popped pod to the plan: it stays in the queue, and only the plan starts it."""
        self._stand(entry, QueueState.PLANNED)

    def over_queued(self, entry: QueuedPod) -> Capped | None:
        """Return the limit of its namespace that keeps a pod out of the queue, if any."""
        return self._capped.over_queued(entry) if self._limits else None

    def over_held(self, entry: QueuedPod) -> Capped | None:
        """Return the limit of its namespace that a popped pod would break by starting, if any."""
        return self._capped.over_held(entry) if self._limits else None

    def over_held_together(self, entries: Sequence[QueuedPod]) -> Capped | None:
        """Return the limit that pods of one gang would break by starting together."""
        return self._capped.over_held_together(entries) if self._limits else None

    def keeps_waiting(self, entry: QueuedPod) -> bool:
        """Whether others of a planned pod's namespace wait for a limit against which it counts."""
        return bool(self._counted) and self._capped.keeps_waiting(entry)

    def reshape(self, entry: QueuedPod, shape: Shape, now: float) -> None:
        """Give a popped pod another shape; the next pod of its old shape gets its turn."""
        self._hand_on(entry, now)
        entry.shape = shape

    def put_back(self, entry: QueuedPod, now: float) -> None:
        """Take back a popped pod that has its turn in the next cycle."""
        self._activate(entry, now)

    def cap(self, entry: QueuedPod, now: float, gang: Sequence[QueuedPod] = ()) -> None:
        """Keep a popped pod until its namespace may hold it; other pods of its shape may belong to namespaces with
        room.

        Parameters
        ----------
        gang : the pods that start with it or not at all, including itself.
        """
        self._hand_on(entry, now)
        self._trying[entry.pod.workload_class.rank].pop(entry.pod.key, None)
        self._keep_capped(entry, now, together_of(gang) if gang else None)

    def regrouped(self, entry: QueuedPod, lacks: int) -> None:
        """Record that a gang changed: a capped pod that represented other members than the gang lacks now tries by
        itself.
        """
        if entry.queue_state is QueueState.CAPPED and entry.together is not None and entry.together.pods != lacks:
            self._capped.alone(entry)

    def take(self, entry: QueuedPod, now: float) -> None:
        """Take a waiting pod in hand before its turn, because others of its gang have theirs."""
        self._dismiss_scout(entry, now)
        self._trying[entry.pod.workload_class.rank][entry.pod.key] = entry
        self._stand(entry, QueueState.IN_HAND)

    def leave_to_gang(self, entry: QueuedPod, now: float) -> None:
        """Leave a pod to its gang: only its gang wakes it."""
        self._dismiss_scout(entry, now)
        self._trying[entry.pod.workload_class.rank].pop(entry.pod.key, None)
        self._stand(entry, QueueState.GANG)

    def recall(self, entry: QueuedPod, now: float) -> None:
        """Let a pod that was left to its gang try for itself."""
        self._trying[entry.pod.workload_class.rank][entry.pod.key] = entry
        self._activate(entry, now)

    def key_of(self, entry: QueuedPod, now: float) -> Key:
        """Return a waiting pod's key in the policy's order."""
        return full_key(self._order, entry, now)

    def placed(self, entry: QueuedPod, now: float) -> None:
        """Release a pod that has a node, and wake the next of its shape."""
        shape = entry.shape
        self.remove(entry.pod.key, now)
        self.wake(shape, now, urgent=True)

    def failed(self, entry: QueuedPod, now: float) -> None:
        """Park a pod that no node can take now; QPSM demotes it after its first attempt."""
        if entry.queue_state is QueueState.PARKED:
            self._count_attempt(entry, self._parked[entry.shape], now)
            return
        entry.attempts += 1
        if self._order.demotes and entry.attempts == 1 and entry.demotions == 0:
            entry.demotions += 1
            entry.demoted_seconds = now
            self._announce(entry, now)
        entry.ready_seconds = now + self.backoff_seconds(entry.attempts)
        group = self._parked.get(entry.shape)
        if group is None:
            group = self._parked[entry.shape] = _Parked()
        if group.scout is entry:
            group.scout = None
        self._stand(entry, QueueState.PARKED)
        group.heap.push((full_key(self._order, entry, now), entry.ticket, entry))
        self._schedule_flush(entry.shape, group, now)

    def backs_off(self, shape: Shape) -> bool:
        """Whether the first pod of a parked shape is already awake and waits for the end of its back-off."""
        group = self._parked.get(shape)
        return group is not None and group.scout is not None and group.scout.queue_state is QueueState.BACKOFF

    def refused(self, shape: Shape, now: float) -> None:
        """Count a failed attempt of a parked shape without waking a pod."""
        group = self._parked[shape]
        first = group.heap.first()
        if first is not None:
            self._count_attempt(first[2], group, now)

    def hope(self, shape: Shape, now: float) -> None:
        """Give the first pod of a parked shape its turn, and leave it parked until then.

        Used when many shapes wait for the same room and one takes it: each shape costs one item in the active heap.
        Ends with `end_hopes`.
        """
        group = self._parked[shape]
        first = group.heap.first()
        if group.scout is not None or first is None:
            self.wake(shape, now, urgent=True)
            return
        self._active.push(first)
        self._hoping[shape] = None

    def end_hopes(self, now: float) -> None:
        """Wake the shapes with a turn from `hope` that did not come."""
        hoping, self._hoping = self._hoping, {}
        for shape in hoping:
            self.wake(shape, now, urgent=True)

    def back_off(self, entry: QueuedPod, now: float) -> float:
        """Take a pod back after a failed bind; returns when it is tried again."""
        if self._entries.get(entry.pod.key) is not entry:  # it was placed, and its records were dropped
            self._entries[entry.pod.key] = entry
            self._trying[entry.pod.workload_class.rank][entry.pod.key] = entry
            self._announce(entry, now)
        entry.ready_seconds = now + self.backoff_seconds(entry.attempts)
        self._stand(entry, QueueState.BACKOFF)
        self._backoff.push((entry.ready_seconds, entry.ticket, entry))
        return entry.ready_seconds

    def backoff_seconds(self, attempts: int) -> float:
        """Return initial x 2^(attempts - 1), at most the maximum."""
        return self._backoffs[min(max(1, attempts), len(self._backoffs)) - 1]

    def parked_shapes(self) -> list[Shape]:
        """Return the shapes that wait for an event, without those that have a woken pod already."""
        return [
            s
            for s, g in self._parked.items()
            if g.heap.held and (g.scout is None or g.scout.queue_state is QueueState.BACKOFF)
        ]

    def speaks_for(self, shape: Shape) -> str:
        """Return the namespace of the first pod of a parked shape."""
        first = self._parked[shape].heap.first()
        return "" if first is None else namespace_of(first[2].pod)

    def wake(self, shape: Shape, now: float, *, urgent: bool) -> None:
        """Let the first parked pod of a shape try again: immediately, or when its back-off is over."""
        self._hoping.pop(shape, None)  # the turn that it gets now is enough
        group = self._parked.get(shape)
        if group is None:
            return
        if group.scout is not None:
            if urgent and group.scout.queue_state is QueueState.BACKOFF:
                self._activate(group.scout, now)
            return
        item = group.heap.pop()
        if item is not None:
            group.scout = entry = item[2]
            if urgent or entry.ready_seconds <= now:
                self._activate(entry, now)
            else:
                self._stand(entry, QueueState.BACKOFF)
                self._backoff.push((entry.ready_seconds, entry.ticket, entry))
            return
        del self._parked[shape]

    def wake_pod(self, key: str, now: float) -> None:
        """Let one pod try again immediately, whichever pod represents its shape: room was made for it, or its claim
        ended.
        """
        entry = self._entries.get(key)
        if entry is not None and entry.queue_state in (QueueState.PARKED, QueueState.BACKOFF):
            self._activate(entry, now)

    def advance(self, now: float) -> list[QueuedPod]:
        """Process the passing of time: back-offs end, parked shapes are flushed, keys age; returns the admitted pods.

        The admitted pods had waited outside the full queue.
        """
        while (ready := self._backoff.first()) is not None and ready[0] <= now:
            self._activate(ready[2], now)
        while (flush := self._next_flush()) is not None and flush[0] <= now:
            self._flushes.pop()
            self._parked[flush[2]].flush_ticket = -1
            self.wake(flush[2], now, urgent=False)
        while (change := self._changes.first()) is not None and change[0] <= now:
            self._changes.pop()
            self._resort(change[2], now)
            self._announce(change[2], now)
        for entry in self._capped.released():
            self._activate(entry, now)
            self._announce(entry, now)
            self._trying[entry.pod.workload_class.rank][entry.pod.key] = entry
        admitted = []
        for rank in (2, 1, 0):
            aside = self._aside[rank]
            while aside and not self.is_full():
                entry = aside.pop(next(iter(aside)))
                self._activate(entry, now)
                self._announce(entry, now)
                self._trying[rank][entry.pod.key] = entry
                admitted.append(entry)
        return admitted

    def resort(self, now: float) -> None:
        """Sort everything again, because the forecasts changed."""
        for entry in list(self._entries.values()):
            self._resort(entry, now)

    def next_wakeup(self, now: float) -> float | None:
        """Return when `advance` or `pop` has work next: now, a time to come, or None for never."""
        has_work = self._count[QueueState.ACTIVE] or self._hoping or self._capped.due
        if has_work or (self._count[QueueState.ASIDE] and not self.is_full()):
            return now
        ready = self._backoff.first()
        while (flush := self._next_flush()) is not None and not self._may_flush(flush[2]):
            self._flushes.pop()
            self._parked[flush[2]].flush_ticket = -1
        times = [item[0] for item in (ready, flush) if item is not None]
        return max(now, min(times)) if times else None

    def order_steps(self, now: float) -> Generator[None, None, list[QueuedPod]]:
        """Return all pods that can be tried, in the policy's order, as if all were woken now.

        The generator works in steps; pods must not change between them.
        """
        held = (QueueState.GATED, QueueState.HELD)
        kept = (QueueState.ASIDE, QueueState.CAPPED)
        usage, shares = self._usage, dict[str, float]()
        ranked: list[tuple[Key, QueuedPod]] = []
        for number, entry in enumerate(list(self._entries.values())):
            if number % KEYS_A_STEP == KEYS_A_STEP - 1:
                yield
            if entry.queue_state in held:
                continue
            key = full_key(self._order, entry, now)
            if usage is not None:
                name = namespace_of(entry.pod)
                if name not in shares:
                    shares[name] = usage.share(name)
                key = (*key[:2], shares[name], *key[2:])
            ranked.append(((entry.queue_state in kept, *key), entry))
        yield
        ranked.sort(key=itemgetter(0))
        return [entry for _, entry in ranked]

    def _is_flush(self, item: tuple[float, int, Shape]) -> bool:
        """Whether a heap item is the valid one for the flush of a parked shape."""
        group = self._parked.get(item[2])
        return group is not None and group.flush_ticket == item[1]

    def _next_flush(self) -> tuple[float, int, Shape] | None:
        """Return the next flush and its time; postponed items go back into the heap with their new time."""
        while (flush := self._flushes.first()) is not None:
            group = self._parked[flush[2]]
            if group.flush_seconds <= flush[0]:
                return flush
            self._flushes.pop()
            self._push_flush(flush[2], group)
        return None

    def _push_flush(self, shape: Shape, group: _Parked) -> None:
        group.flush_ticket = self._ticket()
        self._flushes.push((group.flush_seconds, group.flush_ticket, shape))

    def _may_flush(self, shape: Shape) -> bool:
        group = self._parked.get(shape)
        return group is not None and group.scout is None and bool(group.heap)

    def _is_announced(self, item: tuple[float, int, QueuedPod]) -> bool:
        """Whether a pod is still here and its key changes at the time of an item."""
        entry = item[2]
        return entry.announced == item[1] and self._entries.get(entry.pod.key) is entry

    def _count_attempt(self, entry: QueuedPod, group: _Parked, now: float) -> None:
        """Count an attempt of a pod that stays parked."""
        entry.attempts += 1
        entry.ready_seconds = now + self.backoff_seconds(entry.attempts)
        self._schedule_flush(entry.shape, group, now)

    def _schedule_flush(self, shape: Shape, group: _Parked, now: float) -> None:
        group.flush_seconds = now + self._config.unschedulable_flush_seconds
        if group.flush_ticket < 0:
            self._push_flush(shape, group)

    def _keep_capped(self, entry: QueuedPod, now: float, together: Together | None = None) -> None:
        self._stand(entry, QueueState.CAPPED)
        self._capped.keep(entry, full_key(self._order, entry, now), together)

    def _hand_on(self, entry: QueuedPod, now: float) -> None:
        """Dismiss a scout. The next pod of its shape tries instead if the scout's turn had come, since the room is
        still free.
        """
        group = self._parked.get(entry.shape)
        if group is not None and group.scout is entry:
            due = entry.queue_state in (QueueState.ACTIVE, QueueState.IN_HAND)
            self._dismiss_scout(entry, now)
            if due:
                self.wake(entry.shape, now, urgent=True)

    def _dismiss_scout(self, entry: QueuedPod, now: float) -> None:
        """Let the others of a parked shape choose another representative at the flush, unless an event comes first."""
        group = self._parked.get(entry.shape)
        if group is not None and group.scout is entry:
            group.scout = None
            self._schedule_flush(entry.shape, group, now)

    def _activate(self, entry: QueuedPod, now: float) -> None:
        self._stand(entry, QueueState.ACTIVE)
        self._active.push((full_key(self._order, entry, now), entry.ticket, entry))

    def _resort(self, entry: QueuedPod, now: float) -> None:
        if entry.queue_state is QueueState.ACTIVE:
            self._activate(entry, now)
        elif entry.queue_state is QueueState.PARKED:
            self._stand(entry, QueueState.PARKED)
            self._parked[entry.shape].heap.push((full_key(self._order, entry, now), entry.ticket, entry))

    def _announce(self, entry: QueuedPod, now: float) -> None:
        due = self._order.next_change(entry, now)
        if due is not None:
            entry.announced = self._ticket()
            self._changes.push((due, entry.announced, entry))

    def _stand(self, entry: QueuedPod, queue_state: QueueState) -> None:
        count = self._count
        if entry.ticket >= 0:
            count[entry.queue_state] -= 1
        count[queue_state] += 1
        entry.queue_state = queue_state
        self._tickets += 1
        entry.ticket = self._tickets
        if self._limits or self._counted:
            self._capped.moved(entry, queue_state)

    def _ticket(self) -> int:
        self._tickets += 1
        return self._tickets
