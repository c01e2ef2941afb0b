"""How an operator begins: what was listed before it was made counts, and what can't be followed ends it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from operator_world import ALONE, World, settings
from servers import Server

from cotide_core.errors import ClusterError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_operator.assembly import Operator, Options
from cotide_operator.cache.preflight import install
from cotide_operator.cache.reflectors import Informers


async def test_what_was_listed_before_the_operator_was_made_is_placed_by_it(server: Server) -> None:
    heard: list[bool] = []
    async with KubeClient(server.credentials) as client:
        world = World(server, client)
        await install(client)
        await world.nodes(1)
        await world.pods(2)
        informers = Informers(server.credentials, listed=lambda: heard.append(informers.cache.synced))
        informers.begin()
        await world.until("everything is listed", lambda: informers.cache.synced)
        operator, stop = Operator(settings(ALONE), Options(metrics_port=0), informers=informers), asyncio.Event()
        running = asyncio.create_task(operator.run(stop))
        await world.until_placed(2)
        await world.pods(1, prefix="later")
        await world.until_placed(3)
        stop.set()
        await running
        assert heard == [True]
        assert informers.begin().done(), "nothing is followed any more"


async def test_what_can_not_be_reached_ends_the_operator_though_it_was_asked_before_it_was_made() -> None:
    informers = Informers(Credentials("http://127.0.0.1:9"), timeout_seconds=1.0)
    begun = informers.begin()
    with contextlib.suppress(ClusterError):
        await begun
    operator = Operator(settings(ALONE), Options(metrics_port=0), informers=informers)
    with pytest.raises(ClusterError, match=r"http://127\.0\.0\.1:9 is unreachable"):
        await operator.run(asyncio.Event())
    assert operator._missing() == ["the API server"]


async def test_who_is_told_to_stop_before_the_resources_are_there_stops(server: Server) -> None:
    missing = server.strike(status=404, method="GET", path="/workloads$", count=-1)
    operator, stop = Operator(settings(ALONE), Options(metrics_port=0), server.credentials), asyncio.Event()
    running = asyncio.create_task(operator.run(stop))
    await server.until("it waits for them", lambda: missing.met > 0)
    assert operator._missing() == ["the custom resources"]
    stop.set()
    await asyncio.wait_for(running, server.deadline_seconds)
    assert operator.loop.cycles == 0
