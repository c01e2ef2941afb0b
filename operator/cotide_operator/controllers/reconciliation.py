"""The reconciliation of Jobs and Workloads: one look at a time for each object, whoever asks for it.

::

    kopf (created, updated, resumed, deleted) --reconcile, waits for the look--.
    pods of Jobs and Workloads (the cache) -------------------------------------+--> work queue --> look
    new decisions (in turns of namespaces) -------------------------------------'         ^           |
                                                                                         '-----------'
                                                                                       when it says so

kopf says when one of our two resources changed, and what becomes of its handler when the look fails. The cache of both
enqueues nothing but what it shows too late for such a look, and Workloads that went; it is what a look reads, because
it holds what the gates let in, and because kopf hears nothing of a deletion between two of its lists. Pods come from
the cache: kopf takes 0.65 ms of cpu for each event, and there are far more pods.

Run by the operator's assembly in its own event loop, beside the scheduling loop; one instance serves one term of
leadership, because what it remembers is only true while nobody else acts. Invariants: nothing is looked at before the
cache was filled; a look works on what is there, not on what happened, so that lost or doubled notifications do no
harm; decisions alone lead to at most `REFRESHES_PER_SECOND` looks, however long the queue is; an object of many pods is
left alone for a time after each look; a look that kopf waits for is tried again by kopf, any other by the queue.
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
"""Looks at Jobs for nothing but new decisions; chosen: 5 % of the writes an API server on 2 cores takes."""
RESYNC_SECONDS: Final = 60.0
"""Wall seconds after which everything is looked at again, whatever was lost; chosen."""
SHOWN_SECONDS: Final = 1.0
"""Longest that a look waits for the cache to show what kopf has seen; chosen, both watch the same server."""
AT_ONCE_EACH: Final = 8
"""Objects of one namespace looked at at the same time. Chosen."""
AT_ONCE: Final = 64
"""Of all namespaces; chosen: a look mostly waits for the API server, and seven namespaces may have all they want."""
REST_SECONDS_A_POD: Final = 1e-4
"""Between two looks at an object, for each of its pods beyond `WITHOUT_REST`, so that the changes of a Job's many pods
leave time to others. Chosen: 10,000 pods that fit nowhere took all of the loop without, half of it with."""
WITHOUT_REST: Final = 100
"""Pods of an object whose looks are too short to be spread; chosen."""

Ours = Literal["jobs", "workloads"]
WorkKey = tuple[Ours, str]


class Controllers:
    """Both controllers, their queue and their workers.

    Parameters
    ----------
    client, cache, decisions, clock :
        The operator's.
    readings : ServiceReadings, optional
        What is measured of services.
    applicability : callable, optional
        What the QoS model in use knows of a service; without it Workloads have no conditions about that.
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
        children = ChildPodWriter(client, cache)  # of both: what a namespace may have in flight is counted there
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
        """Of who waits for the cache of an object to change, set when it did."""
        self._late: dict[WorkKey, tuple[str, bool]] = {}
        """What was seen of objects (version, and whether they went) and could not be waited for any longer."""
        self._unrefreshed: FairQueue[WorkKey] = FairQueue()
        """Whose status does not show the latest decisions yet."""
        self._decisions = asyncio.Event()
        self._waiting: dict[WorkKey, list[asyncio.Future[None]]] = {}
        """Whoever waits for the outcome of the next look."""
        self._owners: dict[str, tuple[WorkKey, ...]] = {}
        """Who a pod belonged to when it was last seen: the cache forgets that with the pod."""
        cache.subscribe(self._mirror_changed)
        decisions.subscribe(self._decided)

    async def reconcile(self, kind: Ours, key: str, version: str = "", *, deleted: bool = False) -> None:
        """Look at an object of ours, and return when that is done.

        Parameters
        ----------
        kind, key :
            Which object.
        version : str
            Its version as the caller saw it: the look waits a moment for the cache to show it.
        deleted : bool
            Whether the caller saw it go.

        Raises
        ------
        Exception
            What the look failed with; it is not tried again unless somebody asks for it.
        """
        if self._loop is not None:
            await self._shown(kind, key, version, deleted=deleted)
        loop = self._loop
        if loop is None:  # not yet, or not any more, also since a moment ago: all is looked at when a term begins
            return
        outcome = loop.create_future()
        self._waiting.setdefault((kind, key), []).append(outcome)
        self.queue.add((kind, key))
        await outcome

    async def health(self) -> dict[str, int]:
        """Return how many objects wait for a look: an answer says that the loop runs."""
        return {"waiting": len(self.queue)}

    async def run(self, stop: asyncio.Event) -> None:
        """Control until ``stop`` is set; what is being looked at then is finished."""
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
        """Look at all Workloads: another model may answer for them, or the heuristic."""
        for key in self._cache.workloads:
            self._refresh_soon(("workloads", key))

    async def _work(self) -> None:
        """Begin a look whenever one is due and has a slot."""
        await self._wait_until_filled()
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._reconcile_in_turn(await self.queue.get()))

    async def _reconcile_in_turn(self, following: WorkKey | None) -> None:
        """Look at a key and, at once, at whatever is due after it: a turn of the event loop may be long."""
        while following is not None:
            # A look that began is finished even when we are told to stop: between its writes nothing may be lost.
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
        """Look at whose pods have new decisions, so many a second; namespaces take turns."""
        while True:
            self._decisions.clear()
            if not self._unrefreshed:
                await self._decisions.wait()
            await asyncio.sleep(1.0 / REFRESHES_PER_SECOND)  # and what is decided meanwhile is shown, too
            key = self._unrefreshed.pop()
            if key is not None:
                self.queue.add(key)

    async def _reconcile(self, kind: Ours, key: str) -> None:
        controller = self.jobs if kind == "jobs" else self.workloads
        waiting = self._waiting.pop((kind, key), [])  # who asks from now on asks for another look
        try:
            again = await controller.reconcile(key)
        except Exception as error:  # noqa: BLE001 - one object that trips us must not stop all others
            self._failed(kind, key, error, asked=bool(waiting))
            _give(waiting, error)
        else:
            self.queue.done((kind, key), self._rest_of(kind, key))
            if again is not None:
                self.queue.add_after((kind, key), again)
            _give(waiting)

    def _rest_of(self, kind: Ours, key: str) -> float:
        """Return the wall seconds for which an object is left alone after a look, however that ended."""
        return REST_SECONDS_A_POD * max(0, self._cache.pod_count(kind, key) - WITHOUT_REST)

    def _failed(self, kind: Ours, key: str, error: Exception, *, asked: bool) -> None:
        """Give a key back after a look that failed; one that somebody waits for is his to try again."""
        if not isinstance(error, CotideError):
            self._cache.quarantine_object(kind, key, "controller", error)
        rest = self._rest_of(kind, key)
        if asked:
            self.queue.done((kind, key), rest)
            return
        seconds = self.queue.failed((kind, key), rest)
        if isinstance(error, CotideError):
            _LOG.warning("%s %s is looked at again in %.1f s: %s", kind, key, seconds, error)

    async def _resync(self) -> None:
        """Look at Workloads as often as their numbers are refreshed, at everything now and then."""
        await self._wait_until_filled()
        loop = asyncio.get_running_loop()
        next_everything = loop.time() + RESYNC_SECONDS  # kopf, which lists all of them when it is up, begins
        while True:
            await asyncio.sleep(self._refresh_seconds)
            for key in self._cache.workloads:
                self.queue.add(("workloads", key))
            if loop.time() >= next_everything:
                next_everything = loop.time() + RESYNC_SECONDS
                for key in {**dict.fromkeys(self._cache.jobs), **dict.fromkeys(self._cache.keepers())}:
                    self._refresh_soon(("jobs", key))

    def _shows(self, kind: Ours, key: str, version: str, *, deleted: bool) -> bool:
        """Whether the cache is as new as what somebody saw; versions that can't be compared are taken as seen."""
        there = self._cache.objects(kind).get(key)
        if there is None or deleted:
            return (there is None) == deleted
        mine, wanted = version_of(there.metadata.resource_version), version_of(version)
        return mine is None or wanted is None or mine >= wanted

    async def _shown(self, kind: Ours, key: str, version: str, *, deleted: bool) -> None:
        """Return when the cache is as new as what somebody saw, or after a moment.

        After a moment the look is at what is there, and whoever asked takes it for one at what he saw: another follows
        when the cache shows that.
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
        """Look at an object of which the cache shows more now than when it was to be waited for."""
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
                else:  # kopf need not hear of it, and without pods nothing else leads to the look that forgets it
                    self.queue.add((kind, key))
            for awaited in self._unshown.get((kind, key), ()):
                awaited.set()
            self._shown_late(kind, key)

    def _pod_changed(self, key: str) -> None:
        job, workload = self._cache.job_of(key), self._cache.workload_of(key)
        owners: list[WorkKey] = []
        if job is not None:
            owners.append(("jobs", job))
            self.jobs.saw(job, self._cache.pods[key])  # whose Job is known is there
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
        """Show a new decision in its owner's status, soon."""
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
    """Tell everybody who waited for a look how it ended."""
    for outcome in waiting:
        if outcome.done():  # whoever waited may have been cancelled
            continue
        if error is None:
            outcome.set_result(None)
        else:
            outcome.set_exception(error)
