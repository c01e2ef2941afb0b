"""The API server of each test: an embedded one of its own, or the run's real one (``--server real``)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from control_plane import ControlPlane, control_plane
from operator_world import world  # noqa: F401 - a fixture of several files here
from servers import Server, emulated, real

STILL: dict[str, str] = dict.fromkeys(("node-monitor-grace-period", "node-startup-grace-period"), "1h")
"""Nodes of these tests are objects without a kubelet that would renew a lease: they stay as they were made."""


@pytest.fixture(scope="session")
def real_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane | None]:
    """etcd, kube-apiserver and kube-controller-manager; None where the tests run on the emulator."""
    if request.config.getoption("--server") == "emulator":
        yield None
        return
    with control_plane(request.getfixturevalue("binaries"), tmp_path_factory.mktemp("plane")) as plane:
        plane.start_controller_manager(STILL)
        plane.wait_for_accounts()
        yield plane


@pytest.fixture
async def server(real_plane: ControlPlane | None, tmp_path: Path) -> AsyncIterator[Server]:
    """An API server with nothing on it."""
    async with emulated(tmp_path) if real_plane is None else real(real_plane) as found:
        yield found
