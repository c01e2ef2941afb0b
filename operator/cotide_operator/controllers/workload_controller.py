"""Reconciles one Workload: the I/O around `workload_reconciler` and `status_builder`.

`controllers` calls it with the key of a Workload. Invariant: pods of a Deployment or StatefulSet are labelled, never
made or deleted here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from cotide_core.classes import WorkloadClass
from cotide_core.errors import InputError
from cotide_kube.client import KubeClient
from cotide_kube.turns import Turn, in_turns
from cotide_operator.apis.types import WorkloadSpec, read_workload
from cotide_operator.cache.decision_store import Decision, DecisionStore
from cotide_operator.cache.object_cache import CustomObject, ObjectCache, controller_of
from cotide_operator.clock import Clock
from cotide_operator.controllers import workload_reconciler as workloads
from cotide_operator.controllers.applicability_conditions import decided_by, with_applicability
from cotide_operator.controllers.child_pod_writer import ChildPodWriter, summary
from cotide_operator.controllers.child_pods import ChildPod, by_index, see, see_child, workload_pod
from cotide_operator.controllers.job_controller import (
    MADE_SECONDS,
    TROUBLE_SECONDS,
    ReconcileOptions,
    noted_decision,
)
from cotide_operator.controllers.starts.start_times import NO_LIMITS, StartTimes, follow_starts
from cotide_operator.controllers.status_builder import (
    ReconcileContext,
    Starting,
    misconfigured,
    with_query_fault,
    with_released,
    with_started,
    workload_status,
)
from cotide_operator.controllers.status_writer import LastWritten, StatusWriter
from cotide_operator.models.service_applicability import ServiceApplicability
from cotide_operator.reporting.tenant_view import TenantView
from cotide_operator.usage.service_readings import ServiceReadings


@dataclass(slots=True)
class _WorkloadEntry:
    kept: LastWritten
    violations: int
    """Violations in its whole life, over restarts of the operator."""
    counted: int
    """Violations of the last reading: they count from the operator's start, or the Workload's."""
    memory: workloads.ReconcilerCache = field(default_factory=workloads.ReconcilerCache)
    made: dict[int, float] = field(default_factory=dict)
    trouble: str | None = None
    unwritten: str | None = None
    """The API server's error about deleting some of its pods."""
    generation: int = -1
    spec: WorkloadSpec | None = None
    fault: str = ""
    starts: StartTimes[str] = field(default_factory=StartTimes)
    """By uid."""

    def count(self, shown: int) -> int:
        """Return the violations of its whole life; after the readings forgot a Workload, they count from zero again."""
        self.violations += shown - self.counted if shown >= self.counted else shown
        self.counted = shown
        return self.violations


Applicability = Callable[[str, float | None, float], ServiceApplicability]
"""How far the QoS model in use covers a Workload, by its key, its request rate by pod (None: unknown) and its limit."""


