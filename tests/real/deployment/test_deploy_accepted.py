"""Every folder of deploy/ is accepted by a real API server, without a warning."""

from __future__ import annotations

import pytest
from control_plane import ControlPlane
from real_cluster import DEPLOY, apply


@pytest.mark.parametrize(
    "folder", ["crds", "rbac", "base", "admission", "overlays/kind", "overlays/prod", "overlays/reclaimed"]
)
async def test_it_is_accepted(deployed: ControlPlane, folder: str) -> None:
    await apply(deployed, DEPLOY / folder, dry_run=True)
