"""A leader stops cleanly: what it bound last is known to the next one before that decides, however slow watches are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from operator_world import LEASE, PODS, QUICK_LEASE, World, settings, watch_bindings
from relay import Relay, relaying
from servers import Server

from cotide_kube.client import KubeClient
from cotide_operator import assembly
from cotide_operator.assembly import Operator, Options

ALL_PODS = "/api/v1/pods"
MARKED = {"nodeSelector": {"marked": "yes"}}
NOTE = "cotide.dev/bound-up-to"
WAITS = "waiting until the watch of pods shows what the last leader bound"


@pytest.fixture
async def world(server: Server) -> AsyncIterator[World]:
    async with KubeClient(server.credentials) as client:
        yield World(server, client)


@asynccontextmanager
async def behind_a_relay(world: World) -> AsyncIterator[tuple[Operator, Relay]]:
    """Make an operator whose watches can be held back."""
    async with relaying(world.server.credentials) as relay:
        credentials = replace(world.server.credentials, server=relay.url)
        yield Operator(settings(QUICK_LEASE), Options(metrics_port=0, install_crds=True), credentials), relay


async def mark(world: World, *operators: Operator) -> None:
    """Open the node to pods that wait for its mark, and wait until operators know of it."""
    await world.client.patch("/api/v1/nodes/n0", {"metadata": {"labels": {"marked": "yes"}}})

    def known() -> bool:
        return all(operator.cache.nodes["n0"].metadata.labels.get("marked") for operator in operators)

    await world.until("the mark is known", known)


async def test_a_standby_whose_watch_is_behind_decides_nothing_before_it_shows_the_last_bindings(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cotide_operator")
    await world.nodes(1, cpu="3")
    first, stop_first, stop_second = world.make(QUICK_LEASE), asyncio.Event(), asyncio.Event()
    one = asyncio.create_task(first.run(stop_first))
    await world.until("the first decides", lambda: first.loop.cycles or one.done())
    async with behind_a_relay(world) as (second, relay):
        posted = watch_bindings(second)
        two = asyncio.create_task(second.run(stop_second))
        await world.pods(1, cpu="2", prefix="waits", **MARKED)
        await world.until("the second stands by", lambda: second.cache.synced and second.cache.pods)
        let_go = relay.hold(ALL_PODS)
        await world.pods(1, cpu="3", prefix="last")
        await world.until_placed(1)  # the node is full
        await mark(world, first, second)  # and looks empty to the second, to which a pod waits that may go there
        stop_first.set()
        await one
        await world.until("the second's turn comes", lambda: second.loop.cycles or WAITS in caplog.text)
        assert (second.loop.cycles, list(second.cache.pods)) == (0, ["default/waits0"])
        assert NOTE not in (await world.client.get(LEASE))["metadata"].get("annotations", {})
        let_go()
        await world.until("the second decides", lambda: second.loop.cycles)
        assert "default/last0" in second.cache.pods

        async def looked_at() -> bool:
            pod = await world.client.get(f"{PODS}/waits0")
            said = [one.get("message", "") for one in pod["status"].get("conditions", [])]
            return "0/1 nodes are available: 1 Insufficient cpu" in said

        await world.until("the second says why the pod waits", looked_at)
        assert posted == {}
        assert await world.placed() == {"last0": "n0"}  # 3 of 3 cpu; with the other it would be 5
        stop_second.set()
        await two


async def test_a_leader_whose_own_watch_does_not_show_its_bindings_looks_at_the_pods(world: World) -> None:
    await world.nodes(1)
    async with behind_a_relay(world) as (leader, relay):
        stop = asyncio.Event()
        running = asyncio.create_task(leader.run(stop))
        await world.pods(2, **MARKED)
        await world.until("the pods are known", lambda: leader.loop.cycles and len(leader.cache.pods) == 2)
        before = [int(pod["metadata"]["resourceVersion"]) for pod in await world.client.list(PODS)]
        relay.hold(ALL_PODS)
        await mark(world)
        await world.until_placed(2)
        stop.set()
        await running
    assert not any(pod.spec.node_name for pod in leader.cache.pods.values())
    lease = await world.client.get(LEASE)
    after = [int(pod["metadata"]["resourceVersion"]) for pod in await world.client.list(PODS)]
    assert lease["spec"].get("holderIdentity", "") == ""
    assert max(before) < int(lease["metadata"]["annotations"][NOTE]) <= max(after)


async def test_a_lease_is_not_given_up_while_nobody_knows_whether_a_binding_is_carried_out(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(assembly, "DRAIN_SECONDS", 0.1)
    await world.nodes(1)
    lost = world.server.strike(status=503, method="POST", path="/binding$", count=-1)
    async with world.operator(QUICK_LEASE, begun=lambda one: bool(one.loop.cycles)):
        await world.pods(1)
        await world.until("the binding is posted", lambda: lost.met)
        held = (await world.client.get(LEASE))["spec"]["holderIdentity"]
    lease = await world.client.get(LEASE)
    assert (lease["spec"]["holderIdentity"], lease["metadata"].get("annotations", {})) == (held, {})
    assert "the lease is left to expire by itself" in caplog.text
