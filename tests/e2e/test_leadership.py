"""One leader at a time over real HTTP: a stopped one hands over, one that lost its lease binds nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from operator_world import LEASE, QUICK_LEASE, World, watch_bindings
from servers import Server

from cotide_kube.client import KubeClient
from cotide_operator.controllers.kopf_thread import KopfSupervisor
from cotide_operator.controllers.reconciliation import Controllers
from cotide_operator.leaderelection.lease import LeadershipLost


@pytest.fixture
async def world(server: Server) -> AsyncIterator[World]:
    async with KubeClient(server.credentials) as client:
        yield World(server, client)


async def test_only_the_leader_decides_and_a_stopped_leader_hands_over(world: World) -> None:
    await world.nodes(4)
    stop_first, stop_second = asyncio.Event(), asyncio.Event()
    first, second = world.make(QUICK_LEASE), world.make(QUICK_LEASE)
    one = asyncio.create_task(first.run(stop_first))
    await world.until("the first decides", lambda: first.loop.cycles or one.done())
    two = asyncio.create_task(second.run(stop_second))
    await world.until("the second has listed everything", lambda: second.cache.synced)
    await world.pods(2)
    await world.until_placed(2)
    assert second.loop.cycles == 0
    stop_first.set()
    await one
    await world.until("the second decides", lambda: second.loop.cycles)
    await world.pods(2, prefix="q")
    await world.until_placed(4)
    stop_second.set()
    await two


async def test_a_standby_that_was_ready_stays_so_while_it_takes_over_and_not_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(self: KopfSupervisor, reconciliation: object) -> None:
        await asyncio.Event().wait()

    async def readiness() -> tuple[int, str]:
        address = f"http://127.0.0.1:{second.health.port}/readyz"
        async with aiohttp.ClientSession() as session, session.get(address) as answer:
            return answer.status, await answer.text()

    await world.nodes(1)
    stop_first, stop_second = asyncio.Event(), asyncio.Event()
    first, second = world.make(QUICK_LEASE), world.make(QUICK_LEASE)
    one = asyncio.create_task(first.run(stop_first))
    await world.until("the first decides", lambda: (not first._missing() and first.loop.cycles) or one.done())
    monkeypatch.setattr(KopfSupervisor, "run", hangs)
    two = asyncio.create_task(second.run(stop_second))
    await world.until("the second has listed everything", lambda: not second._missing() or two.done())
    stop_first.set()
    await one
    await world.until("the second decides", lambda: second.loop.cycles)
    assert second._missing() == ["kopf"]
    assert await readiness() == (200, "ok\n")
    monkeypatch.setattr("cotide_operator.assembly.TAKE_OVER_SECONDS", 0.0)
    assert await readiness() == (503, "waiting for kopf\n")
    stop_second.set()
    await two


async def test_a_leader_that_loses_its_lease_decides_no_more(world: World) -> None:
    await world.nodes(2)
    operator = world.make(QUICK_LEASE)
    task = asyncio.create_task(operator.run(asyncio.Event()))
    await world.until("it decides", lambda: operator.loop.cycles or task.done())
    await world.client.patch(LEASE, {"spec": {"holderIdentity": "another"}})
    with pytest.raises(LeadershipLost, match="was taken by another"):
        await asyncio.wait_for(task, world.server.deadline_seconds)
    await world.pods(1)
    assert (await world.client.get(LEASE))["spec"]["holderIdentity"] == "another"  # not released over its head
    assert await world.placed() == {}


async def test_a_leader_that_loses_its_lease_posts_no_queued_binding(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[tuple[str, int]] = []

    class TellingControllers(Controllers):
        async def run(self, stop: asyncio.Event) -> None:
            await super().run(stop)
            ended.append(("controllers", sum(posted.values())))

    await world.nodes(2, cpu="64")
    monkeypatch.setattr("cotide_operator.assembly.Controllers", TellingControllers)
    operator = world.make(f"{QUICK_LEASE}concurrentBinds: 1\n")
    posted, close = watch_bindings(operator), operator.binder.close

    def asked_to_close() -> None:
        ended.append(("binder", sum(posted.values())))
        close()

    operator.binder.close = asked_to_close  # type: ignore[method-assign]  # a spy; it is closed all the same
    task = asyncio.create_task(operator.run(asyncio.Event()))
    await world.until("it decides", lambda: (operator.loop.cycles and not operator._missing()) or task.done())
    world.server.strike(delay_seconds=0.3, method="POST", path="/binding$", count=-1)
    await world.pods(30)
    await world.until("a queue of bindings", lambda: operator.binder.backlog >= 3)
    await world.client.patch(LEASE, {"spec": {"holderIdentity": "another"}})
    with pytest.raises(LeadershipLost):
        await asyncio.wait_for(task, world.server.deadline_seconds)
    # Before anything else ends, which may take its time, the binder is closed: with the loss, and with pods left over.
    (first, by_then), *_ = ended
    assert first == "binder"
    assert sum(posted.values()) == by_then < 30
