"""What other controllers make: pods of a Deployment and of a batch/v1 Job that name Cotide as their scheduler."""

from __future__ import annotations

from typing import Any

from real_cluster import ALONE, RealCluster

TEMPLATE = {
    "metadata": {"labels": {"app": "native"}},
    "spec": {
        "schedulerName": "cotide",
        "containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}}],
    },
}


async def make_deployment(cluster: RealCluster, replicas: int) -> None:
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "native"}}, "template": TEMPLATE}
    await cluster.client.create(cluster.path("deployments", "apps/v1"), {"metadata": {"name": "web"}, "spec": spec})


async def deployment(cluster: RealCluster) -> dict[str, Any]:
    found: dict[str, Any] = (await cluster.client.get(f"{cluster.path('deployments', 'apps/v1')}/web")).get(
        "status", {}
    )
    return found


async def test_a_deployment_becomes_available_and_a_batch_job_completes(cluster: RealCluster) -> None:
    async with cluster.nodes(3, "--speed", "20"), cluster.operator(ALONE):
        await make_deployment(cluster, 3)
        pod = {**TEMPLATE["spec"], "restartPolicy": "Never"}
        spec = {"completions": 3, "parallelism": 2, "template": {"spec": pod}}
        await cluster.client.create(cluster.path("jobs", "batch/v1"), {"metadata": {"name": "count"}, "spec": spec})

        async def available() -> bool:
            return (await deployment(cluster)).get("availableReplicas") == 3

        await cluster.until("three replicas are available", available)

        async def complete() -> bool:
            status = (await cluster.client.get(f"{cluster.path('jobs', 'batch/v1')}/count")).get("status", {})
            return status.get("succeeded") == 3 and any(one["type"] == "Complete" for one in status["conditions"])

        await cluster.until("the Job is complete", complete)
        pods = await cluster.client.list(cluster.pods)
        # The token's volume that the server puts into every pod does not keep it from a node.
        assert all("projected" in str(pod["spec"]["volumes"]) for pod in pods)


async def test_a_budget_keeps_pods_until_it_allows_one_to_go_which_then_comes_back(cluster: RealCluster) -> None:
    async with cluster.nodes(2, "--speed", "20"), cluster.operator(ALONE):
        await make_deployment(cluster, 2)
        budgets = cluster.path("poddisruptionbudgets", "policy/v1")
        spec = {"selector": {"matchLabels": {"app": "native"}}, "minAvailable": 2}
        await cluster.client.create(budgets, {"metadata": {"name": "keep"}, "spec": spec})

        async def healthy() -> bool:
            status = (await cluster.client.get(f"{budgets}/keep")).get("status", {})
            return status.get("currentHealthy") == 2

        await cluster.until("both pods count as healthy", healthy)
        (first, _) = pods = await cluster.client.list(cluster.pods)
        uids = {pod["metadata"]["uid"] for pod in pods}
        name, uid = first["metadata"]["name"], first["metadata"]["uid"]
        kept = await cluster.client.evict(cluster.namespace, name, uid)
        assert (kept.code, kept.reason) == (429, "TooManyRequests")
        assert kept.message == "Cannot evict pod as it would violate the pod's disruption budget."
        await cluster.client.patch(f"{budgets}/keep", {"spec": {"minAvailable": 1}})

        async def allowed() -> bool:
            return (await cluster.client.get(f"{budgets}/keep"))["status"].get("disruptionsAllowed") == 1

        await cluster.until("one may go", allowed)
        assert (await cluster.client.evict(cluster.namespace, name, uid)).code == 201

        async def replaced() -> bool:
            now = await cluster.client.list(cluster.pods)
            there = {pod["metadata"]["uid"] for pod in now if pod["spec"].get("nodeName")}
            return len(there - uids) == 1 and (await deployment(cluster)).get("availableReplicas") == 2

        await cluster.until("another pod took its place", replaced)
