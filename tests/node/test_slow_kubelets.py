"""A kubelet that hardly gets a turn: its pods take long, and nothing is lost, run twice or held against anybody."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from containers import batch_pod, job, shell
from real_cluster import ALONE, RealCluster
from real_nodes import NodeCluster, RealNode

QUICK = ALONE + "queue: {backoffInitialSeconds: 0.5, backoffMaxSeconds: 2, unschedulableFlushSeconds: 5}\n"
STOPPED_SECONDS, RUNS_SECONDS = 0.9, 0.1
"""A tenth of the time, which is enough for a lease of ten seconds."""


@contextlib.asynccontextmanager
async def slow(node: RealNode) -> AsyncIterator[None]:
    """Stop the kubelet and let it go on, again and again."""

    async def alternate() -> None:
        while True:
            node.freeze_kubelet()
            await asyncio.sleep(STOPPED_SECONDS)
            node.thaw_kubelet()
            await asyncio.sleep(RUNS_SECONDS)

    task = asyncio.create_task(alternate())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        node.thaw_kubelet()


async def pod_of(cluster: RealCluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = await cluster.client.get(f"{cluster.pods}/{name}")
    return found


async def test_a_job_on_a_slow_kubelet_is_done_without_a_failure_and_without_a_pod_too_many(
    cluster: RealCluster, node_cluster: NodeCluster
) -> None:
    node = node_cluster.nodes[0]
    body = job("patient", shell("echo once"), completions=6, parallelism=3, backoffLimit=0)
    body["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node.name}
    async with cluster.operator(QUICK), slow(node):
        await cluster.client.create(cluster.jobs, body)

        async def done() -> bool:
            return await cluster.phase("patient") == "Succeeded"

        await cluster.until("the Job is done", done, seconds=240)
        status = (await cluster.client.get(f"{cluster.jobs}/patient"))["status"]
        assert (status["succeeded"], status["failures"], status["evictions"]) == (6, 0, 0)
        pods = await cluster.client.list(cluster.pods)
        assert sorted(pod["metadata"]["name"] for pod in pods) == [f"patient-{index}" for index in range(6)]
        assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods] == [0] * 6


async def test_what_a_slow_kubelet_has_yet_to_end_keeps_its_room_and_other_nodes_are_as_quick_as_ever(
    cluster: RealCluster, node_cluster: NodeCluster
) -> None:
    node, other = node_cluster.nodes
    there = {"nodeSelector": {"kubernetes.io/hostname": node.name}}
    large = {"cpu": "1200m", "memory": "16Mi"}

    async def until(name: str, phase: str) -> None:
        async def reached() -> bool:
            return bool((await pod_of(cluster, name))["status"].get("phase") == phase)

        await cluster.until(f"{name} is {phase}", reached)

    async with cluster.operator(QUICK):
        # It takes two seconds to go, and its kubelet many more to say so.
        goes = shell("trap 'sleep 2; exit 0' TERM; while :; do sleep 1 & wait $!; done", requests=large)
        await cluster.client.create(cluster.pods, batch_pod("first", goes, **there, terminationGracePeriodSeconds=30))
        await until("first", "Running")
        async with slow(node):
            await cluster.client.create(cluster.pods, batch_pod("second", shell("exit 0", requests=large), **there))
            await cluster.client.delete(f"{cluster.pods}/first")
            elsewhere = {"nodeSelector": {"kubernetes.io/hostname": other.name}}
            await cluster.client.create(cluster.pods, batch_pod("beside", shell("exit 0"), **elsewhere))
            await until("beside", "Succeeded")

            async def ended() -> bool:
                """Whether the kubelet has said that the first ended; until then the second must have no node."""
                there_now = {pod["metadata"]["name"]: pod for pod in await cluster.client.list(cluster.pods)}
                has_ended = "first" not in there_now or there_now["first"]["status"]["phase"] == "Succeeded"
                assert has_ended or "nodeName" not in there_now["second"]["spec"], there_now
                return has_ended

            await cluster.until("the first has ended", ended)
            await until("second", "Succeeded")
