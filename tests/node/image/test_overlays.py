"""The image that the Dockerfile makes, deployed from the overlays as they are, on real nodes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from containers import job, shell
from control_plane import ControlPlane
from real_cluster import DEPLOY, RealCluster, apply, kubectl, until_served

from cotide_kube.client import KubeClient

SECONDS = float(os.environ.get("COTIDE_IMAGE_SECONDS", "60"))
SPACE = "cotide-system"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{SPACE}/deployments/cotide-operator"


async def operators(client: KubeClient) -> list[dict[str, Any]]:
    selector = {"labelSelector": "app.kubernetes.io/name=cotide-operator"}
    return list(await client.list(f"/api/v1/namespaces/{SPACE}/pods", selector))


@pytest.mark.parametrize("overlay", ["kind", "prod", "reclaimed"])
async def test_the_operator_is_ready_and_stays_so_runs_jobs_and_leaves_without_a_trace(
    overlay: str, installed: ControlPlane, client: KubeClient
) -> None:
    await apply(installed, DEPLOY / "crds")
    await until_served(installed)
    await apply(installed, DEPLOY / "overlays" / overlay)
    cluster = RealCluster(installed, client, "default")

    async def ready() -> bool:
        status = (await client.get(DEPLOYMENT)).get("status", {})
        return bool(status.get("readyReplicas")) and status.get("readyReplicas") == status.get("replicas")

    try:
        await cluster.until("the operator is ready", ready)
    except pytest.fail.Exception:
        for pod in await operators(client):
            print(kubectl(installed, "-n", SPACE, "logs", pod["metadata"]["name"]))
            print(pod["status"])
        print(kubectl(installed, "-n", SPACE, "get", "events").stdout)
        raise
    await client.create(cluster.jobs, job("hello", shell("echo hello"), completions=5, parallelism=2))

    async def succeeded() -> bool:
        return await cluster.phase("hello") == "Succeeded"

    await cluster.until("a Job is done", succeeded)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        await asyncio.sleep(1.0)
        assert await ready()
    pods = await operators(client)
    logs = "\n".join(kubectl(installed, "-n", SPACE, "logs", pod["metadata"]["name"]).stdout for pod in pods)
    assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods] == [0] * len(pods), logs
    assert "Traceback" not in logs
    # A roll-out, as at an upgrade: one more Job is done by the new pods.
    before = {pod["metadata"]["uid"] for pod in pods}
    kubectl(installed, "-n", SPACE, "rollout", "restart", "deployment/cotide-operator")

    async def replaced() -> bool:
        found = await operators(client)
        return await ready() and not before & {pod["metadata"]["uid"] for pod in found}

    # Each node has room for one replica of the overlay prod and for no second: the old one must go first.
    await RealCluster(installed, client, SPACE).until("the pods were replaced", replaced)
    await client.create(cluster.jobs, job("again", shell("echo again")))

    async def again() -> bool:
        return await cluster.phase("again") == "Succeeded"

    await cluster.until("a Job is done by the new pods", again)
    for name in ("hello", "again"):
        await client.delete(f"{cluster.jobs}/{name}")
    environment = {
        **os.environ,
        "PATH": f"{Path(installed.kubectl).parent}:{os.environ['PATH']}",
        "KUBECONFIG": str(installed.folder / "admin.kubeconfig"),
    }
    command = ["bash", str(DEPLOY / "uninstall.sh"), "--yes"]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False, env=environment, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cotide" not in kubectl(installed, "get", "crd,clusterrole,ns,priorityclass", "-o", "name").stdout
