"""The HTTPS server of the extender: /filter, /prioritize, /preempt and, if enabled, /bind.

`extender` starts it on every replica, in a thread with an event loop of its own (see `serving.https_server`). Answers
come from memory. Invariant: an answer is 200 in kube-scheduler's format, or 4xx with one sentence; kube-scheduler's
``ignorable`` decides whether the latter makes a pod wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from aiohttp import web

from cotide_core.errors import InputError
from cotide_core.limits import EXTENDER_AT_ONCE, EXTENDER_BYTES
from cotide_operator.observability.metrics import Metrics
from cotide_operator.webhooks.extender.verbs import Reply, Verbs
from cotide_operator.webhooks.serving.https_server import HttpsServer
from cotide_operator.webhooks.serving.request_bodies import COMPRESSED, RequestBodies

_LOG = logging.getLogger(__name__)

STOP_SECONDS: Final = 5.0
"""Wall seconds for requests in flight at the end; chosen as their timeout in deploy/extender."""
READ_SECONDS: Final = 2.0
"""Wall seconds for a body; chosen: kube-scheduler sends one in milliseconds, and ignores an answer after 5 s, the
timeout in deploy/extender."""
IDLE_SECONDS: Final = 0.1
"""Wall seconds between two updates without a request; chosen: the next answer then has few events to apply."""
WARNING_SECONDS: Final = 10.0
"""Wall seconds between two log lines about unreadable requests; chosen."""

Verb = Callable[[bytes], Awaitable[Reply]]
Opened = Callable[[], contextlib.AbstractAsyncContextManager[Verbs]]


class ExtenderServer(HttpsServer):
    """Serves the verbs.

    Parameters
    ----------
    opened : opens the verbs in the server's thread, and closes their resources.
    """

    def __init__(self, opened: Opened, metrics: Metrics) -> None:
        super().__init__("extender", self._application, stop_seconds=STOP_SECONDS)
        self._opened = opened
        self._metrics = metrics
        self._warned = float("-inf")

    def _application(self) -> web.Application:
        app = web.Application(client_max_size=EXTENDER_BYTES)
        verbs: list[Verbs] = []
        bodies = RequestBodies(EXTENDER_BYTES, EXTENDER_AT_ONCE, READ_SECONDS)

        async def living(app: web.Application) -> AsyncIterator[None]:
            del app
            async with self._opened() as found:
                verbs.append(found)
                following = asyncio.create_task(self._follow(found))
                yield
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

        def serve(name: str, verb: Callable[[Verbs], Verb]) -> None:
            async def answer(request: web.Request) -> web.Response:
                return await self._answer(name, verb(verbs[0]), request, bodies)

            app.router.add_post(f"/{name}", answer)

        app.cleanup_ctx.append(living)
        serve("filter", lambda verbs: verbs.filter)
        serve("prioritize", lambda verbs: verbs.prioritize)
        serve("preempt", lambda verbs: verbs.preempt)
        serve("bind", lambda verbs: verbs.bind)
        return app

    async def _follow(self, verbs: Verbs) -> None:
        """Apply events while no request arrives."""
        while True:
            await asyncio.sleep(IDLE_SECONDS)
            try:
                verbs.rest()
            except Exception:  # noqa: BLE001 - the next update, or the next request, may succeed
                _LOG.exception("the extender could not apply the latest events")

    async def _answer(self, name: str, verb: Verb, request: web.Request, bodies: RequestBodies) -> web.Response:
        started = time.perf_counter()
        try:
            async with bodies.read(request) as body:
                reply = await verb(body)
        except web.HTTPRequestEntityTooLarge:
            return self._refused(name, 413, f"a request has at most {EXTENDER_BYTES} bytes")
        except web.HTTPRequestTimeout:
            return self._refused(name, 408, f"a request must arrive within {READ_SECONDS:g} s")
        except web.HTTPUnsupportedMediaType:
            return self._refused(name, 415, COMPRESSED.strip())
        except InputError as error:
            return self._refused(name, 400, str(error))
        self._metrics.extender_requests.labels(name, reply.outcome).inc()
        self._metrics.extender_duration.labels(name).observe(time.perf_counter() - started)
        return web.Response(body=reply.body, content_type="application/json")

    def _refused(self, name: str, status: int, why: str) -> web.Response:
        self._metrics.extender_requests.labels(name, "malformed").inc()
        if time.monotonic() - self._warned >= WARNING_SECONDS:
            self._warned = time.monotonic()
            _LOG.warning("a request to the extender's %s was not answered: %s", name, why)
        return web.Response(status=status, text=f"{why}\n")
