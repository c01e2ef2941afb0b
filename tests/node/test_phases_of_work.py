"""Work that says its phase by a file, on real kubelets: a probe reads it, and no right is needed."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import images
from containers import shell
from image_build import python_files
from manifests import job_manifest
from node_programs import NodePrograms
from real_cluster import ALONE, RealCluster, kubectl
from real_nodes import NodeCluster
from repository import ROOT

SCRIPT = """\
enter() {
  printf %s "$1" > /phase/wanted
  until [ "$(cat /podinfo/granted)" = "$1" ]; do sleep 1; done
}
enter read; enter count; enter write
"""
PYTHON = "docker.io/library/python:3.11-slim"
"""What the example runs; imitated here, since nothing is pulled."""
WHOLE = {"systemReserved": {"memory": "500Mi"}}
"""The example counts on two cpus: all that a node here has."""
SAME = '[ "$(cat /phase/wanted)" = "$(cat /podinfo/granted)" ]'
MOUNTS = [{"name": "phase", "mountPath": "/phase"}, {"name": "podinfo", "mountPath": "/podinfo"}]
GRANTED = {"fieldPath": "metadata.annotations['cotide.dev/granted-phase']"}
VOLUMES = [
    {"name": "phase", "emptyDir": {}},
    {"name": "podinfo", "downwardAPI": {"items": [{"path": "granted", "fieldRef": GRANTED}]}},
]
PHASES = [
    {"name": name, "resources": {"cpu": cpu}} for name, cpu in (("read", "50m"), ("count", "200m"), ("write", "20m"))
]


async def test_a_file_that_a_probe_reads_takes_work_through_its_phases(cluster: RealCluster) -> None:
    probe = {"exec": {"command": ["/bin/sh", "-c", SAME]}, "periodSeconds": 1, "timeoutSeconds": 10}
    container = shell(SCRIPT, volumeMounts=MOUNTS, readinessProbe=probe)
    body: dict[str, Any] = {
        "metadata": {"annotations": {"cotide.dev/phase-signal": "readiness"}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container], "volumes": VOLUMES},
    }
    async with cluster.operator(ALONE):
        await cluster.client.create(cluster.jobs, job_manifest("files", template=body, phases=PHASES))

        async def succeeded() -> bool:
            return await cluster.phase("files") == "Succeeded"

        await cluster.until("the work has gone through all its phases", succeeded)
        (pod,) = await cluster.client.list(cluster.pods)
        assert pod["metadata"]["annotations"]["cotide.dev/granted-phase"] == "write"
        assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "20m"
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


async def test_the_example_counts_its_words_on_a_real_kubelet_with_the_size_of_each_phase(
    cluster: RealCluster, node_cluster: NodeCluster, programs: NodePrograms, tmp_path: Path
) -> None:
    node = node_cluster.nodes[0]
    (tmp_path / "python.tar").write_bytes(images.oci_archive(PYTHON, python_files(programs), ["python"]))
    await asyncio.to_thread(node.import_image, tmp_path / "python.tar")
    node.restart_kubelet(WHOLE)
    sizes: dict[str, str] = {}

    async def counted() -> bool:
        for pod in await cluster.client.list(cluster.pods):
            held = (pod["status"].get("containerStatuses") or [{}])[0].get("resources", {}).get("requests", {})
            granted = pod["metadata"].get("annotations", {}).get("cotide.dev/granted-phase")
            if granted is not None and "cpu" in held:
                sizes[granted] = held["cpu"]
        return await cluster.phase("word-count") == "Succeeded"

    try:
        async with cluster.operator(ALONE):
            done = kubectl(cluster.plane, "-n", cluster.namespace, "apply", "-k", str(ROOT / "examples" / "phases"))
            assert done.returncode == 0, done.stderr
            await cluster.until("the words are counted", counted, seconds=240)
        assert sizes == {"read": "200m", "count": "2"}
        said = kubectl(cluster.plane, "-n", cluster.namespace, "logs", "word-count-0").stdout.splitlines()
        assert len(said) == 10
        assert all(re.fullmatch(r"\d+ \S+", line) for line in said), said
    finally:
        node.restart_kubelet()
