"""Writes the scheduling condition into PodGroups of ``scheduling.k8s.io``, as kube-scheduler does for its own groups.

It receives each decision about a pod of a group from the decision store, and each change of a pod or group from the
cache. The leader runs it once a second over the queued groups, and writes through the low-priority dispatcher. On a
cluster without this API the queue stays empty. A group with pods of another scheduler is left to that scheduler.

::

    queued --second is over--> reconciled --a reader would see a difference--> patched --cache shows it--> (queued)
                ^                                                                 |
                `------------ rests, ever longer: refused, no answer -------------'

The patch names the version that it was made for, so that it keeps every foreign condition. Invariants: a group is
patched only after a change, at most once per `NOTE_SECONDS` while it waits, and again only when the cache shows the
last write. A failed write delays only its own group.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Final

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.objects import PodObject
from cotide_kube.timestamps import format_timestamp
from cotide_kube.turns import in_steps
from cotide_operator.cache.decision_store import Decision, DecisionStore
from cotide_operator.cache.object_cache import CustomObject, Kind, ObjectCache, namespace_of_key
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting.pod_group_condition import TYPES, finding, replaced, sentence, standing
from cotide_operator.reporting.tenant_view import TenantView
from cotide_operator.scheduling.api_dispatcher import ApiDispatcher
from cotide_operator.translation.pod_groups import named_by, said_by

_LOG = logging.getLogger(__name__)

RECONCILE_SECONDS: Final = 1.0
"""Wall seconds between two rounds; chosen as those between two publications of the queue."""
NOTE_SECONDS: Final = 10.0
"""Wall seconds between two messages on one waiting group, and before the retry of a failed write, doubled each time;
chosen as those of notes on pods."""
MAX_DOUBLED: Final = 6
"""Chosen: a group that can't be written is then tried every eleven minutes, as long as it has a new condition."""
MESSAGE_CHARACTERS: Final = 32 * 1024
"""Length of a condition's message: ``ValidateConditions`` of k8s.io/apimachinery refuses longer ones."""
FORBIDDEN: Final = 403
KIND: Final[Kind] = "gangpodgroups"


@dataclass(slots=True)
class _Written:
    """The state of the writes to one group."""

    until: float = float("-inf")
    """Monotonic second of the next try after a failure."""
    failures: int = 0
    written_monotonic: float = float("-inf")
    """Monotonic second of the last write."""
    over: str | None = None
    """Version before the last write: while the cache shows it, the cache lags behind."""


