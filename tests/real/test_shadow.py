"""Shadow mode beside the real kube-scheduler, with the role of deploy/shadow, which only reads."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import yaml
from real_cluster import ALONE, DEPLOY, RealCluster

from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.recording.shadow_report import shadow_report
from cotide_lab.commands.ledger_replay import replay

USER = "system:serviceaccount:cotide-system:cotide-shadow"
COLLECTIONS = {
    "ServiceAccount": "/api/v1/namespaces/cotide-system/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}
PODS = 40


async def test_it_watches_kube_scheduler_with_a_role_that_only_reads_and_asks_for_nothing_else(
    cluster: RealCluster, tmp_path: Path
) -> None:
    for document in yaml.safe_load_all((DEPLOY / "shadow" / "rbac.yaml").read_text(encoding="utf-8")):
        await cluster.client.create(COLLECTIONS[document["kind"]], document)
    text = f"mode: shadow\nledger: {{directory: {tmp_path}}}\n"
    async with cluster.nodes(4, "--cpu", "8"), cluster.operator(ALONE + text, name="shadow", account="cotide-shadow"):
        scheduler = cluster.plane.start_scheduler()
        resources = {"requests": {"cpu": "1", "memory": "64Mi"}}
        container = {"name": "c", "image": "none", "resources": resources}
        await asyncio.gather(
            *(
                cluster.client.create(
                    cluster.pods,
                    {
                        "metadata": {"name": f"p-{index}", "labels": {"cotide.dev/class": "batch"}},
                        "spec": {"containers": [container]},
                    },
                )
                for index in range(PODS)
            )
        )

        async def full() -> bool:
            return len(await cluster.placed()) >= 28  # four nodes of eight cores, less what deploy/'s own pods take

        await cluster.until("kube-scheduler placed them", full)
        await asyncio.sleep(1.0)  # whatever would be written late is written by now
        scheduler.end()
        placed = len(await cluster.placed())
    asked = [json.loads(line) for line in cluster.plane.audit_log.read_text(encoding="utf-8").splitlines()]
    mine = [one for one in asked if one["user"]["username"] == USER]
    assert {one["verb"] for one in mine} == {"get", "list", "watch"}
    assert not [one["requestURI"] for one in mine if one.get("responseStatus", {}).get("code") == 403]
    file = tmp_path / "ledger.jsonl"
    found = shadow_report(file.open("rb"), HeuristicCatalogue())
    assert found.placed >= placed  # deploy/'s own pods are placed by kube-scheduler, too
    assert found.placed <= placed + 4
    assert found.waits.pods == found.placed
    assert replay(file.open("rb"), HeuristicCatalogue()).difference is None
