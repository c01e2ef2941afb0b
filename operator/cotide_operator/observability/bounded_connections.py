"""Connections of clients to one of our servers, within bounds: clients that open many lock out no other client.

The HTTPS servers and the operator's own port use it, each in its own event loop. aiohttp limits neither the number of
open connections nor the time until the first request. Invariants: the number of open connections is bounded; a
connection without a request in time is closed; broken requests write one log line now and then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

REQUEST_SECONDS: Final = 10.0
"""Wall seconds from a connection to the end of its first request's headers. Chosen: clients send them at once; Go's
servers recommend 5 to 10 s (net/http, ReadHeaderTimeout)."""
LINE_SECONDS: Final = 10.0
"""Wall seconds between two lines about broken requests; chosen."""


class _OneLine(logging.Filter):
    """Passes one record in ``LINE_SECONDS``, without a traceback: the fault is a client's."""

    def __init__(self) -> None:
        super().__init__()
        self._next = float("-inf")
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is written."""
        if record.levelno < logging.WARNING:
            return True
        if time.monotonic() < self._next:
            self._left_out += 1
            return False
        self._next = time.monotonic() + LINE_SECONDS
        error = record.exc_info[1] if record.exc_info else None
        more = f" ({self._left_out} more since the last line)" if self._left_out else ""
        fault = "" if error is None else f": {type(error).__name__}: {' '.join(str(error).split()):.200}"
        record.msg, record.args = f"{record.getMessage()}{fault}{more}", ()
        record.exc_info = record.exc_text = None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        self._left_out = 0
        return True


_LOG = logging.getLogger(f"{__name__}.requests")
_LOG.addFilter(_OneLine())


class BoundedConnections:
    """Serves an application over connections that are bounded in number and time.

    Parameters
    ----------
    app : web.Application
    most : int
        Most open connections; beyond that, the oldest one without a request is closed.
    request_seconds : float
        Wall seconds until the first request of a connection.
    stop_seconds : float
        Wall seconds for requests in flight at the end.
    idle_seconds : float
        Wall seconds that a connection stays open after a request.
    decompresses : bool
        Whether a compressed body is unpacked.
    """

    def __init__(
        self,
        app: web.Application,
        most: int,
        *,
        stop_seconds: float,
        idle_seconds: float,
        request_seconds: float = REQUEST_SECONDS,
        decompresses: bool = True,
    ) -> None:
        self._most, self._request_seconds = most, request_seconds
        self._busy: set[web.RequestHandler] = set()
        self._silent: set[web.RequestHandler] = set()
        """Connections without a request so far."""
        app.middlewares.append(self._note)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_LOG,
            shutdown_timeout=stop_seconds,
            keepalive_timeout=idle_seconds,
            auto_decompress=decompresses,
        )

    async def setup(self) -> None:
        """Set the application up; it accepts connections from then on."""
        await self._runner.setup()

    async def cleanup(self) -> None:
        """Answer requests in flight, and close the application."""
        await self._runner.cleanup()

    def open(self) -> web.RequestHandler:
        """Return the handler of a new connection; the protocol factory of the listener."""
        server = self._runner.server
        assert server is not None  # noqa: S101 - set by `setup`; for the type checker
        opened = [
            request_handler for request_handler in server.connections if request_handler.transport is not None
        ]  # others are closed already
        if len(opened) >= self._most:
            next(
                (request_handler for request_handler in opened if request_handler not in self._busy), opened[0]
            ).force_close()
        connection = server()
        self._silent.add(connection)
        asyncio.get_running_loop().call_later(self._request_seconds, self._close_silent, connection)
        return connection

    def _close_silent(self, connection: web.RequestHandler) -> None:
        if connection in self._silent:
            self._silent.discard(connection)
            connection.force_close()

    @web.middleware
    async def _note(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        connection = request.protocol
        self._silent.discard(connection)
        self._busy.add(connection)
        try:
            return await handler(request)
        finally:
            self._busy.discard(connection)
