"""The pods of all fake nodes and their fates: the kubelets' state machine, without any I/O.

Called by `fleet` with the objects of the API server and with the time; writes go to `outbox`.

::

    bound --> refused                        (Failed: OutOfcpu, NodeAffinity, a bad annotation)
      |
      v
    running --> Succeeded | Failed           (work done, exit code, or its active deadline)
      |  ^
      |  `-- back-off                        (container ended, restartPolicy allows it)
      v
    stopping --> Succeeded | Failed --> let go (deletionTimestamp: deleted, evicted, preempted)

A running pod may be resized (`resizing`): a node counts the granted resources, and retries deferred resizes when room
is given back. The pod's work goes on as before. The API may show a running pod as not ready, since the node controller
takes readiness from the pods of a node that seems dead. Its status is then sent again, as by a kubelet that is back.
The end of a pod is reported before it is let go, as a kubelet does: a finalizer may keep the pod for its readers.
Invariants: a node's room counts exactly the residents that are not finished. Pods are distinguished by uid, so that a
new one of the same name never inherits any state. Pods that already run when they are first seen are adopted from an
earlier process of the fake nodes, and go on from their start time. Times are simulated seconds.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from cotide_core.errors import InputError
from cotide_kube.objects import PodObject
from cotide_kube.timestamps import format_timestamp
from cotide_sim.cluster.machine import Finished, MachinePark, PodLoad
from cotide_sim.kubelets import statuses
from cotide_sim.kubelets.actions import Action, RemovePod, WriteStatus
from cotide_sim.kubelets.admission import NodeRoom, Refusal, pod_requests
from cotide_sim.kubelets.adoption import adopted, as_set
from cotide_sim.kubelets.clock import SimulatedClock
from cotide_sim.kubelets.loads import pod_load
from cotide_sim.kubelets.resizing import DEFERRED, RESIZE_SECONDS, Held, as_json, conditions, held_by, obstacle
from cotide_sim.kubelets.statuses import ContainerRun, PodSite

_LOG = logging.getLogger(__name__)

STOP_SECONDS: Final = 1.0
"""Time from the stop of a pod to its end, if its grace period allows that long; chosen."""
BACK_OFF_SECONDS: Final = (10.0, 300.0)
"""First and longest wait before a container is started again: a kubelet's own values."""
RECONCILE_SECONDS: Final = 10.0
"""Period after which a status that another client changed is sent again: a kubelet's own period
(pkg/kubelet/status).
"""
_TERMINAL: Final = frozenset({"Succeeded", "Failed"})


_Timer = Literal["stop", "restart", "deadline", "set", "reconcile"]


@dataclass(slots=True)
class _Resident:
    uid: str
    node: str
    requests: dict[str, int]
    load: PodLoad
    site: PodSite
    restart_policy: str
    started: float
    since: float
    """Start of the container's latest run."""
    restarts: int = 0
    last: ContainerRun | None = None
    stopping: bool = False
    back_off_seconds: float | None = None
    """While the container waits for its next run."""
    wanted: Held = ()
    wanted_requests: dict[str, int] = field(default_factory=dict)
    granted: Held = ()
    pending: Refusal | None = None
    setting: bool = False
    """A grant is on its way to the containers."""
    resized: bool = False
    """Conditions of resizes were written, and must be removed when they no longer hold."""
    ready_since: float | None = None
    """When readiness was restored after another client took it; None where this did not happen in this run of its
    container.
    """
    unready: bool = False
    """The API shows it as not ready, and a timer is set to send the status again."""


