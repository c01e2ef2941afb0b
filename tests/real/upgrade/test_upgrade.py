"""An earlier version of the program, its definitions and what it wrote, upgraded to this one and rolled back.

No fixture stands in for the earlier version: its tree comes out of the repository's own history and runs. Where the
clone has no history (a tarball, depth 1) that is said and the test skipped.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import pytest
from binaries import Binaries
from control_plane import ControlPlane, control_plane
from manifests import job_manifest, our_pod_manifest, template, workload_manifest
from real_cluster import DEPLOY, ROOT, RealCluster, apply, until_served

from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient

EARLIER: Final = "81d888d"
"""Before wings, gangs, phases and today's bounds of quantities: the largest step between two states that ran whole."""
LEADS: Final = """\
leaderElection: {enabled: true, namespace: cotide-system}
queue: {backoffInitialSeconds: 0.2, backoffMaxSeconds: 0.5, unschedulableFlushSeconds: 0.5}
"""
"""A configuration that both versions take."""
FOREVER: Final = {"sim.cotide.dev/lone-seconds": "1000000"}
STEP: Final = {"sim.cotide.dev/lone-seconds": "60"}
"""Three seconds at the nodes' speed of 20."""
STEPS: Final = 6
REFUSED_TODAY: Final = "1000000e3"
"""An amount that the earlier definitions let through."""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the earlier version."""
    folder = tmp_path_factory.mktemp("earlier")
    command = ["git", "-C", str(ROOT), "archive", EARLIER, "operator", "predictors", "sim", "deploy"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this clone has no history back to {EARLIER}: git fetch --unshallow")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def own_plane(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane where nothing of today is installed yet."""
    with control_plane(binaries, tmp_path_factory.mktemp("plane")) as running:
        running.start_controller_manager()
        running.wait_for_accounts()
        yield running


@pytest.fixture
async def before(own_plane: ControlPlane, earlier: Path) -> AsyncIterator[RealCluster]:
    """The earlier version's definitions and rights."""
    await apply(own_plane, earlier / "deploy" / "crds")
    await until_served(own_plane)
    await apply(own_plane, earlier / "deploy" / "overlays" / "reclaimed")
    async with KubeClient(own_plane.admin) as client:
        yield RealCluster(own_plane, client, "default")


async def pods_of(cluster: RealCluster, label: str) -> dict[str, tuple[str, str]]:
    """Uid and node by name."""
    found = await cluster.client.list(cluster.pods, {"labelSelector": label})
    return {one["metadata"]["name"]: (one["metadata"]["uid"], one["spec"].get("nodeName", "")) for one in found}


async def make_work(cluster: RealCluster) -> None:
    """Give the earlier version work of each kind, and a Job that only its definitions let through."""
    workloads = cluster.path("workloads", "cotide.dev/v1alpha1")
    web = workload_manifest(replicas=2, template=template("100m", "64Mi", annotations=FOREVER))
    await cluster.client.create(workloads, web)
    plain = our_pod_manifest("plain", "100m", "64Mi", labels={"app": "plain"}, annotations=FOREVER)
    await cluster.client.create(cluster.pods, plain)
    steps = template("200m", "64Mi", annotations=STEP)
    jobs = [
        job_manifest("stays", template=template("200m", "64Mi", annotations=FOREVER), completions=2, parallelism=2),
        job_manifest("steps", template=steps, completions=STEPS, parallelism=1),
        job_manifest("huge", "100"),
        job_manifest("strange", template=template("100m", "64Mi", annotations=FOREVER), inputSize=REFUSED_TODAY),
    ]
    for job in jobs:
        await cluster.client.create(cluster.jobs, job)

    async def all_there() -> bool:
        placed = await cluster.placed()
        wanted = {"plain", "stays-0", "stays-1", "strange-0"}
        begun = (await cluster.client.get(f"{cluster.jobs}/steps")).get("status", {}).get("succeeded", 0)
        refused = (await cluster.client.get(f"{cluster.jobs}/huge")).get("status", {}).get("attempts", 0)
        return (
            wanted <= placed.keys() and len(await pods_of(cluster, "cotide.dev/job=stays")) == 2 and begun and refused
        )

    await cluster.until("the earlier version has begun all of it", all_there)


