"""The image that the Dockerfile makes, deployed from the overlays as they are, on real nodes."""

from __future__ import annotations

import asyncio
import os
import time

import pytest
from containers import batch_pod, job, shell
from control_plane import ControlPlane
from overlays import NAME, overlay_of
from real_cluster import RealCluster
from real_nodes import NodeCluster, RealNode

from cotide_core.units import resource_amount
from cotide_kube.client import KubeClient

SECONDS = float(os.environ.get("COTIDE_IMAGE_SECONDS", "60"))
RESTARTS = 5
CPU, MEMORY = "cotide.dev/reclaimed-cpu", "cotide.dev/reclaimed-memory"
HELD_MILLICORES = 300


async def until_succeeded(cluster: RealCluster, *names: str, seconds: float = 120.0) -> None:
    async def succeeded() -> bool:
        phases = {one["metadata"]["name"]: one.get("status", {}) for one in await cluster.client.list(cluster.jobs)}
        return all(phases[name].get("phase") == "Succeeded" for name in names)

    await cluster.until(f"{len(names)} Jobs are done, from {names[0]} on", succeeded, seconds)


async def running(cluster: RealCluster, name: str) -> str:
    """Wait until a pod runs and return its uid; it must not have failed."""

    async def uid() -> str:
        found = await cluster.client.get(f"{cluster.pods}/{name}")
        assert found["status"].get("phase") != "Failed", found["status"]
        return str(found["metadata"]["uid"]) if found["status"].get("phase") == "Running" else ""

    return str(await cluster.until(f"{name} runs", uid))


async def kubelet_restarts_while_slack_falls(cluster: RealCluster, node: RealNode) -> None:
    """Restart a kubelet again and again while services take what a pod holds of the reclaimed capacity."""

    async def offered() -> int:
        amounts = (await cluster.client.get(f"/api/v1/nodes/{node.name}"))["status"]["allocatable"]
        return int(resource_amount(CPU, amounts[CPU])) if CPU in amounts else -1

    async def offers_enough() -> int:
        found = await offered()
        return found if found >= HELD_MILLICORES else 0

    before = await cluster.until(f"{node.name} offers {HELD_MILLICORES} millicores", offers_enough)
    there = {"nodeSelector": {"kubernetes.io/hostname": node.name}}
    asked = {CPU: str(HELD_MILLICORES), MEMORY: str(16 << 20)}
    container = {**shell("sleep 3600"), "resources": {"requests": asked, "limits": asked}}
    await cluster.client.create(cluster.pods, batch_pod("held", container, **there))
    uid = await running(cluster, "held")
    names = [f"service-{number}" for number in range(RESTARTS)]
    for name in names:
        service = batch_pod(name, shell("sleep 3600", requests={"cpu": "100m", "memory": "16Mi"}), **there)
        service["metadata"]["labels"]["cotide.dev/class"] = "online"
        await cluster.client.create(cluster.pods, service)
        await running(cluster, name)
        await asyncio.sleep(SECONDS / (RESTARTS + 1))  # in which what is published may fall
        node.restart_kubelet()
        await cluster.until("the kubelet has looked at its pods", lambda: "SyncLoop ADD" in node.kubelet.text())
        assert await running(cluster, "held") == uid
        assert await offered() >= HELD_MILLICORES
    print(f"{node.name} offered {before} millicores before, {await offered()} after {RESTARTS} restarts")
    for name in ("held", *names):
        await cluster.client.delete(f"{cluster.pods}/{name}")


@pytest.mark.parametrize("name", ["kind", "prod", "reclaimed"])
async def test_the_operator_is_ready_and_stays_so_runs_jobs_and_leaves_without_a_trace(
    name: str, installed: ControlPlane, node_cluster: NodeCluster, client: KubeClient
) -> None:
    async with overlay_of(name, installed, client) as overlay:
        cluster = overlay.cluster
        await client.create(cluster.jobs, job("hello", shell("echo hello"), completions=5, parallelism=2))
        await until_succeeded(cluster, "hello")
        deadline = time.monotonic() + SECONDS
        if name == "reclaimed":
            await kubelet_restarts_while_slack_falls(cluster, node_cluster.nodes[0])
            await cluster.until("the operator is ready after the last restart", overlay.ready)
        while time.monotonic() < deadline:
            await asyncio.sleep(1.0)
            assert await overlay.ready()
        pods, logs = await overlay.pods(), await overlay.logs()
        assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods] == [0] * len(pods), logs
        assert "Traceback" not in logs
        # A roll-out, as at an upgrade: one more Job is done by the new pods.
        overlay.kubectl("rollout", "restart", f"deployment/{NAME}")
        # Each node has room for one replica of the overlay prod and for no second: the old one must go first.
        await overlay.until_replaced({pod["metadata"]["uid"] for pod in pods})
        await client.create(cluster.jobs, job("again", shell("echo again")))
        await until_succeeded(cluster, "again")
        for one in ("hello", "again"):
            await client.delete(f"{cluster.jobs}/{one}")
