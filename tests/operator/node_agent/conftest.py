"""Control groups of both versions as folders of files, for tests of the node agent."""

from __future__ import annotations

from pathlib import Path

import pytest
from node_groups import NodeGroups


@pytest.fixture(params=["version 1", "version 2", "version 2, systemd"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> NodeGroups:
    """A node with the tiers of a kubelet and no pod."""
    return NodeGroups(tmp_path / "cgroup", request.param)
