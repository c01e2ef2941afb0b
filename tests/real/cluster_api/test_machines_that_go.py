"""Machines of the real Cluster API: they come for pods, and those go whose nodes are free, each once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from control_plane import ControlPlane
from machine_provider import (
    DELETE,
    INFRASTRUCTURE,
    MACHINES,
    MachineProvider,
    deployments,
    machine_deployment,
    machine_template,
    path,
)
from manifests import pod_manifest
from operator_world import ALONE, MACHINES_M, PODS, SCALING, World, run_pods
from relay import relaying
from servers import RealServer

from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import load_credentials
from cotide_operator.assembly import Operator, Options
from cotide_operator.config.settings import parse_settings
from cotide_operator.provisioning import controller
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.kubelets.fleet import FleetSettings, running_fleet
from cotide_sim.kubelets.node_objects import NodeShape

LABEL: Final = "node.kubernetes.io/instance-type"
WORKLOADS: Final = "/apis/cotide.dev/v1alpha1/namespaces/default/workloads"
ELSEWHERE: Final = "/api/v1/namespaces/kube-public/pods"
COUNT: Final = 8
"""Of fake nodes: a machine that went does not come again under its name."""


def configuration(version: str = "v1beta2") -> str:
    return f"{SCALING}  actuator: {{scales: {{m: {deployments(version)}/workers}}, scalesDown: true}}\n{MACHINES_M}"


class Workers(World):
    """Operators with their ServiceAccount's rights, and a MachineDeployment `workers`."""

    account: str
    provider: MachineProvider

    def make(self, text: str = ALONE, *, install_crds: bool = False) -> Operator:
        del install_crds  # deploy/ has them
        settings = parse_settings(f"apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\n{text}")
        return Operator(settings, Options(self.account, metrics_port=0), load_credentials(self.account))

    async def machines(self) -> dict[str, dict[str, Any]]:
        """Metadata by name of the Machines that nobody deletes."""
        found = await self.client.list(MACHINES)
        return {one["metadata"]["name"]: one for one in found if not one["metadata"].get("deletionTimestamp")}

    async def clear(self) -> None:
        """Take away what a test made, as Cluster API does it."""
        at_once = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        for here in (WORKLOADS, PODS, ELSEWHERE):
            await self.client.request("DELETE", here, at_once)
        await self.client.delete(f"{deployments()}/workers")

        async def gone() -> bool:
            return not await self.client.list(deployments()) and not await self.client.list(MACHINES)

        await self.until("the MachineDeployment is gone with its Machines", gone)

    async def marked(self) -> list[str]:
        return [
            n
            for n, machine in (await self.machines()).items()
            if DELETE in (machine["metadata"].get("annotations") or {})
        ]

    async def deployment(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.client.get(f"{deployments()}/workers")
        return found

    async def until_machines(self, count: int) -> None:
        """Wait until there are so many, all that went are gone, and Cluster API says the same."""

        async def so() -> bool:
            if ((await self.deployment()).get("status") or {}).get("replicas", 0) != count:
                return False
            there, nodes = await self.client.list(MACHINES), await self.client.list("/api/v1/nodes")
            return len(there) == len(nodes) == count

        await self.until(f"there are {count} machines", so)


@pytest.fixture
async def workers(plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Workers]:
    monkeypatch.setattr(controller, "SETTLED_SECONDS", 0.5)
    monkeypatch.setattr(controller, "REMOVAL_SECONDS", 1.0)
    async with relaying(plane.admin) as relay, KubeClient(plane.admin) as client:
        world = Workers(RealServer(plane, relay), client)
        token = await plane.token("cotide-system", "cotide-operator")
        world.account = str(plane.kubeconfig("cotide-operator", token=token))
        with contextlib.suppress(ApiError):  # the test before made it
            await client.create(path(INFRASTRUCTURE, "stagemachinetemplates", "v1"), machine_template("first"))
        settings = FleetSettings(
            interference=GeneratedInterference(),
            count=COUNT,
            on=0,
            name_prefix="m",
            shape=NodeShape(millicores=4000, memory_bytes=16 << 30, labels={LABEL: "m"}),
            origin_seconds=time.time(),
        )
        async with running_fleet(client, settings) as fleet:
            world.provider = MachineProvider(client, fleet, settings.names)
            async with world.provider.running():
                await client.create(deployments(), machine_deployment("workers", "first"))
                yield world
                world.provider.goes.set()
                await world.clear()


async def test_a_machine_goes_once_though_operators_are_killed_meanwhile_and_another_comes_when_it_is_wanted_again(
    workers: Workers,
) -> None:
    async with workers.operator(configuration("v1beta1"), crash=True):
        await run_pods(workers, 9)  # 10.8 cores with a fifth more: three machines of four
        await workers.until_machines(3)
        workers.provider.goes.clear()
        await run_pods(workers, 5)  # six cores with a fifth more: two
        await workers.until("a Machine is marked", workers.marked)
    async with workers.operator(configuration(), crash=True):

        async def lowered() -> bool:
            return bool((await workers.deployment())["spec"]["replicas"] == 2)

        await workers.until("replicas are lowered", lowered)
    async with workers.operator(configuration("v1beta1")):
        await workers.until("a Machine is being deleted", lambda: workers.provider.deleted)
        workers.provider.goes.set()
        await workers.until_machines(2)
        await run_pods(workers, 9)
        await workers.until_machines(3)
    assert workers.provider.unmarked == []
    assert len(workers.provider.deleted) == 1


async def test_while_machines_are_of_two_sets_no_busy_one_goes_in_the_place_of_one_that_is_free(
    workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    """Cluster API lowers the older set first, whichever Machine is marked."""
    strategy = {"rollout": {"strategy": {"type": "OnDelete"}}}
    await workers.client.patch(f"{deployments()}/workers", {"spec": strategy})
    async with workers.operator(configuration()):
        await run_pods(workers, 2)  # 2.4 cores with a fifth more: one machine of four
        await workers.until_machines(1)
        (older,) = await workers.machines()
        (node,) = await workers.client.list("/api/v1/nodes")
        stays = pod_manifest("stays", "500m", "64Mi", cls="online", spec={"nodeName": node["metadata"]["name"]})
        await workers.client.create(ELSEWHERE, stays)
        reference = {"infrastructureRef": {"name": "second"}}
        await workers.client.create(path(INFRASTRUCTURE, "stagemachinetemplates", "v1"), machine_template("second"))
        await workers.client.patch(f"{deployments()}/workers", {"spec": {"template": {"spec": reference}}})
        await run_pods(workers, 5)
        await workers.until_machines(2)
        await run_pods(workers, 0)
        await workers.until(
            "it waits for the roll-out, or a Machine goes",
            lambda: "are of 2 MachineSets" in caplog.text or workers.provider.deleted,
        )
    assert workers.provider.deleted == []
    assert older in await workers.machines()
