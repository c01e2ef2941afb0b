"""Options of the chaos runs, the nursery of operators, and the real control plane where it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "controlplane"), str(Path(__file__).parent)]

from nursery import Nursery, open_nursery  # noqa: E402 - beside these tests


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with open_nursery(tmp_path_factory.mktemp("nursery")) as running:
        yield running
