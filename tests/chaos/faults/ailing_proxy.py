"""A proxy whose server ails in one way: each request of a verb gets one wrong answer, for as long as the test wants.

The matrix of API faults is each verb times each answer. Requests are noted with their resource, so that a test can say
how many came in a second. Invariant: without an ailment bytes pass unchanged, as in `fault_proxy`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from aiohttp import web
from fault_proxy import FaultProxy, Trouble

from cotide_kube.credentials import Credentials

VERBS: Final = ("list", "watch", "get", "create", "bind", "update", "patch", "delete")
SLOW_SECONDS: Final = 3.0
_WRITES: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION: Final = re.compile(r"^/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/[^/]+(?=/))?/([^/]+)(/[^/]+)?")
Answer = Callable[["AilingProxy", web.BaseRequest, bytes], Awaitable[web.StreamResponse]]


def verb_of(request: web.BaseRequest) -> str:
    """Return the verb, as the matrix names it; ``lease`` for whatever concerns leases."""
    if "/leases" in request.path:
        return "lease"
    if request.method == "GET":
        if "watch" in request.query:
            return "watch"
        found = _COLLECTION.match(request.path)
        return "list" if found is not None and found[2] is None else "get"
    return "bind" if request.path.endswith("/binding") else _WRITES[request.method]


class AilingProxy(FaultProxy):
    """Answers the requests of some verbs wrongly.

    Attributes
    ----------
    asked : requests since the last `ail`, by resource.
    """

    def __init__(self, upstream: Callable[[], Credentials]) -> None:
        super().__init__(upstream, Trouble([], random.Random(0), _ignored))
        self.asked: Counter[str] = Counter()
        self._verbs: frozenset[str] = frozenset()
        self._answer: Answer | None = None
        self._since = time.monotonic()

    def ail(self, answer: str, *verbs: str) -> None:
        """Begin to answer requests of some verbs in one way; watches end where that brings such requests about."""
        self._verbs, self._answer = frozenset(verbs), ANSWERS[answer]
        self.asked.clear()
        self._since = time.monotonic()
        # With lists in the way, watches end with a version that is too old, so that all is listed.
        if self._verbs & {"list", "watch"}:
            self.cut("gone" if "list" in verbs else "abrupt")

    def recover(self) -> dict[str, float]:
        """Answer rightly again; return the requests of a second by resource."""
        self._answer = None
        seconds = time.monotonic() - self._since
        return {resource: count / seconds for resource, count in self.asked.items()}

    async def _pass(self, kind: str, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        found = _COLLECTION.match(request.path)
        if found is not None:
            self.asked[found[1]] += 1
        if self._answer is None or verb_of(request) not in self._verbs:
            return await super()._pass(kind, request, body)
        return await self._answer(self, request, body)

    async def cut_body(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        """Let the server act, and send half of what it answers."""
        if "watch" in request.query:
            half = b'{"type":"MODIFIED","object":{"kind":"Po'
        else:
            _, _, whole = await self._ask(request, body)
            half = whole[: len(whole) // 2]
        out = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(2 * len(half) + 2)})
        await out.prepare(request)
        await out.write(half)
        assert request.transport is not None
        request.transport.abort()
        return out

    async def slowly(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        """Answer rightly, and late."""
        await asyncio.sleep(SLOW_SECONDS)
        return await FaultProxy._pass(self, "watch" if "watch" in request.query else "other", request, body)


async def _ignored(_what: str, _path: str, _proxy: FaultProxy) -> None:
    """Do nothing: there are no rules."""


async def _reset(_proxy: AilingProxy, request: web.BaseRequest, _body: bytes) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def _says(text: str, status: int = 200, kind: str = "application/json", **headers: str) -> Answer:
    async def answer(_proxy: AilingProxy, _request: web.BaseRequest, _body: bytes) -> web.StreamResponse:
        return web.Response(text=text, status=status, content_type=kind, headers=headers)

    return answer


def _refuses(code: int, reason: str, **headers: str) -> Answer:
    status = {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": "on purpose"}
    return _says(json.dumps(status), code, **headers)


async def _junk_version(_proxy: AilingProxy, request: web.BaseRequest, _body: bytes) -> web.StreamResponse:
    metadata: dict[str, Any] = {"name": "x", "namespace": "default", "uid": "u", "resourceVersion": "abc"}
    if "watch" in request.query:
        return web.Response(text=json.dumps({"type": "BOOKMARK", "object": {"metadata": metadata}}) + "\n")
    return web.json_response({"items": [], "kind": "List", "metadata": {"resourceVersion": "abc"}})


ANSWERS: Final[dict[str, Answer]] = {
    "reset": _reset,
    "cut body": lambda proxy, request, body: proxy.cut_body(request, body),
    "HTML": _says("<html>login</html>\n", kind="text/html"),
    "empty": _says(""),
    "400": _refuses(400, "BadRequest"),
    "403": _refuses(403, "Forbidden"),
    "404": _refuses(404, "NotFound"),
    "409": _refuses(409, "Conflict"),
    "410": _refuses(410, "Expired"),
    "500": _refuses(500, "InternalError"),
    "503": _refuses(503, "ServiceUnavailable"),
    "429": _refuses(429, "TooManyRequests", **{"Retry-After": "3600"}),
    "slow": lambda proxy, request, body: proxy.slowly(request, body),
    "junk version": _junk_version,
}
"""What a request gets; ``empty`` is a closed watch, too."""


@contextlib.asynccontextmanager
async def ailing_proxy(upstream: Credentials) -> AsyncIterator[AilingProxy]:
    """Run a proxy before a server."""
    proxy = AilingProxy(lambda: upstream)
    await proxy.open()
    try:
        yield proxy
    finally:
        await proxy.close()
