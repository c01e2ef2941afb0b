"""One real control plane for the whole run; each test works in a namespace of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from binaries import Binaries
from control_plane import ControlPlane, control_plane
from real_cluster_fixtures import cluster, deployed  # noqa: F401 - fixtures of the files here


@pytest.fixture(scope="session")
def plane(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, kube-apiserver and kube-controller-manager."""
    with control_plane(binaries, tmp_path_factory.mktemp("plane")) as running:
        running.start_controller_manager()
        yield running


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which calls were compared: another run draws others."""
    drawn = getattr(sys.modules.get("conformance_seed"), "SEED", None)
    if drawn is not None:
        terminalreporter.write_line(f"conformance: COTIDE_CONFORMANCE_SEED={drawn} repeats what was drawn")
