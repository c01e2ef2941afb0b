"""The publisher before a server that the test plays."""

from __future__ import annotations

import pytest
from reclaimed_scene import Scene


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)
