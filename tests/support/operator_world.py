"""The operator in its own event loop against an API server, for the end-to-end tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from manifests import template, workload_manifest
from servers import Server

from cotide_core.errors import ClusterError
from cotide_kube.client import KubeClient
from cotide_kube.objects import Metadata, PodObject
from cotide_kube.reflector import Reflector
from cotide_operator.assembly import Operator, Options
from cotide_operator.config.settings import Settings, parse_settings

PODS = "/api/v1/namespaces/default/pods"
HEAD = "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\n"
ALONE = "leaderElection: {enabled: false}\n"
QUICK_QUEUE = "queue: {backoffInitialSeconds: 0.05, backoffMaxSeconds: 0.4}\n"
SCALING = f"""\
policy: fifo
{ALONE}{QUICK_QUEUE}\
consolidation: {{enabled: true, intervalSeconds: 1, stableSeconds: 1, minimumAgeSeconds: 0, cooldownSeconds: 1, \
timeoutSeconds: 60, spareNodes: 9}}
provisioning:
  mode: act
  intervalSeconds: 1
  stepSeconds: 10
  horizonSteps: 6
  bootDeadlineSeconds: 60
"""
"""Machines come and go within seconds; an actuator and machine types are to follow, indented."""
MACHINES_M = "  machineTypes: [{name: m, cpu: '4', memory: 16Gi, count: 6, bootSeconds: 4, minimumUpSeconds: 0}]\n"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/cotide-system/leases/cotide-operator"
QUICK_LEASE = "leaderElection: {leaseDurationSeconds: 15, renewDeadlineSeconds: 10, retryPeriodSeconds: 0.1}\n"

Starts = dict[str, set[str]]


class World:
    """A server with a client for the test, and operators that come and go."""

    def __init__(self, server: Server, client: KubeClient) -> None:
        self.server = server
        self.client = client
        self.until = server.until
        self.kubeconfig: str | None = None
        """For operators that use the official client, too."""

    async def nodes(self, count: int, cpu: str = "4") -> None:
        await self.server.join(self.client, *(f"n{index}" for index in range(count)), cpu=cpu)
        await self.server.until_open(self.client)

    async def pods(self, count: int, cpu: str = "1", prefix: str = "p", **spec: Any) -> None:
        for index in range(count):
            container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
            wanted = {"schedulerName": "cotide", "containers": [container], **spec}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{prefix}{index}"}, "spec": wanted}
            await self.client.create(PODS, body)

    async def placed(self) -> dict[str, str]:
        """Node by pod name, of the pods that have one."""
        pods = await self.client.list(PODS)
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}

    async def until_placed(self, count: int) -> None:
        async def enough() -> bool:
            return len(await self.placed()) >= count

        await self.until(f"{count} pods on nodes", enough)

    @contextlib.asynccontextmanager
    async def operator(
        self,
        text: str = ALONE,
        *,
        crash: bool = False,
        install_crds: bool = True,
        begun: Callable[[Operator], bool] = lambda one: not one._missing(),
    ) -> AsyncIterator[Operator]:
        """Run an operator from when it has begun; ``crash`` ends it without any of its good manners."""
        operator = self.make(text, install_crds=install_crds)
        stop = asyncio.Event()
        task = asyncio.create_task(operator.run(stop))
        try:
            await self.until("the operator decides", lambda: begun(operator) or task.done())
            yield operator
        finally:
            if crash:
                task.cancel()
            stop.set()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def make(self, text: str = ALONE, *, install_crds: bool = True) -> Operator:
        options = Options(self.kubeconfig, metrics_port=0, install_crds=install_crds)
        return Operator(settings(text), options, self.server.credentials)


def settings(text: str) -> Settings:
    return parse_settings(HEAD + text)


@contextlib.asynccontextmanager
async def starts_of(client: KubeClient, name: Callable[[Metadata], str]) -> AsyncIterator[Starts]:
    """Keep the uids of all pods that are ever made, by what ``name`` says of them."""
    starts: Starts = defaultdict(set)

    async def watch() -> None:
        async for change in Reflector[PodObject](client, "/api/v1/pods", PodObject):
            if change.object is not None:
                starts[name(change.object.metadata)].add(change.object.metadata.uid)

    watching = asyncio.create_task(watch())
    try:
        yield starts
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


@pytest.fixture
async def world(server: Server) -> AsyncIterator[World]:
    async with KubeClient(server.credentials) as client:
        yield World(server, client)


def watch_bindings(operator: Operator) -> Counter[str]:
    """Count the bindings that an operator posts, by pod."""
    posted: Counter[str] = Counter()
    original = operator.client.bind

    async def bind(namespace: str, name: str, *rest: Any) -> Any:
        posted[name] += 1
        return await original(namespace, name, *rest)

    operator.client.bind = bind  # type: ignore[method-assign]  # a spy; everything else is the real thing
    return posted


async def run_pods(world: World, count: int) -> None:
    """Have a service run so many pods of one core, and wait until they do."""
    workloads = "/apis/cotide.dev/v1alpha1/namespaces/default/workloads"
    body = workload_manifest("web", replicas=count, template=template("1", "64Mi"))
    try:
        await world.client.create(workloads, body)
    except ClusterError:
        await world.client.patch(f"{workloads}/web", {"spec": {"replicas": count}})

    async def so() -> bool:
        pods = await world.client.list("/api/v1/namespaces/default/pods")
        here = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        return len(here) == count and all(one["status"].get("phase") == "Running" for one in here)

    await world.until(f"{count} pods run", so)
