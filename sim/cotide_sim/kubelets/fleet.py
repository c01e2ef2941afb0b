"""The fake nodes as one process: watches in, the residents' state machine, the writer out, time in between.

Called by `cotide nodes` and by tests. All pods come through one watch, for any number of nodes, because a watch for
each of a thousand nodes would cost the server a thousand filters for every pod. Invariant: only this module's event
loop touches the residents; they never see a socket.

::

    API server --watch pods, our nodes--> Residents --outbox--> PodWriter --PATCH, DELETE--> API server
                                             ^
                     MachinePark, clock -----'   (finishes, stops, restarts, deadlines)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from cotide_core.errors import InputError
from cotide_core.units import resource_amount
from cotide_kube.client import KubeClient
from cotide_kube.objects import NodeObject, PodObject
from cotide_kube.reflector import Change, Reflector
from cotide_sim.cluster.machine import MachinePark
from cotide_sim.interference.model import Interference
from cotide_sim.kubelets.admission import PRESSURE_ANNOTATION, NodeRoom
from cotide_sim.kubelets.clock import SimulatedClock
from cotide_sim.kubelets.exposition import MetricsPage, serve
from cotide_sim.kubelets.node_objects import FAKE_LABEL, NodeShape, host_address
from cotide_sim.kubelets.registration import RENEW_SECONDS, Registration
from cotide_sim.kubelets.residents import Residents
from cotide_sim.kubelets.writer import PodWriter

_LOG = logging.getLogger(__name__)

LONGEST_NAP_SECONDS: Final = 0.25
"""Wall seconds after which physics moves on even without an event; chosen, the metrics page's refresh."""
SHORTEST_NAP_SECONDS: Final = 0.005
"""Finishes this close together are handled in one go; chosen."""


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """The settings of a fleet.

    Attributes
    ----------
    count, name_prefix : nodes ``<prefix>0`` to ``<prefix><count-1>``.
    on : number of nodes that are on at the start, the first ones; None for all.
    shape : of each node.
    interference : the physics of contention.
    origin_seconds, speed : the simulated clock; origin None is now.
    metrics_host, metrics_port : where to serve metrics; port None for nowhere, 0 for any.
    cleanup : remove the nodes from the cluster at the end.
    """

    interference: Interference
    count: int = 1
    on: int | None = None
    name_prefix: str = "fake-"
    shape: NodeShape = field(default_factory=NodeShape)
    origin_seconds: float | None = None
    speed: float = 1.0
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    cleanup: bool = False
    renew_seconds: float = RENEW_SECONDS

    @property
    def names(self) -> list[str]:
        """The nodes' names."""
        return [f"{self.name_prefix}{number}" for number in range(self.count)]


