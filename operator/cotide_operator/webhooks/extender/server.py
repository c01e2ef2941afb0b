"""The HTTPS server of the extender: /filter, /prioritize, /preempt and, where it is asked for, /bind.

Started by `extender` on every replica, in a thread with an event loop of its own (see `serving.https_server`).
Questions are answered from memory. Invariant: an answer is 200 with what kube-scheduler expects, or 4xx with one
sentence; which of the two makes a pod wait is kube-scheduler's ``ignorable``.
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
"""Wall seconds that requests in flight have at the end; chosen as the timeout that deploy/extender gives them."""
READ_SECONDS: Final = 2.0
"""Wall seconds for a body; chosen: kube-scheduler sends one in milliseconds, and an answer that comes after 5 s, the
timeout that deploy/extender gives, nobody waits for."""
IDLE_SECONDS: Final = 0.1
"""Wall seconds between two looks at what happened while nobody asks; chosen: the next answer has little to catch up."""
WARNING_SECONDS: Final = 10.0
"""Wall seconds between two lines about requests that can't be read; chosen."""

Verb = Callable[[bytes], Awaitable[Reply]]
Opened = Callable[[], contextlib.AbstractAsyncContextManager[Verbs]]


class ExtenderServer(HttpsServer):
    """Serves the verbs.

    Parameters
    ----------
    opened : opens the verbs in the server's thread, and closes what they need.
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
        serve("filter", lambda one: one.filter)
        serve("prioritize", lambda one: one.prioritize)
        serve("preempt", lambda one: one.preempt)
        serve("bind", lambda one: one.bind)
        return app

    async def _follow(self, verbs: Verbs) -> None:
        """Keep up with what happens while nobody asks."""
        while True:
            await asyncio.sleep(IDLE_SECONDS)
            try:
                verbs.rest()
            except Exception:  # noqa: BLE001 - the next look, or the next request, may do better
                _LOG.exception("the extender could not take in what happened")

    async def _answer(self, name: str, verb: Verb, request: web.Request, bodies: RequestBodies) -> web.Response:
        started = time.perf_counter()
        try:
            async with bodies.read(request) as body:
                reply = await verb(body)
        except web.HTTPRequestEntityTooLarge:
            return self._refused(name, 413, f"a request has at most {EXTENDER_BYTES} bytes")
        except web.HTTPRequestTimeout:
            return self._refused(name, 408, f"a request comes within {READ_SECONDS:g} s")
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
