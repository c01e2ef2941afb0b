"""Two real nodes for the whole run, in the machine of ``make test-node``; each test has a namespace of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from binaries import Binaries, tell_on_stderr
from control_plane import ControlPlane
from machine import CGROUP_VARIABLE
from node_programs import NodePrograms, find_or_download
from real_cluster_fixtures import cluster, deployed  # noqa: F401 - fixtures of the files here
from real_nodes import NodeCluster, real_nodes


@pytest.fixture(scope="session")
def programs() -> NodePrograms:
    """The container runtime and what goes with it."""
    return find_or_download(tell_on_stderr)


@pytest.fixture(scope="session")
def node_cluster(
    binaries: Binaries, programs: NodePrograms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NodeCluster]:
    """A control plane and two nodes that are Ready."""
    if CGROUP_VARIABLE not in os.environ:
        pytest.fail("these tests run in a machine of their own: make test-node")
    with real_nodes(binaries, programs, tmp_path_factory.mktemp("plane")) as running:
        yield running


@pytest.fixture(scope="session")
def plane(node_cluster: NodeCluster) -> ControlPlane:
    return node_cluster.plane