class Fleet:
    """Fake nodes on one API server; use `running_fleet` or `run`.

    Parameters
    ----------
    client : KubeClient
        An open client.
    settings : FleetSettings The nodes to run.
    """

    def __init__(self, client: KubeClient, settings: FleetSettings) -> None:
        self.settings = settings
        self.clock = SimulatedClock(settings.origin_seconds, settings.speed)
        self.park = MachinePark(settings.interference, origin_seconds=self.clock.origin_seconds)
        self.residents = Residents(self.park, self.clock)
        self.writer = PodWriter(client)
        self.metrics_port: int | None = None
        self.ready = asyncio.Event()
        """Set once all nodes are registered and all pods of the first list are known."""
        first = settings.names[: settings.on]
        self._registration = Registration(client, first, settings.shape, settings.renew_seconds)
        self._pods = Reflector(client, "/api/v1/pods", PodObject)
        self._nodes = Reflector(client, "/api/v1/nodes", NodeObject, label_selector=f"{FAKE_LABEL}=true")
        self._numbers = {name: number for number, name in enumerate(settings.names)}
        self._nodes_known = asyncio.Event()
        self._wake = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Register the nodes and run their pods until ``stop`` is set.

        The port of the metrics is bound first: where it is taken, no node is left in the cluster.

        Raises
        ------
        ClusterError
            When the server is unreachable at the start, or refuses the request.
        InputError
            When the port of the metrics is taken.
        """
        async with self._metrics():
            stopping = asyncio.create_task(stop.wait())
            try:
                if await _unless(stopping, self._registration.register()):
                    await self._run_pods(stopping)
            finally:
                stopping.cancel()
        if self.settings.cleanup:
            await self._registration.unregister()
            _LOG.info("removed the nodes from the cluster")

    async def switch_on(self, name: str, labels: Mapping[str, str]) -> None:
        """Register a node that is off, with these labels in addition to those of its shape.

        Raises
        ------
        ClusterError
            When the server refuses, or is unreachable.
        """
        await self._registration.register_one(self._numbers[name], name, labels)

    async def switch_off(self, name: str) -> None:
        """Remove a node from the cluster; its pods stop."""
        await self._registration.unregister_one(name)

    def succeed(self, pod: PodObject) -> None:
        """Let a running pod of our nodes end its work now; return whether it did."""
        self.residents.succeed(pod, self.clock.now())
        self._flush()

    @asynccontextmanager
    async def _metrics(self) -> AsyncIterator[None]:
        """Serve the metrics page while the body runs, where a port is given."""
        host, port = self.settings.metrics_host, self.settings.metrics_port
        if port is None:
            yield
            return
        page = MetricsPage(self.park, self.clock.now, self._counters, self.clock.speed)
        runner, self.metrics_port = await serve(page, self._healthy, host, port)
        _LOG.info("metrics on http://%s:%d/metrics", host, self.metrics_port)
        try:
            yield
        finally:
            await runner.cleanup()

    async def _run_pods(self, stopping: asyncio.Task[bool]) -> None:
        tasks = [
            asyncio.create_task(work, name=name)
            for name, work in (
                ("nodes", self._follow_nodes()),
                ("pods", self._follow_pods()),
                ("physics", self._pass_time()),
                ("writer", self.writer.run()),
                ("heartbeat", self._registration.heartbeat()),
            )
        ]
        try:
            await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
            failed = next((task for task in tasks if task.done()), None)
            if failed is not None:
                # None of the tasks ends on its own: the caller must see any error.
                await failed
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow_nodes(self) -> None:
        async for batch in self._nodes.batches():
            for change in batch:
                self._on_node(change)
            self._flush()

    def _on_node(self, change: Change[NodeObject]) -> None:
        node = change.object
        if node is None:
            self._nodes_known.set()
            return
        name = node.metadata.name
        number = self._numbers.get(name)
        if number is None:
            return
        if change.kind == "DELETED":
            _LOG.warning("node %s was deleted; its pods stop", name)
            self._registration.lost(name)
            self.residents.remove_node(name, self.clock.now())
            return
        try:
            amounts = {item: resource_amount(item, amount) for item, amount in node.status.allocatable.items()}
        except InputError as error:
            _LOG.warning("node %s keeps the size it had: status.allocatable: %s", name, error)
            return
        pressure = node.metadata.annotations.get(PRESSURE_ANNOTATION, "")
        room = NodeRoom(name, amounts, node.metadata.labels, tuple(node.spec.taints), pressure)
        self.park.add_node(name, self.settings.shape.millicores, self.settings.shape.memory_bytes)
        self.residents.add_node(room, host_address(number))

    async def _follow_pods(self) -> None:
        # A pod that arrives before its node would count as another kubelet's.
        await self._nodes_known.wait()
        async for batch in self._pods.batches():
            now = self.clock.now()
            if batch[-1].kind == "SYNCED":
                self._on_list(batch, now)
            else:
                for change in batch:
                    self._on_pod(change, now)
            self._flush()
            self._wake.set()

    def _on_list(self, batch: list[Change[PodObject]], now: float) -> None:
        for change in batch:
            if change.kind == "DELETED" and change.object is not None:
                self.residents.vanish(change.object, now)
        self.residents.observe_all(
            (change.object for change in batch if change.kind != "DELETED" and change.object is not None), now
        )
        if not self.ready.is_set():
            self.ready.set()
            _LOG.info("%d nodes ready, %d pods adopted or started", self.settings.count, len(self.residents))

    def _on_pod(self, change: Change[PodObject], now: float) -> None:
        if change.object is None:
            return
        if change.kind == "DELETED":
            self.residents.vanish(change.object, now)
        else:
            self.residents.observe(change.object, now)

    async def _pass_time(self) -> None:
        while True:
            self._wake.clear()
            self.residents.advance(self.clock.now())
            self._flush()
            due = self.residents.next_event()
            nap = LONGEST_NAP_SECONDS if due is None else min(LONGEST_NAP_SECONDS, self.clock.wait_seconds(due))
            await asyncio.sleep(SHORTEST_NAP_SECONDS)
            try:
                async with asyncio.timeout(max(0.0, nap - SHORTEST_NAP_SECONDS)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _flush(self) -> None:
        if self.residents.outbox:
            actions, self.residents.outbox = self.residents.outbox, []
            self.writer.submit(actions)

    def _healthy(self) -> bool:
        return self.ready.is_set() and self._pods.failures == 0

    def _counters(self) -> list[tuple[str, str, int]]:
        residents = self.residents
        return [
            ("cotide_sim_pods_started_total", "Pods that began to run.", residents.started_total),
            ("cotide_sim_pods_finished_total", "Pods that ended on their own.", residents.finished_total),
            ("cotide_sim_pods_refused_total", "Pods that did not fit on their node.", residents.refused_total),
            ("cotide_sim_writes_total", "Statuses written and pods removed.", self.writer.written_total),
            ("cotide_sim_writes_dropped_total", "Writes that the server refused.", self.writer.dropped_total),
        ]


async def _unless(stopping: asyncio.Task[bool], work: Coroutine[None, None, None]) -> bool:
    """Do the work unless stopped first; return whether it was done."""
    task = asyncio.create_task(work)
    await asyncio.wait([task, stopping], return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return False
    await task
    return True


@asynccontextmanager
async def running_fleet(client: KubeClient, settings: FleetSettings) -> AsyncIterator[Fleet]:
    """Run a fleet together with the body: it is ready when the body starts, and stopped when the body ends.

    Raises
    ------
    ClusterError
        When the fleet fails before it is ready, or during the body.
    """
    fleet, stop = Fleet(client, settings), asyncio.Event()
    running = asyncio.create_task(fleet.run(stop))
    ready = asyncio.create_task(fleet.ready.wait())
    try:
        await asyncio.wait([running, ready], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            yield fleet
    finally:
        stop.set()
        ready.cancel()
        await running
