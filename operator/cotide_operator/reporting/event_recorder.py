"""Kubernetes events about pods, in kube-scheduler's words, and about the forecasts of nodes.

Called by the loop, the binder and the publisher of reclaimed capacity; written through the low-priority dispatcher. A
repeated event raises the count of the one that is there, and takes over its message where that differs in counts only.
One pod gets a new ``FailedScheduling`` at most every `REPEAT_SECONDS`, whatever its attempts, and repeats of one ever
later, as a series of client-go's. One that still waits when its pod is bound is not written. Most is said once, when
it changes: other words that come sooner wait until then, and the latest of them are written. So is, a few times, what
the server may take later: nothing says it again.
Invariant: an event never delays or stops a decision; what could not be written is counted.
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
"""The same after many repeats, each of which doubles them: what ends a series in client-go (``finishTime``)."""
MESSAGE_LIMIT: Final = 1024
"""The API's own limit on an event's note, in bytes (`NoteLengthLimit`)."""
NAME_LIMIT: Final = 230
"""Characters of an object's name in that of its event, which may have 253: the time takes 17."""
MAX_RETRIES: Final = 3
"""After a write that failed, the first `REPEAT_SECONDS` later and each after twice as long: they come to two minutes.
Chosen: an API server is upgraded within them, and client-go tries for as long."""
REMEMBERED: Final = 4096
"""Last events that are remembered for aggregation, as in client-go (`maxLruCacheEntries`): about 2 MB."""


class _About(msgspec.Struct, frozen=True, gc=False):
    """What an event is about; made for each binding, and read when the event is written."""

    kind: str
    key: str
    """``namespace/name``, or the name of what lives in no namespace."""
    uid: str
    api_version: str = "v1"
    component: str = COMPONENT
    """Who reports it: of a pod its scheduler's name, as kube-scheduler's recorders do; else `COMPONENT`."""


class _Words(msgspec.Struct, frozen=True, gc=False):
    """What is said, and the wall's second at which it was true."""

    about: _About
    kind: str
    reason: str
    message: str
    happened: float
    failures: int = 0
    """How often writing them came to nothing."""


