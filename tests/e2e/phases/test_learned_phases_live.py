"""Phases learned live: six pods of a type run at their maximum, and the seventh is resized to what they used."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from manifests import container, job_manifest, template
from operator_world import ALONE, PODS, World
from operator_world import world as world  # noqa: PLC0414 - a fixture

from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.kubelets.fleet import Fleet, FleetSettings, running_fleet
from cotide_sim.kubelets.node_objects import NodeShape

SPEED = 40.0
SECONDS = 300.0
LOW, HIGH = 200, 1800
"""Millicores that a pod uses for two thirds of its time, and then."""


@asynccontextmanager
async def usage_page(fleet: Fleet) -> AsyncIterator[str]:
    """Serve what the fleet's pods use, as a source of measurements."""

    async def page(_: web.Request) -> web.Response:
        residents, now = fleet.residents, fleet.clock.now()
        lines = []
        for key, resident in residents._residents.items():
            namespace, _, name = key.partition("/")
            labels = f'{{namespace="{namespace}",pod="{name}",node="{resident.node}"}}'
            used = LOW if now - resident.since < SECONDS * 2 / 3 else HIGH
            lines += [f"cotide_sim_pod_cpu_usage_millicores{labels} {used}"]
            lines += [f"cotide_sim_pod_memory_usage_bytes{labels} {2**28}"]
        return web.Response(text="\n".join(lines) + "\n")

    application = web.Application()
    application.router.add_get("/metrics", page)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/metrics"
    finally:
        await runner.cleanup()


@pytest.mark.fake_nodes("usage that the nodes make up, at forty times the speed")
async def test_the_pods_of_a_type_are_resized_to_what_earlier_ones_used(world: World) -> None:
    origin = time.time()
    shape = NodeShape(millicores=16_000, memory_bytes=2**35)
    settings = FleetSettings(GeneratedInterference(), shape=shape, origin_seconds=origin, speed=SPEED)
    asks = container(resources={"requests": {"cpu": "2", "memory": "1Gi"}})
    body = template(annotations={"sim.cotide.dev/lone-seconds": f"{SECONDS:g}"}, containers=[asks])
    async with running_fleet(world.client, settings) as fleet, usage_page(fleet) as url:
        text = (
            f"{ALONE}policy: fifo\nphases: {{learn: true, store: memory}}\n"
            f"simulatedTime: {{originSeconds: {origin}, speed: {SPEED:g}}}\n"
            f"metricsSource: {{scrape: {{url: '{url}'}}, intervalSeconds: 0.2, staleAfterSeconds: 5}}\n"
        )
        async with world.operator(text):
            await world.server.until_open(world.client)
            job = job_manifest("sort", template=body, type="sort", completions=12, parallelism=6)
            await world.client.create("/apis/cotide.dev/v1alpha1/namespaces/default/jobs", job)

            async def is_resized() -> bool:
                for pod in await world.client.list(PODS):
                    learned = pod["metadata"]["annotations"].get("cotide.dev/learned-phases")
                    statuses = pod.get("status", {}).get("containerStatuses") or [{}]
                    held = statuses[0].get("resources", {}).get("requests", {}).get("cpu")
                    if learned and held == f"{json.loads(learned)[0]['millicores']}m":
                        first, *_, last = json.loads(learned)
                        assert LOW < first["millicores"] < 2 * LOW
                        assert last["millicores"] == 2000
                        return True
                return False

            await world.until("a pod has learned phases, and the size of the first", is_resized)
