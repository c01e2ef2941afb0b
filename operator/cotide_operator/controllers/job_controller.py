"""Reconciles one Job: the I/O around `job_reconciler` and `status_builder`.

`controllers` calls it with the key of a Job. One reconciliation plans, writes ended pods into the status, makes and
deletes pods, and releases the counted ones, in this order. A Job has up to 10,000 pods. So the loop's other work gets
its turn between any two steps, and within steps outside the pure functions. Invariant: the successor of an ended pod is
made, and our finalizer taken off that pod, only after the API server accepted the status that counts the end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from cotide_core.classes import WorkloadClass
from cotide_core.errors import InputError
from cotide_kube.client import KubeClient
from cotide_kube.objects import PodObject
from cotide_kube.turns import Turn, in_steps, in_turns
from cotide_operator.apis.types import JobSpec, read_job
from cotide_operator.cache.decision_store import Decision, DecisionStore
from cotide_operator.cache.object_cache import CustomObject, ObjectCache, key_of
from cotide_operator.clock import Clock
from cotide_operator.config.object_names import DEFAULT_SCHEDULER_NAME
from cotide_operator.controllers import job_reconciler as jobs
from cotide_operator.controllers.child_pod_writer import ChildPodWriter, summary
from cotide_operator.controllers.child_pods import ChildPod, Manifest, by_index, job_pod, see_child
from cotide_operator.controllers.job_finalizers import LAGGING_SECONDS, JobFinalizers, Released
from cotide_operator.controllers.job_status_reader import JobStatusReader
from cotide_operator.controllers.starts.start_conditions import avoiding
from cotide_operator.controllers.starts.start_reporter import NO_REPORTS, StartReports
from cotide_operator.controllers.starts.start_times import DEFAULT_LIMITS, StartLimits
from cotide_operator.controllers.status_builder import (
    ReconcileContext,
    Starting,
    job_status_steps,
    misconfigured,
    with_released,
)
from cotide_operator.controllers.status_writer import REFRESH_SECONDS, LastWritten, StatusWriter
from cotide_operator.reporting.tenant_view import TenantView
from cotide_operator.translation.decision_annotation import DECISION_ANNOTATION, decode
from cotide_operator.translation.pod_phases import NO_PHASES, Phases

_LOG = logging.getLogger(__name__)

TROUBLE_SECONDS: Final = 30.0
"""Longest wall seconds before a pod that the API server refused is tried again; chosen: the user must change something,
and the first tries come sooner, because a quota may be free again in a moment."""
SOON_SECONDS: Final = 0.05
"""Wall seconds before a reconciliation that only reports the errors of the last one; chosen."""
MADE_SECONDS: Final = 10.0
"""Wall seconds during which a new pod may be missing from the cache; chosen, a watch is far faster."""


@dataclass(slots=True)
class _JobEntry:
    kept: LastWritten
    read: bool = False
    """Whether `kept` is at least as new as this term of leadership; see `job_status_reader`."""
    memory: jobs.ReconcilerCache = field(default_factory=jobs.ReconcilerCache)
    made: dict[tuple[int, int], float] = field(default_factory=dict)
    trouble: str | None = None
    """The API server's error about the pods to be made."""
    refusals: int = 0
    """Number of refused creations in a row."""
    retry_monotonic: float = 0.0
    """No pod is made before this moment, unless one ended since the refusal."""
    alive_then: int = 0
    unwritten: str | None = None
    """The API server's error about deleting or releasing pods."""
    generation: int = -1
    spec: JobSpec | None = None
    fault: str = ""
    seen: dict[str, tuple[PodObject, ChildPod | None]] = field(default_factory=dict)
    """Pods of the last reconciliation by uid."""


@dataclass(frozen=True, slots=True)
class ReconcileOptions:
    """Options for the reconciliation of Jobs and Workloads.

    Attributes
    ----------
    scheduler_name : goes into every child pod.
    refresh_seconds : wall seconds between two refreshes of one object's numbers.
    reclaim : whether the pods of Jobs ask for reclaimed capacity.
    limits : for pods of Jobs that hold a node and do not run.
    starts : receives reports about those pods.
    learned : the phases for the next pods of a Job; empty where none are learned.
    """

    scheduler_name: str = DEFAULT_SCHEDULER_NAME
    refresh_seconds: float = REFRESH_SECONDS
    reclaim: bool = False
    limits: StartLimits = DEFAULT_LIMITS
    starts: StartReports = NO_REPORTS
    learned: Callable[[CustomObject, JobSpec], Phases] = lambda *_: NO_PHASES


