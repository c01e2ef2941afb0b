"""Containers that a real kubelet creates for ever and says nothing of: they keep their node for so long only."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from containers import batch_pod, job, shell
from real_cluster import ALONE, RealCluster
from real_nodes import NodeCluster

from cotide_core.units import resource_amount

QUICK = ALONE + "queue: {backoffInitialSeconds: 0.5, backoffMaxSeconds: 2, unschedulableFlushSeconds: 5}\n"
IMPATIENT = QUICK + "jobs: {createSeconds: 10}\n"


@pytest.fixture
def mute_registry() -> Iterator[socket.socket]:
    """A registry that takes every connection and answers none; closed, it breaks them off."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield listening


async def started(cluster: RealCluster, name: str) -> dict[str, Any]:
    status = (await cluster.client.get(f"{cluster.jobs}/{name}")).get("status", {})
    return next((one for one in status.get("conditions", ()) if one["type"] == "PodsStarted"), {})


async def until_phase(cluster: RealCluster, name: str, phase: str) -> None:
    async def reached() -> bool:
        return await cluster.phase(name) == phase

    await cluster.until(f"the Job {name} is {phase}", reached)


async def nearly_all_of(cluster: RealCluster, node: str) -> dict[str, str]:
    """Requests beside which no second such pod has room on a node."""
    offered = (await cluster.client.get(f"/api/v1/nodes/{node}"))["status"]["allocatable"]["cpu"]
    return {"cpu": f"{resource_amount('cpu', offered) - 200}m", "memory": "16Mi"}


async def test_a_volume_of_a_missing_config_map_keeps_its_node_for_so_long_only(
    cluster: RealCluster, node_cluster: NodeCluster
) -> None:
    node = node_cluster.nodes[0].name
    there = {"nodeSelector": {"kubernetes.io/hostname": node}}
    large = await nearly_all_of(cluster, node)
    mounts = [{"name": "v", "mountPath": "/v"}]  # a volume that no container mounts is not waited for
    body = job("lacking", shell("exit 0", requests=large, volumeMounts=mounts), backoffLimit=0)
    body["spec"]["template"]["spec"] |= {**there, "volumes": [{"name": "v", "configMap": {"name": "absent"}}]}
    async with cluster.operator(IMPATIENT):
        await cluster.client.create(cluster.jobs, body)
        await until_phase(cluster, "lacking", "Running")
        # What it holds is for no other pod, until its time is over.
        await cluster.client.create(cluster.pods, batch_pod("next", shell("exit 0", requests=large), **there))
        await until_phase(cluster, "lacking", "Failed")
        condition = await started(cluster, "lacking")
        assert (condition["status"], condition["reason"]) == ("False", "NotStarted")
        assert condition["message"] == f"1 pod not started yet: lacking-0 on {node}: containers are being created"

        async def done() -> bool:
            return bool((await cluster.client.get(f"{cluster.pods}/next"))["status"].get("phase") == "Succeeded")

        await cluster.until("the next pod had its room", done)
        status = (await cluster.client.get(f"{cluster.jobs}/lacking"))["status"]
        assert (status["failures"], status["evictions"]) == (1, 0)


async def test_a_volume_whose_config_map_comes_in_time_is_mounted_and_the_job_succeeds(cluster: RealCluster) -> None:
    body = job("patient", shell("test -e /v/key", volumeMounts=[{"name": "v", "mountPath": "/v"}]), backoffLimit=0)
    body["spec"]["template"]["spec"]["volumes"] = [{"name": "v", "configMap": {"name": "late"}}]
    async with cluster.operator(QUICK):
        await cluster.client.create(cluster.jobs, body)
        await until_phase(cluster, "patient", "Running")
        await cluster.client.create(cluster.path("configmaps"), {"metadata": {"name": "late"}, "data": {"key": "x"}})
        await until_phase(cluster, "patient", "Succeeded")
        assert await started(cluster, "patient") == {}


async def test_a_pod_whose_pull_hangs_is_given_up_and_goes_when_its_runtime_lets_go(
    cluster: RealCluster, mute_registry: socket.socket
) -> None:
    address = f"127.0.0.1:{mute_registry.getsockname()[1]}"
    pulled = {**shell("exit 0"), "image": f"{address}/slow:1", "imagePullPolicy": "Always"}
    async with cluster.operator(IMPATIENT):
        await cluster.client.create(cluster.jobs, job("hanging", pulled, backoffLimit=0))
        await until_phase(cluster, "hanging", "Failed")
        condition = await started(cluster, "hanging")
        assert condition["reason"] == "NotStarted"
        assert condition["message"].endswith(": containers are being created")

        async def gone() -> bool:
            return not await cluster.client.list(cluster.pods)

        # The kubelet ends no pull that somebody's deletion makes useless: it waits for the runtime.
        assert (await cluster.client.get(f"{cluster.pods}/hanging-0"))["metadata"]["deletionTimestamp"]
        mute_registry.close()
        await cluster.until("its pod is gone", gone)
