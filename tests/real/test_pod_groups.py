"""Gangs whose size others say, on a real server: PodGroups of coscheduling, and Workloads of the server's own, where it
serves them (feature gate GenericWorkload of 1.35, alpha)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from binaries import Binaries
from click.testing import CliRunner
from control_plane import ControlPlane
from manifests import our_pod_manifest
from processes import Pen
from real_cluster import ALONE, DEPLOY, RealCluster, apply, until_served
from rights import Used

from cotide_cli.commands import whatif_command
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LABEL = "scheduling.x-k8s.io/pod-group"
SIZE = 3


def definition() -> dict[str, Any]:
    """The kind of coscheduling, as far as it is read."""
    group = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": group}}
    names = {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup"}
    spec = {"group": "scheduling.x-k8s.io", "names": names, "scope": "Namespaced", "versions": [version]}
    # Groups that end in k8s.io are for those who were approved, and say where.
    approved = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"}
    metadata = {"name": "podgroups.scheduling.x-k8s.io", "annotations": approved}
    return {"metadata": metadata, "spec": spec}


@pytest.fixture
async def pod_groups(cluster: RealCluster) -> AsyncIterator[str]:
    """The path of PodGroups in the test's namespace."""
    await cluster.client.create(DEFINITIONS, definition())
    path = cluster.path("podgroups", "scheduling.x-k8s.io/v1alpha1")

    async def served() -> bool:
        try:
            await cluster.client.list(path)
        except ApiError:
            return False
        return True

    await cluster.until("PodGroups are served", served)
    try:
        yield path
    finally:
        await cluster.client.delete(f"{DEFINITIONS}/podgroups.scheduling.x-k8s.io")


async def start_whole(cluster: RealCluster, **parts: Any) -> None:
    """Make the members one by one and see that they start together."""
    names = [f"member-{number}" for number in range(SIZE)]
    for name in names[:-1]:
        await cluster.client.create(cluster.pods, our_pod_manifest(name, "1", "64Mi", cls="batch", **parts))

    async def told() -> bool:
        events = await cluster.client.list(cluster.path("events"))
        return any(f"2 of {SIZE} are there and can start" in one.get("message", "") for one in events)

    await cluster.until("two of three wait for the third", told)
    assert await cluster.placed() == {}
    await cluster.client.create(cluster.pods, our_pod_manifest(names[-1], "1", "64Mi", cls="batch", **parts))

    async def all_placed() -> bool:
        return (await cluster.placed()).keys() == set(names)

    await cluster.until("all three are on nodes", all_placed)


async def moves_whole(cluster: RealCluster) -> None:
    """Ask `cotide whatif` about a node with pods of the gang: without its size they would wait as Misconfigured.

    The nodes have names of their own: on those of every test's there may be pods that an earlier one left.
    """
    node = next(iter((await cluster.placed()).values()))
    kubeconfig = str(cluster.plane.folder / "admin.kubeconfig")
    asked = ["--kubeconfig", kubeconfig, "--without-node", node, "-o", "json"]
    result = await asyncio.to_thread(CliRunner().invoke, whatif_command.command, asked, standalone_mode=False)
    assert result.exception is None, result.exception
    answer = json.loads(result.stdout)
    lost = {f"{cluster.namespace}/{name}" for name, on in (await cluster.placed()).items() if on == node}
    ours = {one["pod"] for one in answer["moves"] if one["pod"].startswith(f"{cluster.namespace}/")}
    assert ours == lost, answer
    assert (answer["waits"], answer["evicted"]) == ([], [])


async def test_a_pod_group_of_coscheduling_says_how_large_its_gang_is(cluster: RealCluster, pod_groups: str) -> None:
    used = Used(cluster)
    async with cluster.nodes(2, "--cpu", "4", "--name-prefix", "group-"), cluster.operator(ALONE):
        kind = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
        await cluster.client.create(pod_groups, {**kind, "metadata": {"name": "g"}, "spec": {"minMember": SIZE}})
        await start_whole(cluster, labels={LABEL: "g"})
        await moves_whole(cluster)
    assert ("scheduling.x-k8s.io", "podgroups", "watch", "") in used.rights()
    assert used.missed() == set()


class AlphaServer(ControlPlane):
    """kube-apiserver with its own gangs switched on."""

    def api_server_flags(self) -> dict[str, str]:
        """Return its flags."""
        own = {"feature-gates": "GenericWorkload=true", "runtime-config": "scheduling.k8s.io/v1alpha1=true"}
        return {**super().api_server_flags(), **own}


@pytest.fixture(scope="module")
def alpha(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("alpha-plane")
    with Pen(folder) as pen:
        plane = AlphaServer(binaries, folder, pen)
        plane.start()
        plane.start_controller_manager()
        plane.wait_for_accounts()

        async def deploy() -> None:
            await apply(plane, DEPLOY / "overlays" / "reclaimed")
            await until_served(plane)

        asyncio.run(deploy())
        yield plane


async def test_a_workload_of_the_servers_own_says_how_large_its_gang_is(alpha: ControlPlane) -> None:
    async with KubeClient(alpha.admin) as client:
        cluster = RealCluster(alpha, client, "default")
        used = Used(cluster)
        async with cluster.nodes(2, "--cpu", "4", "--name-prefix", "group-"), cluster.operator(ALONE):
            groups = [{"name": "workers", "policy": {"gang": {"minCount": SIZE}}}]
            body = {"kind": "Workload", "metadata": {"name": "train"}, "spec": {"podGroups": groups}}
            await client.create(cluster.path("workloads", "scheduling.k8s.io/v1alpha1"), body)
            reference = {"schedulerName": "cotide", "workloadRef": {"name": "train", "podGroup": "workers"}}
            await start_whole(cluster, spec=reference)
            await moves_whole(cluster)
        assert ("scheduling.k8s.io", "workloads", "watch", "") in used.rights()
        assert used.missed() == set()
