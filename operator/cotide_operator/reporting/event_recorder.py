"""Kubernetes events about pods, in kube-scheduler's words, and about the forecasts of nodes.

The loop, the binder and the publisher of reclaimed capacity call it. Writes go through the low-priority dispatcher. A
repeated event raises the count of the stored one, and replaces its message where only counts differ. One pod gets a new
``FailedScheduling`` at most every `REPEAT_SECONDS`, whatever its attempts. Its repeats come ever later, like a series
in client-go. A waiting event is dropped when its pod is bound.

Most events are recorded once, when the state changes. A different message that comes too soon waits for the end of the
interval, and then the latest of them is written. After a failure that may pass, an event is written again a few times,
because no later event repeats it.

Invariant: an event never delays or stops a decision; lost events are counted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.timestamps import format_micro_timestamp, format_timestamp
from cotide_operator.apis.types import API_VERSION
from cotide_operator.cache.object_cache import namespace_of_key
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting.message_class import is_alike
from cotide_operator.scheduling.api_dispatcher import ApiDispatcher

_LOG = logging.getLogger(__name__)

COMPONENT: Final = "cotide"
FAILED: Final = "FailedScheduling"
REPEAT_SECONDS: Final = 15.0
"""Wall seconds between two events of one pod and reason; chosen."""
LONGEST_REPEAT_SECONDS: Final = 360.0
"""The maximum of that interval, which doubles with each repeat; client-go ends a series there (``finishTime``)."""
MESSAGE_LIMIT: Final = 1024
"""The API's own limit on an event's note, in bytes (`NoteLengthLimit`)."""
NAME_LIMIT: Final = 230
"""Characters of an object's name in the name of its event, which may have 253: the time takes 17."""
MAX_RETRIES: Final = 3
"""Retries of a failed write: the first after `REPEAT_SECONDS`, each other after twice as long, two minutes in all.
Chosen: an API server is upgraded in that time, and client-go tries for as long."""
REMEMBERED: Final = 4096
"""Latest events that are remembered for aggregation, as in client-go (`maxLruCacheEntries`): about 2 MB."""


class _About(msgspec.Struct, frozen=True, gc=False):
    """The object of an event; made for each binding, and read when the event is written."""

    kind: str
    key: str
    """``namespace/name``, or only the name of an object without a namespace."""
    uid: str
    api_version: str = "v1"
    component: str = COMPONENT
    """The reporting component: for a pod its scheduler's name, as in kube-scheduler's recorders, else `COMPONENT`."""


class _News(msgspec.Struct, frozen=True, gc=False):
    """The text of an event, and the wall second of its occurrence."""

    about: _About
    kind: str
    reason: str
    message: str
    happened: float
    failures: int = 0
    """Number of failed writes."""


_EventKey = tuple[str, str, str, str]
"""Identifies events that replace each other, and is their key in the dispatcher: ``event``, the uid, the reason and the
topic."""


@dataclass
class _Written:
    name: str
    message: str
    count: int
    wall_seconds: float


