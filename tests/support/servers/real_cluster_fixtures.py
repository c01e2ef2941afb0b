"""Fixtures of tests on a real API server: deploy/ applied once, and a namespace for each test.

Imported by the conftest of tests/real and of tests/node, which say in their fixture ``plane`` what server it is.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator

import pytest
from control_plane import ControlPlane
from real_cluster import DEPLOY, RealCluster, apply, until_served

from cotide_kube.client import KubeClient

NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def deployed(plane: ControlPlane) -> ControlPlane:
    """The control plane with deploy/overlays/reclaimed applied, which holds all that the other overlays hold."""

    async def deploy() -> None:
        await apply(plane, DEPLOY / "overlays" / "reclaimed")
        await until_served(plane)

    asyncio.run(deploy())
    return plane


@pytest.fixture
async def cluster(deployed: ControlPlane, request: pytest.FixtureRequest) -> AsyncIterator[RealCluster]:
    """A namespace of the test's own, on the session's server."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:40].strip("-")
    name = f"t{next(NUMBERS)}-{words}"  # one before may still be going
    async with KubeClient(deployed.admin) as client:
        one = RealCluster(deployed, client, name)
        await client.create("/api/v1/namespaces", {"metadata": {"name": name}})

        async def account() -> bool:
            return bool(await client.list(one.path("serviceaccounts")))

        await one.until("the controller made the namespace's service account", account)
        try:
            yield one
        finally:
            await client.delete(f"/api/v1/namespaces/{name}")
            await one.remove_pods()
