"""Karpenter with its KWOK provider, on a control plane of ours: its nodes, and kubelets that play them.

Used by `consolidation_race`. Karpenter consolidates only nodes that it made itself. So it is first made to make as many
as the others have: a pod of seven cores for each, which go again; until its budget is opened, it takes none away. The
program is built from its module, ``sigs.k8s.io/karpenter`` v1.14.0, package ``kwok``; definitions come from there, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any, Final

import yaml

from cotide_core.errors import ClusterError
from cotide_kube.client import KubeClient

NODES: Final = "/api/v1/nodes"
POOLS: Final = "/apis/karpenter.sh/v1/nodepools"
LABEL: Final = "karpenter.sh/nodepool"
TYPE: Final = "s-8x-amd64-linux"
"""Eight cores and 32 GiB, as the other racers' nodes."""
FILLER_CORES: Final = 7
HEARTBEAT_SECONDS: Final = 10.0
STEP_SECONDS: Final = 0.2
Json = dict[str, Any]


def definitions(module: Path) -> list[Json]:
    """Return the custom resource definitions of a module's folder."""
    folders = (module / "pkg" / "apis" / "crds", module / "kwok" / "apis" / "crds")
    return [yaml.safe_load(file.read_text("utf-8")) for folder in folders for file in sorted(folder.glob("*.yaml"))]


def pool() -> Json:
    """A pool of nodes of one type, none of which may be taken away yet."""
    wanted = {"kubernetes.io/arch": "amd64", "karpenter.sh/capacity-type": "on-demand"}
    requirements = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in {**wanted, "node.kubernetes.io/instance-type": TYPE}.items()
    ]
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    template = {"spec": {"requirements": requirements, "nodeClassRef": reference, "expireAfter": "Never"}}
    disruption = {
        "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "5s", "budgets": [{"nodes": "0"}],
    }  # fmt: skip
    spec = {"template": template, "disruption": disruption}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": spec}


def filler(number: int) -> Json:
    """A pod that wants most of a node."""
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": str(FILLER_CORES)}}}
    metadata = {"name": f"filler-{number}", "labels": {"app": "filler"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


async def prepare(client: KubeClient, module: Path) -> None:
    """Install Karpenter's kinds, a class and a pool."""
    for definition in definitions(module):
        await client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    kind = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}
    for path, body in (("/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", kind), (POOLS, pool())):
        deadline = time.monotonic() + 60.0
        while True:
            try:
                await client.create(path, body)
            except ClusterError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.2)  # a definition takes a moment to be served
            else:
                break


def environment(kubeconfig: Path, metrics: int, health: int) -> dict[str, str]:
    """Return what Karpenter is told by its environment."""
    return {
        "KUBECONFIG": str(kubeconfig),
        "DISABLE_LEADER_ELECTION": "true",
        "SYSTEM_NAMESPACE": "default",
        "KARPENTER_SERVICE": "karpenter",
        "METRICS_PORT": str(metrics),
        "HEALTH_PROBE_PORT": str(health),
        "CPU_REQUESTS": "1000",
    }


async def fill(client: KubeClient, pods: str, count: int, seconds: float) -> None:
    """Have so many nodes made, and leave them empty."""
    for number in range(count):
        await client.create(pods, filler(number))
    deadline = time.monotonic() + seconds
    while True:
        there = [pod for pod in await client.list(pods) if pod["metadata"]["labels"].get("app") == "filler"]
        if sum(one["status"].get("phase") == "Running" for one in there) == count:
            break
        if time.monotonic() > deadline:
            raise SystemExit(f"karpenter made {len(await client.list(NODES))} of {count} nodes")
        await asyncio.sleep(0.5)
    for number in range(count):
        await client.delete(f"{pods}/filler-{number}")
    # What still stands somewhere would make the next pods' spread uneven.
    while any(pod["metadata"]["labels"].get("app") == "filler" for pod in await client.list(pods)):
        await asyncio.sleep(0.5)


async def open_budget(client: KubeClient) -> None:
    """Let Karpenter take nodes away, as many as it likes."""
    await client.patch(f"{POOLS}/default", {"spec": {"disruption": {"budgets": [{"nodes": "100%"}]}}})


class Kubelets:
    """Plays the kubelets of Karpenter's nodes: ready at once, and so are their pods."""

    def __init__(self, client: KubeClient, pods: str) -> None:
        self._client, self._pods = client, pods
        self._beats: dict[str, float] = {}

    async def run(self) -> None:
        """Play until cancelled."""
        while True:
            with contextlib.suppress(ClusterError):
                await self._step()
            await asyncio.sleep(STEP_SECONDS)

    async def _step(self) -> None:
        now = time.monotonic()
        for node in await self._client.list(NODES, {"labelSelector": LABEL}):
            name = node["metadata"]["name"]
            if now - self._beats.get(name, -HEARTBEAT_SECONDS) >= HEARTBEAT_SECONDS:
                self._beats[name] = now
                ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": _stamp()}
                await self._client.patch(f"{NODES}/{name}/status", {"status": {"conditions": [ready]}})
        listed = await self._client.list(self._pods, {"resourceVersion": "0"}, chunk=10_000)
        await asyncio.gather(*(self._play(pod) for pod in listed if pod["spec"].get("nodeName")))

    async def _play(self, pod: Json) -> None:
        path = f"{self._pods}/{pod['metadata']['name']}"
        with contextlib.suppress(ClusterError):
            if pod["metadata"].get("deletionTimestamp"):
                await self._client.delete(path, grace_seconds=0)
            elif pod["status"].get("phase") == "Pending":
                ready = [{"type": one, "status": "True"} for one in ("PodScheduled", "ContainersReady", "Ready")]
                body = {"status": {"phase": "Running", "conditions": ready, "startTime": _stamp()}}
                await self._client.patch(f"{path}/status", body)


def _stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
