"""An HTTPS server in a thread with an event loop of its own, so that the deciding loop never waits for it.

The admission webhook and the extender use it. Invariants: after `stop` the thread has ended, or is abandoned with a log
line; a port that can't be opened gives one sentence with the setting. Clients hold at most a fixed number of
connections, whatever they send or don't, and a client that opens many of them locks out no other.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import logging
import ssl
import threading
from collections.abc import Callable
from typing import Final

import uvloop
from aiohttp import web

from cotide_core.errors import InputError
from cotide_operator.observability.bounded_connections import BoundedConnections

_LOG = logging.getLogger(__name__)

LEFT_BEHIND_SECONDS: Final = 5.0
"""Wall seconds after which the thread is abandoned; chosen."""
MAX_CONNECTIONS: Final = 512
"""Open connections after their handshakes; beyond that, the oldest one without a request is closed. Chosen: API servers
and kube-scheduler keep a few dozen; each costs some 100 kB, and a descriptor that the deciding loop lacks."""
IDLE_SECONDS: Final = 120.0
"""Wall seconds that a connection stays open without a request. Chosen above the 90 s after which Go's clients close
theirs (net/http, DefaultTransport.IdleConnTimeout), so that a server's close does not meet a client's next request."""
HANDSHAKE_SECONDS: Final = 5.0
"""Wall seconds for a handshake; chosen: above the webhook's timeout and equal to the extender's."""


class HttpsServer:
    """Serves one application.

    Parameters
    ----------
    name : of the thread; also the section of the configuration with the faulty ``port`` if it can't be opened.
    make : makes the application, in the thread.
    stop_seconds : wall seconds for requests in flight at the end.

    Attributes
    ----------
    port : int
        The listening port; 0 while there is none.
    """

    def __init__(self, name: str, make: Callable[[], web.Application], *, stop_seconds: float) -> None:
        self._name = name
        self._make = make
        self._stop_seconds = stop_seconds
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self.port = 0

    async def start(self, host: str, port: int, context: ssl.SSLContext) -> None:
        """Listen; port 0 takes a free one.

        Raises
        ------
        InputError
            When the port is taken or the address is not ours.
        """
        listening: concurrent.futures.Future[int] = concurrent.futures.Future()
        self._thread = threading.Thread(
            target=self._run, args=(host, port, context, listening), name=self._name, daemon=True
        )
        self._thread.start()
        try:
            self.port = await asyncio.wrap_future(listening)
        except Exception:  # the thread has failed: clear it before the caller sees the error
            thread, self._thread = self._thread, None
            await asyncio.to_thread(thread.join, LEFT_BEHIND_SECONDS)
            raise

    async def stop(self) -> None:
        """Stop listening; requests in flight are answered."""
        self.port = 0
        thread, loop, stopping = self._thread, self._loop, self._stopping
        self._thread = None
        if thread is None:
            return
        if loop is not None and stopping is not None:
            try:
                loop.call_soon_threadsafe(stopping.set)
            except RuntimeError:  # the thread ended by itself meanwhile
                return
        await asyncio.to_thread(thread.join, LEFT_BEHIND_SECONDS)
        if thread.is_alive():
            _LOG.warning("the thread of %s did not end within %g s and is abandoned", self._name, LEFT_BEHIND_SECONDS)

    def _run(self, host: str, port: int, context: ssl.SSLContext, listening: concurrent.futures.Future[int]) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(host, port, context, listening))
        except BaseException as error:  # noqa: BLE001 - the end of the thread: the waiting task must receive it
            if not listening.done():
                listening.set_exception(error)
            else:
                _LOG.exception("the thread of %s ended", self._name)

    async def _serve(
        self, host: str, port: int, context: ssl.SSLContext, listening: concurrent.futures.Future[int]
    ) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        connections = BoundedConnections(
            self._make(),
            MAX_CONNECTIONS,
            stop_seconds=self._stop_seconds,
            idle_seconds=IDLE_SECONDS,
            decompresses=False,  # see `request_bodies`
        )
        await connections.setup()
        listener: asyncio.Server | None = None
        try:
            try:
                listener = await self._loop.create_server(
                    connections.open,
                    host,
                    port,
                    ssl=context,
                    ssl_handshake_timeout=HANDSHAKE_SECONDS,
                    backlog=128,
                )
            except OSError as error:
                why = "is in use" if error.errno == errno.EADDRINUSE else f"can't be opened ({error.strerror})"
                field = f"{self._name}.port"
                raise InputError(f"port {port} on {host} {why}; choose another one", field=field) from error
            listening.set_result(int(listener.sockets[0].getsockname()[1]))
            await self._stopping.wait()
        finally:
            if listener is not None:
                listener.close()
            await connections.cleanup()
