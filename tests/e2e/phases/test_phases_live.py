"""Jobs with phases: pods are resized to what their phase needs, wait for room, and never fill more than a node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from manifests import container, job_manifest, template
from operator_world import ALONE, World
from servers import Server

from cotide_core.units import resource_amount
from cotide_kube.client import KubeClient
from cotide_kube.timestamps import parse_timestamp
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.kubelets.fleet import Fleet, FleetSettings
from cotide_sim.kubelets.node_objects import NodeShape

JOBS = "/apis/cotide.dev/v1alpha1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
ONE_NODE = FleetSettings(GeneratedInterference(), shape=NodeShape(millicores=4000, memory_bytes=2**33))


@pytest.fixture
async def world(server: Server) -> AsyncIterator[World]:
    async with KubeClient(server.credentials) as client:
        yield World(server, client)


def job(
    name: str, limits: dict[str, str] | None = None, seconds: float | None = None, *, probe: bool = False
) -> dict[str, Any]:
    """A Job that fetches, for so long where that is stated, then counts."""
    more = {"resources": {"limits": limits}} if limits is not None else {}
    notes = {"sim.cotide.dev/lone-seconds": "3600"}
    if probe:
        notes["cotide.dev/phase-signal"] = "readiness"
        more["readinessProbe"] = {"exec": {"command": ["cmp", "-s", "/run/phase/wanted", "/etc/podinfo/granted-phase"]}}
    body = template(annotations=notes, containers=[container(**more)])
    phases = [
        {"name": "fetch", "resources": {"cpu": "500m", "memory": "256Mi"}, **({"seconds": seconds} if seconds else {})},
        {"name": "count", "resources": {"cpu": "3", "memory": "1Gi"}},
    ]
    return job_manifest(name, template=body, phases=phases)


async def pod_of(world: World, name: str) -> dict[str, Any]:
    pods = await world.client.list(PODS)
    return next((pod for pod in pods if pod["metadata"]["name"] == f"{name}-0"), {"metadata": {"annotations": {}}})


def held_by(pod: dict[str, Any]) -> int:
    """Millicores that the kubelet says the pod holds."""
    statuses = pod.get("status", {}).get("containerStatuses") or [{}]
    held = statuses[0].get("resources", {}).get("requests", {}).get("cpu", "0")
    return resource_amount("cpu", held)


async def until_set(world: World, fleet: Fleet | None, name: str, cpu: str, granted: str | None) -> dict[str, Any]:
    async def is_set() -> bool:
        if fleet is not None:
            assert all(room.taken["cpu"] <= 4000 for room in fleet.residents._rooms.values())
        assert sum([held_by(pod) for pod in await world.client.list(PODS)]) <= 4000
        pod = await pod_of(world, name)
        statuses = pod.get("status", {}).get("containerStatuses") or [{}]
        held = statuses[0].get("resources", {}).get("requests", {}).get("cpu")
        return held == cpu and pod["metadata"]["annotations"].get("cotide.dev/granted-phase") == granted

    await world.until(f"{name} holds {cpu} and is told {granted}", is_set)
    return await pod_of(world, name)


async def enter(world: World, name: str, phase: str) -> None:
    """Say the phase as the work does."""
    await world.client.patch(f"{PODS}/{name}-0", {"metadata": {"annotations": {"cotide.dev/phase": phase}}})


async def test_pods_give_back_what_their_phase_does_not_need_and_grow_when_there_is_room(world: World) -> None:
    async with world.server.kubelets(world.client, ONE_NODE) as fleet, world.operator(ALONE):
        await world.server.until_open(world.client)
        await world.client.create(JOBS, job("a"))
        first = await until_set(world, fleet, "a", "500m", "fetch")
        assert first["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}
        await world.client.create(JOBS, job("b"))  # fits, since the first one gave back: 0.5 + 3 of 4 cores
        await until_set(world, fleet, "b", "500m", "fetch")
        await enter(world, "a", "count")
        await until_set(world, fleet, "a", "3", "count")
        await enter(world, "b", "count")  # 3 + 3 of 4 cores: it waits, and holds next to nothing
        await until_set(world, fleet, "b", "10m", "fetch")
        await world.client.delete(f"{JOBS}/a")
        await until_set(world, fleet, "b", "3", "count")


async def test_a_pod_that_can_not_be_resized_keeps_its_largest_need_and_says_so(world: World) -> None:
    async with world.server.kubelets(world.client, ONE_NODE) as fleet, world.operator(ALONE):
        await world.server.until_open(world.client)
        # Requests that equal their limits make it Guaranteed, which it must stay.
        await world.client.create(JOBS, job("fixed", {"cpu": "3", "memory": "1Gi"}))
        await until_set(world, fleet, "fixed", "3", "fetch")

        async def says_so() -> bool:
            note = (await pod_of(world, "fixed"))["metadata"]["annotations"].get("cotide.dev/phase-note", "")
            return "QOS Class may not change" in note

        await world.until("its note says why it keeps its size", says_so)


async def test_work_that_says_nothing_goes_on_after_the_stated_seconds_under_a_new_operator_too(world: World) -> None:
    async with world.server.kubelets(world.client, ONE_NODE) as fleet:
        async with world.operator(ALONE, crash=True):
            await world.server.until_open(world.client)
            await world.client.create(JOBS, job("mute", seconds=4))
            fetching = await until_set(world, fleet, "mute", "500m", "fetch")
        notes = fetching["metadata"]["annotations"]
        begun, ends = (parse_timestamp(notes[f"cotide.dev/phase-{what}"]) for what in ("since", "ends"))
        assert ends - begun == pytest.approx(4, abs=1e-3)
        async with world.operator(ALONE):
            counting = await until_set(world, fleet, "mute", "3", "count")
        assert parse_timestamp(counting["metadata"]["annotations"]["cotide.dev/phase-since"]) >= ends


@pytest.mark.fake_nodes("the test writes what a probe found; a real probe: tests/node/test_phases_of_work.py")
async def test_a_pod_whose_probe_finds_another_phase_in_its_file_is_given_the_next_one(world: World) -> None:
    async with world.server.kubelets(world.client, ONE_NODE) as fleet, world.operator(ALONE):
        await world.server.until_open(world.client)
        await world.client.create(JOBS, job("probed", probe=True))
        await until_set(world, fleet, "probed", "500m", "fetch")
        # A fake node runs no probe: what its kubelet would tell.
        unready = {"type": "Ready", "status": "False", "lastTransitionTime": "2100-01-01T00:00:00Z"}
        await world.client.patch(f"{PODS}/probed-0/status", {"status": {"conditions": [unready]}}, "strategic")
        await until_set(world, fleet, "probed", "3", "count")
