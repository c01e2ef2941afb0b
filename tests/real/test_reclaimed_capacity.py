"""Predicted slack as capacity of nodes that a real API server stores, and Job pods that ask for it."""

from __future__ import annotations

import time
from typing import Any

from real_cluster import ALONE, RealCluster

from cotide_core.units import resource_amount

SPEED = 40
CPU, MEMORY = "cotide.dev/reclaimed-cpu", "cotide.dev/reclaimed-memory"
SETTINGS = """\
policy: {policy}
slotSeconds: 20
queue: {{backoffInitialSeconds: 0.5, backoffMaxSeconds: 2, unschedulableFlushSeconds: 5}}
metricsSource: {{scrape: {{url: "http://127.0.0.1:{port}/metrics"}}, intervalSeconds: 0.25, staleAfterSeconds: 60}}
reclaimed: {{minimumIntervalSeconds: 0, patchesPerSecond: 100}}
simulatedTime: {{originSeconds: {origin}, speed: {speed}}}
"""


async def online(cluster: RealCluster, node: str) -> None:
    """A service that asks for 3 cpu and uses half of one."""
    body = {
        "metadata": {
            "name": f"web-{node}",
            "labels": {"cotide.dev/class": "online"},
            "annotations": {"sim.cotide.dev/used-millicores": "500"},
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}],
        },
    }
    await cluster.client.create(cluster.pods, body)


async def test_slack_is_published_asked_for_and_taken_back(cluster: RealCluster) -> None:
    origin = time.time()
    shape = ("--cpu", "4", "--memory", "8Gi", "--speed", str(SPEED), "--origin-seconds", str(origin))
    async with cluster.nodes(2, *shape) as port:

        def text(policy: str) -> str:
            return ALONE + SETTINGS.format(policy=policy, port=port, origin=origin, speed=SPEED)

        async def statuses() -> list[dict[str, Any]]:
            return [node["status"] for node in await cluster.client.list("/api/v1/nodes")]

        for number in range(2):
            await online(cluster, f"fake-{number}")
        async with cluster.operator(text("hierarchical")):

            async def offered() -> bool:
                # 4000 x 0.95 - 500 in use = 3300; by requests it would be 4000 - 3000 = 1000.
                found = [resource_amount(CPU, one["allocatable"].get(CPU, 0)) for one in await statuses()]
                return all(3000 <= millicores <= 3300 for millicores in found)

            await cluster.until("each node offers what its service leaves", offered)
            for status in await statuses():
                assert status["capacity"][CPU] == status["allocatable"][CPU]
                assert resource_amount(MEMORY, status["allocatable"][MEMORY]) > 0
                (trust,) = [one for one in status["conditions"] if one["type"] == "cotide.dev/ForecastTrusted"]
                assert trust["status"] == "True"
            container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}
            notes = {"annotations": {"sim.cotide.dev/lone-seconds": "200"}}
            spec = {
                "completions": 6,
                "parallelism": 6,
                "template": {"metadata": notes, "spec": {"containers": [container]}},
            }
            kind = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job"}
            await cluster.client.create(cluster.jobs, {**kind, "metadata": {"name": "count"}, "spec": spec})

            async def all_placed() -> bool:
                # Three of one core on each node, where requests alone would leave room for one.
                return len(await cluster.placed("cotide.dev/job=count")) == 6

            await cluster.until("six pods are on two nodes", all_placed)
            (pod, *_) = await cluster.client.list(cluster.pods, {"labelSelector": "cotide.dev/job=count"})
            asked = {CPU: "1k", MEMORY: str(64 * 2**20)}
            assert pod["spec"]["containers"][0]["resources"] == {"limits": asked, "requests": asked}

            async def done() -> bool:
                return await cluster.phase("count") == "Succeeded"

            await cluster.until("the Job is done", done)
        async with cluster.operator(text("fifo")):

            async def taken_back() -> bool:
                return not any(CPU in one["allocatable"] or CPU in one["capacity"] for one in await statuses())

            await cluster.until("another policy takes it off the nodes", taken_back)