class EventRecorder:
    """Writes events; forgets the oldest when it remembers too many.

    Parameters
    ----------
    profile_of : a pod's key to the scheduler's name under which Cotide places or evicts it.
    """

    def __init__(
        self,
        client: KubeClient,
        dispatcher: ApiDispatcher,
        metrics: Metrics,
        profile_of: Callable[[str], str] = lambda _: COMPONENT,
    ) -> None:
        self._client = client
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._profile_of = profile_of
        self._written: dict[_EventKey, _Written] = {}
        self._early: dict[_EventKey, _News] = {}
        """The latest messages that wait: they came too soon after a remembered event, or could not be written."""
        self._write_one = self._write
        """Bound once: two objects fewer for each pod, which live until its event is written."""

    def scheduled(self, key: str, uid: str, node: str) -> None:
        """Record that a pod was bound."""
        self._drop_waiting(uid, FAILED)  # the pod no longer waits
        self._dispatcher.take_back(("event", uid, FAILED, ""))
        self._record(key, uid, "Normal", "Scheduled", f"Successfully assigned {key} to {node}")

    def at_risk(self, key: str, uid: str, message: str) -> None:
        """Report that an online pod was bound although a latency limit is predicted to break."""
        self._record(key, uid, "Warning", "LatencyLimitAtRisk", message)

    def failed(self, key: str, uid: str, message: str) -> None:
        """Record why a pod waits."""
        self._record(key, uid, "Warning", FAILED, message)

    def evicted(self, key: str, uid: str, message: str) -> None:
        """Record that a pod was evicted from its node."""
        self._record(key, uid, "Normal", "Evicted", message)

    def preempted(self, key: str, uid: str, message: str) -> None:
        """Record that a pod made room for another."""
        self._record(key, uid, "Normal", "Preempted", message)

    def forecast_trust(self, node: str, uid: str, *, trusted: bool, message: str) -> None:
        """Record that a node offers by its forecast again, or fell back to its pods' requests."""
        kind, reason = ("Normal", "ForecastTrustedAgain") if trusted else ("Warning", "FellBackToRequests")
        self.node(node, uid, kind, reason, message)

    def job(self, key: str, uid: str, reason: str, pod: str, message: str) -> None:
        """Record on a Cotide Job an event of one of its pods; each pod gets one, because several are often hit
        together."""
        self._write_soon(_About("Job", key, uid, API_VERSION), "Normal", reason, f"pod {pod}: {message}", topic=pod)

    def of_ours(self, kind: str, key: str, uid: str, level: str, reason: str, message: str, topic: str = "") -> None:
        """Record an event of a Cotide Job or Workload; each ``topic`` has events of its own."""
        self._write_soon(_About(kind, key, uid, API_VERSION), level, reason, message, topic=topic)

    def misconfigured(self, kind: str, key: str, uid: str, message: str, api_version: str) -> None:
        """Record that an object is left out, and why."""
        self._write_soon(_About(kind, key, uid, api_version), "Warning", "Misconfigured", message)

    def node(self, name: str, uid: str, kind: str, reason: str, message: str) -> None:
        """Record an event of a node."""
        self._write_soon(_About("Node", name, uid), kind, reason, message)

    def kueue_workload(
        self, key: str, uid: str, reason: str, message: str, api_version: str, *, instead_of: str
    ) -> None:
        """Record on a Workload of Kueue when its pods should start or be done.

        ``instead_of``: the reason of the outdated event, which is dropped if it still waits.
        """
        self._drop_waiting(uid, instead_of)
        self._dispatcher.take_back(("event", uid, instead_of, ""))  # else it would be written after the newer event
        self._write_soon(_About("Workload", key, uid, api_version), "Normal", reason, message)

    def node_order(self, key: str, order: str, kind: str, reason: str, message: str) -> None:
        """Record an event of a node order on the ConfigMap that holds it."""
        self._write_soon(_About("ConfigMap", key, ""), kind, reason, f"{order}: {message}", topic=order)

    def _record(self, key: str, uid: str, kind: str, reason: str, message: str) -> None:
        self._write_soon(_About("Pod", key, uid, component=self._profile_of(key)), kind, reason, message)

    def _write_soon(self, about: _About, kind: str, reason: str, message: str, topic: str = "") -> None:
        self._submit(("event", about.uid, reason, topic), _News(about, kind, reason, _cut(message), time.time()))

    def _submit(self, event_key: _EventKey, news: _News) -> None:
        before = self._written.get(event_key)
        seconds = 0.0 if before is None else _too_soon(before, news)
        if before is not None and seconds > 0.0:
            if before.message == news.message:
                self._early.pop(event_key, None)
                return
            waits = self._early.get(event_key)
            if waits is None or (_is_repeat(before, waits) and not _is_repeat(before, news)):  # this one is due sooner
                asyncio.get_running_loop().call_later(seconds, self._submit_later, event_key)
            self._early[event_key] = news
            return
        self._early.pop(event_key, None)
        if not self._dispatcher.submit(event_key, self._write_one, namespace_of_key(news.about.key), event_key, news):
            self._metrics.events_dropped.inc()

    def _drop_waiting(self, uid: str, reason: str) -> None:
        """Drop a waiting message that is outdated."""
        self._early.pop(("event", uid, reason, ""), None)

    def _submit_later(self, event_key: _EventKey) -> None:
        news = self._early.pop(event_key, None)
        if news is not None:
            self._submit(event_key, news)

    def _retry_later(self, event_key: _EventKey, news: _News) -> bool:
        """Keep a message for a later write after a failure; False when retries are used up, or a newer one waits."""
        if news.failures == MAX_RETRIES or event_key in self._early or len(self._early) >= REMEMBERED:
            return False
        seconds = REPEAT_SECONDS * 2.0**news.failures
        self._early[event_key] = replace(news, failures=news.failures + 1)
        asyncio.get_running_loop().call_later(seconds, self._submit_later, event_key)
        return True

    async def _write(self, event_key: _EventKey, news: _News) -> None:
        """Write an event with the time of its occurrence; the dispatcher may have held it back."""
        about, message, happened = news.about, news.message, news.happened
        body = _event(about, news.kind, news.reason, message, happened)
        path = f"/api/v1/namespaces/{body['metadata']['namespace']}/events"
        before = self._written.get(event_key)
        try:
            if before is not None and _is_repeat(before, news) and await self._count(path, before, message, happened):
                return
            await self._client.create(path, body)
        except ClusterError as error:  # the namespace may be in deletion: no reason to stop
            self._written.pop(event_key, None)
            if not (_may_pass(error) and self._retry_later(event_key, news)):
                self._metrics.events_dropped.inc()
            _LOG.debug("event %s of %s %s was not written: %s", news.reason, about.kind, about.key, error)
            return
        if event_key in self._early and self._early[event_key].happened < happened:
            del self._early[event_key]  # it waited for a retry, and is outdated
        self._written[event_key] = _Written(body["metadata"]["name"], message, 1, time.monotonic())
        while len(self._written) > REMEMBERED:
            del self._written[next(iter(self._written))]

    async def _count(self, path: str, before: _Written, message: str, happened: float) -> bool:
        """Raise the count of a stored event; False when the server no longer has it (after an hour, by default)."""
        before.count += 1
        before.wall_seconds = time.monotonic()
        patch: dict[str, Any] = {"count": before.count, "lastTimestamp": format_timestamp(happened)}
        if before.message != message:
            before.message = patch["message"] = message
        try:
            await self._client.patch(f"{path}/{before.name}", patch)
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        return True


