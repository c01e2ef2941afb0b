"""The nodes with the image that the Dockerfile makes, and a scheduler for the operator's own pods."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from control_plane import ControlPlane
from overlays import NAMES
from real_nodes import SHELL, NodeCluster

from cotide_kube.client import KubeClient

IMAGE = "COTIDE_IMAGE"
"""The archive of the image, as `image_build` prints it."""
BUSYBOX = "docker.io/library/busybox:1.36"
"""What the examples run; here it is the tests' own."""


@pytest.fixture(scope="session")
def installed(node_cluster: NodeCluster) -> ControlPlane:
    """The control plane, with images on each node under the names that manifests have."""
    for node in node_cluster.nodes:
        node.import_image(Path(os.environ[IMAGE]))
        (found,) = [name for name in node.ctr("images", "list", "-q").split() if name.endswith("cotide:dev")]
        for source, names in ((found, NAMES), (SHELL, (BUSYBOX,))):
            for name in names:
                if name != source:
                    node.ctr("images", "tag", "--force", source, name)
    node_cluster.plane.start_scheduler()
    return node_cluster.plane


@pytest.fixture
async def client(installed: ControlPlane) -> AsyncIterator[KubeClient]:
    async with KubeClient(installed.admin) as found:
        yield found
