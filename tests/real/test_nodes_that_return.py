"""Fake nodes that were given up for dead: readiness that kube-controller-manager took from their pods is given back."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from binaries import Binaries
from control_plane import ControlPlane, control_plane
from manifests import our_pod_manifest
from real_cluster import RealCluster

from cotide_kube.client import KubeClient

GRACE = "12s"
"""After which a node without a renewed lease counts as dead: a little more than the ten seconds of a renewal."""


@pytest.fixture(scope="module")
def impatient(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(binaries, tmp_path_factory.mktemp("impatient-plane")) as plane:
        plane.start_controller_manager({"node-monitor-grace-period": GRACE, "node-monitor-period": "1s"})
        plane.wait_for_accounts()
        yield plane


def ready(pod: dict[str, Any]) -> str:
    return next(one["status"] for one in pod["status"].get("conditions", ()) if one["type"] == "Ready")


async def test_pods_are_ready_again_when_their_node_is_back(impatient: ControlPlane) -> None:
    async with KubeClient(impatient.admin) as client:
        cluster = RealCluster(impatient, client, "default")
        async with cluster.nodes(1, "--cpu", "4"):
            body = our_pod_manifest("web", "1", "64Mi", cls="online", spec={"nodeName": "fake-0"})
            await client.create(cluster.pods, body)

            async def reads(word: str) -> bool:
                pod = await client.get(f"{cluster.pods}/web")
                return pod["status"].get("phase") == "Running" and ready(pod) == word

            await cluster.until("the pod is ready", lambda: reads("True"))
            assert cluster.kubelets is not None
            cluster.kubelets.send(signal.SIGSTOP)
            try:
                await cluster.until("its node is given up", lambda: reads("False"))
            finally:
                cluster.kubelets.send(signal.SIGCONT)
            await cluster.until("the pod is ready again", lambda: reads("True"))
            started = (await client.get(f"{cluster.pods}/web"))["status"]["containerStatuses"][0]
            assert (started["restartCount"], started["ready"]) == (0, True)