def _may_pass(error: ClusterError) -> bool:
    """Whether the same write may succeed later: there was no answer, or one about the server and not the write."""
    return not isinstance(error, ApiError) or error.status in (401, 429) or error.status >= 500


def _cut(message: str) -> str:
    """Return as much of a message as the API takes: it counts bytes, and names may be of any script."""
    if len(message) * 4 <= MESSAGE_LIMIT or len(raw := message.encode(errors="replace")) <= MESSAGE_LIMIT:
        return message
    return raw[: MESSAGE_LIMIT - 3].decode(errors="ignore") + "..."


def _is_repeat(before: _Written, news: _News) -> bool:
    """Whether an event repeats the last one; reasons why a pod waits may differ in counts, all others must be equal."""
    if news.reason == FAILED:
        return is_alike(before.message, news.message)
    return before.message == news.message


def _too_soon(before: _Written, news: _News) -> float:
    """Return the seconds until a message may be written; 0 when it may be written now."""
    pause = REPEAT_SECONDS
    if news.reason == FAILED and _is_repeat(before, news):
        pause = min(LONGEST_REPEAT_SECONDS, REPEAT_SECONDS * 2.0 ** min(before.count - 1, 16))
    return max(0.0, before.wall_seconds + pause - time.monotonic())


def _event(about: _About, kind: str, reason: str, message: str, happened: float) -> dict[str, Any]:
    namespace, _, name = about.key.rpartition("/")
    second = format_timestamp(happened)
    involved = {
        "apiVersion": about.api_version,
        "kind": about.kind,
        "namespace": namespace,
        "name": name,
        "uid": about.uid,
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        # client-go's form of a unique name: the object's name and the time in hexadecimal nanoseconds. No part of a
        # name may end with a hyphen. Events of objects without a namespace are in ``default``, as those of the node
        # controller.
        "metadata": {
            "name": f"{name[:NAME_LIMIT].rstrip('-.')}.{time.time_ns():x}",
            "namespace": namespace or "default",
        },
        "involvedObject": {field: value for field, value in involved.items() if value},
        "type": kind,
        "reason": reason,
        "message": message,
        "count": 1,
        "firstTimestamp": second,
        "lastTimestamp": second,
        "eventTime": format_micro_timestamp(happened),
        "action": {"Scheduled": "Binding"}.get(reason, "Scheduling" if about.kind == "Pod" else "Forecasting"),
        "source": {"component": about.component},
        "reportingComponent": about.component,
        "reportingInstance": about.component,
    }
