"""Control groups of both versions as folders of files, for tests of the node agent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from node_groups import NodeGroups


@pytest.fixture(params=["version 1", "version 2", "version 2, systemd"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> NodeGroups:
    """A node with the tiers of a kubelet and no pod."""
    return NodeGroups(tmp_path / "cgroup", request.param)


@pytest.fixture
def node_of(tmp_path: Path) -> Callable[[str], NodeGroups]:
    return lambda kind: NodeGroups(tmp_path / "cgroup", kind)
