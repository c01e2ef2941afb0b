"""Orders of the queue: which pod is tried next.

Used by `queueing.SchedulingQueue` through a policy. Every order puts online pods before batch before gratis pods, and a
higher pod priority (``spec.priority``) before a lower one; a policy's order decides the rest. A key may change with
time only at moments that `next_change` announces. Heaps therefore stay heaps: O(log n) per step.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Protocol

from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.units import MEMORY, RECLAIMED_MEMORY

Key = tuple[float, ...]


class Order(Protocol):
    """Sorts waiting pods; the smallest key is next."""

    @property
    def demotes(self) -> bool:
        """Whether a pod that fails its first placement goes down one level."""
        ...

    def key(self, entry: QueuedPod, now: float) -> Key:
        """Return a pod's sort key among pods of the same class and priority."""
        ...

    def next_change(self, entry: QueuedPod, now: float) -> float | None:
        """Return when the key will change with time; None for never."""
        ...


def full_key(order: Order, entry: QueuedPod, now: float) -> Key:
    """Return the key among all pods: class, pod priority, the order's own key, arrival."""
    pod = entry.pod
    return (-pod.workload_class.rank, -pod.priority, *order.key(entry, now), entry.sequence)


class _Constant:
    """An order with constant keys."""

    __slots__ = ()

    def next_change(self, entry: QueuedPod, now: float) -> float | None:
        """Return None: the key never changes."""
        del entry, now
        return None


class _ByArrival(_Constant):
    """First come, first served."""

    __slots__ = ()

    def key(self, entry: QueuedPod, now: float) -> Key:
        """Return since when the pod waits."""
        del now
        return (entry.since_seconds,)


@dataclass(frozen=True, slots=True)
class ArrivalOrder(_ByArrival):
    """First come, first served; a pod that has no place now does not block the pods behind it."""

    demotes: bool = False


@dataclass(frozen=True, slots=True)
class FairOrder(_ByArrival):
    """The namespace with the smallest share of past use comes first; within it, first come, first served.

    The state keeps the past use (`state.fair_usage`). The queue reads it at each decision, since one start moves all
    pods of a namespace. The key here therefore only orders pods of one namespace.
    """

    half_life_seconds: float
    demotes: bool = False


@dataclass(frozen=True, slots=True)
class RandomOrder(_Constant):
    """A reproducible random order: a keyed hash of each pod's uid, uniform in [0, 1)."""

    seed: int
    demotes: bool = False

    def key(self, entry: QueuedPod, now: float) -> Key:
        """Return the random number of a pod."""
        del now
        digest = blake2b(entry.pod.uid.encode(), digest_size=8, key=str(self.seed).encode()).digest()
        return (int.from_bytes(digest, "big") / 2.0**64,)


@dataclass(frozen=True, slots=True)
class PredictedShortestFirst:
    """QPSM's queue (Ou 2024, section 4.2): a sub-queue for each Job priority, with the shortest predicted job first.

    A pod that fails its first placement goes down one level (section 4.3), to the sub-queue of ``priority - 1``, and
    comes back after `age_back_seconds`. The paper lets short jobs overtake a long one for ever. Here, a job that waits
    longer than `overtaking_seconds` moves to the front of its sub-queue, the oldest first. Within a level, only jobs
    that arrive in a job's first `overtaking_seconds` (plus its time in demotion) overtake it.
    """

    age_back_seconds: float
    overtaking_seconds: float
    demotes: bool = True

    def key(self, entry: QueuedPod, now: float) -> Key:
        """Return (level, aged or not, predicted seconds or since when it waits)."""
        level = entry.pod.job_priority - (1 if self._demoted(entry, now) else 0)
        if now >= entry.since_seconds + self.overtaking_seconds:
            return (-level, 0, entry.since_seconds)
        return (-level, 1, entry.seconds_p50)

    def next_change(self, entry: QueuedPod, now: float) -> float | None:
        """Return when it ages back or moves to the front, whichever is next."""
        ages = entry.since_seconds + self.overtaking_seconds
        if entry.demoted_seconds is None:
            return ages if ages > now else None
        moments = (ages, entry.demoted_seconds + self.age_back_seconds)
        return min((moment for moment in moments if moment > now), default=None)

    def _demoted(self, entry: QueuedPod, now: float) -> bool:
        return entry.demoted_seconds is not None and now < entry.demoted_seconds + self.age_back_seconds


@dataclass(frozen=True, slots=True)
class ShortestFirst(_Constant):
    """Shortest predicted run time first (p50)."""

    demotes: bool = False

    def key(self, entry: QueuedPod, now: float) -> Key:
        """Return the predicted seconds."""
        del now
        return (entry.seconds_p50,)


BYTES_PER_MILLICORE: Final = (4 << 30) / 1000
"""Memory that counts as much as a millicore: 4 GiB a core, as in general-purpose machines (chosen)."""


def demand_of(entry: QueuedPod) -> float:
    """Return millicores: a pod's cpu, or its memory if that is the larger part of a usual machine."""
    memory = sum(amount for name, amount in entry.pod.requests if name in (MEMORY, RECLAIMED_MEMORY))
    return max(entry.shape.fit.millicores, memory / BYTES_PER_MILLICORE)


@dataclass(frozen=True, slots=True)
class SmallestDemandFirst(_Constant):
    """Smallest demand first (Naghshnejad 2019, section 3.2.2, SDF)."""

    demotes: bool = False

    def key(self, entry: QueuedPod, now: float) -> Key:
        """Return millicores."""
        del now
        return (demand_of(entry),)


@dataclass(frozen=True, slots=True)
class SmallestVolumeFirst(_Constant):
    """Smallest demand x predicted run time first (Naghshnejad 2019, section 3.2.1: d_j p_j).

    The demand of a pod is its cpu or its memory, whichever is the larger part of a usual machine.
    """

    demotes: bool = False

    def key(self, entry: QueuedPod, now: float) -> Key:
        """Return millicore-seconds."""
        del now
        return (demand_of(entry) * entry.seconds_p50,)
