"""When pods of Kueue's queues start and end, as events of their Workloads of Kueue, where its users look.

The decision store notifies it of each decision. It writes through the low-priority dispatcher, with the recorder. Kueue
decides whether pods may run, and then lifts their gates; the events show what Cotide expects after that. A group of
pods has one event, which is about its last pod. If the request for the Workload fails, it is repeated with growing
pauses and a limit, because no later decision repeats the news of the last pod. Invariant: without pods of Kueue's
queues it sends no request.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from cotide_core.errors import ClusterError
from cotide_core.units import counted
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.objects import PodObject
from cotide_kube.plain_objects import typed
from cotide_kube.timestamps import format_timestamp
from cotide_operator.apis.names import KUEUE_GROUP_LABEL, KUEUE_QUEUE_LABEL
from cotide_operator.cache.decision_store import Decision, DecisionStore
from cotide_operator.cache.object_cache import CustomObject, ObjectCache
from cotide_operator.clock import Clock
from cotide_operator.reporting.event_recorder import EventRecorder
from cotide_operator.scheduling.api_dispatcher import ApiDispatcher

_LOG = logging.getLogger(__name__)

VERSIONS: Final = ("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1")
"""In the order of the requests; Kueue 0.15 serves both."""
OWNER_LABEL: Final = "kueue.x-k8s.io/job-uid"
"""On a Workload: the uid of its single pod."""
STARTS: Final = "PredictedStart"
FINISHES: Final = "PredictedFinish"
REMEMBERED: Final = 10_000
"""Workloads with remembered pods; chosen, about 3 MB."""
FORBIDDEN: Final = 403
AGAIN_SECONDS: Final = 10.0
"""Wall seconds before the next try, doubled each time; chosen as those of notes on pods."""
MAX_RETRIES: Final = 6
"""Chosen: together they take ten minutes."""


class KueueReporter:
    """Reports decisions about pods of Kueue's queues; see the module's docstring."""

    def __init__(
        self,
        client: KubeClient,
        dispatcher: ApiDispatcher,
        recorder: EventRecorder,
        cache: ObjectCache,
        decisions: DecisionStore,
        clock: Clock,
    ) -> None:
        self._client = client
        self._dispatcher = dispatcher
        self._recorder = recorder
        self._cache = cache
        self._decisions = decisions
        self._clock = clock
        self._members: dict[tuple[str, str], set[str]] = {}
        """Pods by namespace and group; a pod without a group is stored by namespace and uid."""
        self._workloads: dict[tuple[str, str], tuple[str, str, str]] = {}
        """Version, name and uid of the Workload, by the same keys."""
        self._again: set[tuple[str, str]] = set()
        """Keys with a planned retry."""
        self._refused = False
        decisions.subscribe(self._decided)

    def _decided(self, key: str) -> None:
        pod = self._cache.pods.get(key)
        if self._refused or pod is None or KUEUE_QUEUE_LABEL not in pod.metadata.labels:
            return
        group = pod.metadata.labels.get(KUEUE_GROUP_LABEL, "")
        name = (pod.metadata.namespace, group or pod.metadata.uid)
        self._members.setdefault(name, set()).add(key)
        while len(self._members) > REMEMBERED:
            oldest = next(iter(self._members))
            del self._members[oldest]
            self._workloads.pop(oldest, None)
        self._report_soon(name, group, 0)

    def _report_soon(self, name: tuple[str, str], group: str, failures: int) -> None:
        if not self._dispatcher.submit(("kueue", *name), self._report, name[0], name, group, failures):
            self._report_later(name, group, failures)

    def _report_later(self, name: tuple[str, str], group: str, failures: int) -> None:
        if failures < MAX_RETRIES and name not in self._again:
            self._again.add(name)
            seconds = AGAIN_SECONDS * 2.0**failures
            asyncio.get_running_loop().call_later(seconds, self._report_again, name, group, failures + 1)

    def _report_again(self, name: tuple[str, str], group: str, failures: int) -> None:
        self._again.discard(name)
        if name in self._members:
            self._report_soon(name, group, failures)

    async def _report(self, name: tuple[str, str], group: str, failures: int) -> None:
        """Record what is expected of a Workload now; ``failures``: number of failed tries."""
        event = self._sentence(name)
        if event is None:
            return
        try:
            found = self._workloads.get(name) or await self._found(name, group)
        except ClusterError as error:
            if isinstance(error, ApiError) and error.status == FORBIDDEN:
                self._refused = True
                _LOG.warning("Kueue's Workloads get no events: %s (deploy/kueue holds the right to read them)", error)
            else:
                self._report_later(name, group, failures)
            return
        if found is None:
            return  # not made yet, or gone: the next decision triggers a report
        if name in self._members:  # else it was forgotten meanwhile
            self._workloads[name] = found
        version, workload, uid = found
        other = FINISHES if event[0] == STARTS else STARTS
        self._recorder.kueue_workload(f"{name[0]}/{workload}", uid, *event, version, instead_of=other)

    def _sentence(self, name: tuple[str, str]) -> tuple[str, str] | None:
        """Return reason and message; None when there is no prediction."""
        keys = self._members.get(name, set())
        decisions = [
            decision
            for decision in map(self._decisions.get, sorted(keys))
            if decision is not None and self._counts(decision)
        ]
        self._members[name] = {decision.key for decision in decisions}
        if not decisions:
            self._members.pop(name, None)
            self._workloads.pop(name, None)
            return None
        waiting = [decision for decision in decisions if decision.node is None]
        ends = [_end(decision) for decision in decisions]
        known = [end for end in ends if end is not None]
        end = f"done about {self._time(max(known))}" if len(known) == len(ends) else ""
        pods = counted(len(decisions), "pod")
        if not waiting:
            return (FINISHES, f"{pods} on nodes, expected to be {end}") if end else None
        starts = [
            decision.predicted_start_seconds for decision in waiting if decision.predicted_start_seconds is not None
        ]
        if len(starts) < len(waiting):
            return None
        start = f"expected to start about {self._time(max(starts))}"
        return STARTS, f"{len(waiting)} of {pods} waiting for a node, {start}{', ' + end if end else ''}"

    def _counts(self, decision: Decision) -> bool:
        """Whether a pod is the one of the decision, and Kueue permits it to run."""
        pod: PodObject | None = self._cache.pods.get(decision.key)
        return pod is not None and pod.metadata.uid == decision.uid and not pod.spec.scheduling_gates

    def _time(self, seconds: float) -> str:
        return format_timestamp(self._clock.to_wall(seconds))

    async def _found(self, name: tuple[str, str], group: str) -> tuple[str, str, str] | None:
        query = {"fieldSelector": f"metadata.name={group}"} if group else {"labelSelector": f"{OWNER_LABEL}={name[1]}"}
        for version in VERSIONS:
            try:
                items = await self._client.list(f"/apis/{version}/namespaces/{name[0]}/workloads", query)
            except ApiError as error:
                if error.status == 404:  # an older Kueue
                    continue
                raise
            for item in items:
                metadata = typed(item, CustomObject, "Workload").metadata
                return version, metadata.name, metadata.uid
            return None
        return None


def _end(decision: Decision) -> float | None:
    """Return when a pod should be done, on the operator's clock."""
    seconds = decision.forecast.seconds_p50
    if decision.node is not None:
        return None if seconds is None else decision.decided_seconds + seconds
    if decision.predicted_finish_seconds is not None:
        return decision.predicted_finish_seconds
    start = decision.predicted_start_seconds
    return None if start is None or seconds is None else start + seconds
