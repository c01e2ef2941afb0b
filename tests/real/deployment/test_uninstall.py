"""``deploy/uninstall.sh`` leaves a cluster as it was before Cotide came: on a control plane of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from binaries import Binaries
from control_plane import ControlPlane, control_plane
from manifests import pod_manifest
from real_cluster import ALONE, DEPLOY, RealCluster, apply, until_served

from cotide_core.units import resource_amount
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient

CPU = "cotide.dev/reclaimed-cpu"
SETTINGS = """\
policy: hierarchical
slotSeconds: 20
metricsSource: {{scrape: {{url: "http://127.0.0.1:{port}/metrics"}}, intervalSeconds: 0.25, staleAfterSeconds: 60}}
reclaimed: {{minimumIntervalSeconds: 0, patchesPerSecond: 100}}
simulatedTime: {{originSeconds: {origin}, speed: 40}}
"""
PASSING = {"events", "leases"}
"""Of kinds that come and go by themselves; Leases of ours are in the namespace that is deleted."""

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs the kubectl binary"),
]


@pytest.fixture
def own_plane(binaries: Binaries, tmp_path: Path) -> Iterator[ControlPlane]:
    with control_plane(binaries, tmp_path) as plane:
        plane.start_controller_manager()
        yield plane


@contextlib.asynccontextmanager
async def fresh_cluster(plane: ControlPlane) -> AsyncIterator[RealCluster]:
    async with KubeClient(plane.admin) as client:
        cluster = RealCluster(plane, client, "default")

        async def account() -> bool:
            return bool(await client.list(cluster.path("serviceaccounts")))

        await cluster.until("the controller made the default service account", account)
        yield cluster


async def objects(client: KubeClient) -> set[str]:
    """Path of every object of every kind that can be listed."""
    found: set[str] = set()
    groups = ["/api/v1"] + [
        f"/apis/{group['preferredVersion']['groupVersion']}" for group in (await client.get("/apis"))["groups"]
    ]
    for group in groups:
        for kind in (await client.get(group))["resources"]:
            if "list" not in kind["verbs"] or kind["name"] in PASSING:
                continue
            for one in await client.list(f"{group}/{kind['name']}"):
                found.add(f"{group}/{kind['name']}: {one['metadata'].get('namespace', '')}/{one['metadata']['name']}")
    return found


async def node_words(client: KubeClient) -> dict[str, Any]:
    """What a node says apart from times."""
    return {
        node["metadata"]["name"]: (
            node["metadata"].get("labels"),
            node["metadata"].get("annotations"),
            node["spec"],
            node["status"]["capacity"],
            node["status"]["allocatable"],
            {one["type"]: one["status"] for one in node["status"]["conditions"]},
        )
        for node in await client.list("/api/v1/nodes")
    }


def uninstall(plane: ControlPlane, *options: str) -> str:
    environment = {**os.environ, "KUBECONFIG": str(plane.folder / "admin.kubeconfig")}
    done = subprocess.run(
        [str(DEPLOY / "uninstall.sh"), *options],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def pod(name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod that runs for long and uses less than it asks for."""
    notes = {"sim.cotide.dev/used-millicores": "300", "sim.cotide.dev/lone-seconds": "100000"}
    return pod_manifest(name, "500m", "64Mi", labels={"app": name, **(labels or {})}, annotations=notes, spec=spec)


