"""A control plane of the next Kubernetes release, with its own gangs switched on, those of Jobs included."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from binaries import Binaries
from control_plane import ControlPlane
from other_releases import OTHERS, is_there, of_release
from real_cluster_fixtures import cluster  # noqa: F401 - a fixture of the files here, on this server
from real_gangs import gang_server

RELEASE = "1.36"


@pytest.fixture(scope="session")
def newer() -> None:
    if not is_there(RELEASE):
        pytest.skip(f"no Kubernetes {OTHERS[RELEASE]}: make test-newer builds it")


@pytest.fixture(scope="session")
def deployed(newer: None, binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """With Cotide's deployment."""
    del newer, binaries  # asked for first: without them nothing is started
    programs = of_release(RELEASE, pytest.fail)
    with gang_server(programs, tmp_path_factory.mktemp("newer-plane"), "v1alpha2", "WorkloadWithJob") as plane:
        yield plane
