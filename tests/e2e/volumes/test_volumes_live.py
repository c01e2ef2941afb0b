"""Pods with claims on a server: told a node before they are bound, also across a crash, and let go in time."""

from __future__ import annotations

from typing import Any

import pytest
from operator_world import ALONE, QUICK_QUEUE, World, world

from cotide_kube.answers import ApiError

__all__ = ["world"]
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
SELECTED = "volume.kubernetes.io/selected-node"


async def make(world: World, path: str, name: str, **body: Any) -> None:
    try:
        await world.client.create(path, {"metadata": {"name": name}, **body})
    except ApiError as error:
        if error.status != 409:
            raise


async def claim(world: World, name: str) -> None:
    await make(world, CLASSES, "made", provisioner="disk.example.com", volumeBindingMode="WaitForFirstConsumer")
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await make(world, CLAIMS, name, spec={"storageClassName": "made", **asked})


def mounting(name: str) -> list[dict[str, Any]]:
    return [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]


async def selected(world: World, name: str) -> str | None:
    found: str | None = (await world.client.get(f"{CLAIMS}/{name}"))["metadata"].get("annotations", {}).get(SELECTED)
    return found


async def until_selected(world: World, name: str, node: str | None = None) -> str:
    async def is_said() -> bool:
        found = await selected(world, name)
        return found is not None and found == (node or found)

    await world.until("the claim is told a node", is_said)
    return await selected(world, name) or ""


async def finish(world: World, name: str, node: str) -> None:
    """What a provisioner and the volume controller do."""
    stored = await world.client.get(f"{CLAIMS}/{name}")
    reference = {key: stored["metadata"][key] for key in ("namespace", "name", "uid")}
    await world.client.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"host": node}}})
    expression = {"key": "host", "operator": "In", "values": [node]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "made",
        "csi": {"driver": "disk.example.com", "volumeHandle": name},
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **reference},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
    }
    await make(world, VOLUMES, f"v-{name}", spec=spec)
    done = {
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": f"v-{name}"},
    }
    await world.client.patch(f"{CLAIMS}/{name}", done)


async def test_a_claim_that_waits_for_its_pod_is_told_its_node_and_the_pod_is_bound_there(world: World) -> None:
    await world.nodes(3)
    async with world.operator(f"{ALONE}{QUICK_QUEUE}"):
        await world.pods(1, volumes=mounting("c0"))
        await world.pods(1, prefix="q")
        await world.until_placed(1)  # the other one: a claim that is not there holds nobody up

        async def is_said() -> bool:
            events = await world.client.list("/api/v1/namespaces/default/events")
            return any('persistentvolumeclaim "c0" not found' in event["message"] for event in events)

        await world.until("an event says what is waited for", is_said)
        await claim(world, "c0")
        node = await until_selected(world, "c0")
        assert "p0" not in await world.placed()
        await finish(world, "c0", node)
        await world.until_placed(2)
        assert (await world.placed())["p0"] == node


async def test_a_crash_while_a_volume_is_made_loses_neither_the_node_nor_the_pod(world: World) -> None:
    await world.nodes(3)
    await claim(world, "c0")
    async with world.operator(crash=True):
        await world.pods(1, volumes=mounting("c0"))
        node = await until_selected(world, "c0")
    assert await selected(world, "c0") == node
    async with world.operator():
        await finish(world, "c0", node)
        await world.until_placed(1)
    assert await world.placed() == {"p0": node}


async def test_a_volume_that_is_not_made_in_time_is_asked_for_on_another_node(world: World) -> None:
    await world.nodes(2)
    await claim(world, "c0")
    async with world.operator(f"{ALONE}{QUICK_QUEUE}volumes: {{bindTimeoutSeconds: 1}}\n"):
        await world.pods(1, volumes=mounting("c0"))
        first = await until_selected(world, "c0")
        other = {"n0": "n1", "n1": "n0"}[first]
        await until_selected(world, "c0", other)
        await finish(world, "c0", other)
        await world.until_placed(1)
    assert await world.placed() == {"p0": other}


@pytest.mark.parametrize("kind", ["csinodes", "storageclasses"])
async def test_what_storage_says_is_served_as_any_other_kind(world: World, kind: str) -> None:
    path = f"/apis/storage.k8s.io/v1/{kind}"
    body = {"spec": {"drivers": []}} if kind == "csinodes" else {"provisioner": "disk.example.com"}
    await make(world, path, "first", **body)
    names = [one["metadata"]["name"] for one in await world.client.list(path)]
    assert names == ["first"]
