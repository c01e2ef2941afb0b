"""What stands between one operator and the API server, and spoils what it is told to spoil.

Loopback HTTP on the operator's side, whatever the server speaks on the other. Each operator process gets a proxy of
its own, all of them share one `Trouble`: the rules of the run's plan, which count the requests of a kind over the whole
run. The effects::

    delay         the request waits before it goes on
    status        refused without reaching the server (429 with Retry-After, 500, 503, 409)
    drop-before   the connection dies, the server never hears of it
    drop-after    the server has acted, its answer is lost
    late          the connection dies, the server acts some time later; something else may happen at once (``what``)
    tell-before   something else happens first (a pod is deleted, a server dies), then the request goes on
    tell-after    the server has acted, something else happens, then the answer goes on

Watches are cut (cleanly, abruptly, in the middle of a line) or told that their version is too old. Bindings, evictions
and who takes the lease are recorded, see `write_record`. Invariant: without rules and cuts, bytes pass unchanged in
both directions.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import aiohttp
from aiohttp import web
from observed import Observed
from write_record import RECORDED, WriteRecord
from yarl import URL

from cotide_kube.credentials import Credentials

CROWDED_SECONDS: Final = 0.02
"""What a request takes longer at a server that is at its limit; chosen, so that some come while others are there."""
Effect = Literal["delay", "status", "drop-before", "drop-after", "late", "tell-before", "tell-after"]
Cut = Literal["clean", "abrupt", "torn", "gone"]

_HOP: Final = frozenset(
    {"connection", "content-length", "content-encoding", "transfer-encoding", "host", "keep-alive", "authorization"}
)
_REASONS: Final = {
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}
_PATTERNS: Final[tuple[tuple[str, str, str], ...]] = (
    ("bind", "POST", r"/pods/[^/]+/binding$"),
    ("evict", "POST", r"/pods/[^/]+/eviction$"),
    ("make", "POST", r"/pods$"),
    ("end", "DELETE", r"/pods/[^/]+$"),
    ("status", "PATCH", r"/cotide\.dev/.*/status$"),
    ("note", "PATCH", r"/pods/[^/]+(/status)?$"),
    ("resize", "PATCH", r"/pods/[^/]+/resize$"),
    ("event", "", r"/events"),
    ("lease", "", r"/leases"),
    ("look", "GET", r"/pods/[^/]+$"),
)


def kind_of(method: str, path: str, query: str) -> str:
    """Return which kind of request this is, as rules name it."""
    if method == "GET" and re.search(r"(^|&)watch=(true|1)", query):
        return "watch"
    for kind, verb, pattern in _PATTERNS:
        if verb in ("", method) and re.search(pattern, path):
            return kind
    return "list" if method == "GET" else "other"


@dataclass
class Rule:
    """From its ``first`` request of a kind on, ``count`` of them are spoiled."""

    kind: str
    first: int
    count: int
    effect: Effect
    seconds: float = 0.0
    status: int = 0
    what: str = ""
    """What is told; see `Trouble.listener`."""


@dataclass
class Storm:
    """For a while, a share of the requests of some kinds is refused, delayed or dropped."""

    kinds: tuple[str, ...]
    share: float
    effect: Effect
    seconds: float = 0.0
    status: int = 0


@dataclass
class Trouble:
    """What is to be spoiled in one run, and what was."""

    rules: list[Rule]
    rng: random.Random
    listener: Callable[[str, str, FaultProxy], Awaitable[None]]
    """Called with what a rule tells, the path of the request, and the proxy that it came to."""
    storm: Storm | None = None
    most_at_once: int = 0
    """How many requests the server takes at a time, watches apart, the others being refused with 429; 0 is no limit."""
    closes: bool = False
    """Whether a connection ends with each answer, so that the next request must find the server anew."""
    observes: bool = False
    """Whether it is written down up to which version an operator has seen objects."""
    under_way: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    struck: Counter[str] = field(default_factory=Counter)
    record: WriteRecord = field(default_factory=WriteRecord)

    def of(self, kind: str) -> Rule | None:
        """Return what strikes the next request of a kind."""
        self.counts[kind] += 1
        number = self.counts[kind]
        for rule in self.rules:
            if rule.kind == kind and rule.first <= number < rule.first + rule.count:
                return self._strike(kind, rule)
        return self.stormy(kind)

    def stormy(self, kind: str) -> Rule | None:
        """Return what the storm does to a request of a kind."""
        storm = self.storm
        if storm is None or kind not in storm.kinds or self.rng.random() >= storm.share:
            return None
        return self._strike(kind, Rule(kind, 0, 1, storm.effect, storm.seconds, storm.status))

    def _strike(self, kind: str, rule: Rule) -> Rule:
        self.struck[f"{kind}:{rule.effect}{rule.status or ''}"] += 1
        return rule

    def calm(self) -> None:
        """Spoil nothing any more."""
        self.rules.clear()
        self.storm = None
        self.most_at_once = 0


class FaultProxy:
    """The way of one operator to the API server; made by `open_proxy`."""

    def __init__(self, upstream: Callable[[], Credentials], trouble: Trouble, sender: str = "operator") -> None:
        self._upstream, self.trouble, self._sender = upstream, trouble, sender
        self._watches: dict[asyncio.Task[Any], tuple[str, Cut | None]] = {}
        self._late: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession
        self.url = ""
        self.closed = False
        self.observed = Observed()

    async def open(self) -> None:
        # Connections that die under its hands are what this proxy is for.
        logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
        tls = self._upstream().ssl_context()
        connector = aiohttp.TCPConnector(limit=0, ssl=tls if tls is not None else True)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        self._runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.05)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def close(self, *, outlived: bool = False) -> list[asyncio.Task[None]]:
        """Let nothing pass any more: its sender is dead. What was to arrive late does not; ``outlived``: it does.

        Returns what is still to be waited for.
        """
        self.closed = True
        late = list(self._late) if outlived else []
        for task in (*(self._late - {*late}), *self._watches):
            task.cancel()
        await self._runner.cleanup()

        async def bury() -> None:
            await asyncio.gather(*late, return_exceptions=True)
            await self._session.close()

        if late:
            return [asyncio.ensure_future(bury())]
        await self._session.close()
        return []

    def cut(self, how: Cut, plural: str = "") -> int:
        """Cut all watches, or those of one kind; returns how many there were."""
        found = 0
        for task, (path, _) in list(self._watches.items()):
            if not plural or path.endswith(f"/{plural}"):
                self._watches[task] = (path, how)
                task.cancel()
                found += 1
        return found

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        kind = kind_of(request.method, request.path, request.query_string)
        body = await request.read()
        if kind not in RECORDED:
            return await self._crowded(kind, request, body)
        write = self.trouble.record.ask(
            kind, self._sender, request.path, body, time.monotonic(), lambda: _connected(request)
        )
        status, later = 0, False
        try:
            answer = await self._crowded(kind, request, body)
            status, later = answer.status, "Retry-After" in answer.headers
            return answer
        finally:
            write.end(time.monotonic(), status, later=later)

    async def _crowded(self, kind: str, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        """Let so many pass at a time as the server takes; each holds its place for a while."""
        trouble = self.trouble
        if kind == "watch":
            return await self._pass(kind, request, body)
        if trouble.most_at_once and trouble.under_way >= trouble.most_at_once:
            trouble.struck[f"{kind}:crowded429"] += 1
            return _refusal(429)
        trouble.under_way += 1
        try:
            if trouble.most_at_once:
                await asyncio.sleep(CROWDED_SECONDS)
            answer = await self._pass(kind, request, body)
        finally:
            trouble.under_way -= 1
        if trouble.closes:
            answer.force_close()
        return answer

    async def _pass(self, kind: str, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        rule = self.trouble.of(kind)
        if rule is not None and rule.effect == "tell-before":
            await self.trouble.listener(rule.what, request.path, self)
            rule = self.trouble.stormy(kind)  # what was told may have begun a storm
        spoilt = await self._before(rule, kind, request, body)
        if spoilt is not None:
            return spoilt
        if kind == "watch":
            return await self._watch(request)
        try:
            status, headers, answer = await self._ask(request, body)
        except (aiohttp.ClientError, OSError):
            return _drop(request)
        if rule is not None and rule.effect == "drop-after":
            return _drop(request)
        if rule is not None and rule.effect == "tell-after":
            await self.trouble.listener(rule.what, request.path, self)
        return web.Response(status=status, headers=headers, body=answer)

    async def _before(
        self, rule: Rule | None, kind: str, request: web.BaseRequest, body: bytes
    ) -> web.StreamResponse | None:
        """Do what a rule does before the server hears of a request; returns an answer when it never shall."""
        effect = rule.effect if rule is not None else ""
        if rule is not None and effect == "status":
            return _refusal(rule.status)
        if rule is not None and effect == "delay":
            await asyncio.sleep(rule.seconds)
        if rule is not None and effect == "late" and kind != "watch":
            self._forward_late(request, body, rule.seconds)
            if rule.what:
                await self.trouble.listener(rule.what, request.path, self)
        # A watch has no answer that could be lost after it was acted on.
        dropped = effect in ("drop-before", "late") or (effect == "drop-after" and kind == "watch")
        return _drop(request) if dropped or self.closed or request.transport is None else None

    def _forward_late(self, request: web.BaseRequest, body: bytes, seconds: float) -> None:
        async def late() -> None:
            await asyncio.sleep(seconds)
            with contextlib.suppress(aiohttp.ClientError, OSError):
                await self._ask(request, body)

        task = asyncio.ensure_future(late())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    def _target(self, request: web.BaseRequest) -> tuple[URL, dict[str, str]]:
        upstream = self._upstream()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        token = upstream.token()
        if token is not None:
            headers["Authorization"] = token
        return URL(f"{upstream.server}{request.raw_path}", encoded=True), headers

    async def _ask(self, request: web.BaseRequest, body: bytes) -> tuple[int, dict[str, str], bytes]:
        url, headers = self._target(request)
        asked = time.monotonic()
        async with self._session.request(request.method, url, data=body or None, headers=headers) as response:
            answer = await response.read()
            if response.status < 300 and request.method in ("POST", "PUT") and "/leases" in request.path:
                self.trouble.record.lease_written(self._sender, body, time.monotonic(), asked)
            kept = {name: value for name, value in response.headers.items() if name.lower() not in _HOP}
            if self.trouble.observes and request.method == "GET" and response.status == 200:
                self.observed.page(request.query_string, answer, response.headers.get("Content-Encoding", ""))
            if "Content-Encoding" in response.headers:
                kept["Content-Encoding"] = response.headers["Content-Encoding"]
            return response.status, kept, answer

    async def _watch(self, request: web.BaseRequest) -> web.StreamResponse:
        url, headers = self._target(request)
        me = asyncio.current_task()
        assert me is not None
        out = web.StreamResponse(headers={"Content-Type": "application/json"})
        self._watches[me] = (request.path, None)
        headers.pop("Accept-Encoding", None)
        timeout = aiohttp.ClientTimeout(total=None)
        try:
            async with self._session.get(url, headers=headers, timeout=timeout) as response:
                if response.status != 200:
                    return web.Response(status=response.status, body=await response.read())
                await out.prepare(request)
                lines = self.observed.watch(request.query_string)
                async for chunk in response.content.iter_any():
                    if self.trouble.observes:
                        lines.take(chunk)
                    await out.write(chunk)
        except (aiohttp.ClientError, OSError):
            return _drop(request)
        except asyncio.CancelledError:
            how = self._watches[me][1]
            if how is None:
                raise
            me.uncancel()
            return await self._end(request, out, how)
        finally:
            del self._watches[me]
        await out.write_eof()
        return out

    async def _end(self, request: web.BaseRequest, out: web.StreamResponse, how: Cut) -> web.StreamResponse:
        # A server tells in the stream that a version is too old; a watch that is not open yet can only be cut off.
        if how == "abrupt" or not out.prepared:
            return _drop(request)
        if how == "gone":
            await out.write(b'{"type":"ERROR","object":%s}\n' % json.dumps(_status(410)).encode())
        elif how == "torn":
            await out.write(b'{"type":"MODIFIED","object":{"kind":"Po')
            return _drop(request)
        await out.write_eof()
        return out


def _status(code: int) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"spoilt on purpose: {code}",
        "reason": _REASONS[code],
        "code": code,
    }


def _refusal(code: int) -> web.Response:
    headers = {"Retry-After": "1"} if code == 429 else None
    return web.Response(status=code, body=json.dumps(_status(code)).encode(), headers=headers)


def _connected(request: web.BaseRequest) -> bool:
    return request.transport is not None and not request.transport.is_closing()


def _drop(request: web.BaseRequest) -> web.Response:
    """Let the connection die without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


@contextlib.asynccontextmanager
async def open_proxy(upstream: Callable[[], Credentials], trouble: Trouble) -> AsyncIterator[FaultProxy]:
    proxy = FaultProxy(upstream, trouble)
    await proxy.open()
    try:
        yield proxy
    finally:
        if not proxy.closed:
            await proxy.close()
