"""One real control plane for the whole run; each test works in a namespace of its own."""

from __future__ import annotations

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