class WorkloadController:
    """Keeps Workloads and their pods in step."""

    def __init__(
        self,
        client: KubeClient,
        cache: ObjectCache,
        decisions: DecisionStore,
        clock: Clock,
        *,
        readings: ServiceReadings,
        applicability: Applicability | None = None,
        options: ReconcileOptions,
        children: ChildPodWriter,
    ) -> None:
        self._cache = cache
        self._decisions = decisions
        self._view = TenantView(cache)
        self._clock = clock
        self._readings = readings
        self._applicability = applicability
        self._scheduler_name = options.scheduler_name
        self._reports = options.starts
        self._children = children
        self.statuses = StatusWriter(client, "workloads", options.refresh_seconds)
        self._known: dict[str, _WorkloadEntry] = {}

    async def reconcile(self, key: str) -> float | None:
        """Take the next steps of a Workload; return the wall seconds until the next reconciliation, or None."""
        workload = self._cache.workloads.get(key)
        if workload is None or workload.metadata.deletion_timestamp:
            self._known.pop(key, None)
            return None
        known = self._recall(key, workload)
        context = ReconcileContext(self._clock, time.time(), workload.metadata.generation)
        if known.spec is None:
            status = misconfigured(known.kept.status, known.fault, context)
            before = known.kept.status.get("conditions") or ()
            rest = await self.statuses.write(workload, known.kept, status)
            self._reports.changed("Workload", key, workload.metadata.uid, before, status["conditions"])
            return rest
        again: float | None = None
        if known.spec.template is not None:
            pods = await self._children_of(workload, key)
            again = await self._carry_out(workload, known, known.spec, pods)
            wanted = workloads.replicas_of(known.spec)
        else:
            doomed = [pod for pod in await self._children_of(workload, key) if not pod.deleting]
            known.unwritten = summary(await self._children.delete(workload.metadata.namespace, doomed), "deleted")
            pods = await self._adopt(workload, key)
            wanted = sum(1 for pod in pods if pod.alive)
        reading = self._readings.get(key)
        decisions = await self._latest_decisions(workload, pods)
        await asyncio.sleep(0)
        status = workload_status(
            wanted,
            pods,
            decisions,
            reading,
            known.kept.status,
            context,
            violations=known.count(reading.violations if reading else 0),
            trouble=known.trouble,
        )
        if self._applicability is not None:
            rate = reading.requests_per_second if reading else None
            ready = max(1, status["readyReplicas"])  # the reading covers all its pods, a forecast one of them
            seen = self._applicability(
                key, None if rate is None else rate / ready, known.spec.qos.latency_p95_milliseconds
            )
            status["conditions"] = with_applicability(status["conditions"], seen, context)
            status["decidedBy"] = decided_by(seen)
        faults = self._readings.faults
        if faults is not None:
            status = {**status, "conditions": with_query_fault(status["conditions"], faults.get(key), context)}
        status["conditions"] = with_released(status["conditions"], known.unwritten, context)
        waiting = {pod.uid: pod for pod in pods if pod.alive and not pod.deleting}
        starts = follow_starts(waiting, known.starts, self._clock.now(), NO_LIMITS)
        status["conditions"] = with_started(status["conditions"], pods, Starting(starts.slow, kept=True), context)
        if known.unwritten:
            again = min(TROUBLE_SECONDS, again or TROUBLE_SECONDS)
        before = known.kept.status.get("conditions") or ()
        rest = await self.statuses.write(workload, known.kept, status)
        self._reports.changed("Workload", key, workload.metadata.uid, before, status["conditions"])
        slow = None if starts.next_seconds is None else self._wall_until(starts.next_seconds)
        return min((seconds for seconds in (again, rest, slow) if seconds is not None), default=None)

    def _wall_until(self, clock_seconds: float) -> float:
        """Return the wall seconds until a second of the clock, never quite zero."""
        return max(0.01, self._clock.to_wall(clock_seconds) - self._clock.to_wall(self._clock.now()))

    async def _carry_out(
        self, workload: CustomObject, known: _WorkloadEntry, spec: WorkloadSpec, pods: list[ChildPod]
    ) -> float | None:
        plan = workloads.plan_workload(spec, pods, known.memory, self._clock.now())
        undeleted = await self._children.delete(workload.metadata.namespace, plan.delete)
        known.unwritten = summary(undeleted, "deleted")
        now = time.monotonic()
        present = {pod.index for pod in pods}
        known.made = {
            index: made for index, made in known.made.items() if index not in present and now - made < MADE_SECONDS
        }
        indexes = [index for index in plan.make if index not in known.made]
        manifests = [
            partial(
                workload_pod,
                name=workload.metadata.name,
                namespace=workload.metadata.namespace,
                uid=workload.metadata.uid,
                spec=spec,
                index=index,
                workload_class=self._children.class_in(workload.metadata.namespace, WorkloadClass.ONLINE),
                scheduler_name=self._scheduler_name,
            )
            for index in indexes
        ]
        if manifests:
            made = await self._children.make(manifests)
            known.made.update((indexes[number], now) for number in made.there)
            if made.fault is not None:
                raise made.fault
            known.trouble = made.trouble
        elif not plan.make:
            known.trouble = None
        if known.trouble:
            return TROUBLE_SECONDS
        if plan.recheck_seconds is None:
            return None
        return self._wall_until(plan.recheck_seconds)

    async def _adopt(self, workload: CustomObject, key: str) -> list[ChildPod]:
        """Label the selected pods and return them; children of a former template are not among them."""
        pods = []
        turn = Turn()
        for pod in self._cache.pods_of_workload(key):
            await turn.give_way()
            owner = controller_of(pod.metadata)
            if owner is None or owner.uid != workload.metadata.uid:
                pods.append(pod)
        await self._children.adopt(workload.metadata.namespace, workload.metadata.name, pods)
        return await in_turns(see, pods)

    async def _children_of(self, workload: CustomObject, key: str) -> list[ChildPod]:
        """Return the pods that a Workload controls, by index."""
        uid = workload.metadata.uid
        return by_index(await in_turns(lambda pod: see_child(pod, uid), self._cache.pods_of_workload(key)))

    def _recall(self, key: str, workload: CustomObject) -> _WorkloadEntry:
        """Return the state of a Workload; for a new Workload it comes from its status."""
        metadata = workload.metadata
        known = self._known.get(key)
        if known is None or known.kept.uid != metadata.uid:
            violations = workload.status.get("violations")
            before = violations if isinstance(violations, int) else 0
            reading = self._readings.get(key)
            # A Workload that was deleted and made again starts at zero, whatever was counted under its name.
            counted = reading.violations if reading and known is not None else 0
            known = self._known[key] = _WorkloadEntry(LastWritten(metadata.uid, dict(workload.status)), before, counted)
        if known.generation != metadata.generation or known.spec is None:
            known.generation = metadata.generation
            try:
                known.spec = read_workload({"metadata": {"name": metadata.name}, "spec": workload.spec})
            except InputError as error:
                known.spec, known.fault = None, str(error)
        return known

    async def _latest_decisions(self, workload: CustomObject, pods: list[ChildPod]) -> dict[str, Decision]:
        def decided(pod: ChildPod) -> Decision | None:
            key = f"{workload.metadata.namespace}/{pod.name}"
            decision = self._decisions.get(key) or noted_decision(self._cache, key)
            return self._view.decision(decision) if decision is not None and decision.uid == pod.uid else None

        found = zip(pods, await in_turns(decided, pods), strict=True)
        return {pod.name: decision for pod, decision in found if decision is not None}
