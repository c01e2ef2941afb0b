"""What a node brings with it and what the server refuses: static pods, overhead of a runtime class, quotas."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from containers import batch_pod, job, shell
from real_cluster import ALONE, RealCluster
from real_nodes import NodeCluster, RealNode

from cotide_core.units import resource_amount
from cotide_kube.answers import ApiError

QUICK = ALONE + "queue: {backoffInitialSeconds: 0.5, backoffMaxSeconds: 2, unschedulableFlushSeconds: 5}\n"
PREEMPTS = QUICK + "policy: hierarchical\nslotSeconds: 5\nreclaimed: {publish: false, jobPods: false}\n"
"""The policy under which a batch pod takes the room of gratis ones."""
STATIC_MILLICORES = 900


@contextlib.contextmanager
def static_pod(node: RealNode, folder: Path, body: dict[str, Any]) -> Iterator[None]:
    """A kubelet that finds this pod in a folder of its own."""
    (folder / "static.json").write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **body}), encoding="utf-8")
    node.restart_kubelet({"staticPodPath": str(folder), "fileCheckFrequency": "1s"})
    try:
        yield
    finally:
        (folder / "static.json").unlink()
        node.restart_kubelet()


async def free_millicores(cluster: RealCluster, node: str) -> int:
    """What a node offers in all: no other pods are there between two tests."""
    found = await cluster.client.get(f"/api/v1/nodes/{node}")
    return int(resource_amount("cpu", found["status"]["allocatable"]["cpu"]))


def on(node: RealNode, millicores: int, cls: str = "batch", **spec: Any) -> dict[str, Any]:
    """A pod of a class that runs for ever on a node and asks for so much."""
    container = shell("sleep 3600", requests={"cpu": f"{millicores}m", "memory": "16Mi"})
    body = batch_pod("p", container, nodeSelector={"kubernetes.io/hostname": node.name}, **spec)
    body["metadata"]["labels"]["cotide.dev/class"] = cls
    return body


async def make(cluster: RealCluster, name: str, body: dict[str, Any]) -> None:
    await cluster.client.create(cluster.pods, {**body, "metadata": {**body["metadata"], "name": name}})


async def until_running(cluster: RealCluster, name: str) -> dict[str, Any]:
    async def running() -> dict[str, Any] | None:
        with contextlib.suppress(ApiError):
            found: dict[str, Any] = await cluster.client.get(f"{cluster.pods}/{name}")
            assert found["status"].get("phase") != "Failed", found["status"]
            return found if found["status"].get("phase") == "Running" else None
        return None

    found: dict[str, Any] = await cluster.until(f"{name} runs", running)
    return found


async def until_refused(cluster: RealCluster, name: str, words: str) -> None:
    async def refused() -> bool:
        found = await cluster.client.get(f"{cluster.pods}/{name}")
        assert "nodeName" not in found["spec"], found
        conditions = found["status"].get("conditions") or ()
        return any(
            condition["type"] == "PodScheduled" and words in condition.get("message", "") for condition in conditions
        )

    await cluster.until(f"{name} waits: {words}", refused)


async def test_a_static_pod_counts_on_its_node_and_nobody_tries_to_evict_it(
    cluster: RealCluster, node_cluster: NodeCluster, tmp_path: Path
) -> None:
    node = node_cluster.nodes[0]
    static = on(node, STATIC_MILLICORES, "gratis")
    static["metadata"] |= {"name": "static", "namespace": cluster.namespace}
    del static["spec"]["schedulerName"], static["spec"]["nodeSelector"]
    offered = await free_millicores(cluster, node.name)
    with static_pod(node, tmp_path, static):
        mirror = await until_running(cluster, f"static-{node.name}")
        async with cluster.operator(PREEMPTS):
            # 900 of, say, 1800 are the static pod's, 400 the filler's: 700 fit once the filler went, 1100 never.
            await make(cluster, "filler", on(node, 400, "gratis"))
            await until_running(cluster, "filler")
            await make(cluster, "wide", on(node, offered - STATIC_MILLICORES + 200))
            await until_refused(cluster, "wide", "Insufficient cpu")
            await make(cluster, "narrow", on(node, offered - STATIC_MILLICORES - 200))
            await until_running(cluster, "narrow")
            await until_refused(cluster, "wide", "Insufficient cpu")
        after = await cluster.client.get(f"{cluster.pods}/static-{node.name}")
        assert after["metadata"]["uid"] == mirror["metadata"]["uid"], "its mirror was never deleted"
        assert [one["restartCount"] for one in after["status"]["containerStatuses"]] == [0]


async def test_a_pod_that_only_says_it_is_static_is_deleted_by_its_kubelet(
    cluster: RealCluster, node_cluster: NodeCluster
) -> None:
    node = node_cluster.nodes[1]
    forged = on(node, 100, "gratis", nodeName=node.name)
    forged["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "1f2e"}
    forged["spec"]["automountServiceAccountToken"] = False
    await make(cluster, "forged", forged)

    async def gone() -> bool:
        return not await cluster.client.list(cluster.pods)

    await cluster.until("the kubelet deleted it", gone)


async def test_the_overhead_of_a_runtime_class_counts_as_the_kubelet_counts_it(
    cluster: RealCluster, node_cluster: NodeCluster
) -> None:
    node = node_cluster.nodes[0]
    offered = await free_millicores(cluster, node.name)
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    overhead = {"podFixed": {"cpu": "500m", "memory": "32Mi"}}
    await cluster.client.create(classes, {"metadata": {"name": "heavy"}, "handler": "runc", "overhead": overhead})
    try:
        async with cluster.operator(QUICK):
            # It asks for 900 less than there is and brings 500: 400 are left.
            await make(cluster, "first", on(node, offered - 900, runtimeClassName="heavy"))
            first = await until_running(cluster, "first")
            assert first["spec"]["overhead"] == {"cpu": "500m", "memory": "32Mi"}
            await make(cluster, "second", on(node, 300, runtimeClassName="heavy"))
            await until_refused(cluster, "second", "Insufficient cpu")  # 300 + 500
            await make(cluster, "plain", on(node, 300))
            await until_running(cluster, "plain")
    finally:
        await cluster.client.delete(f"{classes}/heavy")


async def test_a_job_whose_pods_a_quota_refuses_says_so_and_goes_on_when_it_is_raised(cluster: RealCluster) -> None:
    quotas = cluster.path("resourcequotas")
    await cluster.client.create(quotas, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}})

    async def counted() -> bool:
        return "hard" in (await cluster.client.get(f"{quotas}/few")).get("status", {})

    await cluster.until("the quota is enforced", counted)
    async with cluster.operator(QUICK):
        waits = shell("while ! test -e /tmp/never; do sleep 1; done")
        await cluster.client.create(cluster.jobs, job("three", waits, completions=3, parallelism=3))

        async def said() -> bool:
            status = (await cluster.client.get(f"{cluster.jobs}/three")).get("status", {})
            return "exceeded quota: few" in json.dumps(status.get("conditions"))

        await cluster.until("the Job has the server's words", said)
        assert len(await cluster.client.list(cluster.pods)) == 1
        await cluster.client.patch(f"{quotas}/few", {"spec": {"hard": {"pods": "3"}}})

        async def all_run() -> bool:
            pods = await cluster.client.list(cluster.pods)
            return [pod["status"].get("phase") for pod in pods] == ["Running"] * 3

        await cluster.until("all three run", all_run)
        assert (await cluster.client.get(f"{cluster.jobs}/three"))["status"].get("failures", 0) == 0


async def test_a_pod_that_its_kubelet_refuses_for_itself_closes_no_node_and_starts_no_storm(
    cluster: RealCluster, node_cluster: NodeCluster
) -> None:
    async with cluster.operator(QUICK):
        unsafe = {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}}
        body = batch_pod("unsafe", shell("exit 0"), **unsafe)
        await cluster.client.create(cluster.pods, body)

        async def refused() -> bool:
            status = (await cluster.client.get(f"{cluster.pods}/unsafe"))["status"]
            return bool(status.get("reason") == "SysctlForbidden")

        await cluster.until("the kubelet refused it", refused)
        for node in node_cluster.nodes:
            await make(cluster, f"on-{node.name}", on(node, 100))
            await until_running(cluster, f"on-{node.name}")
