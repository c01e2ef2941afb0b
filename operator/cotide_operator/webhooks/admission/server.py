"""The HTTPS server of the webhook: /mutate-pods, answered at once from memory.

`webhook` starts it on every replica, in a thread with an event loop of its own (see `serving.https_server`). A review
of megabytes takes a second to read, which the deciding loop can't spare. The server only reads the object cache, one
look-up after the other; a change between two of them has the effect of a slightly later pod. Invariant: no review is
ever denied. A readable one is allowed; an unreadable or too large one gets 4xx, which the webhook's failurePolicy
``Ignore`` lets pass.
"""

from __future__ import annotations

import logging
from typing import Final

from aiohttp import web

from cotide_core.errors import InputError
from cotide_operator.observability.metrics import Metrics
from cotide_operator.webhooks.admission.review import Reviewer
from cotide_operator.webhooks.serving.https_server import HttpsServer
from cotide_operator.webhooks.serving.request_bodies import RequestBodies

_LOG = logging.getLogger(__name__)

PATH: Final = "/mutate-pods"
BODY_LIMIT: Final = 3 * 1024 * 1024
"""Largest accepted review. A pod that etcd stores has at most 1.5 MiB (its default limit of a request), and the review
of a creation contains it once. Chosen as twice that, which is the API server's own limit of a request."""
READ_AT_ONCE: Final = 8
"""Reviews with bodies in memory at the same time, without small ones; chosen: 24 MiB at most."""
READ_SECONDS: Final = 2.5
"""Wall seconds for a body; chosen above the webhook's timeout of 2 s, after which the answer is unused."""
STOP_SECONDS: Final = 2.5
"""Wall seconds for requests in flight at the end; chosen above the webhook's timeout of 2 s."""


class AdmissionServer(HttpsServer):
    """Serves the webhook."""

    def __init__(self, reviewer: Reviewer, metrics: Metrics) -> None:
        super().__init__("admission", self._application, stop_seconds=STOP_SECONDS)
        self._reviewer = reviewer
        self._metrics = metrics

    def _application(self) -> web.Application:
        bodies = RequestBodies(BODY_LIMIT, READ_AT_ONCE, READ_SECONDS)

        async def answer(request: web.Request) -> web.Response:
            return await self._mutate_pods(request, bodies)

        app = web.Application(client_max_size=BODY_LIMIT)
        app.router.add_post(PATH, answer)
        return app

    async def _mutate_pods(self, request: web.Request, bodies: RequestBodies) -> web.Response:
        try:
            async with bodies.read(request) as body:
                answer = self._reviewer.answer(body)
        except web.HTTPRequestTimeout:
            self._metrics.admission_reviews.labels("malformed").inc()
            return web.Response(status=408, text=f"a review must arrive within {READ_SECONDS:g} s\n")
        except web.HTTPRequestEntityTooLarge:
            return self._too_large()
        except web.HTTPUnsupportedMediaType as error:
            self._metrics.admission_reviews.labels("malformed").inc()
            return web.Response(status=error.status, text=error.text)
        except InputError as error:
            self._metrics.admission_reviews.labels("malformed").inc()
            _LOG.warning("a review could not be read: %s", error)
            return web.Response(status=400, text=f"{error}\n")
        self._metrics.admission_reviews.labels(answer.outcome).inc()
        return web.Response(body=answer.body(), content_type="application/json")

    def _too_large(self) -> web.Response:
        self._metrics.admission_reviews.labels("malformed").inc()
        _LOG.warning("a review above %d bytes was not read; its pod keeps its plain requests", BODY_LIMIT)
        return web.Response(status=413, text=f"a review has at most {BODY_LIMIT} bytes\n")
