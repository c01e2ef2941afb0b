"""Nodes by the replicas of a MachineDeployment (Cluster API), by the official client: raised, and never lowered."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from manifests import machine_deployments
from operator_world import SCALING, World, run_pods

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.kubelets.fleet import Fleet, FleetSettings
from cotide_sim.kubelets.node_objects import NodeShape

DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TARGET: Final = "/apis/cluster.x-k8s.io/v1beta1/namespaces/default/machinedeployments"
SCALE: Final = "machinedeployments/workers/scale$"
LABEL: Final = "node.kubernetes.io/instance-type"
CONFIGURATION: Final = f"""\
{SCALING}\
  actuator: {{scales: {{m: {TARGET}/workers, lost: {TARGET}/nobody}}, timeoutSeconds: 1}}
  machineTypes:
  - {{name: m, cpu: '4', memory: 16Gi, count: 6, bootSeconds: 4, minimumUpSeconds: 0}}
  - {{name: lost, cpu: '4', memory: 16Gi, count: 1, minimumOn: 1, idleWatts: 5000, peakWatts: 9000, bootSeconds: 4}}
"""


class Provider:
    """Cluster API's place: switches a machine on for each replica, a moment later."""

    def __init__(self, world: World, fleet: Fleet | None, settings: FleetSettings) -> None:
        self._world, self._fleet, self._settings = world, fleet, settings
        self.replicas, self.most = 0, 0

    async def run(self) -> None:
        """Work until cancelled."""
        on = 0
        while True:
            with contextlib.suppress(ClusterError):
                found = await self._world.client.get(f"{TARGET}/workers")
                self.replicas = int((found.get("spec") or {}).get("replicas") or 0)
                self.most = max(self.most, self.replicas)
                while on < self.replicas:
                    await self._switch_on(self._settings.names[on])
                    on += 1
            await asyncio.sleep(0.05)

    async def _switch_on(self, name: str) -> None:
        if self._fleet is not None:
            await self._fleet.switch_on(name, {})
        else:
            await self._world.server.join(self._world.client, name, labels=self._settings.shape.labels)


@pytest.fixture
async def provider(world: World, tmp_path: Path) -> AsyncIterator[Provider]:
    with contextlib.suppress(ApiError):  # a real server may have it
        await world.client.create(DEFINITIONS, machine_deployments())

    async def served() -> bool:
        with contextlib.suppress(ApiError):
            await world.client.list(TARGET)
            return True
        return False

    await world.until("MachineDeployments are served", served)
    with contextlib.suppress(ApiError):  # of the test before: a real server is shared
        await world.client.delete(f"{TARGET}/workers")
    body = {"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "MachineDeployment", "metadata": {"name": "workers"}}
    await world.client.create(TARGET, {**body, "spec": {"replicas": 0}})
    world.kubeconfig = str(world.server.kubeconfig(tmp_path, url=world.server.credentials.server))
    shape = NodeShape(millicores=4000, memory_bytes=16 << 30, labels={LABEL: "m"})
    settings = FleetSettings(
        interference=GeneratedInterference(), count=6, on=0, name_prefix="m", shape=shape, origin_seconds=time.time()
    )
    async with world.server.kubelets(world.client, settings) as fleet:
        made = Provider(world, fleet, settings)
        running = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def cordoned(world: World) -> int:
    nodes = await world.client.list("/api/v1/nodes")
    return sum(bool(node.get("spec", {}).get("unschedulable")) for node in nodes)


async def test_replicas_follow_what_is_wanted_through_conflicts_and_lost_answers(
    world: World, provider: Provider
) -> None:
    conflicts = world.server.strike(method="PATCH", path=SCALE, status=409, count=2)
    lost = world.server.strike(method="PATCH", path=SCALE, delay_seconds=3.0)
    async with world.operator(CONFIGURATION):
        await run_pods(world, 6)  # six cores and a fifth: two machines of four
        assert (conflicts.met, lost.met) == (2, 1)
        assert provider.replicas == provider.most == 2, "once for each need, though three were not answered"


async def test_replicas_are_not_lowered_and_a_freed_node_is_taken_back_before_any_is_added(
    world: World, provider: Provider
) -> None:
    async with world.operator(CONFIGURATION):
        await run_pods(world, 6)
        await run_pods(world, 1)

        async def one_is_freed() -> bool:
            return await cordoned(world) == 1

        await world.until("a node is freed", one_is_freed)
        await run_pods(world, 6)
        assert await cordoned(world) == 0
        assert provider.replicas == provider.most == 2


async def test_an_operator_that_is_killed_is_followed_by_one_that_raises_no_further(
    world: World, provider: Provider
) -> None:
    async with world.operator(CONFIGURATION, crash=True):
        await run_pods(world, 6)
    async with world.operator(CONFIGURATION):
        await run_pods(world, 9)  # 10.8 cores with a fifth more: three machines of four
        assert provider.replicas == provider.most == 3
