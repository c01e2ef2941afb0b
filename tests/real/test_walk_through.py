"""What the README shows by hand, on a real API server, with an operator that has its ServiceAccount's rights only."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
import yaml
from real_cluster import ALONE, ROOT, RealCluster

SCRAPE = 'metricsSource: {{scrape: {{url: "http://127.0.0.1:{port}/metrics"}}, intervalSeconds: 1}}\n'
JOBS = ("wordcount", "sort", "render")


async def test_the_examples_run_to_their_end(cluster: RealCluster) -> None:
    async with cluster.nodes(5, "--speed", "20") as port, cluster.operator(ALONE + SCRAPE.format(port=port)):
        for path in sorted((ROOT / "examples").glob("*.yaml")):
            for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
                group = document["apiVersion"]
                await cluster.client.create(cluster.path(f"{document['kind'].lower()}s", group), document)

        async def done() -> bool:
            return {await cluster.phase(job) for job in JOBS} == {"Succeeded"}

        await cluster.until("all Jobs are done", done)

        async def served() -> bool:
            path = f"{cluster.path('workloads', 'cotide.dev/v1alpha1')}/web"
            status = (await cluster.client.get(path)).get("status", {})
            return status.get("ready") == "3/3" and (status.get("rps") or 0) > 0

        await cluster.until("the service is ready and measured", served)

        async def reported() -> bool:
            return bool((await cluster.client.get(f"{cluster.pods}/report"))["status"].get("phase") == "Succeeded")

        await cluster.until("the plain pod is done", reported)
        status = {job: (await cluster.client.get(f"{cluster.jobs}/{job}"))["status"] for job in JOBS}
        assert {job: one["succeeded"] for job, one in status.items()} == {"wordcount": 6, "sort": 2, "render": 4}
        assert all(one.get("failures", 0) == 0 for one in status.values())


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs the kubectl binary")
async def test_kubectl_applies_shows_and_waits_and_explain_explains(cluster: RealCluster) -> None:
    async with cluster.nodes(3, "--speed", "20") as port, cluster.operator(ALONE + SCRAPE.format(port=port)):
        said = cluster.kubectl("apply", "-f", str(ROOT / "examples"))
        assert "job.cotide.dev/wordcount created" in said
        cluster.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "cjob/wordcount", "--timeout=120s")
        shown = cluster.kubectl("get", "cjob,cwl")
        (line,) = [one for one in shown.splitlines() if one.startswith("job.cotide.dev/wordcount")]
        assert "Succeeded" in line
        admin = str(cluster.plane.folder / "admin.kubeconfig")
        asked = ["explain", "job", "wordcount", "-n", cluster.namespace, "--kubeconfig", admin]
        explained = subprocess.run(
            [sys.executable, "-m", "cotide_cli", *asked],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (explained.returncode, explained.stderr) == (0, "")
        assert "Succeeded" in explained.stdout