class PodGroupReporter:
    """Writes conditions of groups from the decision store and the cache; see the module's docstring.

    Parameters
    ----------
    client, dispatcher, cache, decisions, metrics : the operator's.
    members : the pods that name a group, by its key.
    scheduler_names : schedulers of our pods.

    Attributes
    ----------
    queued : keys of existing groups that are to be reconciled.
    """

    def __init__(
        self,
        client: KubeClient,
        dispatcher: ApiDispatcher,
        cache: ObjectCache,
        decisions: DecisionStore,
        metrics: Metrics,
        *,
        members: Callable[[str], Iterable[str]],
        scheduler_names: tuple[str, ...],
    ) -> None:
        self._client = client
        self._dispatcher = dispatcher
        self._cache = cache
        self._decisions = decisions
        self._metrics = metrics
        self._members = members
        self._scheduler_names = scheduler_names
        self._view = TenantView(cache)
        self.queued: dict[str, None] = {}
        self._written: dict[str, _Written] = {}
        self._warned = False
        decisions.subscribe(self._decided)
        cache.subscribe(self._changed)

    async def run(self) -> None:
        """Reconcile the queued groups once a second, until cancelled."""
        while True:
            await asyncio.sleep(RECONCILE_SECONDS)
            await in_steps(self.reconcile_steps())

    def reconcile_steps(self) -> Generator[None, None, None]:
        """Reconcile each queued group, in steps."""
        for key in list(self.queued):
            if key not in self.queued:  # gone since the last step
                continue
            del self.queued[key]
            try:
                self._reconcile(key)
            except Exception as error:  # noqa: BLE001 - one faulty object must not stop all others
                self._cache.quarantine_object(KIND, key, "reporting", error)
            yield

    def _decided(self, key: str) -> None:
        pod = self._cache.pods.get(key)
        if pod is not None and pod.spec.scheduling_group is not None and (named := named_by(pod)) is not None:
            self._enqueue(named[1])

    def _changed(self, kind: Kind, key: str) -> None:
        if kind == "pods":
            self._decided(key)  # reports an earlier leader's binding, too
        elif kind == KIND and key in self._cache.gangpodgroups:
            self._enqueue(key)
        elif kind == KIND:
            self.queued.pop(key, None)
            self._written.pop(key, None)

    def _enqueue(self, key: str) -> None:
        """Queue an existing group: a standby would keep the names of missing groups for ever."""
        if key in self._cache.gangpodgroups:
            self.queued[key] = None

    def _reconcile(self, key: str) -> None:
        """Submit a write for a group whose condition changes, now or later."""
        known = self._written.get(key)
        rests = known is not None and time.monotonic() < known.until
        if not rests and self._condition(key) is None:
            return
        if rests or not self._dispatcher.submit(("podgroup", key), self._write, namespace_of_key(key), key):
            self._enqueue(key)  # later

    def _condition(self, key: str) -> tuple[CustomObject, list[Any]] | None:
        """Return a group and its wanted conditions; None when it may stay as it is for now."""
        group = self._cache.gangpodgroups.get(key)
        kind = TYPES.get(self._cache.served.get(KIND, "").rpartition("/")[0].rpartition("/")[2])
        known = self._written.get(key)
        if group is None or kind is None or (known is not None and known.over == group.metadata.resource_version):
            return None
        before, others = standing(group.status, kind)
        generation = group.metadata.generation
        if before.get("status") == "True" and before.get("observedGeneration", 0) == generation:
            return None  # the pods of a running group are not counted
        counted = self._counted(key)
        if counted is None:
            return None
        ((_, rule),) = said_by(KIND, group)
        found = finding(rule.minimum, *counted, refresh=before.get("status") == "False")
        if found is None:
            return None
        if found.decision is None:
            message = sentence(rule.minimum)
        else:
            message = self._view.sentence(found.decision.message, found.decision.refused, namespace_of_key(key))
        now = format_timestamp(time.time())
        condition = replaced(before, kind, found, message[:MESSAGE_CHARACTERS], generation, now)
        if condition is None:
            return None
        if not found.scheduled and known is not None and time.monotonic() - known.written_monotonic < NOTE_SECONDS:
            self._enqueue(key)  # later
            return None
        return group, [*others, condition]

    def _counted(self, key: str) -> tuple[int, list[Decision]] | None:
        """Return the number of a group's pods with a node, and the decisions about the others; None for a foreign
        group."""
        placed, waiting, ours = 0, list[Decision](), False
        for name in self._members(key):
            pod = self._cache.pods.get(name)
            if pod is None or pod.metadata.deletion_timestamp or pod.status.phase == "Failed":
                continue
            if pod.spec.scheduler_name not in self._scheduler_names:
                return None
            ours = True
            decision = self._decision(name, pod)
            if pod.spec.node_name or (decision is not None and decision.node is not None):
                placed += 1
            elif decision is not None:
                waiting.append(decision)
        return (placed, waiting) if ours else None

    def _decision(self, name: str, pod: PodObject) -> Decision | None:
        decision = self._decisions.get(name)
        return decision if decision is not None and decision.uid == pod.metadata.uid else None

    async def _write(self, key: str) -> None:
        """Patch a group with its state at this moment."""
        due = self._condition(key)
        if due is None:
            return
        group, conditions = due
        metadata = group.metadata
        head, _, plural = self._cache.served[KIND].rpartition("/")
        path = f"{head}/namespaces/{metadata.namespace}/{plural}/{metadata.name}/status"
        patch = {
            "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
            "status": {"conditions": conditions},
        }
        try:
            await self._client.patch(path, patch)
        except ClusterError as error:
            self._refused(key, error)
        else:
            if key in self._cache.gangpodgroups:
                self._written[key] = _Written(written_monotonic=time.monotonic(), over=metadata.resource_version)

    def _refused(self, key: str, error: ClusterError) -> None:
        if key not in self._cache.gangpodgroups:
            return
        known = self._written.setdefault(key, _Written())
        known.until = time.monotonic() + NOTE_SECONDS * 2.0 ** min(known.failures, MAX_DOUBLED)
        known.failures += 1
        self._enqueue(key)
        if isinstance(error, ApiError) and error.status in (404, 409):  # gone, or changed: reconciled again
            return
        self._metrics.notes_failed.inc()
        if isinstance(error, ApiError) and error.status == FORBIDDEN and not self._warned:
            self._warned = True
            _LOG.warning("statuses of PodGroups are not written: %s (deploy/rbac holds the right to patch them)", error)
        else:
            _LOG.debug("the status of PodGroup %s was not written: %s", key, error)
