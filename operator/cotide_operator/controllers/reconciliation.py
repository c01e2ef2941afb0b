"""The Job and Workload controllers: who is told of changes, and who looks when.

::

    kopf thread --key--> enqueue_threadsafe --.
    mirror (pods, Jobs, Workloads) ------------+--> work queue --> workers --> JobController.look
    board (decisions) --a slot a key-----------'                          `--> WorkloadController.look

Run by the operator's assembly in its own event loop, beside the scheduling loop; one instance serves one term of
leadership, because what it remembers is only true while nobody else acts. Invariants: nothing is looked at
before the mirror was filled; a look works on what is there, not on what happened, so that lost or doubled
notifications do no harm; decisions alone lead to at most `REFRESHES_PER_SECOND` looks, however long the queue is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final, Literal

from cotide_core.errors import CotideError
from cotide_kube.client import KubeClient
from cotide_operator.apis.types import DEFAULT_SCHEDULER_NAME
from cotide_operator.cache.decision_store import DecisionStore
from cotide_operator.cache.object_cache import Kind, ObjectCache
from cotide_operator.clock import Clock
from cotide_operator.controllers.job_controller import JobController
from cotide_operator.controllers.status_writer import REFRESH_SECONDS
from cotide_operator.controllers.work_queue import WorkQueue
from cotide_operator.controllers.workload_controller import Applicability, WorkloadController
from cotide_operator.usage.service_readings import NoReadings, ServiceReadings

_LOG = logging.getLogger(__name__)

REFRESHES_PER_SECOND: Final = 50.0
"""Looks at Jobs for nothing but new decisions; chosen: 5 % of the writes an API server on 2 cores takes."""
RESYNC_SECONDS: Final = 60.0
"""Wall seconds after which everything is looked at again, whatever was lost; chosen."""

Ours = Literal["jobs", "workloads"]
WorkKey = tuple[Ours, str]


class Controllers:
    """Both controllers, their queue and their workers.

    Parameters
    ----------
    client, mirror, board, clock :
        The operator's.
    readings : ServiceReadings, optional
        What is measured of services.
    applicability : callable, optional
        What the QoS model in use knows of a service; without it Workloads have no conditions about that.
    scheduler_name : str
        Goes into every child pod.
    workers : int
        Objects looked at at the same time.
    refresh_seconds : float
        Wall seconds between two refreshes of one object's numbers.
    reclaim : bool
        Whether the pods of Jobs ask for reclaimed capacity.
    """

    def __init__(
        self,
        client: KubeClient,
        mirror: ObjectCache,
        board: DecisionStore,
        clock: Clock,
        *,
        readings: ServiceReadings | None = None,
        applicability: Applicability | None = None,
        scheduler_name: str = DEFAULT_SCHEDULER_NAME,
        workers: int = 8,
        refresh_seconds: float = REFRESH_SECONDS,
        reclaim: bool = False,
    ) -> None:
        self._mirror = mirror
        self._workers = workers
        self._refresh_seconds = refresh_seconds
        self.jobs = JobController(
            client,
            mirror,
            board,
            clock,
            scheduler_name=scheduler_name,
            refresh_seconds=refresh_seconds,
            reclaim=reclaim,
        )
        self.workloads = WorkloadController(
            client,
            mirror,
            board,
            clock,
            readings=readings or NoReadings(),
            applicability=applicability,
            scheduler_name=scheduler_name,
            refresh_seconds=refresh_seconds,
        )
        self.queue: WorkQueue[WorkKey] = WorkQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._filled = asyncio.Event()
        self._next_slot = 0.0
        self._slots: dict[WorkKey, float] = {}
        self._owners: dict[str, tuple[WorkKey, ...]] = {}
        """Who a pod belonged to when it was last seen: the mirror forgets that with the pod."""
        mirror.subscribe(self._mirror_changed)
        board.subscribe(self._decided)

    def enqueue(self, kind: Ours, key: str) -> None:
        """Look at an object of ours soon; only from the operator's own loop."""
        self.queue.add((kind, key))

    def enqueue_threadsafe(self, kind: Ours, key: str) -> bool:
        """Look at an object of ours soon; from any thread. False when nobody would look (yet, or any more)."""
        loop = self._loop
        if loop is None:
            return False
        try:
            loop.call_soon_threadsafe(self.queue.add, (kind, key))
        except RuntimeError:  # the loop was closed meanwhile
            return False
        return True

    async def run(self, stop: asyncio.Event) -> None:
        """Control until ``stop`` is set; what is being looked at then is finished."""
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._resync())]
                tasks += [group.create_task(self._work()) for _ in range(self._workers)]
                await stop.wait()
                self._loop = None
                for task in tasks:
                    task.cancel()
        finally:
            self._loop = None

    async def _work(self) -> None:
        await self._wait_until_filled()
        while True:
            kind, key = await self.queue.get()
            # A look that began is finished even when we are told to stop: between its writes nothing may be lost.
            look = asyncio.ensure_future(self._look(kind, key))
            try:
                await asyncio.shield(look)
            except asyncio.CancelledError:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(5.0):
                        await look
                raise

    async def _look(self, kind: Ours, key: str) -> None:
        controller = self.jobs if kind == "jobs" else self.workloads
        try:
            again = await controller.look(key)
        except CotideError as error:
            seconds = self.queue.failed((kind, key))
            _LOG.warning("%s %s is looked at again in %.1f s: %s", kind, key, seconds, error)
        except Exception as error:  # noqa: BLE001 - one object that trips us must not stop all others
            self.queue.failed((kind, key))
            self._mirror.set_aside(kind, key, "controller", error)
        else:
            self.queue.done((kind, key))
            if again is not None:
                self.queue.add_after((kind, key), again)

    async def _resync(self) -> None:
        """Look at Workloads as often as their numbers are refreshed, at everything now and then."""
        await self._wait_until_filled()
        loop = asyncio.get_running_loop()
        next_everything = loop.time()
        while True:
            for key in self._mirror.workloads:
                self.queue.add(("workloads", key))
            if loop.time() >= next_everything:
                next_everything = loop.time() + RESYNC_SECONDS
                for key in {**dict.fromkeys(self._mirror.jobs), **dict.fromkeys(self._mirror.keepers())}:
                    self._take_slot(("jobs", key))
            await asyncio.sleep(self._refresh_seconds)

    async def _wait_until_filled(self) -> None:
        if self._mirror.synced:
            self._filled.set()
        await self._filled.wait()

    def _mirror_changed(self, kind: Kind, key: str) -> None:
        if not key:
            if self._mirror.synced:
                self._filled.set()
        elif kind in ("jobs", "workloads"):
            if key not in self._mirror.objects(kind):
                self._slots.pop((kind, key), None)
                if kind == "jobs":
                    self.jobs.forget(key)
            self.queue.add((kind, key))
        elif kind == "pods":
            self._pod_changed(key)

    def _pod_changed(self, key: str) -> None:
        job, workload = self._mirror.job_of(key), self._mirror.workload_of(key)
        owners: list[WorkKey] = []
        if job is not None:
            owners.append(("jobs", job))
            self.jobs.saw(job, self._mirror.pods[key])  # whose Job is known is there
        if workload is not None:
            owners.append(("workloads", workload))
        keeper = self._mirror.keeper_of(key)
        if keeper is not None and keeper != job:
            owners.append(("jobs", keeper))
        for owner in {*owners, *self._owners.pop(key, ())}:
            self.queue.add(owner)
        if owners:
            self._owners[key] = tuple(owners)

    def _decided(self, pod_key: str) -> None:
        """Show a new decision in its owner's status, in the next free slot."""
        job, workload = self._mirror.job_of(pod_key), self._mirror.workload_of(pod_key)
        if job is not None:
            self._take_slot(("jobs", job))
        elif workload is not None:
            self._take_slot(("workloads", workload))

    def _take_slot(self, key: WorkKey) -> None:
        if self._loop is None:
            return
        now = self._loop.time()
        if self._slots.get(key, now) > now:  # its slot is still to come, and will show this decision, too
            return
        self._next_slot = max(now, self._next_slot) + 1.0 / REFRESHES_PER_SECOND
        self._slots[key] = self._next_slot
        self.queue.add_after(key, self._next_slot - now)
