"""The operator's tasks under one supervisor: when one of them fails, the operator ends with its error.

Used by `assembly` only. Invariant: when the supervisor is left, none of its tasks runs any more.

Own code, and no ``asyncio.TaskGroup``, for what differs: a group waits at its end for tasks that nobody cancelled, and
these run for ever; it takes no task that runs already; and what fails in it arrives as a group of exceptions, where the
operator ends with the one error that a user can read. Work that ends by itself (bindings, looks, patches) is in groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class TaskSupervisor:
    """Tasks that must all live: the first one that fails ends the others, and its error is the operator's."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> TaskSupervisor:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a coroutine as one of the supervised."""
        task = asyncio.create_task(work, name=name)
        self.take(task)
        return task

    def take(self, task: asyncio.Task[None]) -> None:
        """Make a task that runs already one of the supervised."""
        self._tasks.append(task)

    async def until(self, *wanted: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """Return the first of ``wanted`` that is done; raise what any of the supervised raises meanwhile."""
        while True:
            living = [task for task in self._tasks if not task.done()]
            for task in self._tasks:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    raise error
            for future in wanted:
                if future.done():
                    return future
            await asyncio.wait({*living, *wanted}, return_when=asyncio.FIRST_COMPLETED)
