"""The HTTPS server of the webhook: /mutate-pods, answered at once from memory.

Started by `webhook` on every replica, in a thread with an event loop of its own: a review of megabytes takes a second
to read, which the deciding loop has not. The object cache is only read here, one look-up after the other; what changes
between two of them is as if the pod had come a moment later. Invariant: no review is ever refused: what can be answered
is allowed, and what can't be read or is too large gets 4xx, which the webhook's failurePolicy ``Ignore`` lets pass.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import logging
import ssl
import threading
from typing import Final

from aiohttp import web

from cotide_core.errors import InputError
from cotide_operator.admission.review import Reviewer
from cotide_operator.observability.metrics import Metrics

_LOG = logging.getLogger(__name__)

PATH: Final = "/mutate-pods"
BODY_LIMIT: Final = 3 * 1024 * 1024
"""Largest review that is read. A pod that etcd stores has at most 1.5 MiB (its default limit of a request), and the
review of a creation holds it once; chosen as twice that, which is the API server's own limit of a request."""
READ_AT_ONCE: Final = 8
"""Reviews whose bodies are in memory at the same time; chosen: 24 MiB at most."""
STOP_SECONDS: Final = 2.5
"""Wall seconds that reviews in flight have at the end; chosen above the webhook's timeout of 2 s."""
LEFT_BEHIND_SECONDS: Final = 5.0
"""Wall seconds after which the thread is left behind; chosen."""


class AdmissionServer:
    """Serves the webhook.

    Attributes
    ----------
    port : int
        Where it listens; 0 while it does not.
    """

    def __init__(self, reviewer: Reviewer, telemetry: Metrics) -> None:
        self._reviewer = reviewer
        self._telemetry = telemetry
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
            target=self._run, args=(host, port, context, listening), name="admission", daemon=True
        )
        self._thread.start()
        self.port = await asyncio.wrap_future(listening)

    async def stop(self) -> None:
        """Stop listening; reviews in flight are answered."""
        self.port = 0
        thread, loop, stopping = self._thread, self._loop, self._stopping
        self._thread = None
        if thread is None:
            return
        if loop is not None and stopping is not None:
            try:
                loop.call_soon_threadsafe(stopping.set)
            except RuntimeError:  # it ended by itself meanwhile
                return
        await asyncio.to_thread(thread.join, LEFT_BEHIND_SECONDS)

    def _run(self, host: str, port: int, context: ssl.SSLContext, listening: concurrent.futures.Future[int]) -> None:
        try:
            asyncio.run(self._serve(host, port, context, listening))
        except BaseException as error:  # noqa: BLE001 - the thread's last word: whoever waits must hear it
            if not listening.done():
                listening.set_exception(error)
            else:
                _LOG.exception("the admission webhook's thread ended")

    async def _serve(
        self, host: str, port: int, context: ssl.SSLContext, listening: concurrent.futures.Future[int]
    ) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        turns = asyncio.Semaphore(READ_AT_ONCE)

        async def answer(request: web.Request) -> web.Response:
            async with turns:
                return await self._mutate_pods(request)

        app = web.Application(client_max_size=BODY_LIMIT)
        app.router.add_post(PATH, answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_SECONDS)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, host, port, ssl_context=context).start()
            except OSError as error:
                why = "is in use" if error.errno == errno.EADDRINUSE else f"can't be opened ({error.strerror})"
                raise InputError(f"port {port} on {host} {why}; choose another one", field="admission.port") from error
            listening.set_result(int(runner.addresses[0][1]))
            await self._stopping.wait()
        finally:
            await runner.cleanup()

    async def _mutate_pods(self, request: web.Request) -> web.Response:
        if (request.content_length or 0) > BODY_LIMIT:
            return self._too_large()
        try:
            answer = self._reviewer.answer(await request.read())
        except web.HTTPRequestEntityTooLarge:
            return self._too_large()
        except InputError as error:
            self._telemetry.admission_reviews.labels("malformed").inc()
            _LOG.warning("a review could not be read: %s", error)
            return web.Response(status=400, text=f"{error}\n")
        self._telemetry.admission_reviews.labels(answer.outcome).inc()
        return web.Response(body=answer.body(), content_type="application/json")

    def _too_large(self) -> web.Response:
        self._telemetry.admission_reviews.labels("malformed").inc()
        _LOG.warning("a review above %d bytes was not read; its pod keeps its plain requests", BODY_LIMIT)
        return web.Response(status=413, text=f"a review has at most {BODY_LIMIT} bytes\n")
