"""Kubelets that refuse, evict and restart: few pods are wasted, and what runs goes on."""

from __future__ import annotations

from typing import Any

import pytest
from containers import batch_pod, job, shell
from real_cluster import ALONE, RealCluster
from real_nodes import NodeCluster, RealNode

from cotide_core.units import resource_amount

QUICK = ALONE + "queue: {backoffInitialSeconds: 0.5, backoffMaxSeconds: 2, unschedulableFlushSeconds: 5}\n"
PRESSED = {
    "evictionSoft": {"memory.available": "99%"},
    "evictionSoftGracePeriod": {"memory.available": "1s"},
    "evictionMaxPodGracePeriod": 1,
}
"""A node with this setting is under memory pressure whatever runs on it."""
CPU = "cotide.dev/reclaimed-cpu"
RESTARTS = 5
WASTED = 2
"""At most so many pods may be refused in a burst."""


async def condition(cluster: RealCluster, node: RealNode, kind: str) -> str:
    found = await cluster.client.get(f"/api/v1/nodes/{node.name}")
    return str(next(one["status"] for one in found["status"]["conditions"] if one["type"] == kind))


async def until_open(cluster: RealCluster, node: RealNode) -> None:
    async def is_open() -> bool:
        found = await cluster.client.get(f"/api/v1/nodes/{node.name}")
        ready = next(one["status"] for one in found["status"]["conditions"] if one["type"] == "Ready")
        return ready == "True" and not found["spec"].get("taints")

    await cluster.until(f"{node.name} is open", is_open)


async def test_a_node_under_pressure_wastes_two_pods_at_most_and_its_job_goes_on_elsewhere(
    cluster: RealCluster, node_cluster: NodeCluster
) -> None:
    pressed, other = node_cluster.nodes
    async with cluster.operator(QUICK):
        body = job("burst", shell("sleep 20", requests={}), completions=6, parallelism=6)
        await cluster.client.create(cluster.jobs, body)

        async def all_run() -> bool:
            pods = await cluster.client.list(cluster.pods)
            return [pod["status"].get("phase") for pod in pods] == ["Running"] * 6

        await cluster.until("six pods run", all_run)
        try:
            pressed.restart_kubelet(PRESSED)

            async def evicted() -> bool:
                pods = await cluster.client.list(cluster.pods)
                return any(pod["status"].get("reason") == "Evicted" for pod in pods)

            await cluster.until("the kubelet evicted a pod", evicted)

            async def done() -> bool:
                return await cluster.phase("burst") == "Succeeded"

            await cluster.until("the Job is done all the same", done)
            pods = await cluster.client.list(cluster.pods)
            refused = [pod for pod in pods if pod["status"].get("phase") == "Failed" and not started(pod)]
            assert len(refused) <= WASTED, [pod["status"] for pod in refused]
            last = [pod["spec"]["nodeName"] for pod in pods if pod["status"]["phase"] == "Succeeded"]
            assert other.name in last
        finally:
            pressed.restart_kubelet()
            await until_open(cluster, pressed)


def started(pod: dict[str, Any]) -> bool:
    """Whether a kubelet took the pod in."""
    return bool(pod["status"].get("containerStatuses"))


@pytest.mark.parametrize(("code", "runs"), [(0, 1), (1, 2)])
async def test_an_evicted_pod_is_complete_if_it_exits_with_0_as_for_batch_v1_and_else_runs_anew(
    cluster: RealCluster, code: int, runs: int
) -> None:
    async with cluster.operator(QUICK):
        command = shell(f"trap 'exit {code}' TERM; for i in $(seq 12); do sleep 1 & wait $!; done")
        await cluster.client.create(cluster.jobs, job("told", command, backoffLimit=0))

        async def running() -> dict[str, Any] | None:
            pods = await cluster.client.list(cluster.pods)
            return next((pod for pod in pods if pod["status"].get("phase") == "Running"), None)

        first = await cluster.until("its pod runs", running)
        await cluster.client.evict(cluster.namespace, first["metadata"]["name"], first["metadata"]["uid"])

        async def succeeded() -> bool:
            return await cluster.phase("told") == "Succeeded"

        await cluster.until("the Job is done, and the eviction was no failure", succeeded)
        status = (await cluster.client.get(f"{cluster.jobs}/told"))["status"]
        assert status["succeeded"] == 1
        uids = {pod["metadata"]["uid"] for pod in await cluster.client.list(cluster.pods)} | {first["metadata"]["uid"]}
        assert len(uids) == runs


async def test_pods_in_reclaimed_capacity_outlive_five_restarts_of_their_kubelet_while_slack_falls(
    cluster: RealCluster, node_cluster: NodeCluster
) -> None:
    node = node_cluster.nodes[0]
    hierarchical = ALONE + "policy: hierarchical\nslotSeconds: 5\nreclaimed: {minimumIntervalSeconds: 0}\n"
    async with cluster.operator(hierarchical):

        async def offered() -> int:
            amounts = (await cluster.client.get(f"/api/v1/nodes/{node.name}"))["status"]["allocatable"]
            return int(resource_amount(CPU, amounts[CPU])) if CPU in amounts else -1

        async def offers_much() -> bool:
            return await offered() >= 1000

        await cluster.until("the node offers a core", offers_much)
        selector = {"nodeSelector": {"kubernetes.io/hostname": node.name}}
        asked = {CPU: "600", "cotide.dev/reclaimed-memory": str(64 * 2**20)}
        container = shell("sleep 600")
        container["resources"] = {"requests": asked, "limits": asked}
        await cluster.client.create(cluster.pods, batch_pod("held", container, **selector))
        uid = await until_running(cluster, "held")
        # Services come and leave no slack but 300 of what the pod holds.
        for number, cpu in enumerate(("500m", "400m", "300m", "200m", "100m")):
            service = batch_pod(
                f"service-{number}", shell("sleep 600", requests={"cpu": cpu, "memory": "16Mi"}), **selector
            )
            service["metadata"]["labels"]["cotide.dev/class"] = "online"
            await cluster.client.create(cluster.pods, service)
            await until_running(cluster, f"service-{number}")
            node.restart_kubelet()
            await until_admitted(cluster, node)
            assert await until_running(cluster, "held") == uid
            assert await offered() >= 600
        assert await offered() < 1000, "slack has fallen"


async def until_running(cluster: RealCluster, name: str) -> str:
    async def running() -> str:
        found = await cluster.client.get(f"{cluster.pods}/{name}")
        assert found["status"].get("phase") != "Failed", found["status"]
        return str(found["metadata"]["uid"]) if found["status"].get("phase") == "Running" else ""

    return str(await cluster.until(f"{name} runs", running))


async def until_admitted(cluster: RealCluster, node: RealNode) -> None:
    """Wait until a restarted kubelet has taken in, or rejected, the pods that it found."""

    async def synced() -> bool:
        return '"SyncLoop ADD" source="api"' in node.kubelet.text()

    await cluster.until("the kubelet has looked at its pods", synced)
