"""A `Binder` that works for as long as a test needs it.

Called by the tests of bindings.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cotide_operator.scheduling.binder import Binder


@asynccontextmanager
async def at_work(binder: Binder) -> AsyncIterator[None]:
    """Let a binder run until the block ends."""
    task = asyncio.create_task(binder.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
