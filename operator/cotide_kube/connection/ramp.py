"""`ConnectionRamp`: opens connections to an API server as answers take long, and not one for each request of a burst.

Used by `transport`. Otherwise a burst on few open connections would open dozens at once. Each costs both sides a TLS
handshake, some 1 to 2 ms of processor time, which is more than the binding that it carries. Requests wait for a
connection in use first. The bound rises by one with every few answers that a request waited for, and doubles each time
that one waits for `PATIENCE_SECONDS`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Generator
from typing import Final

FIRST: Final = 8
"""Concurrent requests before anything waits (tuned: 4 to 16 bind 60 pods at the same speed)."""
ANSWERS_A_CONNECTION: Final = 16
"""Answers while requests wait, after which the bound rises by one (chosen: a handshake costs a sixteenth of that)."""
PATIENCE_SECONDS: Final = 0.02
"""Wait after which the bound doubles. Chosen: above an answer of 5 ms behind three others; a server that takes .1 s has
all 64 connections after .06 s.
"""
FORGET_SECONDS: Final = 30.0
"""Rest after which the bound starts over: the connector closes idle connections by then (`transport`)."""


class _Done:
    """Awaited without a turn of the loop."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


_DONE: Final = _Done()


class ConnectionRamp:
    """A bound of concurrent requests that rises while requests wait long; used as ``async with ramp``.

    Parameters
    ----------
    most : int
        Bound at which nothing waits here: the connector has the same bound and counts the wait.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._bound = FIRST
        self._under_way = 0
        self._waiting: deque[tuple[float, asyncio.Future[None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._answers = 0
        self._left = 0.0
        """Time of the loop at which the last request ended."""

    @property
    def bound(self) -> int:
        """Requests that may be under way at a time."""
        return self._bound

    def __aenter__(self) -> Awaitable[None]:
        if not self._under_way and self._bound > FIRST and self._has_rested():
            self._bound = FIRST
        if self._under_way < self._bound or self._bound >= self._most:
            self._under_way += 1
            return _DONE
        return self._turn()

    def __aexit__(self, *_: object) -> Awaitable[None]:
        self._leave()
        return _DONE

    async def _turn(self) -> None:
        """Wait for a turn."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append((loop.time(), turn))
        if self._timer is None:
            self._timer = loop.call_later(PATIENCE_SECONDS, self._look)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it had its turn in the same moment
                self._leave()
            raise

    def _has_rested(self) -> bool:
        return asyncio.get_running_loop().time() - self._left > FORGET_SECONDS

    def _leave(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._left = asyncio.get_running_loop().time()
        if self._waiting:
            self._answers += 1
            if self._answers >= ANSWERS_A_CONNECTION:
                self._answers = 0
                self._bound = min(self._most, self._bound + 1)
            self._admit()

    def _admit(self) -> None:
        """Give turns to those that wait, first come, first served."""
        while self._waiting and (self._under_way < self._bound or self._bound >= self._most):
            _, turn = self._waiting.popleft()
            if not turn.done():  # otherwise its request was cancelled
                self._under_way += 1
                turn.set_result(None)

    def _look(self) -> None:
        """Double the bound when the first in line waited long; look again while any wait."""
        self._timer = None
        while self._waiting and self._waiting[0][1].done():
            self._waiting.popleft()
        if not self._waiting:
            return
        loop = asyncio.get_running_loop()
        due = self._waiting[0][0] + PATIENCE_SECONDS
        if loop.time() >= due:
            self._bound = min(self._most, self._bound * 2)
            self._admit()
            due = loop.time() + PATIENCE_SECONDS
        if self._waiting:
            self._timer = loop.call_at(due, self._look)
