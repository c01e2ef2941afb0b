"""The API server of each test: an embedded one of its own, or the run's real one (``--server real``).

With ``--server node`` that one has real kubelets (`make test-node`). A test that needs what only fake nodes can do says
what by the marker ``fake_nodes``; it is skipped there with these words. Any other that starts fake nodes there fails.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from binaries import tell_on_stderr
from control_plane import ControlPlane, control_plane
from machine import CGROUP_VARIABLE
from node_programs import find_or_download
from node_server import Seats, on_nodes, seats
from operator_world import world  # noqa: F401 - a fixture of several files here
from servers import Server, emulated, real

from cotide_sim.kubelets.fleet import Fleet

STILL: dict[str, str] = dict.fromkeys(("node-monitor-grace-period", "node-startup-grace-period"), "1h")
"""Nodes of these tests are objects without a kubelet that would renew a lease: they stay as they were made."""


@pytest.fixture(scope="session")
def real_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane | None]:
    """etcd, kube-apiserver and kube-controller-manager; None where the tests run on another server."""
    if request.config.getoption("--server") != "real":
        yield None
        return
    with control_plane(request.getfixturevalue("binaries"), tmp_path_factory.mktemp("plane")) as plane:
        plane.start_controller_manager(STILL)
        plane.wait_for_accounts()
        yield plane


@pytest.fixture(scope="session")
def node_seats(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seats | None]:
    """The same with real kubelets on demand; None where the tests run on another server."""
    if request.config.getoption("--server") != "node":
        yield None
        return
    if CGROUP_VARIABLE not in os.environ:
        pytest.fail("these tests run in a machine of their own: make test-node")
    found = request.getfixturevalue("binaries"), find_or_download(tell_on_stderr)
    with seats(*found, tmp_path_factory.mktemp("plane")) as made:
        yield made


@pytest.fixture
async def server(
    real_plane: ControlPlane | None, node_seats: Seats | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Server]:
    """An API server with nothing on it."""
    if node_seats is not None:
        monkeypatch.setattr(Fleet, "run", _unmarked)
        async with on_nodes(node_seats) as found:
            yield found
        return
    async with emulated(tmp_path) if real_plane is None else real(real_plane) as found:
        yield found


async def _unmarked(*_: object) -> NoReturn:
    raise AssertionError("fake nodes beside real ones: the test lacks the marker fake_nodes and a reason")


def pytest_runtest_setup(item: pytest.Item) -> None:
    marker = item.get_closest_marker("fake_nodes")
    if marker is not None:
        (reason,) = marker.args
        if item.config.getoption("--server") == "node":
            pytest.skip(f"fake nodes only: {reason}")
