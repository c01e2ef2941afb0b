"""Work in phases on a real kubelet, resized by the operator: what a phase does not need is there for others."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from containers import batch_pod, shell
from control_plane import free_port
from image_build import python_archive
from manifests import job_manifest
from node_programs import NodePrograms
from prometheus_server import PROMETHEUS, needs_prometheus
from real_cluster import ALONE, RealCluster
from real_nodes import NodeCluster, RealNode
from repository import ROOT

from cotide_core.units import resource_amount

EXAMPLE = ROOT / "examples" / "phases"
IMAGE = "docker.io/library/python:3.11-slim"
"""What the example names."""
TEXT = "the cat and the dog and the bird\n"
MOST = "1"
"""Cores of the example's second phase here: its own two are more than these nodes have."""
QUICK = ALONE + "queue: {backoffInitialSeconds: 0.5, backoffMaxSeconds: 2, unschedulableFlushSeconds: 5}\n"
MIB = 1 << 20


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
        with contextlib.suppress(KeyError, IndexError):  # not there yet
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


@contextlib.asynccontextmanager
async def prometheus_of(cluster: RealCluster, node: RealNode, folder: Path) -> AsyncIterator[str]:
    """A Prometheus that reads what the node's kubelet measures; yields its url."""
    plane, port = cluster.plane, free_port()
    certificate, key = plane.authority.client("prometheus", "system:masters")
    tls = {"ca_file": str(plane.authority.path), "cert_file": str(certificate), "key_file": str(key)}
    kubelet = {
        "job_name": "kubelet", "honor_labels": True, "scheme": "https", "metrics_path": "/metrics/cadvisor",
        "tls_config": tls, "static_configs": [{"targets": [f"{node.address}:10250"]}],
    }  # fmt: skip
    pace = {"scrape_interval": "2s", "scrape_timeout": "2s"}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump({"global": pace, "scrape_configs": [kubelet]}), "utf-8")
    options = [f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data"]
    process = plane.pen.start("prometheus", [str(PROMETHEUS), *options, f"--web.listen-address=127.0.0.1:{port}"])
    try:
        await cluster.until("Prometheus is ready", lambda: "ready to receive web requests" in process.text())
        yield f"http://127.0.0.1:{port}"
    finally:
        process.end()


@needs_prometheus
async def test_memory_that_no_later_phase_needs_is_given_back_once_it_is_measured_to_be_free(
    cluster: RealCluster, node_cluster: NodeCluster, tmp_path: Path
) -> None:
    node = node_cluster.nodes[0]
    there = {"nodeSelector": {"kubernetes.io/hostname": node.name}}
    phases = [
        {"name": "load", "resources": {"cpu": "300m", "memory": "400Mi"}},
        {"name": "work", "resources": {"cpu": "100m", "memory": "64Mi"}},
    ]
    template = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [shell("sleep 3600")], **there}}
    async with prometheus_of(cluster, node, tmp_path) as url:
        source = f"metricsSource: {{prometheus: {{url: '{url}'}}, intervalSeconds: 1, staleAfterSeconds: 60}}\n"
        async with cluster.operator(QUICK + source):
            await cluster.client.create(cluster.jobs, job_manifest("loads", template=template, phases=phases))
            first = await until_held(cluster, "loads-0", "load", cpu="300m", memory="400Mi")
            offered = (await cluster.client.get(f"/api/v1/nodes/{node.name}"))["status"]["allocatable"]["memory"]
            # All of the node but what the second phase needs, and half of what the first one has beyond that.
            rest = resource_amount("memory", offered) // MIB - 64 - 168
            other = batch_pod("other", shell("exit 0", requests={"cpu": "50m", "memory": f"{rest}Mi"}), **there)
            await cluster.client.create(cluster.pods, other)

            async def waits() -> bool:
                conditions = (await pod_of(cluster, "other"))["status"].get("conditions", ())
                return any("Insufficient memory" in one.get("message", "") for one in conditions)

            await cluster.until("there is no memory for the other pod", waits)
            said = {"metadata": {"annotations": {"cotide.dev/phase": "work"}}}
            await cluster.client.patch(f"{cluster.pods}/loads-0", said)
            last = await until_held(cluster, "loads-0", "work", cpu="100m", memory="64Mi")

            async def done() -> bool:
                return bool((await pod_of(cluster, "other"))["status"].get("phase") == "Succeeded")

            await cluster.until("the other pod had its memory", done)
            before, after = (one["status"]["containerStatuses"][0] for one in (first, last))
            assert after["containerID"] == before["containerID"]
            assert after["restartCount"] == 0
