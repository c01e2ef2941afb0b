"""Kinds that a server need not serve, and of which an older server has an older version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from operator_world import ALONE, World
from scripted_server import refuses, scripted_server
from servers import emulated

from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_operator.cache import reflectors
from cotide_operator.cache.reflectors import Informers

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SIZE = 3


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """On the emulator only: kube-apiserver drops ``spec.schedulingGroup`` before 1.36."""
    async with emulated(tmp_path) as server, KubeClient(server.credentials) as client:
        yield World(server, client)


async def serve_pod_groups(client: KubeClient, version: str) -> str:
    """Serve the server's own PodGroups, as far as they are read; returns their path."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup"}
    offered = {"name": version, "served": True, "storage": True, "subresources": {"status": {}}}
    versions: list[dict[str, Any]] = [{**offered, "schema": schema}]
    spec = {"group": "scheduling.k8s.io", "names": names, "scope": "Namespaced", "versions": versions}
    await client.create(DEFINITIONS, {"metadata": {"name": "podgroups.scheduling.k8s.io"}, "spec": spec})
    return f"/apis/scheduling.k8s.io/{version}/namespaces/default/podgroups"


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("v1beta1", "PodGroupInitiallyScheduled"),
        ("v1alpha3", "PodGroupInitiallyScheduled"),
        ("v1alpha2", "PodGroupScheduled"),
    ],
)
async def test_pods_of_a_group_of_the_servers_own_start_together_whichever_version_it_serves(
    world: World, version: str, kind: str
) -> None:
    path = await serve_pod_groups(world.client, version)
    group = {"metadata": {"name": "train"}, "spec": {"schedulingPolicy": {"gang": {"minCount": SIZE}}}}
    await world.client.create(path, group)
    await world.nodes(2)
    member = {"schedulingGroup": {"podGroupName": "train"}}
    async with world.operator(ALONE):
        await world.pods(SIZE - 1, prefix="first", **member)

        async def told() -> bool:
            events = await world.client.list("/api/v1/namespaces/default/events")
            return any(f"2 of {SIZE} are present and can start" in event.get("message", "") for event in events)

        await world.until("two of three wait for the third", told)
        assert await world.placed() == {}
        assert "status" not in await world.client.get(f"{path}/train"), "nobody found it to be unschedulable"
        await world.pods(1, prefix="last", **member)
        await world.until_placed(SIZE)

        async def said() -> bool:
            return "status" in await world.client.get(f"{path}/train")

        await world.until("the group says that it is scheduled", said)
        (condition,) = (await world.client.get(f"{path}/train"))["status"]["conditions"]
    found = {key: condition[key] for key in ("type", "status", "reason", "message")}
    message = "3 pods that must run together have a node"
    assert found == {"type": kind, "status": "True", "reason": "Scheduled", "message": message}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 410, 422])
async def test_a_kind_that_need_not_be_served_ends_nothing_however_it_is_refused(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflectors, "AGAIN_SECONDS", 0.01)
    async with scripted_server() as server:
        server.then(*[refuses(status)] * 3)
        informers = Informers(Credentials(server.url))
        async with informers._client, asyncio.timeout(10.0):
            following = asyncio.create_task(informers._follow_if_served("podgroups"))
            while len(server.requests) < 5:
                await asyncio.sleep(0.01)
            assert not following.done()
            following.cancel()
