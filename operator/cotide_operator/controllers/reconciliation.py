"""The reconciliation of Jobs and Workloads: each object has one reconciliation at a time.

::

    kopf (created, updated, resumed, deleted) --reconcile, waits for the end---.
    pods of Jobs and Workloads (the cache) -------------------------------------+--> work queue --> reconciliation
    new decisions (in turns of namespaces) -------------------------------------'         ^           |
                                                                                         '-----------'
                                                                                        when it asks for another

kopf reports changes of our two resources and handles the retry when a reconciliation fails. A reconciliation reads the
cache of both resources for two reasons. The cache holds the objects that passed the gates, and kopf misses a deletion
between two of its lists. The cache itself enqueues two things: objects that it shows too late for such a
reconciliation, and deleted Workloads. Changes of pods come from the cache, because kopf takes 0.65 ms of cpu for each
event, and there are far more pods.

The operator's assembly runs it in an event loop of its own, next to the scheduling loop. One instance serves one term
of leadership, because its memory is only valid while it is the only writer.

Invariants:

- Reconciliations start after the cache is filled.
- A reconciliation works on the present state, not on events, so that lost or doubled notifications do no harm.
- Decisions alone lead to at most `REFRESHES_PER_SECOND` reconciliations, however long the queue is.
- An object of many pods rests for a time after each reconciliation.
- kopf retries a reconciliation that it waits for; the queue retries any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final, Literal

from cotide_core.errors import CotideError
from cotide_kube.client import KubeClient
from cotide_operator.cache.decision_store import DecisionStore
from cotide_operator.cache.fair_queue import FairQueue
from cotide_operator.cache.object_cache import Kind, ObjectCache, namespace_of_key
from cotide_operator.clock import Clock
from cotide_operator.controllers.child_pod_writer import ChildPodWriter
from cotide_operator.controllers.job_controller import DEFAULT_OPTIONS, JobController, ReconcileOptions
from cotide_operator.controllers.status_writer import version_of
from cotide_operator.controllers.work_queue import WorkQueue
from cotide_operator.controllers.workload_controller import Applicability, WorkloadController
from cotide_operator.usage.service_readings import NoReadings, ServiceReadings

_LOG = logging.getLogger(__name__)

REFRESHES_PER_SECOND: Final = 50.0
"""Reconciliations of Jobs that only show new decisions; chosen: 5 % of the writes an API server on 2 cores takes."""
RESYNC_SECONDS: Final = 60.0
"""Wall seconds between two reconciliations of everything, against lost notifications; chosen."""
SHOWN_SECONDS: Final = 1.0
"""Longest wait for the cache to show the version that kopf has seen; chosen, both watch the same server."""
AT_ONCE_EACH: Final = 8
"""Objects of one namespace that are reconciled at the same time. Chosen."""
AT_ONCE: Final = 64
"""Objects of all namespaces that are reconciled at the same time. Chosen: a reconciliation mostly waits for the API
server, and seven namespaces can use all their slots."""
REST_SECONDS_A_POD: Final = 1e-4
"""Rest between two reconciliations of an object, for each of its pods beyond `WITHOUT_REST`, so that the changes of a
Job's many pods leave time to others. Chosen: 10,000 pods that fit nowhere took all of the loop without it, and half
with it."""
WITHOUT_REST: Final = 100
"""Pods of an object that is reconciled quickly enough to need no rest; chosen."""

Ours = Literal["jobs", "workloads"]
WorkKey = tuple[Ours, str]


class Controllers:
    """Both controllers, their queue and their workers.

    Parameters
    ----------
    client, cache, decisions, clock :
        The operator's.
    readings : ServiceReadings, optional
        Measurements of services.
    applicability : callable, optional
        How far the QoS model in use covers a service; without it Workloads have no conditions about that.
    options : ReconcileOptions
    """

    def __init__(
        self,
        client: KubeClient,
        cache: ObjectCache,
        decisions: DecisionStore,
        clock: Clock,
        *,
        readings: ServiceReadings | None = None,
        applicability: Applicability | None = None,
        options: ReconcileOptions = DEFAULT_OPTIONS,
    ) -> None:
        self._cache = cache
        self._refresh_seconds = options.refresh_seconds
        children = ChildPodWriter(client, cache)  # shared: it counts a namespace's requests in flight
        self.jobs = JobController(client, cache, decisions, clock, options, children)
        self.workloads = WorkloadController(
            client,
            cache,
            decisions,
            clock,
            readings=readings or NoReadings(),
            applicability=applicability,
            options=options,
            children=children,
        )
        self.queue: WorkQueue[WorkKey] = WorkQueue(_namespace_of, slots=AT_ONCE, slots_each=AT_ONCE_EACH)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._filled = asyncio.Event()
        self._unshown: dict[WorkKey, list[asyncio.Event]] = {}
        """Events of the tasks that wait for a change of an object in the cache."""
        self._late: dict[WorkKey, tuple[str, bool]] = {}
        """Objects that the cache showed too late: the awaited version, and whether the object was deleted."""
        self._unrefreshed: FairQueue[WorkKey] = FairQueue()
        """Objects with a status that does not show the latest decisions yet."""
        self._decisions = asyncio.Event()
        self._waiting: dict[WorkKey, list[asyncio.Future[None]]] = {}
        """Futures of the callers that wait for the outcome of the next reconciliation."""
        self._owners: dict[str, tuple[WorkKey, ...]] = {}
        """Owners of each pod when it was last seen: the cache forgets them with the pod."""
        cache.subscribe(self._mirror_changed)
        decisions.subscribe(self._decided)

    async def reconcile(self, kind: Ours, key: str, version: str = "", *, deleted: bool = False) -> None:
        """Reconcile one of our objects, and return when that is done.

        Parameters
        ----------
        kind, key :
            The object.
        version : str
            Its version as the caller saw it: the reconciliation waits a moment for the cache to show it.
        deleted : bool
            Whether the caller saw its deletion.

        Raises
        ------
        Exception
            The error that the reconciliation failed with; a retry is up to the caller.
        """
        if self._loop is not None:
            await self._shown(kind, key, version, deleted=deleted)
        loop = self._loop
        if loop is None:  # before or after the term; a term begins with all objects
            return
        outcome = loop.create_future()
        self._waiting.setdefault((kind, key), []).append(outcome)
        self.queue.add((kind, key))
        await outcome

    async def health(self) -> dict[str, int]:
        """Return how many objects wait for a reconciliation: an answer shows that the loop runs."""
        return {"waiting": len(self.queue)}

    async def run(self, stop: asyncio.Event) -> None:
        """Reconcile until ``stop`` is set; reconciliations in progress are finished."""
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work) for work in (self._resync(), self._refresh(), self._work())]
                await stop.wait()
                self._loop = None
                for task in tasks:
                    task.cancel()
        finally:
            self._loop = None
            for key in list(self._waiting):
                _give(self._waiting.pop(key))

    def models_changed(self) -> None:
        """Reconcile all Workloads: another model, or the heuristic, may now decide about them."""
        for key in self._cache.workloads:
            self._refresh_soon(("workloads", key))

    async def _work(self) -> None:
        """Start each reconciliation that is due and has a slot."""
        await self._wait_until_filled()
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._reconcile_in_turn(await self.queue.get()))

    async def _reconcile_in_turn(self, following: WorkKey | None) -> None:
        """Reconcile a key and, at once, every key that is due after it: a turn of the event loop can be long."""
        while following is not None:
            # A reconciliation in progress is finished even when the task is cancelled, so that all its writes are made.
            reconciling = asyncio.ensure_future(self._reconcile(*following))
            try:
                await asyncio.shield(reconciling)
            except asyncio.CancelledError:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(5.0):
                        await reconciling
                raise
            following = self.queue.take()

    async def _refresh(self) -> None:
        """Reconcile the owners of pods with new decisions, so many a second; namespaces take turns."""
        while True:
            self._decisions.clear()
            if not self._unrefreshed:
                await self._decisions.wait()
            await asyncio.sleep(1.0 / REFRESHES_PER_SECOND)  # decisions of the meantime are shown, too
            key = self._unrefreshed.pop()
            if key is not None:
                self.queue.add(key)

    async def _reconcile(self, kind: Ours, key: str) -> None:
        controller = self.jobs if kind == "jobs" else self.workloads
        waiting = self._waiting.pop((kind, key), [])  # later callers wait for another reconciliation
        try:
            again = await controller.reconcile(key)
        except Exception as error:  # noqa: BLE001 - one faulty object must not stop all others
            self._failed(kind, key, error, asked=bool(waiting))
            _give(waiting, error)
        else:
            self.queue.done((kind, key), self._rest_of(kind, key))
            if again is not None:
                self.queue.add_after((kind, key), again)
            _give(waiting)

    def _rest_of(self, kind: Ours, key: str) -> float:
        """Return the wall seconds of an object's rest after a reconciliation, whatever its outcome."""
        return REST_SECONDS_A_POD * max(0, self._cache.pod_count(kind, key) - WITHOUT_REST)

    def _failed(self, kind: Ours, key: str, error: Exception, *, asked: bool) -> None:
        """Return a key to the queue after a failure; if a caller waits for the outcome, the retry is up to the
        caller."""
        if not isinstance(error, CotideError):
            self._cache.quarantine_object(kind, key, "controller", error)
        rest = self._rest_of(kind, key)
        if asked:
            self.queue.done((kind, key), rest)
            return
        seconds = self.queue.failed((kind, key), rest)
        if isinstance(error, CotideError):
            _LOG.warning("%s %s is reconciled again in %.1f s: %s", kind, key, seconds, error)

    async def _resync(self) -> None:
        """Reconcile Workloads as often as their numbers are refreshed, and everything now and then."""
        await self._wait_until_filled()
        loop = asyncio.get_running_loop()
        next_everything = loop.time() + RESYNC_SECONDS  # kopf lists all objects when it starts
        while True:
            await asyncio.sleep(self._refresh_seconds)
            for key in self._cache.workloads:
                self.queue.add(("workloads", key))
            if loop.time() >= next_everything:
                next_everything = loop.time() + RESYNC_SECONDS
                for key in {**dict.fromkeys(self._cache.jobs), **dict.fromkeys(self._cache.keepers())}:
                    self._refresh_soon(("jobs", key))

    def _shows(self, kind: Ours, key: str, version: str, *, deleted: bool) -> bool:
        """Whether the cache is as new as the version seen by a caller; versions that can't be compared count as new."""
        item = self._cache.objects(kind).get(key)
        if item is None or deleted:
            return (item is None) == deleted
        mine, wanted = version_of(item.metadata.resource_version), version_of(version)
        return mine is None or wanted is None or mine >= wanted

    async def _shown(self, kind: Ours, key: str, version: str, *, deleted: bool) -> None:
        """Return when the cache is as new as the version seen by a caller, or after a moment.

        After a moment the reconciliation works on the cache as it is, and counts for the caller as one of the version
        it saw. Another one follows when the cache shows that version.
        """
        changed = asyncio.Event()
        waiting = self._unshown.setdefault((kind, key), [])
        waiting.append(changed)
        try:
            async with asyncio.timeout(SHOWN_SECONDS):
                while not self._shows(kind, key, version, deleted=deleted):
                    await changed.wait()
                    changed.clear()
            self._late.pop((kind, key), None)
        except TimeoutError:
            self._late[kind, key] = (version, deleted)
        finally:
            waiting.remove(changed)
            if not waiting:
                del self._unshown[kind, key]

    def _shown_late(self, kind: Ours, key: str) -> None:
        """Reconcile an object that the cache showed too late for its caller."""
        seen = self._late.get((kind, key))
        if seen is None:
            return
        version, deleted = seen
        if self._shows(kind, key, version, deleted=deleted):
            del self._late[kind, key]
        self.queue.add((kind, key))

    async def _wait_until_filled(self) -> None:
        if self._cache.synced:
            self._filled.set()
        await self._filled.wait()

    def _mirror_changed(self, kind: Kind, key: str) -> None:
        if not key:
            if self._cache.synced:
                self._filled.set()
        elif kind == "pods":
            self._pod_changed(key)
        elif kind in ("jobs", "workloads"):
            if key not in self._cache.objects(kind):
                self._unrefreshed.drop((kind, key))
                if kind == "jobs":
                    self.jobs.forget(key)
                else:  # kopf may miss it, and without pods only this entry removes its state
                    self.queue.add((kind, key))
            for awaited in self._unshown.get((kind, key), ()):
                awaited.set()
            self._shown_late(kind, key)

    def _pod_changed(self, key: str) -> None:
        job, workload = self._cache.job_of(key), self._cache.workload_of(key)
        owners: list[WorkKey] = []
        if job is not None:
            owners.append(("jobs", job))
            self.jobs.saw(job, self._cache.pods[key])  # the cache holds the pod of a known Job
        if workload is not None:
            owners.append(("workloads", workload))
        keeper = self._cache.keeper_of(key)
        if keeper is not None and keeper != job:
            owners.append(("jobs", keeper))
        for owner in {*owners, *self._owners.pop(key, ())}:
            self.queue.add(owner)
        if owners:
            self._owners[key] = tuple(owners)

    def _decided(self, pod_key: str) -> None:
        """Show a new decision in its owner's status soon."""
        job, workload = self._cache.job_of(pod_key), self._cache.workload_of(pod_key)
        if job is not None:
            self._refresh_soon(("jobs", job))
        elif workload is not None:
            self._refresh_soon(("workloads", workload))

    def _refresh_soon(self, key: WorkKey) -> None:
        if self._loop is not None:
            self._unrefreshed.add(key, _namespace_of(key))
            self._decisions.set()


def _namespace_of(key: WorkKey) -> str:
    return namespace_of_key(key[1])


def _give(waiting: list[asyncio.Future[None]], error: Exception | None = None) -> None:
    """Pass the outcome of a reconciliation to all callers that wait for it."""
    for outcome in waiting:
        if outcome.done():  # the waiting task may have been cancelled
            continue
        if error is None:
            outcome.set_result(None)
        else:
            outcome.set_exception(error)
