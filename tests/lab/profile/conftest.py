"""The API server that a campaign on a cluster is run against."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cotide_sim.apiserver.testing import ThreadedServer, server_in_thread


@pytest.fixture
def server() -> Iterator[ThreadedServer]:
    """An embedded one of the test's own."""
    with server_in_thread() as running:
        yield running
