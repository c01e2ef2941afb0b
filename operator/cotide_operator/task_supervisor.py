"""The operator's tasks under one supervisor: when one of them fails, the operator ends with its error.

Only `assembly` uses it. Invariant: after the supervisor's context ends, none of its tasks runs any more.

It replaces ``asyncio.TaskGroup`` for three reasons. A group waits at its end for tasks without a cancel, and these run
for ever. It accepts no running task. Its failures arrive as a group of exceptions, while the operator ends with one
error that a user can read. Work that ends by itself (bindings, checks, patches) is in groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class TaskSupervisor:
    """Tasks that must all live: the first failure ends the others, and its error is the operator's."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> TaskSupervisor:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a coroutine as a supervised task."""
        task = asyncio.create_task(work, name=name)
        self.take(task)
        return task

    def take(self, task: asyncio.Task[None]) -> None:
        """Supervise a running task."""
        self._tasks.append(task)

    async def until(self, *wanted: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """Return the first of ``wanted`` that is done; raise the error of any supervised task meanwhile."""
        while True:
            living = [task for task in self._tasks if not task.done()]
            for task in self._tasks:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    raise error
            for future in wanted:
                if future.done():
                    return future
            await asyncio.wait({*living, *wanted}, return_when=asyncio.FIRST_COMPLETED)
