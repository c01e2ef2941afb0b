"""Kubelets that refuse: the operator leaves such a node alone for a while instead of feeding it pod after pod."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from manifests import job_manifest
from operator_world import ALONE, LEASE, PODS, QUICK_LEASE, World
from servers import Server

from cotide_kube.client import KubeClient
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.kubelets.admission import PRESSURE_ANNOTATION
from cotide_sim.kubelets.fleet import FleetSettings, running_fleet

JOBS = "/apis/cotide.dev/v1alpha1/namespaces/default/jobs"
NODE = "/api/v1/nodes/fake-0"
TENFOLD = ALONE + "simulatedTime: {originSeconds: 0, speed: 10}\n"
"""The first back-off of 10 s is over after 1 s."""
TENTH = "simulatedTime: {originSeconds: 0, speed: 0.1}\n"
"""It lasts 100 s, far longer than a restart on a busy machine."""


@pytest.fixture
async def world(server: Server) -> AsyncIterator[World]:
    async with KubeClient(server.credentials) as client:
        yield World(server, client)


async def under(client: KubeClient, pressure: str | None) -> None:
    await client.patch(NODE, {"metadata": {"annotations": {PRESSURE_ANNOTATION: pressure}}})


@pytest.mark.fake_nodes("pressure by an annotation, at ten times the speed; real pressure: tests/node")
async def test_a_kubelet_that_refuses_costs_two_pods_at_most_and_is_used_again_later(world: World) -> None:
    async with (
        running_fleet(world.client, FleetSettings(GeneratedInterference(), speed=10.0, origin_seconds=0.0)) as fleet,
        world.operator(TENFOLD),
    ):
        await world.server.until_open(world.client)
        await under(world.client, "DiskPressure")
        await world.until("the kubelet is under pressure", lambda: fleet.residents._rooms["fake-0"].pressure)
        await world.client.create(JOBS, job_manifest("work", "1", completions=1, parallelism=1, backoffLimit=0))

        async def status() -> dict[str, Any]:
            found: dict[str, Any] = (await world.client.get(f"{JOBS}/work")).get("status", {})
            return found

        async def said() -> bool:
            words = "recently refused a pod like this: DiskPressure"
            return any(words in one["message"] for one in (await status()).get("conditions", ()))

        await world.until("the Job says why it waits", said)
        assert fleet.residents.refused_total <= 2
        await under(world.client, None)

        async def runs() -> bool:
            return bool((await status()).get("phase") == "Running" and fleet.residents.started_total)

        await world.until("the Job runs", runs)
        assert fleet.residents.refused_total <= 2
        assert (await status()).get("failures", 0) == 0  # backoffLimit is 0: a refusal is no failure


@pytest.mark.fake_nodes("the test writes the refusal of a kubelet; real refusals: tests/node")
async def test_a_refusal_outlasts_a_restart(world: World) -> None:
    await world.nodes(1)
    async with world.operator(QUICK_LEASE + TENTH):
        await world.pods(1, prefix="first")
        await world.until_placed(1)
        refused = {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: Node didn't have enough cpu"}
        await world.client.patch(f"{PODS}/first0/status", {"status": refused})

        async def written() -> bool:
            lease = await world.client.get(LEASE)
            annotation = lease["metadata"].get("annotations", {}).get("cotide.dev/node-back-offs", "")
            return bool(lease["spec"]["holderIdentity"]) and "OutOfcpu" in annotation

        await world.until("the lease tells of the node, as a kill would leave it", written)
    async with world.operator(QUICK_LEASE + TENTH):
        await world.pods(1, prefix="second")

        async def said() -> bool:
            conditions = (await world.client.get(f"{PODS}/second0"))["status"].get("conditions", [])
            return any(
                "recently refused a pod like this: OutOfcpu" in condition.get("message", "") for condition in conditions
            )

        await world.until("the next leader leaves the node alone", said)
        assert set(await world.placed()) == {"first0"}
