"""Refusals on pods of the embedded API server: few writes for many looks, and none after a binding."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from manifests import node_manifest, pod_manifest

from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_kube.objects import PodObject
from cotide_operator.cache.decision_store import Decision, DecisionStore
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting.pod_annotator import PodAnnotator
from cotide_operator.scheduling.api_dispatcher import ApiDispatcher
from cotide_operator.translation.decision_annotation import DECISION_ANNOTATION
from cotide_sim.apiserver.server import ApiServer

PODS = "/api/v1/namespaces/default/pods"


class CountingClient(KubeClient):
    """Counts the patches of each pod."""

    def __init__(self, credentials: Credentials) -> None:
        super().__init__(credentials)
        self.patched: list[str] = []

    async def patch_blindly(self, path: str, *rest: Any, **named: Any) -> None:
        self.patched.append(path)
        await super().patch_blindly(path, *rest, **named)


class World:
    def __init__(self, client: CountingClient) -> None:
        self.client, self.cache, self.decisions = client, ObjectCache(), DecisionStore()
        self.dispatcher = ApiDispatcher(lambda: False, per_second=100_000.0)
        self.annotator = PodAnnotator(
            client, self.dispatcher, self.cache, self.decisions, Metrics(), class_of=lambda _: "batch"
        )

    async def pod(self, name: str) -> dict[str, Any]:
        """Make a pod that the cache shows."""
        created = await self.client.create(PODS, pod_manifest(name))
        self.cache.apply("pods", "ADDED", msgspec.convert(created, PodObject, strict=False))
        return created

    def refuse(self, name: str, message: str) -> None:
        uid = self.cache.pods[f"default/{name}"].metadata.uid
        self.decisions.publish(Decision(f"default/{name}", uid, 1.0, None, "InsufficientSlack", message))
        self.annotator.note(f"default/{name}")

    async def written(self) -> None:
        """Let the dispatcher write all that waits in it."""
        task = asyncio.create_task(self.dispatcher.run())
        async with asyncio.timeout(30):
            while len(self.dispatcher) or self.dispatcher.in_flight:
                await asyncio.sleep(0.002)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def seen(self, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a pod's metadata and its condition as the server has them."""
        pod = await self.client.get(f"{PODS}/{name}")
        (condition,) = (one for one in pod["status"]["conditions"] if one["type"] == "PodScheduled")
        return pod["metadata"], condition


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with ApiServer() as server, CountingClient(Credentials(server.url)) as client:
        yield World(client)


async def test_pods_that_are_looked_at_again_and_again_are_each_written_once(world: World) -> None:
    names = [f"p{number}" for number in range(20)]
    for name in names:
        await world.pod(name)
    for attempt in range(50):
        for name in names:
            world.refuse(name, f"0/{attempt} nodes are available: {attempt} Insufficient cpu")
        await world.written()
    assert sorted(world.client.patched) == sorted(f"{PODS}/{name}/status" for name in names)
    metadata, condition = await world.seen("p0")
    assert metadata["labels"]["cotide.dev/class"] == "batch"
    assert DECISION_ANNOTATION in metadata["annotations"]
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")


async def test_a_pod_that_is_bound_before_its_refusal_is_written_stays_scheduled(world: World) -> None:
    created = await world.pod("p")
    world.refuse("p", "0/1 nodes are available")
    await world.client.create("/api/v1/nodes", node_manifest("n1"))
    bound = {DECISION_ANNOTATION: "of the binding"}
    assert (await world.client.bind("default", "p", created["metadata"]["uid"], "n1", bound)).ok
    await world.written()  # the cache does not show the binding yet
    metadata, condition = await world.seen("p")
    assert (condition["status"], metadata["annotations"]) == ("True", bound)


async def test_the_condition_of_a_pod_goes_when_the_pod_is_bound(world: World) -> None:
    created = await world.pod("p")
    world.refuse("p", "0/1 nodes are available")
    await world.written()
    await world.client.create("/api/v1/nodes", node_manifest("n1"))
    labels = {"cotide.dev/class": "online"}
    assert (await world.client.bind("default", "p", created["metadata"]["uid"], "n1", None, labels)).ok
    metadata, condition = await world.seen("p")
    assert (condition["status"], condition.get("reason")) == ("True", None)
    assert metadata["labels"] == labels
