"""Gangs whose size others say, on a real server: PodGroups of coscheduling, and Workloads of the server's own, where it
serves them (feature gate GenericWorkload of 1.35, alpha)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from binaries import Binaries
from control_plane import ControlPlane
from real_cluster import ALONE, RealCluster
from real_gangs import SIZE, gang_server, moves_whole, start_whole
from rights import Used

from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LABEL = "scheduling.x-k8s.io/pod-group"


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


async def test_a_pod_group_of_coscheduling_says_how_large_its_gang_is(cluster: RealCluster, pod_groups: str) -> None:
    used = Used(cluster)
    async with cluster.nodes(2, "--cpu", "4", "--name-prefix", "group-"), cluster.operator(ALONE):
        kind = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
        await cluster.client.create(pod_groups, {**kind, "metadata": {"name": "g"}, "spec": {"minMember": SIZE}})
        await start_whole(cluster, labels={LABEL: "g"})
        await moves_whole(cluster)
    assert ("scheduling.x-k8s.io", "podgroups", "watch", "") in used.rights()
    assert used.missed() == set()


@pytest.fixture(scope="module")
def alpha(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with gang_server(binaries, tmp_path_factory.mktemp("alpha-plane"), "v1alpha1") as plane:
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