class Residents:
    """All pods on all fake nodes.

    Parameters
    ----------
    park : MachinePark
        The physics.
    clock : SimulatedClock
        Only to write times as wall times.
    """

    def __init__(self, park: MachinePark, clock: SimulatedClock) -> None:
        self._park, self._clock = park, clock
        self._rooms: dict[str, NodeRoom] = {}
        self._host_ips: dict[str, str] = {}
        self._residents: dict[str, _Resident] = {}
        self._settled: set[str] = set()
        """Uids of pods that ended or were refused, so that echoes from before our write have no effect."""
        self._removed: set[str] = set()
        """Uids of pods with a requested removal; finalizers may keep them in the API for long."""
        self._timers: list[tuple[float, str, str, _Timer]] = []
        self._deferred: dict[str, dict[str, None]] = {}
        """By node the pods with a deferred resize, the longest first."""
        self._addresses = 0
        self.outbox: list[Action] = []
        self.started_total = self.finished_total = self.refused_total = 0

    def __len__(self) -> int:
        return len(self._residents)

    def rooms(self) -> list[NodeRoom]:
        """Return the capacity of each node, and the part that its kubelet counts as taken."""
        return list(self._rooms.values())

    def add_node(self, room: NodeRoom, host_ip: str) -> None:
        """Add a node, or give a known one its present size, labels and taints; its pods stay."""
        name, known = room.name, self._rooms.get(room.name)
        if known is not None:
            known.allocatable, known.labels, known.taints = room.allocatable, room.labels, room.taints
            known.pressure = room.pressure
            return
        self._rooms[name], self._host_ips[name] = room, host_ip

    def remove_node(self, name: str, now: float) -> None:
        """Remove a node; its pods stop and are removed, as a cluster's garbage collector would do it."""
        self._rooms.pop(name, None)
        for key, resident in [item for item in self._residents.items() if item[1].node == name]:
            self._leave(key, resident, now)
            self.outbox.append(RemovePod(key, resident.uid))
        self._park.remove_node(name)

    def observe_all(self, pods: Iterable[PodObject], now: float) -> None:
        """Observe the pods of a first list: running pods keep their room before others are admitted."""
        order = sorted(pods, key=lambda pod: (pod.status.phase != "Running", pod.metadata.creation_timestamp or ""))
        for pod in order:
            self.observe(pod, now)

    def observe(self, pod: PodObject, now: float) -> None:
        """Take note of a pod as the API server shows it."""
        room = self._rooms.get(pod.spec.node_name)
        if room is None:
            return
        metadata = pod.metadata
        key, uid = f"{metadata.namespace}/{metadata.name}", metadata.uid
        resident = self._residents.get(key)
        if resident is not None and resident.uid != uid:
            self._leave(key, resident, now)
            resident = None
        if metadata.deletion_timestamp is not None:
            self._stop(key, uid, resident, metadata.deletion_grace_period_seconds, now)
        elif pod.status.phase in _TERMINAL:
            if resident is not None:
                self._leave(key, resident, now)
        elif resident is None and uid not in self._settled and uid not in self._removed:
            self._admit(pod, key, room, now)
        elif resident is not None and not resident.stopping and held_by(pod.spec) != resident.wanted:
            resident.wanted = held_by(pod.spec)
            self._resize(key, resident, pod_requests(pod.spec), now)
        resident = self._residents.get(key)
        if resident is not None and not resident.stopping:
            self._compare(key, resident, pod, now)

    def succeed(self, pod: PodObject, now: float) -> None:
        """Let a pod end its work now, where its work is not that of `MachinePark`."""
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        resident = self._residents.get(key)
        if resident is not None and resident.uid == pod.metadata.uid and not resident.stopping:
            self._finish(key, resident, now, 0)

    def vanish(self, pod: PodObject, now: float) -> None:
        """Take note that a pod is gone from the API."""
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        resident = self._residents.get(key)
        if resident is not None and resident.uid == pod.metadata.uid:
            self._leave(key, resident, now)
        self._settled.discard(pod.metadata.uid)
        self._removed.discard(pod.metadata.uid)

    def advance(self, now: float) -> None:
        """Let time pass: finish pods with completed work, and fire stops, restarts and deadlines that are due."""
        for finished in self._park.advance(now):
            self._ended(finished)
        while self._timers and self._timers[0][0] <= now:
            at, key, uid, what = heapq.heappop(self._timers)
            resident = self._residents.get(key)
            if resident is None or resident.uid != uid:
                continue
            if what == "stop":
                self._conclude(key, resident, now, statuses.KILLED_EXIT_CODE)
                self._let_go(key, uid)
            elif what == "restart" and not resident.stopping:
                self._restart(key, resident, at)
            elif what == "deadline" and not resident.stopping:
                self._overdue(key, resident, at)
            elif what == "set" and resident.setting:
                self._set(key, resident, at)
            elif what == "reconcile" and resident.unready:
                self._give_readiness_back(key, resident, at)

    def next_event(self) -> float | None:
        """Return the next due time if nothing changes before, or None."""
        times = [self._timers[0][0]] if self._timers else []
        finish = self._park.next_finish()
        if finish is not None:
            times.append(finish)
        return min(times, default=None)

    def _admit(self, pod: PodObject, key: str, room: NodeRoom, now: float) -> None:
        uid, spec = pod.metadata.uid, pod.spec
        try:
            before = adopted(pod)
            if before is not None:
                spec = as_set(pod)
            requests = pod_requests(spec)
            load = pod_load(pod, requests, self._park.interference)
        except InputError as error:
            self._refuse(key, uid, Refusal("InvalidPod", str(error)), now)
            return
        refusal = None if before is not None else room.refusal(spec, requests)
        if refusal is not None:
            self._refuse(key, uid, refusal, now)
            return
        started = since = now
        restarts = 0
        if before is not None:
            started = min(now, self._clock.from_wall(before.started_seconds))
            since = min(now, self._clock.from_wall(before.since_seconds))
            restarts = before.restarts
        left = load
        if load.isolated_seconds is not None:
            # Adopted: its progress under contention is unknown; the time it ran counts as if it had run alone.
            left = replace(load, isolated_seconds=max(0.0, load.isolated_seconds - (now - since)))
        containers = tuple(
            (container.name, container.image, as_json(container.resources)) for container in spec.containers
        )
        site = PodSite(self._host_ips[spec.node_name], pod.status.pod_ip or self._next_address(), containers)
        resident = _Resident(uid, spec.node_name, requests, load, site, spec.restart_policy, started, since, restarts)
        resident.wanted = resident.granted = held_by(spec)
        self._residents[key] = resident
        room.take(requests)
        self._park.start_pod(resident.node, left, now)
        if spec.active_deadline_seconds is not None:
            self._timer(started + spec.active_deadline_seconds, key, uid, "deadline")
        if before is None:
            self.started_total += 1
            self.outbox.append(WriteStatus(key, uid, self._status(resident, now)))
        elif held_by(pod.spec) != resident.wanted:
            resident.wanted = held_by(pod.spec)
            self._resize(key, resident, pod_requests(pod.spec), now)

    def _refuse(self, key: str, uid: str, refusal: Refusal, now: float) -> None:
        self.refused_total += 1
        self._settled.add(uid)
        _LOG.info("refused %s: %s: %s", key, refusal.reason, refusal.message)
        self.outbox.append(WriteStatus(key, uid, statuses.refused(refusal, self._clock.to_wall(now))))

    def _stop(self, key: str, uid: str, resident: _Resident | None, grace: int | None, now: float) -> None:
        if resident is None:
            if uid not in self._removed:
                self._let_go(key, uid)
        elif not resident.stopping:
            resident.stopping = True
            self._timer(now + min(STOP_SECONDS, STOP_SECONDS if grace is None else grace), key, uid, "stop")

    def _ended(self, finished: Finished) -> None:
        resident = self._residents[finished.key]
        code, at = finished.exit_code, finished.at_seconds
        if resident.stopping:
            self._finish(finished.key, resident, at, code)
            self._let_go(finished.key, resident.uid)
            return
        again = resident.restart_policy == "Always" or (resident.restart_policy == "OnFailure" and code != 0)
        if again:
            first, longest = BACK_OFF_SECONDS
            wait = min(longest, first * 2.0 ** min(resident.restarts, 10))
            resident.restarts += 1
            self._timer(at + wait, finished.key, resident.uid, "restart")
            resident.last = ContainerRun(self._wall(resident.since), self._wall(at), code)
            resident.back_off_seconds = wait
            self.outbox.append(WriteStatus(finished.key, resident.uid, self._status(resident, at)))
            return
        self._finish(finished.key, resident, at, code)

    def _finish(
        self, key: str, resident: _Resident, at: float, code: int, *, reason: str = "", message: str = ""
    ) -> None:
        self.finished_total += 1
        self._conclude(key, resident, at, code, reason=reason, message=message)

    def _conclude(
        self, key: str, resident: _Resident, at: float, code: int, *, reason: str = "", message: str = ""
    ) -> None:
        """Give up a pod's room, and report how it ended."""
        self._leave(key, resident, at)
        self._settled.add(resident.uid)
        status = statuses.finished(
            resident.site,
            self._wall(resident.started),
            ContainerRun(self._wall(resident.since), self._wall(at), code),
            resident.restarts,
            reason=reason,
            message=message,
        )
        if resident.resized:
            status["conditions"] = [*status["conditions"], *conditions(None, in_progress=False, at="")]
        self.outbox.append(WriteStatus(key, resident.uid, status))

    def _resize(self, key: str, resident: _Resident, requests: dict[str, int], now: float) -> None:
        """Answer a resize request: grant, defer or refuse it."""
        room = self._rooms.get(resident.node)
        if room is None:
            return
        resident.wanted_requests = requests
        waiting = self._deferred.setdefault(resident.node, {})
        refusal = obstacle(room, resident.requests, requests)
        before = (resident.pending, resident.setting)
        resident.pending = refusal
        if refusal is not None and refusal.reason == DEFERRED:
            waiting.setdefault(key)
        else:
            waiting.pop(key, None)
        if refusal is None:
            room.give_back(resident.requests)
            room.take(requests)
            resident.requests, resident.granted, resident.setting = requests, resident.wanted, True
            self._timer(now + RESIZE_SECONDS, key, resident.uid, "set")
        if before != (resident.pending, resident.setting):
            resident.resized = True
            self.outbox.append(WriteStatus(key, resident.uid, self._status(resident, now)))
        if refusal is None:
            self._retry(resident.node, now)

    def _set(self, key: str, resident: _Resident, at: float) -> None:
        """Give the containers the granted resources."""
        resident.setting = False
        granted = dict(resident.granted)
        shown = tuple((name, image, as_json(granted[name])) for name, image, _ in resident.site.containers)
        resident.site = replace(resident.site, containers=shown)
        self.outbox.append(WriteStatus(key, resident.uid, self._status(resident, at)))

    def _compare(self, key: str, resident: _Resident, pod: PodObject, now: float) -> None:
        """Note whether the API shows a pod as not ready while its container runs; our own status may still be on its
        way.
        """
        ready = next((condition.status for condition in pod.status.conditions if condition.type == "Ready"), "")
        unready = ready == "False" and resident.back_off_seconds is None
        if unready and not resident.unready:
            self._timer(now + RECONCILE_SECONDS, key, resident.uid, "reconcile")
        resident.unready = unready

    def _give_readiness_back(self, key: str, resident: _Resident, at: float) -> None:
        resident.unready = False
        if resident.back_off_seconds is None:
            resident.ready_since = at
            self.outbox.append(WriteStatus(key, resident.uid, self._status(resident, at)))

    def _retry(self, node: str, now: float) -> None:
        """Retry the deferred resizes of a node: room was given back."""
        for key in list(self._deferred.get(node, ())):
            resident = self._residents.get(key)
            if resident is None or resident.stopping:
                self._deferred[node].pop(key, None)
            elif key in self._deferred[node]:
                self._resize(key, resident, resident.wanted_requests, now)

    def _status(self, resident: _Resident, now: float) -> statuses.Status:
        """Return the status of a resident that has not ended."""
        started = self._wall(resident.started)
        if resident.back_off_seconds is not None and resident.last is not None:
            status = statuses.waiting_to_restart(
                resident.site, started, resident.last, resident.restarts, resident.back_off_seconds
            )
        else:
            since = self._wall(resident.since)
            ready = since if resident.ready_since is None else self._wall(resident.ready_since)
            status = statuses.running(resident.site, started, since, resident.restarts, resident.last, ready=ready)
        if resident.resized:
            at = format_timestamp(self._wall(now))
            more = conditions(resident.pending, in_progress=resident.setting, at=at)
            status["conditions"] = [*status["conditions"], *more]
        return status

    def _let_go(self, key: str, uid: str) -> None:
        self._removed.add(uid)
        self.outbox.append(RemovePod(key, uid))

    def _restart(self, key: str, resident: _Resident, at: float) -> None:
        resident.since, resident.back_off_seconds, resident.ready_since = at, None, None
        self._park.start_pod(resident.node, resident.load, at)
        self.outbox.append(WriteStatus(key, resident.uid, self._status(resident, at)))

    def _overdue(self, key: str, resident: _Resident, at: float) -> None:
        self._finish(
            key,
            resident,
            at,
            statuses.KILLED_EXIT_CODE,
            reason="DeadlineExceeded",
            message="Pod was active on the node longer than the specified deadline",
        )

    def _leave(self, key: str, resident: _Resident, now: float) -> None:
        del self._residents[key]
        self._park.stop_pod(key, now)
        room = self._rooms.get(resident.node)
        if room is not None:
            room.give_back(resident.requests)
            self._deferred.get(resident.node, {}).pop(key, None)
            self._retry(resident.node, now)

    def _timer(self, at: float, key: str, uid: str, what: _Timer) -> None:
        heapq.heappush(self._timers, (at, key, uid, what))

    def _wall(self, seconds: float) -> float:
        return self._clock.to_wall(seconds)

    def _next_address(self) -> str:
        self._addresses = self._addresses % 0xFFFFFE + 1
        number = self._addresses
        return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