DEFAULT_OPTIONS: Final = ReconcileOptions()


class JobController:
    """Keeps Jobs and their pods in step."""

    def __init__(
        self,
        client: KubeClient,
        cache: ObjectCache,
        decisions: DecisionStore,
        clock: Clock,
        options: ReconcileOptions = DEFAULT_OPTIONS,
        children: ChildPodWriter | None = None,
    ) -> None:
        self._cache = cache
        self._decisions = decisions
        self._view = TenantView(cache)
        self._clock = clock
        self._options = options
        self._children = children or ChildPodWriter(client, cache)
        self._tracking = JobFinalizers(client, cache, self._children)
        self._record = JobStatusReader(client)
        self.statuses = StatusWriter(client, "jobs", options.refresh_seconds)
        self._known: dict[str, _JobEntry] = {}
        self._ended: dict[str, dict[str, PodObject]] = {}
        """Ended pods that may not be counted yet, by Job and uid. While the API server refuses the count, such a pod
        may be deleted, and the cache then shows only that it is missing."""

    def saw(self, key: str, pod: PodObject) -> None:
        """Remember an ended pod of a Job in its final state until it is counted."""
        if pod.status.phase in ("Succeeded", "Failed"):
            self._ended.setdefault(key, {}).setdefault(pod.metadata.uid, pod)

    def forget(self, key: str) -> None:
        """Drop the state of a deleted Job."""
        self._known.pop(key, None)
        self._ended.pop(key, None)

    def _forget_ended(self, key: str, counted: Iterable[str]) -> None:
        left = self._ended.get(key, {})
        for uid in counted:
            left.pop(uid, None)
        if not left:
            self._ended.pop(key, None)

    async def reconcile(self, key: str) -> float | None:
        """Take the next steps of a Job; return the wall seconds until the next reconciliation, or None."""
        job = self._cache.jobs.get(key)
        if job is None or job.metadata.deletion_timestamp:  # its pods are deleted with it, by their ownerReferences
            self.forget(key)
            return self._later(key, await self._tracking.release_strays(key, job))
        known = self._recall(key, job)
        context = ReconcileContext(self._clock, time.time(), job.metadata.generation)
        if known.spec is None:
            status = misconfigured(known.kept.status, known.fault, context, phase="Queued")
            await self._tracking.release_strays(key, job)
            before = known.kept.status.get("conditions") or ()
            again = await self.statuses.write(job, known.kept, status)
            self._options.starts.changed("Job", key, job.metadata.uid, before, status["conditions"])
            return again
        turn = Turn()
        present = {pod.metadata.uid: pod for pod in self._cache.pods_of_job(key)}
        ended = dict(self._ended.get(key, {}))
        await turn.give_way()
        pods = await self._see(known, {**ended, **present}, job.metadata.uid)
        await turn.give_way()
        planned = await self._plan(job, known, known.spec, pods)
        await turn.give_way()
        if planned is None:  # gone or replaced: the cache will report it
            return LAGGING_SECONDS
        plan, accounted = planned
        if accounted:  # the server's status has all pods that had ended before this reconciliation
            self._forget_ended(key, ended)
        if accounted and await self._make(job, known, known.spec, plan, pods):
            # The pods' own arrival brings the next reconciliation, and with it the status: one write instead of two.
            undeleted = await self._children.delete(job.metadata.namespace, plan.delete)
            if undeleted:
                return self._noted(known, summary(undeleted, "deleted"))
            return self._wall_until(plan.recheck_seconds) or MADE_SECONDS
        decisions = await self._latest_decisions(job, pods)
        await turn.give_way()
        status = await in_steps(
            job_status_steps(
                known.spec,
                plan.progress,
                pods,
                decisions,
                known.kept.status,
                context,
                known.trouble,
                Starting(plan.slow, plan.held_back),
            )
        )
        status["conditions"] = with_released(status["conditions"], known.unwritten, context)
        await turn.give_way()
        before = known.kept.status.get("conditions") or ()
        again = await self.statuses.write(job, known.kept, status, at_once=not accounted)
        self._report(key, job, known.spec, plan, (before, status["conditions"]))
        if not accounted:
            await self._make(job, known, known.spec, plan, pods)
        await turn.give_way()
        undeleted = await self._children.delete(job.metadata.namespace, plan.delete)
        held = await self._tracking.release(
            job.metadata.namespace,
            [pod for pod in plan.release if pod.uid in present],
            plan.unfollowed,
            over=plan.progress.outcome is not None,
        )
        await turn.give_way()
        strays = await self._tracking.release_strays(key, job)
        unwritten = summary(undeleted, "deleted") or summary({**held.refused, **strays.refused}, "released")
        refused = self._noted(known, unwritten) if unwritten != known.unwritten or unwritten else None
        trouble = None
        if known.trouble:
            trouble = max(SOON_SECONDS, known.retry_monotonic - time.monotonic()) if accounted else SOON_SECONDS
        rests = (again, held.again_seconds, strays.again_seconds, refused, trouble)
        waits = (*rests, self._wall_until(plan.recheck_seconds))
        return min((seconds for seconds in waits if seconds is not None), default=None)

    def _report(
        self, key: str, job: CustomObject, spec: JobSpec, plan: jobs.JobPlan, conditions: tuple[Any, Any]
    ) -> None:
        """Report pods that were not started, once the status shows them, too."""
        reports, uid = self._options.starts, job.metadata.uid
        reports.changed("Job", key, uid, *conditions)
        if plan.given_up:
            given = self._children.class_in(job.metadata.namespace, WorkloadClass(spec.class_)).value
            for pod in plan.given_up:
                reports.gave_up(key, uid, pod, given)

    def _noted(self, known: _JobEntry, unwritten: str | None) -> float:
        """Remember what the API server refuses; return the seconds until the status shows it, or until the next try."""
        fresh = (unwritten is None) != (known.unwritten is None)
        known.unwritten = unwritten
        return SOON_SECONDS if fresh else TROUBLE_SECONDS

    def _later(self, key: str, strays: Released) -> float | None:
        """Return the seconds until the next reconciliation of a deleted Job, which has no status to show a refusal."""
        if not strays.refused:
            return strays.again_seconds
        _LOG.warning("jobs %s is gone, but %s", key, summary(strays.refused, "released"))
        return TROUBLE_SECONDS

    def _wall_until(self, clock_seconds: float | None) -> float | None:
        """Return the wall seconds until a second of the clock, never quite zero."""
        if clock_seconds is None:
            return None
        return max(SOON_SECONDS, self._clock.to_wall(clock_seconds) - self._clock.to_wall(self._clock.now()))

    async def _make(
        self, job: CustomObject, known: _JobEntry, spec: JobSpec, plan: jobs.JobPlan, pods: list[ChildPod]
    ) -> bool:
        """Make the missing pods; return whether pods are under way.

        ``known.trouble`` keeps the API server's error.
        """
        now = time.monotonic()
        turn = Turn()
        present = {(pod.index, pod.retry) for pod in pods}
        known.made = {
            attempt: made
            for attempt, made in known.made.items()
            if attempt not in present and now - made < MADE_SECONDS
        }
        attempts = [attempt for attempt in plan.make if attempt not in known.made]
        alive = sum(pod.alive for pod in pods)
        await turn.give_way()
        if known.trouble and now < known.retry_monotonic and alive >= known.alive_then:
            return False
        workload_class = self._children.class_in(job.metadata.namespace, WorkloadClass(spec.class_))

        learned = self._options.learned(job, spec)

        def manifest(index: int, retry: int) -> Manifest:
            made = job_pod(
                job.metadata,
                spec,
                index=index,
                retry=retry,
                workload_class=workload_class,
                scheduler_name=self._options.scheduler_name,
                reclaim=self._options.reclaim,
                learned=learned,
            )
            return avoiding(made, known.memory.avoided)

        if attempts:
            try:
                manifest(*attempts[0])  # a fault in one manifest is in all of them
            except InputError as error:
                known.trouble = f"spec.template.{error}"
                return False
            made = await self._children.make([partial(manifest, *attempt) for attempt in attempts])
            known.made.update((attempts[number], now) for number in made.there)
            if made.fault is not None:
                raise made.fault
            known.trouble = made.trouble
            known.refusals = known.refusals + 1 if made.trouble else 0
            known.retry_monotonic = now + trouble_seconds(known.refusals)
            known.alive_then = alive + len(made.there)
        elif not plan.make:
            known.trouble = None
        return bool(plan.make) and known.trouble is None

    async def _plan(
        self, job: CustomObject, known: _JobEntry, spec: JobSpec, pods: list[ChildPod]
    ) -> tuple[jobs.JobPlan, bool] | None:
        """Return the plan and whether the status has its progress already; None when the Job is gone.

        Before the first count or creation in this term, the status is read from the API server.
        """
        memory = None if known.read else known.memory.copy()
        turn = Turn()
        progress = jobs.read_progress(known.kept.status)
        await turn.give_way()
        plan = await self._in_steps(spec, progress, pods, known.memory)
        if memory is not None and (plan.make or plan.progress != progress):
            known.memory = memory  # before any failure: notes from an outdated status are dropped
            kept = await self._record.read(job, known.kept)
            if kept is None:
                return None
            known.kept, known.read = kept, True
            progress = jobs.read_progress(kept.status)
            await turn.give_way()
            plan = await self._in_steps(spec, progress, pods, known.memory)
        return plan, plan.progress == progress

    async def _in_steps(
        self, spec: JobSpec, progress: jobs.Progress, pods: list[ChildPod], memory: jobs.ReconcilerCache
    ) -> jobs.JobPlan:
        """Plan a Job; between two steps the loop's other work gets its turn."""
        return await in_steps(jobs.plan_steps(spec, progress, pods, memory, self._clock.now(), self._options.limits))

    def _recall(self, key: str, job: CustomObject) -> _JobEntry:
        """Return the state of a Job; for a new Job it comes from its status."""
        known = self._known.get(key)
        if known is None or known.kept.uid != job.metadata.uid:
            known = self._known[key] = _JobEntry(LastWritten(job.metadata.uid, dict(job.status)))
        if known.generation != job.metadata.generation or known.spec is None:
            known.generation = job.metadata.generation
            try:
                known.spec = read_job({"metadata": {"name": job.metadata.name}, "spec": job.spec})
            except InputError as error:
                known.spec, known.fault = None, str(error)
            known.retry_monotonic, known.refusals = 0.0, 0  # another spec may be accepted at once
        return known

    async def _see(self, known: _JobEntry, pods: dict[str, PodObject], uid: str) -> list[ChildPod]:
        """Return the children among the pods, by index; a pod that has not changed since the last reconciliation is
        reused."""
        before, known.seen = known.seen, {}

        def see(pod: PodObject) -> ChildPod | None:
            seen = before.get(pod.metadata.uid)
            if seen is None or seen[0] is not pod:
                seen = pod, see_child(pod, uid)
            known.seen[pod.metadata.uid] = seen
            return seen[1]

        found = await in_turns(see, pods.values())
        await asyncio.sleep(0)
        return by_index(found)

    async def _latest_decisions(self, job: CustomObject, pods: list[ChildPod]) -> dict[str, Decision]:
        """Return the latest decision by pod name, from the decision store.

        For a pod that is not done, the note from before a restart serves as well. Decisions about finished pods are in
        the status that the last leader wrote.
        """

        def decided(pod: ChildPod) -> Decision | None:
            key = f"{job.metadata.namespace}/{pod.name}"
            decision = self._decisions.get(key) or (None if pod.done else noted_decision(self._cache, key))
            return self._view.decision(decision) if decision is not None and decision.uid == pod.uid else None

        found = zip(pods, await in_turns(decided, pods), strict=True)
        return {pod.name: decision for pod, decision in found if decision is not None}


def trouble_seconds(refusals: int) -> float:
    """Return the wall seconds after the n-th refusal in a row, n from 1: doubled each time up to the maximum."""
    return float(min(TROUBLE_SECONDS, 2.0 ** min(refusals - 1, 10)))


def noted_decision(cache: ObjectCache, key: str) -> Decision | None:
    """Return the decision from a pod's annotation."""
    pod = cache.pods.get(key)
    note = pod.metadata.annotations.get(DECISION_ANNOTATION) if pod is not None else None
    if pod is None or note is None:
        return None
    try:
        return decode(note, key_of(pod.metadata)).decision
    except InputError:  # a foreign text in our annotation: there is no decision
        return None
