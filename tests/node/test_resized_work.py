"""Work in phases on a real kubelet, resized by the operator: what a phase does not need is there for others."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from containers import batch_pod, shell
from image_build import python_archive
from node_programs import NodePrograms
from real_cluster import ALONE, RealCluster
from real_nodes import NodeCluster, RealNode
from repository import ROOT

from cotide_kube.answers import ApiError

EXAMPLE = ROOT / "examples" / "phases"
IMAGE = "docker.io/library/python:3.11-slim"
"""What the example names."""
TEXT = "the cat and the dog and the bird\n"
MOST = "1"
"""Cores of the example's second phase here: its own two are more than these nodes have."""
QUICK = ALONE + "queue: {backoffInitialSeconds: 0.5, backoffMaxSeconds: 2, unschedulableFlushSeconds: 5}\n"


def cpu_weight(node: RealNode, pod: dict[str, Any]) -> int:
    """What the kernel gives the pod's container: 1024 shares (cgroup v1) for a core that it asks for."""
    (status,) = pod["status"]["containerStatuses"]
    container = status["containerID"].removeprefix("containerd://")
    (group,) = node.group("cpu").rglob(container)
    return int((group / "cpu.shares").read_text())


async def pod_of(cluster: RealCluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = await cluster.client.get(f"{cluster.pods}/{name}")
    return found


async def until_held(cluster: RealCluster, name: str, granted: str, **amounts: str) -> dict[str, Any]:
    """Wait until a kubelet has given a pod these amounts, and a phase is granted to it."""

    async def held() -> dict[str, Any] | None:
        with contextlib.suppress(ApiError, KeyError, IndexError):  # not there yet
            pod = await pod_of(cluster, name)
            requests = pod["status"]["containerStatuses"][0]["resources"]["requests"]
            phase = pod["metadata"]["annotations"]["cotide.dev/granted-phase"]
            if phase == granted and amounts.items() <= requests.items():
                return pod
        return None

    found: dict[str, Any] = await cluster.until(f"{name} holds {amounts} in phase {granted}", held)
    return found


def example(node: RealNode, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The example's Job and ConfigMap, as they are but for the node, the text and the cores of the second phase."""
    job = yaml.safe_load((EXAMPLE / "job.yaml").read_text(encoding="utf-8"))
    job["spec"]["phases"][1]["resources"]["cpu"] = MOST
    spec = job["spec"]["template"]["spec"]
    spec["nodeSelector"] = {"kubernetes.io/hostname": node.name}
    work = spec["containers"][0]
    work["command"][2:] = ["/text/text"]
    work["volumeMounts"].append({"name": "text", "mountPath": "/text"})
    spec["volumes"].append({"name": "text", "hostPath": {"path": str(folder)}})
    program = (EXAMPLE / "word_count.py").read_text(encoding="utf-8")
    return job, {"metadata": {"name": "word-count"}, "data": {"word_count.py": program}}


@pytest.mark.skipif(not Path("/sys/fs/cgroup/cpu").exists(), reason="reads the weights of cgroup v1")
async def test_the_word_count_gives_cpu_back_while_it_reads_and_gets_it_again_to_count(
    cluster: RealCluster, node_cluster: NodeCluster, programs: NodePrograms, tmp_path: Path
) -> None:
    node = node_cluster.nodes[0]
    archive = tmp_path / "python.tar"
    archive.write_bytes(await asyncio.to_thread(python_archive, IMAGE, programs))
    await asyncio.to_thread(node.import_image, archive)
    job, program = example(node, tmp_path)
    os.mkfifo(tmp_path / "text")  # its reading lasts until the test has written
    async with cluster.operator(QUICK):
        await cluster.client.create(cluster.path("configmaps"), program)
        await cluster.client.create(cluster.jobs, job)
        reads = await until_held(cluster, "word-count-0", "read", cpu="200m")
        assert cpu_weight(node, reads) == 204  # of 1024 for a core
        # Its node has 1.8 cores: beside a whole one for the count this would have no room.
        beside = shell("sleep 3600", requests={"cpu": "1200m", "memory": "16Mi"})
        await cluster.client.create(
            cluster.pods, batch_pod("beside", beside, nodeSelector={"kubernetes.io/hostname": node.name})
        )

        async def runs() -> bool:
            return bool((await pod_of(cluster, "beside"))["status"].get("phase") == "Running")

        await cluster.until("another pod runs in what was given back", runs)
        await asyncio.to_thread((tmp_path / "text").write_text, TEXT)
        # 1.2 and 1 of 1.8: it waits, and holds next to nothing.
        waits = await until_held(cluster, "word-count-0", "read", cpu="10m")
        assert cpu_weight(node, waits) == 10
        await cluster.client.delete(f"{cluster.pods}/beside")
        await until_held(cluster, "word-count-0", "count", cpu=MOST)

        async def succeeded() -> bool:
            return await cluster.phase("word-count") == "Succeeded"

        await cluster.until("the words are counted", succeeded)
        last = await pod_of(cluster, "word-count-0")
        assert last["status"]["containerStatuses"][0]["restartCount"] == 0
        assert cluster.kubectl("logs", "word-count-0").splitlines()[:2] == ["3 the", "2 and"]