_Said = tuple[str, str, str, str]
"""Of which words the latest count, and their key in the dispatcher: ``event``, the uid, the reason and the topic."""


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
        self._written: dict[_Said, _Written] = {}
        self._early: dict[_Said, _Words] = {}
        """The latest words that came too soon after others of those that are remembered, or could not be written."""
        self._write_one = self._write
        """Bound once: two objects fewer for each pod, which live until its event is written."""

    def scheduled(self, key: str, uid: str, node: str) -> None:
        """Say that a pod was bound."""
        self._unsay(uid, FAILED)  # it waits no more
        self._dispatcher.take_back(("event", uid, FAILED, ""))
        self._record(key, uid, "Normal", "Scheduled", f"Successfully assigned {key} to {node}")

    def at_risk(self, key: str, uid: str, message: str) -> None:
        """Report that an online pod was bound although a latency limit is predicted to break."""
        self._record(key, uid, "Warning", "LatencyLimitAtRisk", message)

    def failed(self, key: str, uid: str, message: str) -> None:
        """Say why a pod waits."""
        self._record(key, uid, "Warning", FAILED, message)

    def evicted(self, key: str, uid: str, message: str) -> None:
        """Say that a pod was taken off its node."""
        self._record(key, uid, "Normal", "Evicted", message)

    def preempted(self, key: str, uid: str, message: str) -> None:
        """Say that a pod made room for another."""
        self._record(key, uid, "Normal", "Preempted", message)

    def forecast_trust(self, node: str, uid: str, *, trusted: bool, message: str) -> None:
        """Say that a node offers by its forecast again, or fell back to what its pods ask for."""
        kind, reason = ("Normal", "ForecastTrustedAgain") if trusted else ("Warning", "FellBackToRequests")
        self.node(node, uid, kind, reason, message)

    def job(self, key: str, uid: str, reason: str, pod: str, message: str) -> None:
        """Say of a Job of ours what happened to one of its pods; of each pod, since they are seldom hit alone."""
        self._write_soon(_About("Job", key, uid, API_VERSION), "Normal", reason, f"pod {pod}: {message}", topic=pod)

    def of_ours(self, kind: str, key: str, uid: str, level: str, reason: str, message: str, topic: str = "") -> None:
        """Say something of a Job or a Workload of ours; what differs in ``topic`` is said by itself."""
        self._write_soon(_About(kind, key, uid, API_VERSION), level, reason, message, topic=topic)

    def misconfigured(self, kind: str, key: str, uid: str, message: str, api_version: str) -> None:
        """Say of an object that it is left out, and why."""
        self._write_soon(_About(kind, key, uid, api_version), "Warning", "Misconfigured", message)

    def node(self, name: str, uid: str, kind: str, reason: str, message: str) -> None:
        """Say something of a node."""
        self._write_soon(_About("Node", name, uid), kind, reason, message)

    def kueue_workload(
        self, key: str, uid: str, reason: str, message: str, api_version: str, *, instead_of: str
    ) -> None:
        """Say of a Workload of Kueue's when its pods should start or be done.

        ``instead_of``: the reason of what is true no more, in case it still waits to be said.
        """
        self._unsay(uid, instead_of)
        self._dispatcher.take_back(("event", uid, instead_of, ""))  # it would be written after what is true by now
        self._write_soon(_About("Workload", key, uid, api_version), "Normal", reason, message)

    def node_order(self, key: str, order: str, kind: str, reason: str, message: str) -> None:
        """Say something of an order of a node, of the ConfigMap that holds it."""
        self._write_soon(_About("ConfigMap", key, ""), kind, reason, f"{order}: {message}", topic=order)

    def _record(self, key: str, uid: str, kind: str, reason: str, message: str) -> None:
        self._write_soon(_About("Pod", key, uid, component=self._profile_of(key)), kind, reason, message)

    def _write_soon(self, about: _About, kind: str, reason: str, message: str, topic: str = "") -> None:
        self._say(("event", about.uid, reason, topic), _Words(about, kind, reason, _cut(message), time.time()))

    def _say(self, said: _Said, words: _Words) -> None:
        before = self._written.get(said)
        seconds = 0.0 if before is None else _too_soon(before, words)
        if before is not None and seconds > 0.0:
            if before.message == words.message:
                self._early.pop(said, None)
                return
            waits = self._early.get(said)
            if waits is None or (_is_repeat(before, waits) and not _is_repeat(before, words)):  # sooner than that
                asyncio.get_running_loop().call_later(seconds, self._say_later, said)
            self._early[said] = words
            return
        self._early.pop(said, None)
        if not self._dispatcher.submit(said, self._write_one, namespace_of_key(words.about.key), said, words):
            self._metrics.events_dropped.inc()

    def _unsay(self, uid: str, reason: str) -> None:
        """Forget what came too soon and is true no more."""
        self._early.pop(("event", uid, reason, ""), None)

    def _say_later(self, said: _Said) -> None:
        words = self._early.pop(said, None)
        if words is not None:
            self._say(said, words)

    def _say_again(self, said: _Said, words: _Words) -> bool:
        """Keep words for later that could not be written; False where it is no use, or newer ones wait."""
        if words.failures == MAX_RETRIES or said in self._early or len(self._early) >= REMEMBERED:
            return False
        seconds = REPEAT_SECONDS * 2.0**words.failures
        self._early[said] = replace(words, failures=words.failures + 1)
        asyncio.get_running_loop().call_later(seconds, self._say_later, said)
        return True

    async def _write(self, said: _Said, words: _Words) -> None:
        """Write an event with the time at which it happened; the dispatcher may have held it back."""
        about, message, happened = words.about, words.message, words.happened
        body = _event(about, words.kind, words.reason, message, happened)
        path = f"/api/v1/namespaces/{body['metadata']['namespace']}/events"
        before = self._written.get(said)
        try:
            if before is not None and _is_repeat(before, words) and await self._count(path, before, message, happened):
                return
            await self._client.create(path, body)
        except ClusterError as error:  # the namespace may be going: no reason to stop
            self._written.pop(said, None)
            if not (_may_pass(error) and self._say_again(said, words)):
                self._metrics.events_dropped.inc()
            _LOG.debug("event %s of %s %s was not written: %s", words.reason, about.kind, about.key, error)
            return
        if said in self._early and self._early[said].happened < happened:
            del self._early[said]  # it was to be said again, and is true no more
        self._written[said] = _Written(body["metadata"]["name"], message, 1, time.monotonic())
        while len(self._written) > REMEMBERED:
            del self._written[next(iter(self._written))]

    async def _count(self, path: str, before: _Written, message: str, happened: float) -> bool:
        """Raise the count of an event that is there; False where the server keeps it no more (an hour, by default)."""
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
    """Whether the same write may be taken later: no answer, or one about the server and not the write."""
    return not isinstance(error, ApiError) or error.status in (401, 429) or error.status >= 500


def _cut(message: str) -> str:
    """Return as much of a message as the API takes: it counts bytes, and names may be of any script."""
    if len(message) * 4 <= MESSAGE_LIMIT or len(raw := message.encode(errors="replace")) <= MESSAGE_LIMIT:
        return message
    return raw[: MESSAGE_LIMIT - 3].decode(errors="ignore") + "..."


def _is_repeat(before: _Written, words: _Words) -> bool:
    """Whether an event tells what was told: of why a pod waits the same with other counts, of all else the same."""
    if words.reason == FAILED:
        return is_alike(before.message, words.message)
    return before.message == words.message


def _too_soon(before: _Written, words: _Words) -> float:
    """Return the seconds until words may be written; 0 where they may be now."""
    pause = REPEAT_SECONDS
    if words.reason == FAILED and _is_repeat(before, words):
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
        # client-go's way of a unique name: the object's name and the time in hexadecimal nanoseconds; no part of a name
        # may end with a hyphen. What lives in no namespace has its events in ``default``, as the node controller's are.
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
