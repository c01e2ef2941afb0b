"""Slack that is measured, forecast, published, asked for, used, and never promised twice: all of it together.

Fake nodes that tell what their pods use, the operator with policy hierarchical. Two nodes of four
cores each run an online pod that asks for three cores and uses half of one; by requests, one core is left on each.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, ClassVar

import aiohttp
import pytest
from aiohttp import web
from servers import Server

from cotide_core.units import resource_amount
from cotide_kube.client import KubeClient
from cotide_operator.assembly import Operator, Options
from cotide_operator.config.settings import parse_settings
from cotide_operator.reclaimed import publisher as reclaimed_publisher
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.kubelets.fleet import Fleet, FleetSettings, running_fleet
from cotide_sim.kubelets.node_objects import NodeShape

pytestmark = pytest.mark.fake_nodes(
    "usage that the nodes make up, at forty times the speed; real usage: tests/node/test_interference.py"
)
SPEED = 40.0
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/cotide.dev/v1alpha1/namespaces/default/jobs"
CPU, MEMORY = "cotide.dev/reclaimed-cpu", "cotide.dev/reclaimed-memory"
GI = 2**30
SETTINGS = """\
apiVersion: cotide.dev/v1alpha1
kind: CotideConfiguration
policy: {policy}
slotSeconds: 20
leaderElection: {{enabled: false}}
queue: {{backoffInitialSeconds: 0.5, backoffMaxSeconds: 2, unschedulableFlushSeconds: 5}}
metricsSource: {{scrape: {{url: "http://127.0.0.1:{port}/metrics"}}, intervalSeconds: 0.1, staleAfterSeconds: {stale}}}
reclaimed: {{minimumIntervalSeconds: 0, patchesPerSecond: 100}}
simulatedTime: {{originSeconds: {origin}, speed: {speed}}}
"""


class Relay:
    """Stands between the fake nodes' metrics and who reads them, and tells what it is told to tell."""

    MODES: ClassVar = {
        "truth": lambda value: value,
        "nan": lambda value: "NaN",
        "infinite": lambda value: "+Inf",
        "negative": lambda value: f"-{value}",
        "hundredfold": lambda value: f"{100 * float(value)}",
        "missing": lambda value: None,
        "error": None,
    }

    def __init__(self, fleet: Fleet) -> None:
        self._url = f"http://127.0.0.1:{fleet.metrics_port}/metrics"
        self.mode = "truth"
        self.asked = 0
        """Times since the mode changed."""

    def set(self, mode: str) -> None:
        self.mode, self.asked = mode, 0

    async def answer(self, _: web.Request) -> web.Response:
        self.asked += 1
        emit = self.MODES[self.mode]
        if emit is None:
            return web.Response(status=500)
        async with aiohttp.ClientSession() as session, session.get(self._url) as found:
            lines = (await found.text()).splitlines()
        is_said = []
        for line in lines:
            name, _, value = line.rpartition(" ")
            said = emit(value) if name.startswith("cotide_sim_pod_") else value
            is_said += [f"{name} {said}"] if said is not None else []
        return web.Response(text="\n".join(is_said) + "\n")

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        app = web.Application()
        app.router.add_get("/metrics", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield int(runner.addresses[0][1])
        finally:
            await runner.cleanup()


class World:
    def __init__(self, server: Server, client: KubeClient, fleet: Fleet) -> None:
        self.server, self.client, self.fleet = server, client, fleet
        self.until = server.until
        self.most_asked: dict[str, int] = defaultdict(int)

    @contextlib.asynccontextmanager
    async def operator(
        self, policy: str = "hierarchical", *, port: int | None = None, stale: float = 5.0
    ) -> AsyncIterator[Operator]:
        port, origin = port or self.fleet.metrics_port, self.fleet.clock.origin_seconds
        text = SETTINGS.format(policy=policy, port=port, origin=origin, speed=SPEED, stale=stale)
        options = Options(metrics_port=0, install_crds=True)
        operator = Operator(parse_settings(text), options, self.server.credentials)
        stop = asyncio.Event()
        running = asyncio.create_task(operator.run(stop))
        try:
            await self.until("the operator decides", lambda: not operator._missing() or running.done())
            yield operator
        finally:
            stop.set()
            await running

    async def offers(self) -> dict[str, tuple[int, int]]:
        """Reclaimed millicores and bytes by node, of those that publish any."""
        nodes = {
            one["metadata"]["name"]: one["status"]["allocatable"] for one in await self.client.list("/api/v1/nodes")
        }
        return {name: (amount(node, CPU), amount(node, MEMORY)) for name, node in nodes.items() if CPU in node}

    async def online(self, name: str, node: str) -> None:
        notes = {"sim.cotide.dev/used-millicores": "500"}
        resources = {"requests": {"cpu": "3", "memory": "1Gi"}}
        body = {
            "metadata": {"name": name, "labels": {"cotide.dev/class": "online"}, "annotations": notes},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "none", "resources": resources}]},
        }
        await self.client.create(PODS, body)

    async def job(self, name: str, pods: int, seconds: float) -> None:
        resources = {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": "2"}}
        containers = [{"name": "work", "image": "none", "resources": resources}]
        notes = {"sim.cotide.dev/lone-seconds": str(seconds)}
        template = {"metadata": {"annotations": notes}, "spec": {"containers": containers}}
        spec = {"completions": pods, "parallelism": pods, "template": template}
        body = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
        await self.client.create(JOBS, body)

    async def children(self, job: str) -> list[dict[str, Any]]:
        """The Job's pods; what they hold on each node is checked on the way."""
        pods = await self.client.list(PODS, {"labelSelector": f"cotide.dev/job={job}"})
        for pod in pods:
            assert pod["status"].get("phase") != "Failed", pod["status"]
        held: dict[str, int] = defaultdict(int)
        for pod in pods:
            if pod["spec"].get("nodeName") and pod["status"].get("phase") != "Succeeded":
                held[pod["spec"]["nodeName"]] += amount(pod["spec"]["containers"][0]["resources"]["requests"], CPU)
        for name, millicores in held.items():
            # 4000 x 0.95 - 500 in use = 3300: nobody may ever be promised more.
            assert millicores <= 3300, (name, millicores)
            self.most_asked[name] = max(self.most_asked[name], millicores)
        return pods

    async def running(self, job: str) -> int:
        pods = await self.children(job)
        return sum(pod["status"].get("phase") == "Running" for pod in pods)


def amount(resources: dict[str, str], name: str) -> int:
    """Return an amount in units, however the server writes it: a real one says 1k for 1000."""
    return resource_amount(name, resources[name])


@pytest.fixture
async def world(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(reclaimed_publisher, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(reclaimed_publisher, "AT_ONCE_SECONDS", 0.0)
    shape = NodeShape(millicores=4000, memory_bytes=8 * GI)
    settings = FleetSettings(
        interference=GeneratedInterference(),
        count=2,
        shape=shape,
        origin_seconds=time.time(),
        speed=SPEED,
        metrics_port=0,
    )
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(KubeClient(server.credentials))
        fleet = await stack.enter_async_context(running_fleet(client, settings))
        await server.until_open(client)
        one = World(server, client, fleet)
        for number in range(2):
            await one.online(f"web-{number}", f"fake-{number}")
        yield one


async def test_jobs_run_on_what_online_pods_leave_and_a_restart_promises_nothing_twice(world: World) -> None:
    async with world.operator():

        async def forecast() -> bool:
            offers = await world.offers()
            return len(offers) == 2 and all(3000 <= cpu <= 3300 for cpu, _ in offers.values())

        # One slot of 20 s, half a second of ours, and the forecast knows what the online pods use.
        await world.until("each node offers what the forecast leaves", forecast)
        node = await world.client.get("/api/v1/nodes/fake-0")
        (trust,) = [one for one in node["status"]["conditions"] if one["type"] == "cotide.dev/ForecastTrusted"]
        assert (trust["status"], trust["reason"]) == ("True", "TooFewRecords")
        assert node["metadata"]["annotations"]["cotide.dev/forecast"].startswith("online peak ")
        await world.job("count", pods=8, seconds=100.0)

        async def full() -> bool:
            return await world.running("count") == 6

        await world.until("six pods run", full)  # three of a core on each node; by requests it would be one
        (first, *_) = await world.children("count")
        resources = first["spec"]["containers"][0]["resources"]
        assert resources["limits"] == resources["requests"]
        assert {name: amount(resources["limits"], name) for name in resources["limits"]} == {
            CPU: 1000,
            MEMORY: 64 * 2**20,
        }
    before = await world.offers()
    async with world.operator():
        assert await world.offers() != {}, "what is published outlives the operator"

        async def done() -> bool:
            await world.children("count")
            return bool((await world.client.get(f"{JOBS}/count"))["status"].get("phase") == "Succeeded")

        await world.until("the Job is done", done)
    assert before
    assert max(world.most_asked.values()) == 3000
    status = (await world.client.get(f"{JOBS}/count"))["status"]
    assert (status.get("evictions", 0), status.get("failures", 0)) == (0, 0)


async def test_another_policy_takes_the_slack_off_the_nodes_and_pods_that_run_go_on(world: World) -> None:
    async with world.operator():
        await world.until("something is offered", world.offers)
        await world.job("count", pods=1, seconds=40.0)

        async def started() -> bool:
            return await world.running("count") == 1

        await world.until("the pod runs", started)
    async with world.operator("fifo"):

        async def gone() -> bool:
            return not await world.offers()

        await world.until("nothing is offered any more", gone)

        async def done() -> bool:
            await world.children("count")
            return bool((await world.client.get(f"{JOBS}/count"))["status"].get("phase") == "Succeeded")

        await world.until("the Job is done", done)


async def test_a_source_that_fails_or_lies_leaves_what_nobody_asked_for_and_starts_no_loop(world: World) -> None:
    relay = Relay(world.fleet)
    async with relay.serving() as port, world.operator(port=port, stale=1.0) as operator:

        async def trusted() -> bool:
            offers = await world.offers()
            return len(offers) == 2 and all(3000 <= cpu <= 3300 for cpu, _ in offers.values())

        async def fallen_back() -> bool:
            # 4000 - 3000, what the online pods did not ask for; of 8 GiB about 7, for memory that was used stays used.
            offers = (await world.offers()).values()
            return len(offers) == 2 and all(cpu == 1000 and 6 * GI <= memory <= 7 * GI for cpu, memory in offers)

        def patches() -> float:
            value = operator.metrics.registry.get_sample_value
            return value("cotide_reclaimed_patches_total", {"result": "published"}) or 0.0

        await world.until("the forecasts are trusted", trusted)
        relay.set("error")
        await world.until("the nodes offer what nobody asked for", fallen_back)
        before = patches()
        for mode in ("nan", "infinite", "negative", "hundredfold", "missing", "error"):
            relay.set(mode)
            await world.until("the source was read four times", lambda: relay.asked >= 4)
            assert await fallen_back(), mode
        assert patches() <= before + 4, "nothing changed but, perhaps, the reason: once a node and way"
        relay.set("truth")
        await world.until("the forecasts are trusted", trusted)

        async def is_said() -> bool:
            events = await world.client.list("/api/v1/namespaces/default/events")
            reasons = {event["reason"] for event in events if event["involvedObject"]["kind"] == "Node"}
            return reasons >= {"FellBackToRequests", "ForecastTrustedAgain"}

        await world.until("events tell of it", is_said)
