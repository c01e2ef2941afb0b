"""A control plane of its own with Kueue on it: its webhooks have a say in each pod of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from binaries import Binaries
from control_plane import ControlPlane, control_plane
from kueue_beside import kueue
from kueue_program import KUEUE
from module_program import ModuleProgram
from quotas import Quotas
from real_cluster import DEPLOY, RealCluster, apply, until_served
from real_cluster_fixtures import cluster  # noqa: F401 - a fixture of the files here, on this server


@pytest.fixture(scope="session")
def program() -> ModuleProgram:
    if not KUEUE.complete():
        pytest.skip(f"no Kueue {KUEUE.version}: make test-kueue builds it")
    return KUEUE


@pytest.fixture(scope="session")
def plane(
    program: ModuleProgram, binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    del program  # asked for first: without it nothing is started
    with control_plane(binaries, tmp_path_factory.mktemp("kueue-plane")) as running:
        running.start_controller_manager()
        yield running


@pytest.fixture(scope="session")
def deployed(plane: ControlPlane, program: ModuleProgram) -> Iterator[ControlPlane]:
    """Cotide's deployment, its right to read Kueue's Workloads, and Kueue, running."""

    async def deploy() -> None:
        await apply(plane, DEPLOY / "overlays" / "reclaimed")
        await until_served(plane)
        await apply(plane, DEPLOY / "kueue")

    asyncio.run(deploy())
    with kueue(plane, program):
        yield plane


@pytest.fixture
async def quotas(cluster: RealCluster) -> AsyncIterator[Quotas]:  # noqa: F811 - the fixture
    """Two cohorts of two queues each: red-a and red-b with four cpus, blue-a and blue-b with three."""
    made = Quotas(cluster)
    for queue, cohort, cpus in (("red-a", "red", 4), ("red-b", "red", 4), ("blue-a", "blue", 3), ("blue-b", "blue", 3)):
        await made.add(queue, cohort, cpus)
    try:
        yield made
    finally:
        await made.remove()
