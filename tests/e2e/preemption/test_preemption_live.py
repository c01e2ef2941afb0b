"""Preemption by priority, live: what is written on whom, who goes, and what outlives a restart or a lost node.

The situations are those of Kubernetes' own specs (test/e2e/scheduling/preemption.go). Victims stay on their way out
until a test takes them away, which holds a preemption open while the test looks at it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from servers import STUBBORN, Server

from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_operator.assembly import Operator, Options
from cotide_operator.config.settings import parse_settings

PODS = "/api/v1/namespaces/default/pods"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
SETTINGS = """\
apiVersion: cotide.dev/v1alpha1
kind: CotideConfiguration
policy: {policy}
leaderElection: {{enabled: false}}
queue: {{backoffInitialSeconds: 5, backoffMaxSeconds: 5, unschedulableFlushSeconds: 300}}
reclaimed: {{publish: false}}
"""
VALUES = {"low": 1, "medium": 100, "high": 1000, "never": 2000}


class World:
    """A server, a client for the test, and operators that come and go."""

    def __init__(self, server: Server, client: KubeClient) -> None:
        self.server = server
        self.client = client

    async def begin(self, *nodes: str) -> None:
        """Have nodes of 4 cpu and the priority classes."""
        await self.server.join(self.client, *nodes, cpu="4")
        await self.server.until_open(self.client)
        for name, value in VALUES.items():
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            with contextlib.suppress(ApiError):  # an earlier test left it
                policy = {"preemptionPolicy": "Never"} if name == "never" else {}
                await self.client.create(CLASSES, {**body, "value": value, **policy})

    async def pod(self, name: str, priority: str, cpu: str, on: str = "") -> None:
        """A pod that waits for us, or that runs on a node already."""
        labels = {"cotide.dev/class": "online", "app": name}
        container = {"name": "c", "image": STUBBORN, "resources": {"requests": {"cpu": cpu}}}
        spec: dict[str, Any] = {"schedulerName": "cotide", "containers": [container], "priorityClassName": priority}
        spec |= {"nodeName": on} if on else {}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
        await self.client.create(PODS, body)
        if on:
            ready = [{"type": "Ready", "status": "True"}]
            await self.server.becomes(self.client, f"{PODS}/{name}", "Running", conditions=ready)

    async def look(self, name: str) -> dict[str, Any]:
        return await self.client.get(f"{PODS}/{name}")

    async def gone(self, name: str) -> None:
        """What a kubelet does when a pod has ended, if it was not faster."""
        with contextlib.suppress(ApiError):
            await self.client.delete(f"{PODS}/{name}", grace_seconds=0)

    async def leaving(self) -> set[str]:
        pods = await self.client.list(PODS)
        return {pod["metadata"]["name"] for pod in pods if pod["metadata"].get("deletionTimestamp")}

    async def until_leaving(self, *names: str) -> None:
        async def leave() -> bool:
            return await self.leaving() == set(names)

        await self.server.until(f"{names} leave", leave)

    async def until_nominated(self, name: str, node: str) -> None:
        async def said() -> bool:
            return ((await self.look(name)).get("status") or {}).get("nominatedNodeName", "") == node

        await self.server.until(f"{name} is nominated to {node!r}", said)

    async def until_on(self, name: str, node: str) -> None:
        async def there() -> bool:
            return (await self.look(name))["spec"].get("nodeName") == node

        await self.server.until(f"{name} is on {node}", there)

    async def until_event(self, name: str, reason: str) -> str:
        async def found() -> str:
            events = await self.client.list("/api/v1/namespaces/default/events")
            about = [event for event in events if event["involvedObject"]["name"] == name and event["reason"] == reason]
            return about[-1]["message"] if about else ""

        return str(await self.server.until(f"{name} has an event {reason}", found))

    @contextlib.asynccontextmanager
    async def operator(self, policy: str = "fifo", *, crash: bool = False) -> AsyncIterator[Operator]:
        """Run an operator; ``crash`` ends it without any of its good manners."""
        settings = parse_settings(SETTINGS.format(policy=policy))
        operator = Operator(settings, Options(metrics_port=0, install_crds=True), self.server.credentials)
        stop = asyncio.Event()
        task = asyncio.create_task(operator.run(stop))
        try:
            await self.server.until("the operator decides", lambda: not operator._missing() or task.done())
            yield operator
        finally:
            if crash:
                operator.binder.drain = _at_once  # type: ignore[method-assign]  # what is under way is not waited for
                task.cancel()
            stop.set()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _at_once() -> None:
    return


@pytest.fixture
async def world(server: Server) -> AsyncIterator[World]:
    async with KubeClient(server.credentials) as client:
        yield World(server, client)


@pytest.mark.parametrize("policy", ["fifo", "qpsm", "predictive"])
async def test_the_least_important_pod_leaves_gracefully_and_says_why(world: World, policy: str) -> None:
    await world.begin("n0", "n1")
    await world.pod("pod0", "low", "3", on="n0")
    await world.pod("pod1", "medium", "3", on="n1")
    async with world.operator(policy):
        await world.pod("preemptor", "high", "3")
        await world.until_leaving("pod0")
        victim, uid = await world.look("pod0"), (await world.look("preemptor"))["metadata"]["uid"]
        assert victim["metadata"]["deletionGracePeriodSeconds"] == 30, "its own grace period"
        (condition,) = [one for one in victim["status"]["conditions"] if one["type"] == "DisruptionTarget"]
        assert (condition["status"], condition["reason"]) == ("True", "PreemptionByScheduler")
        assert condition["message"] == "cotide: preempting to accommodate a higher priority pod"
        await world.until_nominated("preemptor", "n0")
        words = await world.until_event("pod0", "Preempted")
        assert words.startswith("Preempted by pod default/preemptor on node n0"), uid
        await world.gone("pod0")
        await world.until_on("preemptor", "n0")
    assert await world.leaving() == set()


async def test_a_critical_pod_displaces_and_one_that_never_preempts_waits(world: World) -> None:
    await world.begin("n0")
    await world.pod("victim", "high", "3", on="n0")
    async with world.operator():
        await world.pod("never", "never", "3")
        await world.until_event("never", "FailedScheduling")
        assert await world.leaving() == set()
        await world.pod("critical", "system-cluster-critical", "2")
        await world.until_leaving("victim")
        await world.gone("victim")
        await world.until_on("critical", "n0")
        assert "nodeName" not in (await world.look("never"))["spec"]


async def test_a_pod_whose_nominated_node_is_cordoned_or_gone_preempts_elsewhere(world: World) -> None:
    await world.begin("n0", "n1", "n2")
    for number, priority in enumerate(("low", "low", "medium")):
        await world.pod(f"pod{number}", priority, "3", on=f"n{number}")
    async with world.operator():
        await world.pod("preemptor", "high", "3")
        await world.until_nominated("preemptor", "n0")
        await world.client.patch("/api/v1/nodes/n0", {"spec": {"unschedulable": True}})
        await world.until_nominated("preemptor", "n1")
        await world.until_leaving("pod0", "pod1")
        await world.client.delete("/api/v1/nodes/n1")
        await world.until_nominated("preemptor", "n2")
        await world.gone("pod2")
        await world.until_on("preemptor", "n2")


async def test_budgets_are_best_effort(world: World) -> None:
    await world.begin("n0", "n1")
    await world.pod("kept", "low", "3", on="n0")
    await world.pod("free", "medium", "3", on="n1")
    spec = {"selector": {"matchLabels": {"app": "kept"}}, "minAvailable": 1}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "keep"}, "spec": spec}
    await world.client.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", body)
    async with world.operator():
        await world.pod("first", "high", "3")
        await world.until_leaving("free")
        await world.pod("second", "high", "3")
        await world.until_leaving("free", "kept")


async def test_a_restart_between_nomination_and_bind_keeps_the_room_and_asks_no_other(world: World) -> None:
    await world.begin("n0", "n1")
    await world.pod("pod0", "low", "3", on="n0")
    await world.pod("pod1", "low", "3", on="n1")
    async with world.operator(crash=True):
        await world.pod("preemptor", "high", "3")
        await world.until_leaving("pod0")
    await world.gone("pod0")
    await world.pod("thief", "medium", "2")
    async with world.operator():
        await world.until_on("preemptor", "n0")
        await world.until_leaving("pod1")  # the thief is more important than it
        await world.until_nominated("thief", "n1")


async def test_a_more_important_pod_takes_the_room_and_the_nomination_is_withdrawn(world: World) -> None:
    await world.begin("n0")
    await world.pod("victim", "low", "3", on="n0")
    async with world.operator():
        await world.pod("medium", "medium", "3")
        await world.until_nominated("medium", "n0")
        await world.pod("high", "high", "3")
        await world.until_nominated("high", "n0")
        await world.until_nominated("medium", "")
        await world.gone("victim")
        await world.until_on("high", "n0")
