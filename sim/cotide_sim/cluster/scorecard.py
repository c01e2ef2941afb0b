"""The figures for the comparison of policies: waiting, violations, use of cpu, finished jobs.

Called by `world` (virtual time) and by the live demo with their observations, so that both use the same arithmetic.
Last step of the flow. Invariant: pure; times are simulated seconds and never go back; observing the same fact of a pod
again changes nothing. A pod is named by any key that is never used for another pod.

- Waiting is summed over every batch and gratis pod: from arrival to start, or to the end of the run or its deletion if
  it never started.
- An online pod's latest sample holds until its next one, at most for `HOLD_SECONDS`. The violation ratio is the time
  over the limit as a share of the time with a sample, over all online pods.
- A service without a ready pod is over its limit: from its arrival on, that time counts once for each of its replicas,
  in both sums.
- Cpu in use is the mean over time of the cluster's share; each observation holds until the next.
- An overload slot is a slot of a node with at least one observed overload. Then the usage of its online pods and the
  allocation of its batch and gratis pods exceed the node's cpu or memory (Jiang et al., section I). Slots lie end to
  end from the start of the run.
- Online evictions are evicted pods of class online, with any cause.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypedDict

import numpy as np
from numpy.typing import NDArray

from cotide_core.classes import WorkloadClass

HOLD_SECONDS: Final = 60.0
"""A sample expires at this age; chosen above every sampling period in use."""
SLOT_SECONDS: Final = 300.0
"""Slot of Jiang et al., the default for counting overloads."""
ROUNDING: Final = 1.0 + 1e-9
"""A load that equals the capacity, summed in floats, is no overload."""


class Summary(TypedDict):
    """The figures of one run; times are simulated seconds."""

    pods_bound: int
    jobs_finished: int
    waiting_seconds_total: float
    waiting_seconds_mean: float
    qos_violation_ratio: float
    cpu_utilisation: float
    evictions: int
    overload_slots: int
    online_evictions: int
    services_never_ran: list[str]
    """Services that arrived and never had a ready pod, sorted."""
    online_pods_waiting: int
    """Online pods without a node at the end."""


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """The load and the capacity of a node, in millicores and bytes: real use of online pods, allocation of all
    others.
    """

    node: str
    online_millicores: float
    online_memory_bytes: float
    allocated_millicores: float
    allocated_memory_bytes: float
    millicores: float
    memory_bytes: float

    @property
    def overloaded(self) -> bool:
        """Whether the load exceeds the capacity, of cpu or of memory."""
        cpu = self.online_millicores + self.allocated_millicores
        memory = self.online_memory_bytes + self.allocated_memory_bytes
        return cpu > self.millicores * ROUNDING or memory > self.memory_bytes * ROUNDING


def overloaded(load: NDArray[np.float64], capacity: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return (N,) `NodeLoad.overloaded` of nodes by their (2, N) load of cpu and memory, and the (2, 1) capacity of
    each.
    """
    return np.asarray((load > capacity * ROUNDING).any(axis=0))


@dataclass(slots=True)
class _Service:
    name: str
    over: bool = False
    since: float | None = None
    measured_seconds: float = 0.0
    over_seconds: float = 0.0

    def book(self, now: float) -> None:
        """Count the latest sample up to now."""
        if self.since is not None:
            stood = min(max(0.0, now - self.since), HOLD_SECONDS)
            self.measured_seconds += stood
            self.over_seconds += stood if self.over else 0.0
            self.since = None


@dataclass(slots=True)
class _Presence:
    """Whether a service that arrived has a ready pod."""

    replicas: int
    absent_since: float | None
    ready: set[str] = field(default_factory=set)
    absent_seconds: float = 0.0
    ran: bool = False

    def book(self, now: float) -> None:
        """Count the absence up to now."""
        if self.absent_since is not None:
            self.absent_seconds += max(0.0, now - self.absent_since)
            self.absent_since = max(self.absent_since, now)

    @property
    def pod_seconds(self) -> float:
        """Time without a ready pod, once for each replica."""
        return self.replicas * self.absent_seconds


