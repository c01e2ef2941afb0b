"""Carries evictions out, and refuses forbidden ones.

`binder` calls it and hands its reports to the loop. The outcomes of one eviction:

- The victim is online, and the nominated pod has another class: refused with an error in the log. The engine must
  never request this.
- The owner forbids it: refused. The owner wrote this after the decision.
- The pod is gone, replaced or terminating: nothing to do (404).
- The nominated pod needs no room any more, or another victim stays: refused, and may be requested again at once.
- A disruption budget forbids it: refused, before another victim for the same pod is evicted.
- Otherwise the claim is written on the pod that gets the room, and the eviction is posted. After 2xx the victim has its
  grace period; after 429, 5xx or silence the eviction is refused.

An administrator may let gratis pods leave an overloaded node even so (`Evict.override`): the evictor then ignores the
owner's annotation, and deletes a pod that a budget protects. A pod that leaves for one of its own class and higher
priority (`Evict.by_priority`) is treated as under kube-scheduler. The evictor writes the condition ``DisruptionTarget``
and deletes the pod with its own grace period. The choice of victims has already considered budgets and owners.

Invariants: No online pod is posted except for an online pod of higher priority. No pod is posted twice at a time. Each
eviction ends in exactly one report.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cotide_core.classes import WorkloadClass
from cotide_core.errors import ClusterError
from cotide_core.instructions import Evict
from cotide_kube.answers import Answer, ApiError
from cotide_kube.client import KubeClient
from cotide_kube.objects import PodObject
from cotide_kube.timestamps import format_timestamp
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.clock import Clock, ScaledClock
from cotide_operator.scheduling.disruption_budgets import kept_by_budgets
from cotide_operator.scheduling.nominator import NOT_NEEDED, Nominator
from cotide_operator.translation.eviction_annotations import is_mirror, is_protected
from cotide_operator.translation.pods_and_nodes import class_of, ownership_of

_LOG = logging.getLogger(__name__)

ONLINE: Final = "Online"
DO_NOT_DISRUPT: Final = "DoNotDisrupt"
BUDGET: Final = "DisruptionBudget"
BESIDE: Final = "FailedDependency"
NOT_BELOW: Final = "NotBelow"
"""Reasons of refusals that never reach the API server; `BESIDE` is for victims that only go together with another."""
PREEMPTION_BY_SCHEDULER: Final = "PreemptionByScheduler"
"""Reason of the condition ``DisruptionTarget`` (https://kubernetes.io/docs/concepts/workloads/pods/disruptions)."""


@dataclass(frozen=True, slots=True)
class EvictReport:
    """Outcome of one eviction."""

    evict: Evict
    answer: Answer
    retry: bool = False
    """If refused: whether the reason lies outside the victim, so that the eviction may be requested again at once."""
    despite_budget: bool = False
    """Whether a disruption budget protected the pod and an administrator's setting overrode that."""


class Evictor:
    """Posts evictions; see the states above.

    Parameters
    ----------
    clock : of the operator, which also started the pods; None for the machine's.
    """

    def __init__(
        self, client: KubeClient, cache: ObjectCache, nominator: Nominator, clock: Clock | None = None
    ) -> None:
        self._client = client
        self._cache = cache
        self._nominator = nominator
        self._clock = clock or ScaledClock()

    def screen(self, evicts: Sequence[Evict]) -> list[EvictReport]:
        """Return the forbidden evictions of one decision cycle, each with its refusal."""
        refused: list[EvictReport] = []
        by_nominee: dict[str, list[Evict]] = {}
        for evict in evicts:
            by_nominee.setdefault(evict.nominee, []).append(evict)
        for nominee, together in by_nominee.items():
            own = {report.evict.key: report for evict in together if (report := self._refusal(evict)) is not None}
            if not nominee:  # each of the monitor's victims helps alone, and the API server checks budgets
                refused += own.values()
                continue
            tied = [evict for evict in together if not evict.by_priority]  # for the others budgets are best effort
            pods = [self._cache.pods[evict.key] for evict in tied if evict.key not in own]
            kept = kept_by_budgets(pods, self._cache)
            for evict in together:
                if evict.key in kept:
                    own[evict.key] = EvictReport(evict, Answer(429, BUDGET, kept[evict.key]))
            # A victim that is already gone helps as much as one that goes.
            staying = next((evict_report for evict_report in own.values() if evict_report.answer.code != 404), None)
            if staying is not None:
                tied_answer = Answer(
                    424, BESIDE, f"{staying.evict.key} stays; without its room the others do not suffice"
                )
                own |= {
                    evict.key: EvictReport(evict, tied_answer, retry=True) for evict in together if evict.key not in own
                }
            refused += own.values()
        return refused

    async def carry_out(self, evict: Evict) -> EvictReport:
        """Evict a pod with its own grace period."""
        refusal = self._refusal(evict)  # again, since it may have waited for its turn
        if refusal is not None:
            return refusal
        if evict.nominee:
            written = await self._nominator.write(evict.nominee, evict.nominee_uid, evict.node)
            if not written.ok:
                return EvictReport(evict, written, retry=written.reason == NOT_NEEDED)
        namespace, _, name = evict.key.partition("/")
        if evict.by_priority:
            return await self._preempt(evict, namespace, name)
        answer = await self._client.evict(namespace, name, evict.uid)
        pod = self._cache.pods.get(evict.key) if evict.override and answer.code == 429 else None
        if pod is not None and self._class(pod) is WorkloadClass.GRATIS:
            return await self._delete(evict, namespace, name)
        return EvictReport(evict, answer)

    async def _preempt(self, evict: Evict, namespace: str, name: str) -> EvictReport:
        """Delete a pod for one of higher priority, after writing the reason into its status."""
        nominee = self._cache.pods.get(evict.nominee)
        scheduler = nominee.spec.scheduler_name if nominee is not None else ""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": PREEMPTION_BY_SCHEDULER,
            "message": f"{scheduler}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": format_timestamp(time.time()),
        }
        body = {"metadata": {"uid": evict.uid}, "status": {"conditions": [condition]}}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        try:
            await self._client.patch(f"{path}/status", body, "strategic")
            await self._client.delete(path, uid=evict.uid)
        except ApiError as error:
            if error.status in (404, 409):
                return EvictReport(evict, Answer(404, "NotFound", f"pod {evict.key} is gone or was replaced"))
            return EvictReport(evict, Answer(error.status, error.reason, str(error)))
        except ClusterError as error:
            return EvictReport(evict, Answer(0, "Unreachable", str(error)))
        return EvictReport(evict, Answer(200))

    async def _delete(self, evict: Evict, namespace: str, name: str) -> EvictReport:
        """Delete a gratis pod that its disruption budget protects, with its own grace period; the uid must match."""
        try:
            await self._client.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", uid=evict.uid)
        except ApiError as error:
            return EvictReport(evict, Answer(error.status, error.reason, str(error)))
        except ClusterError as error:
            return EvictReport(evict, Answer(0, "Unreachable", str(error)))
        return EvictReport(evict, Answer(200), despite_budget=True)

    def _refusal(self, evict: Evict) -> EvictReport | None:
        pod = self._cache.pods.get(evict.key)
        if pod is None or pod.metadata.uid != evict.uid:
            return EvictReport(evict, Answer(404, "NotFound", f"pod {evict.key} is gone"))
        if pod.metadata.deletion_timestamp is not None:
            return EvictReport(evict, Answer(404, "Terminating", f"pod {evict.key} is terminating"))
        decided = self._class(pod)
        if evict.by_priority:
            return self._not_below(evict, pod, decided)
        if decided is WorkloadClass.ONLINE:
            _LOG.error(
                "the eviction of %s from %s was decided (%s), but it is online: refused. Please report this",
                evict.key,
                evict.node,
                evict.reason,
            )
            return EvictReport(evict, Answer(403, ONLINE, "an online pod is never evicted"))
        overridden = evict.override and decided is WorkloadClass.GRATIS
        if not overridden and is_protected(pod, self._clock):
            return EvictReport(evict, Answer(403, DO_NOT_DISRUPT, "its owner wrote that it must not be disrupted"))
        return None

    def _not_below(self, evict: Evict, pod: PodObject, decided: WorkloadClass) -> EvictReport | None:
        """Return the refusal of a pod that is no longer less important than its nominee."""
        nominee = self._cache.pods.get(evict.nominee)
        if nominee is None:
            return None  # then its claim can't be written, and no pod goes
        below = (pod.spec.priority or 0) < (nominee.spec.priority or 0)
        static = is_mirror(pod.metadata.annotations)  # deleting the mirror of a static pod ends nothing
        if below and decided is self._class(nominee) and not static:
            return None
        words = f"pod {evict.key} is no pod of the class of {evict.nominee} below its priority that can be deleted"
        return EvictReport(evict, Answer(403, NOT_BELOW, words))

    def _class(self, pod: PodObject) -> WorkloadClass:
        return class_of(pod, ownership_of(pod, self._cache))