async def install_and_use(cluster: RealCluster, port: int, origin: float) -> None:
    """deploy/, an operator that publishes, an adopted service, a Job that runs, and a pod that waits."""
    client = cluster.client
    await apply(cluster.plane, DEPLOY / "overlays" / "reclaimed")
    await until_served(cluster.plane)
    async with cluster.operator(ALONE + SETTINGS.format(port=port, origin=origin)):
        head = {"apiVersion": "cotide.dev/v1alpha1"}
        adopts = {"selector": {"matchLabels": {"app": "web"}}}
        workload = {**head, "kind": "Workload", "metadata": {"name": "web"}, "spec": adopts}
        await client.create(cluster.path("workloads", "cotide.dev/v1alpha1"), workload)
        template = {"spec": {"containers": pod("x")["spec"]["containers"]}}
        spec = {"completions": 2, "parallelism": 2, "template": template}
        await client.create(cluster.jobs, {**head, "kind": "Job", "metadata": {"name": "count"}, "spec": spec})

        async def used() -> bool:
            nodes = [node["status"]["capacity"] for node in await client.list("/api/v1/nodes")]
            web = await client.get(f"{cluster.pods}/web")
            waits = await client.get(f"{cluster.pods}/waits")
            return (
                all(resource_amount(CPU, capacity.get(CPU, 0)) > 0 for capacity in nodes)
                and "cotide.dev/workload" in web["metadata"]["labels"]
                and "cotide.dev/decision" in waits["metadata"].get("annotations", {})
                and len(await cluster.placed("cotide.dev/job=count")) == 2
            )

        await cluster.until("everything that Cotide writes is written", used)


async def test_a_cluster_is_as_before_when_cotide_was_taken_off(own_plane: ControlPlane, tmp_path: Path) -> None:
    async with fresh_cluster(own_plane) as cluster:
        origin = time.time()
        shape = ("--cpu", "4", "--memory", "8Gi", "--speed", "40", "--origin-seconds", str(origin))
        async with cluster.nodes(2, *shape) as port:
            client = cluster.client
            users = [
                pod("web", nodeName="fake-0"),
                pod("mine", labels={"cotide.dev/class": "batch"}, nodeName="fake-1"),
                pod("waits", schedulerName="cotide", nodeSelector={"disk": "of-another-world"}),
            ]
            for user in users:  # by kubectl: what another program wrote is not ours to take away
                (tmp_path / "pod.json").write_text(json.dumps(user), encoding="utf-8")
                cluster.kubectl("create", "-f", str(tmp_path / "pod.json"))
            before, words = await objects(client), await node_words(client)
            await install_and_use(cluster, port, origin)
            installed = await objects(client)
            said = uninstall(own_plane)
            assert "nothing was changed; run it again with --yes" in said
            assert re.search(r"2 nodes with reclaimed resources", said)
            assert re.search(r"1 jobs\.cotide\.dev", said)
            assert await objects(client) == installed
            said = uninstall(own_plane, "--yes")
            assert "1 pods wait for schedulerName cotide" in said

            async def as_before() -> bool:
                return await objects(client) == before and await node_words(client) == words

            with contextlib.suppress(ApiError):  # a kind may go between discovery and list
                await as_before()
            try:
                await cluster.until("nothing is left and nothing is missing", as_before, seconds=60)
            except pytest.fail.Exception:
                assert await objects(client) == before
                assert await node_words(client) == words
                raise
            left = {one["metadata"]["name"]: one["metadata"] for one in await client.list(cluster.pods)}
            assert left["web"]["labels"] == {"app": "web"}
            # A label that its user wrote is the user's.
            assert left["mine"]["labels"] == {"app": "mine", "cotide.dev/class": "batch"}
            assert left["waits"]["labels"] == {"app": "waits"}
            assert not any("decision" in key for one in left.values() for key in one.get("annotations", {}))
            uninstall(own_plane, "--yes")  # a second time does no harm
            for one in left:
                await client.delete(f"{cluster.pods}/{one}", grace_seconds=0)


