"""Machines of a MachineDeployment come for pods and go when their nodes are free: the very ones, each once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from manifests import machine_deployments, machines
from operator_world import MACHINES_M, SCALING, World, run_pods

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_operator.provisioning import controller
from cotide_operator.provisioning.cluster_api import DELETE
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.kubelets.fleet import Fleet, FleetSettings, running_fleet
from cotide_sim.kubelets.node_objects import NodeShape

pytestmark = pytest.mark.fake_nodes("machines that are deleted as Cluster API would")
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP: Final = "cluster.x-k8s.io"
HERE: Final = f"/apis/{GROUP}/v1beta1/namespaces/default"
TARGET: Final = f"{HERE}/machinedeployments/workers"
LABEL: Final = "node.kubernetes.io/instance-type"
CONFIGURATION: Final = f"{SCALING}  actuator: {{scales: {{m: {TARGET}}}, scalesDown: true}}\n{MACHINES_M}"


class ClusterApi:
    """Cluster API's place: a Machine and a node for each replica; of too many the marked go first, then the newest."""

    def __init__(self, world: World, fleet: Fleet, names: tuple[str, ...]) -> None:
        self._world, self._fleet, self._left = world, fleet, list(reversed(names))
        self.on: list[str] = []
        self.deleted: list[str] = []
        self.unmarked: list[str] = []
        """Machines that were deleted without a mark: nobody knows what ran there."""

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            with contextlib.suppress(ClusterError):
                await self._turn()
            await asyncio.sleep(0.05)

    async def _turn(self) -> None:
        found = await self._world.client.get(TARGET)
        replicas = int((found.get("spec") or {}).get("replicas") or 0)
        while len(self.on) < replicas:
            await self._start(self._left.pop())
        if len(self.on) > replicas:
            await self._delete(len(self.on) - replicas)
        status = {"replicas": len(self.on), "observedGeneration": found["metadata"].get("generation")}
        if found.get("status") != status:
            await self._world.client.patch(f"{TARGET}/status", {"status": status})

    async def _start(self, name: str) -> None:
        head = {"apiVersion": f"{GROUP}/v1beta1", "kind": "Machine"}
        labels = {f"{GROUP}/deployment-name": "workers"}
        metadata = {"name": f"of-{name}", "labels": labels}
        await self._world.client.create(f"{HERE}/machines", {**head, "metadata": metadata, "spec": {}})
        await self._fleet.switch_on(name, {})
        named = {f"{GROUP}/machine": f"of-{name}", f"{GROUP}/cluster-namespace": "default"}
        await self._world.client.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": named}})
        self.on.append(name)

    async def _delete(self, count: int) -> None:
        marked: dict[str, bool] = {}
        for name in self.on:
            machine: Any = await self._world.client.get(f"{HERE}/machines/of-{name}")
            marked[name] = DELETE in (machine["metadata"].get("annotations") or {})
        for name in sorted(self.on, key=lambda one: (marked[one], one), reverse=True)[:count]:
            await self._world.client.delete(f"{HERE}/machines/of-{name}")
            await self._fleet.switch_off(name)
            self.on.remove(name)
            self.deleted.append(name)
            self.unmarked += [] if marked[name] else [name]


@pytest.fixture
async def provider(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ClusterApi]:
    monkeypatch.setattr(controller, "SETTLED_SECONDS", 0.5)
    monkeypatch.setattr(controller, "REMOVAL_SECONDS", 1.0)
    for definition in (machine_deployments(), machines()):
        with contextlib.suppress(ApiError):  # a real server may have it
            await world.client.create(DEFINITIONS, definition)

    async def served() -> bool:
        with contextlib.suppress(ApiError):
            for path in (f"{HERE}/machinedeployments", f"{HERE}/machines"):
                await world.client.list(path)
            return True
        return False

    await world.until("Cluster API's kinds are served", served)
    with contextlib.suppress(ApiError):  # of the test before: a real server is shared
        await world.client.delete(TARGET)
    for machine in await world.client.list(f"{HERE}/machines"):
        await world.client.delete(f"{HERE}/machines/{machine['metadata']['name']}")
    body = {"apiVersion": f"{GROUP}/v1beta1", "kind": "MachineDeployment", "metadata": {"name": "workers"}}
    await world.client.create(f"{HERE}/machinedeployments", {**body, "spec": {"replicas": 0}})
    world.kubeconfig = str(world.server.kubeconfig(tmp_path, url=world.server.credentials.server))
    settings = FleetSettings(
        interference=GeneratedInterference(),
        count=6,
        on=0,
        name_prefix="m",
        shape=NodeShape(millicores=4000, memory_bytes=16 << 30, labels={LABEL: "m"}),
        origin_seconds=time.time(),
    )
    async with running_fleet(world.client, settings) as fleet:
        made = ClusterApi(world, fleet, settings.names)
        running = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_a_machine_goes_when_its_node_is_free_and_another_comes_when_it_is_wanted_again(
    world: World, provider: ClusterApi
) -> None:
    async with world.operator(CONFIGURATION):
        await run_pods(world, 6)  # six cores and a fifth: two machines of four
        await world.until("two machines are on", lambda: len(provider.on) == 2)
        await run_pods(world, 1)
        await world.until("one machine is left", lambda: len(provider.on) == 1)
        assert len(provider.deleted) == 1
        await run_pods(world, 6)
        await world.until("two machines are on again", lambda: len(provider.on) == 2)
    assert provider.unmarked == []
    assert len(provider.deleted) == 1


async def test_an_operator_that_is_killed_while_a_machine_goes_is_followed_by_one_that_takes_no_second(
    world: World, provider: ClusterApi
) -> None:
    async with world.operator(CONFIGURATION, crash=True):
        await run_pods(world, 9)  # 10.8 cores with a fifth more: three machines of four
        await world.until("three machines are on", lambda: len(provider.on) == 3)
        await run_pods(world, 5)  # six cores with a fifth more: two

        async def marked() -> bool:
            found = await world.client.list(f"{HERE}/machines")
            return any(DELETE in (one["metadata"].get("annotations") or {}) for one in found)

        await world.until("a Machine is marked", marked)
    async with world.operator(CONFIGURATION):
        await world.until("two machines are left", lambda: len(provider.on) == 2)
        await run_pods(world, 6)
    assert provider.unmarked == []
    assert len(provider.deleted) == 1
