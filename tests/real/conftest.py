"""One real control plane for the whole run; each test works in a namespace of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "controlplane"), str(Path(__file__).parent)]

from binaries import REQUIRED, Binaries, NotToBeHad, find_or_build, tell_on_stderr  # noqa: E402 - beside these tests
from control_plane import ControlPlane, control_plane  # noqa: E402


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    try:
        return find_or_build(tell_on_stderr)
    except NotToBeHad as reason:
        if os.environ.get(REQUIRED) == "required":
            raise
        pytest.skip(f"no real API server: {reason}")


@pytest.fixture(scope="session")
def plane(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, kube-apiserver and kube-controller-manager."""
    with control_plane(binaries, tmp_path_factory.mktemp("plane")) as running:
        running.start_controller_manager()
        yield running