async def test_nodes_that_consolidation_holds_are_opened_but_those_that_are_to_go(own_plane: ControlPlane) -> None:
    record = {"cotide.dev/consolidation-record": '{"since":1.0}'}
    held: dict[str, tuple[dict[str, str], bool]] = {
        "draining": ({"cotide.dev/consolidation": "draining", **record}, False),
        "freed": ({"cotide.dev/consolidation": "freed", **record}, False),
        "watched": ({"cotide.dev/consolidation": "freed", "cotide.dev/consolidation-watch": "{}"}, False),
        "stopping": ({"cotide.dev/consolidation": "stopping", **record}, True),
        "of-a-person": ({"cotide.dev/consolidation": "freed"}, True),
        "cordoned-by-others": ({"other": "note"}, True),
    }
    async with fresh_cluster(own_plane) as cluster:
        for folder in ("base", "consolidation", "provisioning", "provisioning-scales-down", "kueue"):
            await apply(own_plane, DEPLOY / folder)
        for name, (annotations, _) in held.items():
            node = {"metadata": {"name": name, "annotations": annotations}, "spec": {"unschedulable": True}}
            await cluster.client.create("/api/v1/nodes", node)
        said = uninstall(own_plane)
        assert "3 nodes that consolidation has cordoned are opened" in said
        said = uninstall(own_plane, "--yes")
        assert "told to go: of-a-person stopping" in said
        nodes = {one["metadata"]["name"]: one for one in await cluster.client.list("/api/v1/nodes")}
        still = {name: bool(one["spec"].get("unschedulable")) for name, one in nodes.items()}
        assert still == {name: stays for name, (_, stays) in held.items()}
        notes = {key for one in nodes.values() for key in one["metadata"].get("annotations", {}) if "cotide" in key}
        assert notes == set()
        for kind in ("clusterroles", "clusterrolebindings"):
            there = await cluster.client.list(f"/apis/rbac.authorization.k8s.io/v1/{kind}")
            assert [one["metadata"]["name"] for one in there if "cotide" in one["metadata"]["name"]] == []


async def test_a_priority_class_that_somebody_needs_stays(own_plane: ControlPlane) -> None:
    async with fresh_cluster(own_plane) as cluster:
        await apply(own_plane, DEPLOY / "base")
        await until_served(own_plane)
        template = {
            "metadata": {"labels": {"app": "shop"}},
            "spec": {"priorityClassName": "cotide-online", "containers": [{"name": "c", "image": "none"}]},
        }
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": "shop"}}, "template": template}
        await cluster.client.create(
            cluster.path("deployments", "apps/v1"), {"metadata": {"name": "shop"}, "spec": spec}
        )
        said = uninstall(own_plane, "--yes")
        assert "PriorityClass cotide-online stays, these name it: Deployment default/shop" in said
        classes = {
            one["metadata"]["name"] for one in await cluster.client.list("/apis/scheduling.k8s.io/v1/priorityclasses")
        }
        assert {one for one in classes if one.startswith("cotide")} == {"cotide-online"}


async def test_the_documented_command_takes_our_finalizer_off_pods_and_leaves_those_of_others(
    own_plane: ControlPlane,
) -> None:
    page = (DEPLOY.parent / "docs" / "install.md").read_text(encoding="utf-8")
    command = next(line for line in page.splitlines() if "deleteFromPrimitiveList" in line).removeprefix("$ ")
    ours, others = "cotide.dev/job-tracking", "a.b/c"
    async with fresh_cluster(own_plane) as cluster:
        client = cluster.client
        for name, finalizers in {"both": [others, ours], "ours": [ours], "none": []}.items():
            one = pod(name, labels={"cotide.dev/job": "gone"}, schedulerName="cotide")
            one["metadata"]["finalizers"] = finalizers
            await client.create(cluster.pods, one)
        await client.delete(f"{cluster.pods}/ours")
        environment = {**os.environ, "KUBECONFIG": str(own_plane.folder / "admin.kubeconfig")}
        for _ in range(2):
            subprocess.run(["bash", "-c", command], check=True, env=environment, timeout=60)
            left = {one["metadata"]["name"]: one["metadata"] for one in await client.list(cluster.pods)}
            assert {name: one.get("finalizers") for name, one in left.items()} == {"both": [others], "none": None}
