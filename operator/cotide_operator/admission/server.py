"""The HTTPS server of the webhook: /mutate-pods, answered at once from memory.

Started by `webhook` in the operator's own event loop, on every replica. Invariant: no review is ever refused: what can
be answered is allowed, and what can't be read gets 400, which the webhook's failurePolicy ``Ignore`` lets pass.
"""

from __future__ import annotations

import errno
import logging
import ssl
from typing import Final

from aiohttp import web

from cotide_core.errors import InputError
from cotide_operator.admission.review import Reviewer
from cotide_operator.observability.metrics import Metrics

_LOG = logging.getLogger(__name__)

PATH: Final = "/mutate-pods"
BODY_LIMIT: Final = 8 * 1024 * 1024
"""A review holds up to two objects of 3 MiB each (the API server's limit of a request) and a few words; chosen."""


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
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int, context: ssl.SSLContext) -> None:
        """Listen; port 0 takes a free one.

        Raises
        ------
        InputError
            When the port is taken or the address is not ours.
        """
        app = web.Application(client_max_size=BODY_LIMIT)
        app.router.add_post(PATH, self._mutate_pods)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=context)
        try:
            await site.start()
        except OSError as error:
            await self.stop()
            why = "is in use" if error.errno == errno.EADDRINUSE else f"can't be opened ({error.strerror})"
            raise InputError(f"port {port} on {host} {why}; choose another one", field="admission.port") from error
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening; reviews in flight are answered."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
            self.port = 0

    async def _mutate_pods(self, request: web.Request) -> web.Response:
        try:
            answer = self._reviewer.answer(await request.read())
        except InputError as error:
            self._telemetry.admission_reviews.labels("malformed").inc()
            _LOG.warning("a review could not be read: %s", error)
            return web.Response(status=400, text=f"{error}\n")
        self._telemetry.admission_reviews.labels(answer.outcome).inc()
        return web.Response(body=answer.body(), content_type="application/json")
