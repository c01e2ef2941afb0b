"""Reports pods that hold a node and do not start, and invalid specs: metrics, and events of their Job or Workload.

`assembly` makes it for one term of leadership. Both controllers call it after a status was written, and the cache calls
it with each pod. It also counts foreign pods with a class of Cotide: a node with hanging pulls concerns the platform,
whatever the pod's owner. Invariant: a metric's label is never a name or a word from a tenant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import takewhile
from typing import Any, Final, NamedTuple, Protocol

from cotide_core.classes import CLASS_LABEL, WorkloadClass
from cotide_core.instructions import WaitReason
from cotide_kube.objects import PodObject
from cotide_operator.cache.object_cache import Kind, ObjectCache
from cotide_operator.clock import Clock
from cotide_operator.controllers.child_pods import CANNOT_START as REFUSALS
from cotide_operator.controllers.child_pods import ChildPod, what_is_created, why_it_cannot_start
from cotide_operator.controllers.starts.start_conditions import STARTED
from cotide_operator.controllers.starts.start_times import SLOW_SECONDS
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting.event_recorder import EventRecorder

CREATING: Final = "Creating"
"""Reason of a pod that has waited `SLOW_SECONDS` for the creation of its containers, without a kubelet error."""
_CLASSES: Final = frozenset(one.value for one in WorkloadClass)


class StartReports(Protocol):
    """A controller's reports about starts."""

    def changed(self, kind: str, key: str, uid: str, before: Iterable[Any], after: Iterable[Any]) -> None:
        """Report that the conditions of a Job or Workload changed."""
        ...

    def gave_up(self, key: str, uid: str, pod: ChildPod, workload_class: str) -> None:
        """Report that a pod of a Job was not started in time, counts as a failure and is deleted."""
        ...


class NoReports:
    """Reports nothing."""

    def changed(self, kind: str, key: str, uid: str, before: Iterable[Any], after: Iterable[Any]) -> None:
        """Do nothing."""

    def gave_up(self, key: str, uid: str, pod: ChildPod, workload_class: str) -> None:
        """Do nothing."""


NO_REPORTS: Final = NoReports()


class _Waiting(NamedTuple):
    uid: str
    obstacle: tuple[str, str]
    """Class of the pod, and the reason."""
    since_seconds: float


class StartReporter:
    """Counts pods that do not start, and records events about them; see the module."""

    def __init__(self, cache: ObjectCache, recorder: EventRecorder, metrics: Metrics, clock: Clock) -> None:
        self._cache, self._recorder, self._metrics, self._clock = cache, recorder, metrics, clock
        self._waiting: dict[str, _Waiting] = {}
        self._since: dict[tuple[str, str], dict[str, float]] = {}
        """Pods with their times in rising order, by class and reason. Each scrape asks for every pair, and a tenant may
        have ten thousand such pods."""
        for workload_class in sorted(_CLASSES):
            for reason in (*sorted(REFUSALS), CREATING):
                shown = metrics.pods_not_starting.labels(workload_class, reason)
                shown.set_function(partial(self._count, workload_class, reason))
        for key in cache.pods:
            self._see(key)
        cache.subscribe(self._pod_changed)

    def _pod_changed(self, kind: Kind, key: str) -> None:
        if kind == "pods" and key:
            self._see(key)

    def _see(self, key: str) -> None:
        """Update a pod's state; for a running pod, the usual case, this only checks the phase."""
        pod = self._cache.pods.get(key)
        found = self._obstacle(pod) if pod is not None and pod.status.phase == "Pending" else None
        before = self._waiting.get(key)
        if before is not None and (pod is None or before[:2] != (pod.metadata.uid, found)):
            del self._waiting[key]
            del self._since[before.obstacle][key]
            before = None
        if pod is not None and found is not None and before is None:
            now = self._clock.now()
            self._waiting[key] = _Waiting(pod.metadata.uid, found, now)
            self._since.setdefault(found, {})[key] = now

    @staticmethod
    def _obstacle(pod: PodObject) -> tuple[str, str] | None:
        """Return the class of a pod that is not started, and the reason; None for a pod that does not wait for its
        kubelet."""
        workload_class = pod.metadata.labels.get(CLASS_LABEL, "")
        if workload_class not in _CLASSES or not pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
            return None
        refusal = why_it_cannot_start(pod.status)
        if refusal or what_is_created(pod):
            return workload_class, _reason_in(refusal)
        return None

    def _count(self, workload_class: str, reason: str) -> int:
        since = self._since.get((workload_class, reason), {})
        if reason != CREATING:
            return len(since)
        latest = self._clock.now() - SLOW_SECONDS
        return sum(1 for _ in takewhile(lambda since_seconds: since_seconds <= latest, since.values()))

    def changed(self, kind: str, key: str, uid: str, before: Iterable[Any], after: Iterable[Any]) -> None:
        """Record that a Job or Workload has an invalid spec, that its pods do not start, or that they start again."""
        before, after = list(before), list(after)
        fault = _fault(after)
        if fault and fault != _fault(before):
            self._recorder.of_ours(kind, key, uid, "Warning", WaitReason.MISCONFIGURED.value, fault)
        was, now = _started(before), _started(after)
        if now is None or (was is not None and _gist(was) == _gist(now)):
            return
        trouble = now.get("status") == "False"
        reason, level = str(now.get("reason")), "Warning" if trouble else "Normal"
        self._recorder.of_ours(kind, key, uid, level, f"Pods{reason}", str(now.get("message")))

    def gave_up(self, key: str, uid: str, pod: ChildPod, workload_class: str) -> None:
        """Record that a pod of a Job was not started in time, counts as a failure and is deleted."""
        self._metrics.starts_given_up.labels(workload_class, _reason_in(pod.cannot_start)).inc()
        why = pod.cannot_start or pod.creating
        message = f"pod {pod.name} on {pod.node} was not started in time and is deleted: {why}"
        self._recorder.of_ours("Job", key, uid, "Warning", "PodGivenUp", message, topic=pod.name)


def _reason_in(refusal: str) -> str:
    """Return the kubelet's reason for a pod that does not start, one of few words."""
    return refusal.partition(":")[0] if refusal else CREATING


def _fault(conditions: Iterable[Any]) -> str:
    """Return the fault of a spec that allows no pod; empty for a valid spec."""
    scheduled: Mapping[str, Any] = next(
        (condition for condition in conditions if condition.get("type") == "Scheduled"), {}
    )
    return str(scheduled.get("message")) if scheduled.get("reason") == WaitReason.MISCONFIGURED.value else ""


def _started(conditions: Iterable[Any]) -> Mapping[str, Any] | None:
    return next((condition for condition in conditions if condition.get("type") == STARTED), None)


def _gist(condition: Mapping[str, Any]) -> tuple[Any, Any]:
    return condition.get("status"), condition.get("reason")
