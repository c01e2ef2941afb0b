"""Put fake nodes into a cluster, keep them alive, and remove them again.

Called by `fleet`. Registers with bounded concurrency; renews every Lease in turn, spread evenly over the interval, so
that a thousand nodes make a steady trickle instead of a burst. Invariant: a node that is not marked as ours is
never touched.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.objects import NodeObject
from cotide_kube.plain_objects import typed
from cotide_kube.timestamps import format_micro_timestamp
from cotide_sim.kubelets.node_objects import (
    FAKE_LABEL,
    NodeShape,
    heartbeat_conditions,
    lease_object,
    node_object,
    node_status,
)

_LOG = logging.getLogger(__name__)

LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
RENEW_SECONDS: Final = 10.0
"""A kubelet renews every quarter of its lease duration of 40 s."""
STATUS_SECONDS: Final = 300.0
"""A kubelet reports an unchanged node status every five minutes."""
_CONCURRENCY: Final = 16


class Registration:
    """The Nodes and Leases of one fleet.

    Parameters
    ----------
    client : KubeClient
        An open client.
    names : sequence of str Of the nodes.
    shape : NodeShape Their properties.
    renew_seconds : float
        Wall seconds between two renewals of one lease.
    """

    def __init__(
        self, client: KubeClient, names: Sequence[str], shape: NodeShape, renew_seconds: float = RENEW_SECONDS
    ) -> None:
        self._client, self._names, self._shape = client, names, shape
        self._renew_seconds = renew_seconds
        self._alive: dict[str, tuple[int, str]] = {}
        """Name to number and uid, of the registered nodes."""

    async def register(self) -> None:
        """Create all nodes and leases, or take over those of an earlier process of the fake nodes.

        Raises
        ------
        ClusterError
            When a node of that name exists that is not fake, or the server refuses.
        """
        await self._namespace()
        await _in_parallel(partial(self.register_one, number, name) for number, name in enumerate(self._names))

    async def unregister(self) -> None:
        """Delete the nodes of this fleet and their leases."""
        await _in_parallel(partial(self.unregister_one, name) for name in list(self._alive))

    def lost(self, name: str) -> bool:
        """Forget a node that another client deleted; return False when it is not of this fleet."""
        return self._alive.pop(name, None) is not None

    async def heartbeat(self) -> None:
        """Renew leases and report node statuses until cancelled."""
        status_due = time.monotonic() + STATUS_SECONDS
        while True:
            round_ends = time.monotonic() + self._renew_seconds
            names = list(self._alive)
            report = time.monotonic() >= status_due
            if report:
                status_due = time.monotonic() + STATUS_SECONDS
            for index, name in enumerate(names):
                due = round_ends - self._renew_seconds * (1 - index / len(names))
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await self._tolerant(name, self._renew)
                if report:
                    await self._tolerant(name, self._report_status)
            await asyncio.sleep(max(0.0, round_ends - time.monotonic()))

    async def _tolerant(self, name: str, beat: Callable[[str], Awaitable[None]]) -> None:
        if name not in self._alive:
            return
        try:
            await beat(name)
        except ClusterError as error:
            # The next round tries again; a node that stays silent is NotReady in the API, which is then true.
            _LOG.warning("heartbeat of node %s: %s", name, error)

    async def _namespace(self) -> None:
        try:
            await self._client.get("/api/v1/namespaces/kube-node-lease")
        except ApiError as error:
            if error.status != 404:
                raise
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-node-lease"}}
            await _unless_exists(self._client.create("/api/v1/namespaces", body))

    async def register_one(self, number: int, name: str, labels: Mapping[str, str] = MappingProxyType({})) -> None:
        """Create one node and its lease; ``labels`` are added to those of the shape."""
        shape = replace(self._shape, labels={**self._shape.labels, **labels})
        body = node_object(name, number, shape, time.time())
        created = await _unless_exists(self._client.create("/api/v1/nodes", body))
        if created is None:
            found = _node_in(await self._client.get(f"/api/v1/nodes/{name}"), name)
            if found.metadata.labels.get(FAKE_LABEL) != "true":
                raise ClusterError(f"node {name} exists and is not one of ours: choose another --name-prefix")
            created = await self._client.patch(f"/api/v1/nodes/{name}", {"metadata": body["metadata"]})
        node = _node_in(created, name)
        status = node_status(name, number, self._shape, time.time())
        if not status["allocatable"].items() <= node.status.allocatable.items():
            # As a kubelet does: extended resources and conditions of other writers stay.
            created = await self._client.patch(f"/api/v1/nodes/{name}/status", {"status": status}, "strategic")
            node = _node_in(created, name)
        uid = node.metadata.uid
        self._alive[name] = (number, uid)
        lease = lease_object(name, uid, time.time())
        if await _unless_exists(self._client.create(LEASES, lease)) is None:
            metadata = {"ownerReferences": lease["metadata"]["ownerReferences"]}
            await self._client.patch(f"{LEASES}/{name}", {"metadata": metadata, "spec": lease["spec"]})

    async def unregister_one(self, name: str) -> None:
        """Delete one node and its lease."""
        for path in (f"/api/v1/nodes/{name}", f"{LEASES}/{name}"):
            try:
                await self._client.delete(path)
            except ApiError as error:
                if error.status != 404:
                    raise
        self._alive.pop(name, None)

    async def _renew(self, name: str) -> None:
        now = time.time()
        try:
            await self._client.patch(f"{LEASES}/{name}", {"spec": {"renewTime": format_micro_timestamp(now)}})
        except ApiError as error:
            if error.status != 404 or name not in self._alive:
                raise
            await _unless_exists(self._client.create(LEASES, lease_object(name, self._alive[name][1], now)))

    async def _report_status(self, name: str) -> None:
        patch = {"status": {"conditions": heartbeat_conditions(time.time())}}
        await self._client.patch(f"/api/v1/nodes/{name}/status", patch, "strategic")


def _node_in(answer: Any, name: str) -> NodeObject:
    """Return the node that an API server sent.

    Raises
    ------
    ClusterError
        When it is not a node: for example a proxy's uniform answer.
    """
    node = typed(answer, NodeObject, "node")
    if node.metadata.name != name or not node.metadata.uid:
        raise ClusterError(f"the answer about node {name} is not what an API server sends; is it one?")
    return node


async def _unless_exists(creation: Awaitable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the created object, or None when it existed already."""
    try:
        return await creation
    except ApiError as error:
        if error.status == 409:
            return None
        raise


async def _in_parallel(jobs: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Run all jobs, a bounded number at a time; the first failure ends the rest and is raised unchanged."""
    gate = asyncio.Semaphore(_CONCURRENCY)

    async def one(job: Callable[[], Awaitable[None]]) -> None:
        async with gate:
            await job()

    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(one(job))
    except* ClusterError as failures:
        first = failures.exceptions[0]
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
