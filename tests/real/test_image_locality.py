"""Nodes have the points for a pod's images that a real kube-scheduler's ImageLocality gives them, for random clusters.

kube-scheduler runs with that plugin as its only score and says each in its log. ``COTIDE_CONSTRAINT_CLUSTERS`` draws
more clusters than a run of all tests does, ``COTIDE_CONSTRAINT_SEED`` others.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import pytest
import yaml
from binaries import Binaries
from constraint_cases import HOST, Json
from control_plane import ControlPlane, control_plane
from manifests import pod_manifest
from processes import Process

from cotide_core.placement.constraints.image_locality import image_points
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.shapes import ShapeTable
from cotide_core.state.snapshot import Snapshot
from cotide_kube.client import KubeClient
from cotide_kube.objects import NodeObject, PodObject
from cotide_operator.cache.object_cache import KINDS, ObjectCache
from cotide_operator.clock import real_clock
from cotide_operator.translation.event_source import EventSource

FIRST: Final = int(os.environ.get("COTIDE_CONSTRAINT_SEED", "0"))
CLUSTERS: Final = int(os.environ.get("COTIDE_CONSTRAINT_CLUSTERS", "4"))
PROBES: Final = 20
SCHEDULER: Final = "images"
NAMESPACE: Final = "images"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
NODES: Final = "/api/v1/nodes"
SETTLED_SECONDS: Final = 60.0
SAID: Final = re.compile(
    rf'"Plugin scored node for pod" pod="{NAMESPACE}/([^"]+)" plugin="ImageLocality" node="([^"]+)" score=(\d+)'
)
NAMES: Final = ("web", "host:5000/web", "host:5000/db:2", "cache@sha256:12", "batch:1", "tiny:1")
Points = dict[str, dict[str, int]]
"""By pod and node."""


@pytest.fixture(scope="module")
def alone(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A server without kube-controller-manager, which would taint nodes that no kubelet speaks for."""
    with control_plane(binaries, tmp_path_factory.mktemp("alone")) as running:
        yield running


async def test_nodes_have_the_points_that_kube_scheduler_gives_them(alone: ControlPlane, tmp_path: Path) -> None:
    process = alone.start_scheduler(
        _config(alone, tmp_path), vmodule="schedule_one=10", feature_gates="OpportunisticBatching=false"
    )
    try:
        async with KubeClient(alone.admin, max_connections=16) as client:
            await client.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            account = {"metadata": {"name": "default"}}
            await client.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
            compared = 0
            for seed in range(FIRST, FIRST + CLUSTERS):
                compared += await _compare(client, process, seed)
            print(f"\n{CLUSTERS * PROBES} pods, {compared} scores, all equal", flush=True)
    finally:
        process.end()


async def _compare(client: KubeClient, process: Process, seed: int) -> int:
    """Compare all scores of one cluster; returns how many there were that tell nodes apart."""
    draw = Random(f"images {seed}")
    names = [f"s{seed}-n{number:02}" for number in range(draw.randint(3, 10))]
    sizes = {f"s{seed}/{name}": draw.randint(10, 1500) * 1024 * 1024 + draw.randint(0, 1023) for name in NAMES}
    for name in names:
        await client.create(NODES, _machine(draw, name, sizes))
    await _seen_by_scheduler(client, f"first-{seed}", names[-1])
    # It takes the number of nodes that have an image when the node last changed, and so each node must change once
    # all are known.
    for name in names:
        await client.patch(f"{NODES}/{name}", {"metadata": {"labels": {"touched": "yes"}}, "spec": {"taints": None}})
    await _seen_by_scheduler(client, f"touched-{seed}", names[-1], touched="yes")
    pods = [_probe(draw, f"s{seed}-p{number}", list(sizes)) for number in range(PROBES)]
    stored = list(await asyncio.gather(*(client.create(PODS, pod) for pod in pods)))
    ours = _ours(await client.list(NODES), stored)
    await _until_bound(client, {pod["metadata"]["name"] for pod in pods})
    said: Points = {}
    for pod, node, score in SAID.findall(process.text()):
        said.setdefault(pod, {})[node] = int(score)
    for pod in pods:
        name = pod["metadata"]["name"]
        assert said.get(name) == ours[name], pod["spec"]
    await client.request("DELETE", PODS, {"gracePeriodSeconds": 0})
    await client.request("DELETE", NODES, {})
    return sum(len(set(our.values())) > 1 for our in ours.values())


def _config(plane: ControlPlane, folder: Path) -> Path:
    scores = {"disabled": [{"name": "*"}], "enabled": [{"name": "ImageLocality", "weight": 1}]}
    config: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(plane.folder / "admin.kubeconfig"), "qps": 2000, "burst": 4000},
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": SCHEDULER, "plugins": {"score": scores}}],
    }
    path = folder / "images-scheduler.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def _machine(draw: Random, name: str, sizes: dict[str, int]) -> Json:
    images = []
    for image, size in sizes.items():
        if draw.random() < 0.6:
            known = image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
            # All tell one size: of several kube-scheduler takes what it hears first, and it lists nodes in no order.
            images.append({"names": [known, f"{known}-alias"], "sizeBytes": size})
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "500"}
    ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    status = {"allocatable": amounts, "capacity": amounts, "conditions": ready, "images": images}
    return {"metadata": {"name": name, "labels": {HOST: name}}, "status": status}


def _probe(draw: Random, name: str, images: list[str]) -> Json:
    asked = [draw.choice((*images, "missing:1")) for _ in range(draw.randint(1, 4))]
    containers = [{"name": f"c{number}", "image": image} for number, image in enumerate(asked)]
    first = draw.randint(0, len(containers) - 1)
    spec: Json = {"schedulerName": SCHEDULER, "containers": containers[first:]}
    if first:
        spec["initContainers"] = containers[:first]
    return pod_manifest(name, namespace=NAMESPACE, spec=spec)


async def _seen_by_scheduler(client: KubeClient, name: str, host: str, **labels: str) -> None:
    """Wait until kube-scheduler knows a node with these labels; it hears of changes in their order."""
    spec = {"schedulerName": SCHEDULER, "nodeSelector": {HOST: host, **labels}, "tolerations": [{"operator": "Exists"}]}
    await client.create(PODS, pod_manifest(name, namespace=NAMESPACE, spec=spec))
    await _until_bound(client, {name})


async def _until_bound(client: KubeClient, names: set[str]) -> None:
    async with asyncio.timeout(SETTLED_SECONDS):
        while True:
            pods = await client.list(PODS)
            if names <= {pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")}:
                return
            await asyncio.sleep(0.1)


def _ours(nodes: list[Json], pods: list[Json]) -> Points:
    """Return the points that we give, from the objects as the server stored them."""
    cache = ObjectCache()
    for node in nodes:
        cache.apply("nodes", "ADDED", msgspec.convert(node, NodeObject))
    for pod in pods:
        cache.apply("pods", "ADDED", msgspec.convert(pod, PodObject))
    for kind in KINDS:
        cache.mark_synced(kind)
    state = ClusterState()
    for event in EventSource(cache, real_clock(), (SCHEDULER,)).collect():
        state.apply(event)
    snapshot, found = Snapshot.of(state), {}
    for pod in pods:
        known = state.pod(f"{NAMESPACE}/{pod['metadata']['name']}")
        assert known is not None
        points = image_points(ShapeTable().of(known, state).fit, snapshot)
        found[pod["metadata"]["name"]] = {snapshot.name(row): int(points[row]) for row in range(snapshot.size)}
    return found
