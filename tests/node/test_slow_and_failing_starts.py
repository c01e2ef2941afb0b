"""Kubelets that are slow, and containers that do not start: nothing is begun twice, and others are not held up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from containers import batch_pod, job, shell
from real_cluster import ALONE, RealCluster
from real_nodes import NodeCluster, RealNode

QUICK = ALONE + "queue: {backoffInitialSeconds: 0.5, backoffMaxSeconds: 2, unschedulableFlushSeconds: 5}\n"
RUNS_SECONDS, STOPS_SECONDS = 0.3, 0.9
"""A kubelet that runs a quarter of the time still renews its lease of ten seconds."""


@contextlib.asynccontextmanager
async def slow(node: RealNode) -> AsyncIterator[None]:
    """A kubelet that is stopped again and again, as on a machine with hardly any cpu."""

    async def hinder() -> None:
        while True:
            node.freeze_kubelet()
            await asyncio.sleep(STOPS_SECONDS)
            node.thaw_kubelet()
            await asyncio.sleep(RUNS_SECONDS)

    hindering = asyncio.create_task(hinder())
    try:
        yield
    finally:
        hindering.cancel()
        await asyncio.gather(hindering, return_exceptions=True)
        node.thaw_kubelet()


async def waiting_for(cluster: RealCluster, name: str) -> str:
    """Why the pod's container waits; empty where it does not."""
    found = await cluster.client.get(f"{cluster.pods}/{name}")
    statuses = found["status"].get("containerStatuses") or [{}]
    return str(statuses[0].get("state", {}).get("waiting", {}).get("reason", ""))


async def until_succeeded(cluster: RealCluster, name: str) -> None:
    async def done() -> bool:
        return await cluster.phase(name) == "Succeeded"

    await cluster.until(f"{name} has succeeded", done)


async def test_a_slow_kubelet_is_waited_for_and_no_pod_is_begun_twice(
    cluster: RealCluster, node_cluster: NodeCluster
) -> None:
    node = node_cluster.nodes[0]
    there = {"nodeSelector": {"kubernetes.io/hostname": node.name}, "containers": [shell("sleep 1")]}
    async with cluster.operator(QUICK), slow(node):
        body = job("patient", shell("sleep 1"), completions=6, parallelism=6, template={"spec": there})
        await cluster.client.create(cluster.jobs, body)
        await until_succeeded(cluster, "patient")
        status = (await cluster.client.get(f"{cluster.jobs}/patient"))["status"]
        assert (status["succeeded"], status.get("failures", 0), status.get("evictions", 0)) == (6, 0, 0)
        pods = await cluster.client.list(cluster.pods)
        assert sorted(pod["metadata"]["name"] for pod in pods) == [f"patient-{index}" for index in range(6)]
        assert {pod["spec"]["nodeName"] for pod in pods} == {node.name}


async def test_a_container_that_can_not_be_started_is_a_failure_that_the_limit_counts(cluster: RealCluster) -> None:
    missing = {**shell("exit 0"), "command": ["/no/such/program"]}
    async with cluster.operator(QUICK):
        await cluster.client.create(cluster.jobs, job("missing", missing, backoffLimit=1))

        async def failed() -> bool:
            return await cluster.phase("missing") == "Failed"

        await cluster.until("the Job has failed", failed)
        pods = await cluster.client.list(cluster.pods)
        ends = [pod["status"]["containerStatuses"][0]["state"]["terminated"] for pod in pods]
        # 128 is what the kubelet says of a container that never ran; twice: the first try, and the one of the limit.
        assert [(end["reason"], end["exitCode"]) for end in ends] == [("StartError", 128)] * 2
        assert (await cluster.client.get(f"{cluster.jobs}/missing"))["status"]["failures"] == 2


async def test_a_container_that_its_kubelet_holds_back_keeps_its_room_and_holds_nobody_else_up(
    cluster: RealCluster, node_cluster: NodeCluster
) -> None:
    node = node_cluster.nodes[0]
    selector: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": node.name}}
    async with cluster.operator(QUICK):
        loops = batch_pod("loops", shell("exit 1"), restartPolicy="Always", **selector)
        await cluster.client.create(cluster.pods, loops)

        async def held_back() -> bool:
            return await waiting_for(cluster, "loops") == "CrashLoopBackOff"

        await cluster.until("the kubelet waits before it starts it again", held_back)
        uid = (await cluster.client.get(f"{cluster.pods}/loops"))["metadata"]["uid"]
        await cluster.client.create(cluster.jobs, job("beside", shell("exit 0"), completions=2, parallelism=2))
        await until_succeeded(cluster, "beside")
        found = await cluster.client.get(f"{cluster.pods}/loops")
        assert (found["metadata"]["uid"], found["spec"]["nodeName"]) == (uid, node.name)


async def test_an_image_that_no_registry_has_keeps_a_pod_waiting_and_its_job_is_not_failed(
    cluster: RealCluster,
) -> None:
    pulled = {**shell("exit 0"), "image": "127.0.0.1:1/nobody/missing:1", "imagePullPolicy": "IfNotPresent"}
    async with cluster.operator(QUICK):
        await cluster.client.create(cluster.jobs, job("pulls", pulled, backoffLimit=0))

        async def waits() -> bool:
            pods = await cluster.client.list(cluster.pods)
            return bool(pods) and await waiting_for(cluster, pods[0]["metadata"]["name"]) == "ImagePullBackOff"

        await cluster.until("the kubelet waits before it pulls again", waits)
        await cluster.client.create(cluster.jobs, job("beside", shell("exit 0")))
        await until_succeeded(cluster, "beside")
        status = (await cluster.client.get(f"{cluster.jobs}/pulls"))["status"]
        assert (status.get("failures", 0), status.get("phase") != "Failed") == (0, True)
