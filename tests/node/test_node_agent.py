"""The agent on a real node: it holds batch back within a second, and leaves nothing behind, however it ends."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from containers import batch_pod, shell
from processes import Process
from real_cluster import ALONE, RealCluster
from real_nodes import NodeCluster, RealNode

WITHIN_SECONDS = 1.0
"""From the service's first work to a quota that makes room for it."""
BUSY_SECONDS = 0.05
"""Of cpu, more than its waiting takes."""
GIVEN_CPUS = 0.05
"""So little, since on a busy machine a service that wants all gets little."""
SLEEPER = "while ! test -e /shared/go; do sleep 1; done; while :; do :; done"
FILES = ("cpu.cfs_quota_us", "cpu.max", "cpu.shares", "cpu.weight", "memory.soft_limit_in_bytes", "memory.high")


def settings_of(node: RealNode) -> dict[str, str]:
    """What each file that the agent may write says, of all pods of the node."""
    roots = {node.group(controller) / "kubepods" for controller in ("cpu", "memory")}
    found = {}
    for file in (file for root in roots for name in FILES for file in root.rglob(name)):
        if "pod" in file.parent.name or "pod" in file.parent.parent.name:
            with contextlib.suppress(OSError):
                found[str(file)] = file.read_text().strip()
    return found


def are_as_before(node: RealNode, before: Mapping[str, str], uid: str) -> bool:
    """Whether all settings of a pod are what they were, and those of the others that are there yet."""
    now = settings_of(node)
    assert any(uid in path for path in now)
    # Pods of an earlier test may have ended meanwhile, and their groups with them.
    return all(now.get(path) == text for path, text in before.items() if uid in path or path in now)


def pod_file(node: RealNode, uid: str, *names: str) -> Path:
    """The first of some files of a pod's group that is there."""
    folders = [one for root in ("cpu", "cpuacct") for one in node.group(root).rglob(f"pod{uid}")]
    return next(folder / name for name in names for folder in folders if (folder / name).exists())


def quota_cpus(node: RealNode, uid: str) -> float:
    file = pod_file(node, uid, "cpu.cfs_quota_us", "cpu.max")
    words = file.read_text().split()
    if words[0] in ("-1", "max"):
        return float("inf")
    period = words[1] if len(words) > 1 else (file.parent / "cpu.cfs_period_us").read_text()
    return int(words[0]) / int(period)


def used_seconds(node: RealNode, uid: str) -> float:
    file = pod_file(node, uid, "cpuacct.usage", "cpu.stat")
    text = file.read_text()
    return int(text) / 1e9 if file.name == "cpuacct.usage" else int(text.split()[1]) / 1e6


def arguments(cluster: RealCluster, node: RealNode, folder: Path) -> list[str]:
    root = f"/{node.group('cpu').relative_to('/sys/fs/cgroup').as_posix().removeprefix('cpu/')}"
    return [
        "node-agent", "--node", node.name, "--kubeconfig", str(cluster.plane.folder / "admin.kubeconfig"),
        "--cgroup-root", root, "--journal", str(folder / "journal.json"), "--metrics-port", "0",
        "--contended-share", "1",  # here by use alone: on a machine that others use, everybody waits
    ]  # fmt: skip


@contextlib.contextmanager
def agent(cluster: RealCluster, node: RealNode, folder: Path) -> Iterator[Process]:
    command = [sys.executable, "-m", "cotide_cli", *arguments(cluster, node, folder)]
    process = cluster.plane.pen.start("node-agent", command, {"PYTHONUNBUFFERED": "1"})
    try:
        yield process
    finally:
        process.end()


async def running(cluster: RealCluster, name: str) -> str:
    async def uid() -> str:
        found = await cluster.client.get(f"{cluster.pods}/{name}")
        return str(found["metadata"]["uid"]) if found["status"].get("phase") == "Running" else ""

    return str(await cluster.until(f"{name} runs", uid))


async def test_batch_gives_way_within_a_second_and_everything_is_put_back_however_the_agent_ends(
    cluster: RealCluster, node_cluster: NodeCluster, tmp_path: Path
) -> None:
    node = node_cluster.nodes[0]
    placed = {"nodeSelector": {"kubernetes.io/hostname": node.name}}
    mount = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    shared = {"volumes": [{"name": "shared", "hostPath": {"path": str(tmp_path)}}]}
    service = batch_pod("service", shell(SLEEPER, requests={"cpu": "1", "memory": "16Mi"}, **mount), **placed, **shared)
    service["metadata"]["labels"]["cotide.dev/class"] = "online"
    async with cluster.operator(ALONE):
        await cluster.client.create(cluster.pods, service)
        await cluster.client.create(cluster.pods, batch_pod("work", shell("sleep 3600", requests={}), **placed))
        online, batch = await running(cluster, "service"), await running(cluster, "work")
    before = settings_of(node)
    with agent(cluster, node, tmp_path) as process:
        await cluster.until("batch has a quota", lambda: quota_cpus(node, batch) < 2.0)
        room, used = quota_cpus(node, batch), used_seconds(node, online)
        (tmp_path / "go").touch()
        await cluster.until("the service is busy", lambda: used_seconds(node, online) - used > BUSY_SECONDS)
        begun = time.monotonic()
        await cluster.until("batch gives way", lambda: quota_cpus(node, batch) < room - GIVEN_CPUS)
        took = time.monotonic() - begun
        print(f"the quota fell from {room:.2f} to {quota_cpus(node, batch):.2f} cpus after {took:.2f} s")
        assert took < WITHIN_SECONDS
        changed = {path for path, text in settings_of(node).items() if before.get(path, text) != text}
        assert changed
        assert all(batch in path for path in changed)
        assert process.end(signal.SIGTERM) == 0, process.text()
        assert are_as_before(node, before, batch)
        assert "Traceback" not in process.text()
    with agent(cluster, node, tmp_path) as process:
        await cluster.until("batch has a quota again", lambda: quota_cpus(node, batch) < 2.0)
        process.end(signal.SIGKILL)
        assert not are_as_before(node, before, batch)
    # Whoever starts next, or only undoes, puts it back.
    command = [sys.executable, "-m", "cotide_cli", *arguments(cluster, node, tmp_path), "--undo"]
    subprocess.run(command, check=True, timeout=60)
    assert are_as_before(node, before, batch)
