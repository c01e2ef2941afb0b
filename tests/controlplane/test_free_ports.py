"""Programs that workers of one test run start beside each other listen on ports of their own."""

from __future__ import annotations

import pytest
from control_plane import free_port

WORKERS = 3
DRAWN = 300
"""Ports a worker: of 12,000, three workers without a rule would all but surely draw one twice."""


def test_no_port_is_given_to_two_workers_nor_above_those_that_linux_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", str(WORKERS))
    given = []
    for number in range(WORKERS):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
        given.append({free_port() for _ in range(DRAWN)})
    assert len(set.union(*given)) == sum(map(len, given))
    assert all(20_000 <= port < 32_768 for port in set.union(*given))