class Scorecard:
    """Collects the facts of one run that began at ``start_seconds``; earlier facts do not count.

    Overloads are counted in slots of ``slot_seconds``.
    """

    def __init__(self, start_seconds: float = 0.0, *, slot_seconds: float = SLOT_SECONDS) -> None:
        self._start = start_seconds
        self._slot_seconds = slot_seconds
        self._classes: dict[str, WorkloadClass] = {}
        self._overloads: set[tuple[str, int]] = set()
        self._waiting_since: dict[str, float] = {}
        self._waited_until: dict[str, float] = {}
        self._bound: set[str] = set()
        self._evicted: set[str] = set()
        self._job_pods: dict[str, int] = {}
        self._succeeded: dict[str, set[str]] = {}
        self._services: dict[str, _Service] = {}
        self._presence: dict[str, _Presence] = {}
        self._gone: set[str] = set()
        self._cpu: tuple[float, float] | None = None
        self._cpu_area = self._cpu_seconds = 0.0

    def observe_job(self, job: str, completions: int) -> None:
        """A job exists that is finished once ``completions`` of its pods succeeded."""
        self._job_pods.setdefault(job, completions)

    def observe_arrival(self, pod: str, workload_class: WorkloadClass, now_seconds: float) -> None:
        """A pod appeared; a batch or gratis pod waits from now."""
        self._classes.setdefault(pod, workload_class)
        if workload_class is not WorkloadClass.ONLINE:
            self._waiting_since.setdefault(pod, now_seconds)

    def observe_service_arrival(self, service: str, replicas: int, now_seconds: float) -> None:
        """A service exists that wants this number of replicas; until one is ready it is over its limit."""
        self._presence.setdefault(service, _Presence(replicas, max(self._start, now_seconds)))

    def observe_ready(self, pod: str, service: str, now_seconds: float) -> None:
        """A pod of a service that arrived is ready to serve."""
        known = self._presence.get(service)
        if known is not None:
            known.book(now_seconds)
            known.absent_since, known.ran = None, True
            known.ready.add(pod)

    def observe_unready(self, pod: str, service: str, now_seconds: float) -> None:
        """A pod of a service does not serve any more."""
        known = self._presence.get(service)
        if known is not None and pod in known.ready:
            known.ready.remove(pod)
            if not known.ready:
                known.absent_since = max(self._start, now_seconds)

    def observe_bound(self, pod: str, now_seconds: float) -> None:
        """A pod of any class was bound to a node."""
        del now_seconds
        self._bound.add(pod)

    def observe_started(self, pod: str, now_seconds: float) -> None:
        """A pod started to run, and its waiting ends."""
        self._waited_until.setdefault(pod, now_seconds)

    def observe_succeeded(self, pod: str, job: str) -> None:
        """A pod of a job ended well."""
        self._succeeded.setdefault(job, set()).add(pod)

    def observe_evicted(self, pod: str, now_seconds: float) -> None:
        """A pod was evicted from its node."""
        del now_seconds
        self._evicted.add(pod)

    def observe_gone(self, pod: str, now_seconds: float) -> None:
        """A pod was deleted: it neither waits nor serves any more."""
        self._waited_until.setdefault(pod, now_seconds)
        self._gone.add(pod)
        if pod in self._services:
            self._services[pod].book(now_seconds)

    def observe_service(self, pod: str, service: str, *, over_limit: bool, now_seconds: float) -> None:
        """An online pod's p95 latency was measured and compared with its service's limit."""
        known = self._services.get(pod)
        if known is None:
            known = self._services[pod] = _Service(service)
        known.book(now_seconds)
        known.over, known.since = over_limit, max(self._start, now_seconds)

    def observe_cpu(self, share: float, now_seconds: float) -> None:
        """The cluster's use of cpu was measured, as a share of its capacity in [0, 1]."""
        self._book_cpu(now_seconds)
        self._cpu = (max(self._start, now_seconds), share)

    def observe_node(self, load: NodeLoad, now_seconds: float) -> None:
        """The load of a node was measured."""
        if now_seconds >= self._start and load.overloaded:
            self._overloads.add((load.node, int((now_seconds - self._start) // self._slot_seconds)))

    def overload_slots(self) -> int:
        """Return the overload slots so far."""
        return len(self._overloads)

    def violation_ratio_by_service(self) -> dict[str, float]:
        """Return the share of time over the limit of each service, by name, as of the last `summary`."""
        totals = {name: (presence.pod_seconds, presence.pod_seconds) for name, presence in self._presence.items()}
        for pod in self._services.values():
            over, measured = totals.get(pod.name, (0.0, 0.0))
            totals[pod.name] = (over + pod.over_seconds, measured + pod.measured_seconds)
        return {name: over / measured if measured > 0 else 0.0 for name, (over, measured) in sorted(totals.items())}

    def summary(self, end_seconds: float) -> Summary:
        """Return the figures up to ``end_seconds``, the end of the run; open intervals count up to there."""
        for service in self._services.values():
            service.book(end_seconds)
        for presence in self._presence.values():
            presence.book(end_seconds)
        absent = sum(presence.pod_seconds for presence in self._presence.values())
        self._book_cpu(end_seconds)
        waiting = sum(
            max(0.0, min(self._waited_until.get(pod, end_seconds), end_seconds) - since)
            for pod, since in self._waiting_since.items()
        )
        measured = absent + sum(service.measured_seconds for service in self._services.values())
        over = absent + sum(service.over_seconds for service in self._services.values())
        unbound = self._classes.keys() - self._bound - self._gone
        return Summary(
            pods_bound=len(self._bound),
            jobs_finished=sum(len(self._succeeded.get(job, ())) >= pods for job, pods in self._job_pods.items()),
            waiting_seconds_total=waiting,
            waiting_seconds_mean=waiting / len(self._waiting_since) if self._waiting_since else 0.0,
            qos_violation_ratio=over / measured if measured > 0 else 0.0,
            cpu_utilisation=self._cpu_area / self._cpu_seconds if self._cpu_seconds > 0 else 0.0,
            evictions=len(self._evicted),
            overload_slots=len(self._overloads),
            online_evictions=sum(self._classes.get(pod) is WorkloadClass.ONLINE for pod in self._evicted),
            services_never_ran=sorted(name for name, presence in self._presence.items() if not presence.ran),
            online_pods_waiting=sum(self._classes[pod] is WorkloadClass.ONLINE for pod in unbound),
        )

    def _book_cpu(self, now: float) -> None:
        if self._cpu is not None:
            since, share = self._cpu
            stood = max(0.0, now - since)
            self._cpu_area += share * stood
            self._cpu_seconds += stood
            self._cpu = (max(since, now), share)
