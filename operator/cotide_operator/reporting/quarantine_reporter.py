"""Publishes quarantined objects: metrics, and on the object an event and a condition with reason Misconfigured.

`assembly` subscribes it to the cache's quarantine; only the leader writes on objects. Like all explanations, it writes
through the low-priority dispatcher. After a temporary failure a condition is written again with growing pauses and a
limit, because no other message repeats it until the object changes. Invariant: an owner reads the fault of their own
object and nothing about other owners. A failed write stops no other work.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Final, cast

from cotide_core.errors import ClusterError
from cotide_core.instructions import WaitReason
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient, PatchKind
from cotide_kube.timestamps import format_timestamp
from cotide_operator.apis.types import API_VERSION
from cotide_operator.cache.object_cache import Kind, ObjectCache, namespace_of_key
from cotide_operator.cache.quarantine import SetAside
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting.event_recorder import EventRecorder
from cotide_operator.scheduling.api_dispatcher import ApiDispatcher

_LOG = logging.getLogger(__name__)

REASON: Final = WaitReason.MISCONFIGURED.value
AGAIN_SECONDS: Final = 10.0
"""Wall seconds before the retry of a failed condition, doubled each time; chosen as those of notes on pods."""
MAX_RETRIES: Final = 6
"""Chosen: together they take ten minutes, after which a permanent failure is given up."""
_OURS: Final = {"jobs": "Job", "workloads": "Workload"}


class QuarantineReporter:
    """Reports quarantined objects.

    Parameters
    ----------
    client, dispatcher, cache, recorder, metrics : the operator's.
    scheduler_names : schedulers of our pods.

    Attributes
    ----------
    leading : whether this replica decides: a standby writes on no object.
    """

    def __init__(
        self,
        client: KubeClient,
        dispatcher: ApiDispatcher,
        cache: ObjectCache,
        recorder: EventRecorder,
        metrics: Metrics,
        *,
        scheduler_names: tuple[str, ...],
    ) -> None:
        self._client = client
        self._dispatcher = dispatcher
        self._cache = cache
        self._recorder = recorder
        self._metrics = metrics
        self._scheduler_names = scheduler_names
        self.leading = False
        cache.quarantine.subscribe(self._hear)

    def lead(self) -> None:
        """Report the quarantined objects on themselves, now and from now on."""
        self.leading = True
        for entry in list(self._cache.quarantine):
            self._report(entry)

    def _hear(self, entry: SetAside) -> None:
        self._metrics.objects_set_aside.labels(entry.kind).inc()
        if self.leading:
            self._report(entry)

    def _report(self, entry: SetAside) -> None:
        if not entry.key or not entry.uid:
            return
        message = f"is quarantined until it changes: {entry.fault}"
        if entry.kind in _OURS:
            self._recorder.misconfigured(_OURS[entry.kind], entry.key, entry.uid, message, API_VERSION)
        elif entry.kind == "pods" and self._is_ours(entry):
            self._recorder.misconfigured("Pod", entry.key, entry.uid, message, "v1")
        elif entry.kind == "nodes":
            self._recorder.misconfigured("Node", entry.key, entry.uid, message, "v1")
            return
        else:
            return
        self._write(entry, message, 0)

    def _write(self, entry: SetAside, message: str, failures: int) -> None:
        """Write the condition at a later time; ``failures``: number of failed tries."""
        if self._cache.quarantine.get(entry.kind, entry.key) is not entry:
            return  # it changed meanwhile
        key, namespace = ("aside", entry.kind, entry.key), namespace_of_key(entry.key)
        if not self._dispatcher.submit(key, self._condition, namespace, entry, message, failures):
            self._write_again(entry, message, failures)

    def _write_again(self, entry: SetAside, message: str, failures: int) -> None:
        if failures < MAX_RETRIES:
            seconds = AGAIN_SECONDS * 2.0**failures
            asyncio.get_running_loop().call_later(seconds, self._write, entry, message, failures + 1)

    def _is_ours(self, entry: SetAside) -> bool:
        pod = self._cache.pods.get(entry.key)
        return pod is not None and pod.spec.scheduler_name in self._scheduler_names and not pod.spec.node_name

    async def _condition(self, entry: SetAside, message: str, failures: int) -> None:
        if self._cache.quarantine.get(entry.kind, entry.key) is not entry:
            return  # it changed meanwhile
        namespace, _, name = entry.key.partition("/")
        condition: dict[str, Any] = {
            "type": "PodScheduled" if entry.kind == "pods" else "Scheduled",
            "status": "False",
            "reason": REASON,
            "message": message,
            "lastTransitionTime": format_timestamp(time.time()),
        }
        if entry.kind == "pods":
            path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
            body: dict[str, Any] = {"metadata": {"uid": entry.uid}, "status": {"conditions": [condition]}}
            kind: PatchKind = "strategic"
        else:
            # The body is applied: the other conditions stay, and one of them may be the unreadable part.
            path = f"/apis/{API_VERSION}/namespaces/{namespace}/{entry.kind}/{name}/status"
            body = {
                "apiVersion": API_VERSION,
                "kind": _OURS[entry.kind],
                "metadata": {"name": name, "namespace": namespace, "uid": entry.uid},
                "status": {"conditions": [condition]},
            }
            kind = "apply"
        try:
            await self._client.patch_blindly(path, body, kind)
        except ClusterError as error:
            self._metrics.notes_failed.inc()
            _LOG.debug("%s %s got no condition: %s", entry.kind, entry.key, error)
            if not isinstance(error, ApiError) or error.status in (401, 429) or error.status >= 500:
                self._write_again(entry, message, failures)

    def refresh(self, kinds: tuple[Kind, ...]) -> None:
        """Show the number of quarantined objects by kind."""
        counts = dict.fromkeys(kinds, 0)
        for entry in self._cache.quarantine:
            counts[cast("Kind", entry.kind)] += 1
        for kind, count in counts.items():
            self._metrics.quarantined.labels(kind).set(count)
