"""What the tests of the lease share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from lease_scene import Scene, lease_scene


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """A server, and candidates for its lease."""
    async with lease_scene() as made:
        yield made
