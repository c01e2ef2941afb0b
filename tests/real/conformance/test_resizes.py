"""In-place resizes: the emulator takes and refuses what a real server does, in its words."""

from __future__ import annotations

from real_cluster import RealCluster
from resize_cases import answers, unsupported

from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_sim.apiserver.testing import server_in_thread


async def test_resizes_are_answered_alike(cluster: RealCluster) -> None:
    with server_in_thread() as emulator:
        async with KubeClient(Credentials(emulator.url)) as client:
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cluster.namespace}}
            await client.create("/api/v1/namespaces", space)
            real, emulated = await answers(cluster.client, cluster.namespace), await answers(client, cluster.namespace)
            assert {case: (answer, emulated[case]) for case, answer in real.items() if answer != emulated[case]} == {}
            assert await unsupported(client, cluster.namespace) == await unsupported(cluster.client, cluster.namespace)