async def kept(cluster: RealCluster) -> dict[str, dict[str, tuple[str, str]]]:
    """What no upgrade may touch: pods that run, by the label that finds them."""
    labels = ("app=plain", "cotide.dev/job=stays", "cotide.dev/job=strange", "cotide.dev/workload=web")
    return {label: await pods_of(cluster, label) for label in labels}


async def run(cluster: RealCluster, name: str) -> None:
    """Run a short Job to its end under whichever version leads."""
    await cluster.client.create(cluster.jobs, job_manifest(name, template=template("200m", annotations=STEP)))

    async def done() -> bool:
        return await cluster.phase(name) == "Succeeded"

    await cluster.until(f"{name} is done", done)


def explained(cluster: RealCluster, pod: str) -> dict[str, Any]:
    """What today's command makes of a pod."""
    admin = str(cluster.plane.folder / "admin.kubeconfig")
    command = [sys.executable, "-m", "cotide_cli", "explain", "pod", pod, "-n", cluster.namespace, "-o", "json"]
    done = subprocess.run([*command, "--kubeconfig", admin], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def test_an_upgrade_and_its_roll_back_lose_nothing(before: RealCluster, earlier: Path) -> None:
    cluster = before
    async with cluster.nodes(3, "--speed", "20"):
        async with cluster.operator(LEADS, name="earlier", source=earlier) as old:
            await make_work(cluster)
            running = await kept(cluster)
            assert [len(pods) for pods in running.values()] == [1, 2, 1, 2]
            attempts = (await cluster.client.get(f"{cluster.jobs}/huge"))["status"]["attempts"]
            # As docs/guide/upgrades.md has it: definitions, then the whole overlay. The earlier version goes on
            # meanwhile.
            await apply(cluster.plane, DEPLOY / "crds")
            await apply(cluster.plane, DEPLOY / "overlays" / "reclaimed")
            with pytest.raises(ApiError, match=r"spec\.inputSize"):
                await cluster.client.create(cluster.jobs, job_manifest("strange-too", inputSize=REFUSED_TODAY))
            await run(cluster, "under-newer-definitions")
            decision = explained(cluster, "huge-0")["decision"]
            assert "Insufficient cpu" in json.dumps(decision), "a note that the earlier version wrote is read"
            async with cluster.operator(LEADS, name="later", leads=False) as new:
                assert "deciding with policy" not in new.text(), "it stands by while the earlier one leads"
                assert old.end(signal.SIGTERM) == 0, old.text()
                await cluster.until("the later version decides", lambda: "deciding with policy" in new.text())
                await check(cluster, running, "later")
                assert (await cluster.client.get(f"{cluster.jobs}/huge"))["status"]["attempts"] >= attempts
        async with cluster.operator(LEADS, name="back", source=earlier) as again:
            await check(cluster, running, "back")
            assert "Traceback" not in old.text() + again.text()


async def check(cluster: RealCluster, running: dict[str, dict[str, tuple[str, str]]], version: str) -> None:
    """Whoever leads counts what the other began, touches nothing that runs, and takes new work."""

    async def finished() -> bool:
        return await cluster.phase("steps") == "Succeeded"

    await cluster.until("the Job that was half done is done", finished)
    status = (await cluster.client.get(f"{cluster.jobs}/steps"))["status"]
    assert (status["succeeded"], status.get("failures", 0)) == (STEPS, 0)
    assert len(await pods_of(cluster, "cotide.dev/job=steps")) == STEPS, "no index ran twice"
    await run(cluster, f"new-under-{version}")
    assert await kept(cluster) == running
    assert await cluster.phase("stays") == "Running"
    assert await cluster.phase("huge") == "Queued"
