"""Stands between clients and a real API server, and does what the emulator's faults do there.

Called by the end-to-end tests on a real server. Requests pass with the administrator's certificate; a planned `Fault`
delays them or answers in the server's place, open watches can be ended, cut or held back, and while the server behind
is down connections break. Invariant: a request that was taken is carried out even when its client has gone meanwhile,
as on a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
from aiohttp import web
from yarl import URL

from cotide_kube.credentials import Credentials
from cotide_sim.apiserver.http.faults import Fault, Faults

HOP_BY_HOP: Final = {"connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding"}
"""Headers of one connection only. Source: RFC 9110, section 7.6.1."""
LARGEST_BODY_BYTES: Final = 64 * 2**20
"""Chosen: above what an API server takes."""


class Relay:
    """One relay; use `relaying`."""

    def __init__(self, behind: Credentials, session: aiohttp.ClientSession) -> None:
        self._behind, self._session = behind, session
        self._context = behind.ssl_context()
        self._watches: dict[asyncio.Event, web.Request] = {}
        self._carried_out: set[asyncio.Task[Any]] = set()
        self._held: dict[str, asyncio.Event] = {}
        self.faults = Faults()
        self.port = 0

    @property
    def url(self) -> str:
        """Where clients reach the server through us."""
        return f"http://127.0.0.1:{self.port}"

    def drop_watches(self, *, abruptly: bool = False) -> int:
        """End every open watch (cut the connection when abruptly) and return how many there were."""
        watches = list(self._watches.items())
        for ended, request in watches:
            if abruptly and request.transport is not None:
                request.transport.abort()
            ended.set()
        return len(watches)

    def hold(self, path: str) -> Callable[[], None]:
        """Keep back what the watches of a collection tell from now on; returns what lets it go."""
        let_go = self._held[path] = asyncio.Event()
        return let_go.set

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Pass one request on."""
        body = await request.read()
        fault = self.faults.next_for(request) if self.faults.active else None  # type: ignore[arg-type]  # same fields
        if request.method == "GET" and request.query.get("watch") in ("true", "1"):
            return await _struck(fault) or await self._watch(request)

        async def pass_on() -> web.StreamResponse:
            refused = await _struck(fault)
            if refused is not None:
                return refused
            async with self._request(request, body) as found:
                return web.Response(status=found.status, body=await found.read(), headers=_kept(found.headers))

        task = asyncio.create_task(pass_on())
        self._carried_out.add(task)
        task.add_done_callback(self._forget)
        try:
            return await asyncio.shield(task)
        except (aiohttp.ClientError, OSError):
            return _cut(request)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        ended = asyncio.Event()
        ending = asyncio.create_task(ended.wait())
        self._watches[ended] = request
        try:
            async with self._request(request, b"") as found:
                if found.status != 200:
                    return web.Response(status=found.status, body=await found.read(), headers=_kept(found.headers))
                answer = web.StreamResponse(status=200, headers=_kept(found.headers))
                await answer.prepare(request)
                copying = asyncio.create_task(self._copy(request.path, found, answer))
                try:
                    await asyncio.wait({copying, ending}, return_when=asyncio.FIRST_COMPLETED)
                    if copying.done():
                        await copying
                finally:
                    copying.cancel()
                await answer.write_eof()
                return answer
        except (aiohttp.ClientError, OSError):
            return _cut(request)
        finally:
            ending.cancel()
            del self._watches[ended]

    async def _copy(self, path: str, found: aiohttp.ClientResponse, answer: web.StreamResponse) -> None:
        async for chunk in found.content.iter_any():
            if path in self._held:
                await self._held[path].wait()
            await answer.write(chunk)

    def _request(self, request: web.Request, body: bytes) -> Any:
        return self._session.request(
            request.method,
            URL(self._behind.server + request.raw_path, encoded=True),
            data=body or None,
            headers=_kept(request.headers),
            ssl=self._context if self._context is not None else True,
            allow_redirects=False,
        )

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._carried_out.discard(task)
        if not task.cancelled():
            task.exception()  # its client may be gone, and then nobody else looks


@asynccontextmanager
async def relaying(behind: Credentials) -> AsyncIterator[Relay]:
    """Run a relay on a free loopback port, in the caller's event loop."""
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
        relay = Relay(behind, session)
        app = web.Application(client_max_size=LARGEST_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", relay.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        relay.port = int(runner.addresses[0][1])
        try:
            yield relay
        finally:
            await runner.cleanup()


def _cut(request: web.Request) -> web.StreamResponse:
    """Break the connection, as a server that is gone does."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=502)


def _kept(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP}


async def _struck(fault: Fault | None) -> web.Response | None:
    """Wait as long as a fault says, and return its answer if it has one."""
    if fault is None:
        return None
    await asyncio.sleep(fault.delay_seconds)
    refusal = fault.refusal()
    if refusal is None:
        return None
    seconds = fault.retry_after_seconds
    headers = {} if seconds is None else {"Retry-After": str(seconds)}
    return web.json_response(refusal.status(), status=refusal.code, headers=headers)
