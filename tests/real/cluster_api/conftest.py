"""A control plane of its own with Cluster API on it, whose one Cluster is that control plane."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from binaries import Binaries
from cluster_api_beside import cluster_api
from cluster_api_program import CLUSTER_API
from control_plane import ControlPlane, control_plane
from machine_provider import install
from module_program import ModuleProgram
from real_cluster import DEPLOY, apply, until_served

from cotide_kube.client import KubeClient


@pytest.fixture(scope="session")
def program() -> ModuleProgram:
    if not CLUSTER_API.complete():
        pytest.skip(f"no Cluster API {CLUSTER_API.version}: make test-cluster-api builds it")
    return CLUSTER_API


@pytest.fixture(scope="session")
def plane(
    program: ModuleProgram, binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """The control plane with Cotide's deployment, what it may do with Machines, and Cluster API, running."""
    with control_plane(binaries, tmp_path_factory.mktemp("cluster-api-plane")) as running:
        running.start_controller_manager()
        running.wait_for_accounts()

        async def deploy() -> None:
            await apply(running, DEPLOY / "overlays" / "reclaimed")
            await until_served(running)
            for folder in ("consolidation", "provisioning", "provisioning-scales-down"):
                await apply(running, DEPLOY / folder)

        async def prepare() -> None:
            async with KubeClient(running.admin) as client:
                # No machine is to come for the pod of a Deployment whose operator runs here.
                await client.delete("/apis/apps/v1/namespaces/cotide-system/deployments/cotide-operator")
                await install(running, client)

        asyncio.run(deploy())
        with cluster_api(running, program):
            asyncio.run(prepare())
            yield running
