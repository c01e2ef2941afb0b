"""deploy/consolidation beside the operator's own rights: enough to free nodes, no more, and told of when it is away."""

from __future__ import annotations

from typing import Final

import yaml
from real_cluster import ALONE, DEPLOY, RealCluster, kubectl
from rights import Used, granted, rules

SETTINGS: Final = (
    f"{ALONE}policy: fifo\n"
    "consolidation: {enabled: true, intervalSeconds: 1, stableSeconds: 1, minimumAgeSeconds: 0, spareNodes: 0}\n"
)
PATCH: Final = ("", "nodes", "patch", "")


async def freed(cluster: RealCluster) -> bool:
    nodes = await cluster.client.list("/api/v1/nodes")
    marks = [node["metadata"].get("annotations", {}).get("cotide.dev/consolidation") for node in nodes]
    return marks.count("freed") == 1


async def test_nodes_are_freed_by_the_right_that_deploy_consolidation_grants_and_by_no_other(
    cluster: RealCluster,
) -> None:
    folder, used = DEPLOY / "consolidation", Used(cluster)
    (role,) = [
        one for one in yaml.safe_load_all((folder / "rbac.yaml").read_text()) if one["kind"] == "ClusterRole"
    ]  # fmt: skip
    assert set(rules(role)) == {PATCH}
    async with cluster.nodes(2, "--cpu", "4"):
        async with cluster.operator(SETTINGS.replace("enabled: true", "enabled: false")):
            container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}
            spec = {"replicas": 2, "template": {"spec": {"containers": [container]}}}
            body = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Workload", "metadata": {"name": "web"}, "spec": spec}
            await cluster.client.create(cluster.path("workloads", "cotide.dev/v1alpha1"), body)

            async def spread() -> bool:
                return len(set((await cluster.placed()).values())) == 2

            await cluster.until("a pod runs on each node", spread)
        async with cluster.operator(SETTINGS, name="consolidating") as operator:
            await cluster.until(
                "the log says which right is missing",
                lambda: "deploy/consolidation grants the right to patch nodes" in operator.text(),
            )
            assert {right[:3] for right, _ in used.missed()} == {PATCH[:3]}
            assert kubectl(cluster.plane, "apply", "-k", str(folder)).returncode == 0
            try:
                await cluster.until("a node is freed", lambda: freed(cluster))
            finally:
                assert kubectl(cluster.plane, "delete", "-k", str(folder)).returncode == 0
    assert {PATCH, ("", "pods/eviction", "create", "")} <= used.rights()
    assert used.rights() - {PATCH} <= granted()
