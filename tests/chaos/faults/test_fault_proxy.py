"""What the proxy does to a request, and that it does nothing unasked."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from fault_proxy import Cut, FaultProxy, Rule, Storm, Trouble, kind_of, open_proxy
from yarl import URL

from cotide_kube.credentials import Credentials

BIND = "/api/v1/namespaces/ns/pods/p/binding"
WATCH = "/api/v1/pods?watch=true"


class Behind:
    """A server that counts what reaches it."""

    def __init__(self) -> None:
        self.reached: list[tuple[str, str, bytes]] = []
        self.answers: list[str] = []

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.reached.append((request.method, request.raw_path, await request.read()))
        if "watch" in request.query_string:
            out = web.StreamResponse()
            await out.prepare(request)
            await out.write(b'{"type":"ADDED"}\n')
            while True:
                await out.write(b"\n")
                await _turn()
        return web.Response(status=201, body=b"taken", headers={"X-Own": "kept"})

    async def emit(self, what: str, path: str, proxy: FaultProxy) -> None:
        self.answers.append(f"{what} {len(self.reached)}")


async def _turn() -> None:
    await asyncio.sleep(0.01)


@asynccontextmanager
async def scene(*rules: Rule, storm: Storm | None = None) -> AsyncIterator[tuple[Behind, FaultProxy, Any]]:
    behind = Behind()
    runner = web.ServerRunner(web.Server(behind.answer), shutdown_timeout=0.05)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    upstream = Credentials(f"http://127.0.0.1:{runner.addresses[0][1]}")
    trouble = Trouble(list(rules), random.Random(1), behind.emit, storm)
    try:
        async with open_proxy(lambda: upstream, trouble) as proxy, aiohttp.ClientSession() as session:
            yield behind, proxy, session
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("POST", BIND, "bind"),
        ("POST", "/api/v1/namespaces/ns/pods/p/eviction", "evict"),
        ("POST", "/api/v1/namespaces/ns/pods", "make"),
        ("PATCH", "/apis/cotide.dev/v1alpha1/namespaces/ns/jobs/j/status", "status"),
        ("PATCH", "/api/v1/namespaces/ns/pods/p", "note"),
        ("GET", "/api/v1/namespaces/ns/pods/p", "look"),
        ("GET", "/api/v1/pods", "list"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l", "lease"),
    ],
)
def test_requests_are_told_apart(method: str, path: str, kind: str) -> None:
    assert kind_of(method, path, "") == kind


async def test_unasked_it_changes_nothing() -> None:
    async with scene() as (behind, proxy, session):
        answer = await session.post(URL(f"{proxy.url}{BIND}?a=%2F", encoded=True), data=b"body")
        assert (answer.status, await answer.read(), answer.headers["X-Own"]) == (201, b"taken", "kept")
    assert behind.reached == [("POST", f"{BIND}?a=%2F", b"body")]


async def test_a_rule_strikes_from_its_first_request_as_often_as_it_says() -> None:
    async with scene(Rule("bind", 2, 2, "status", status=429)) as (behind, proxy, session):
        codes = []
        for _ in range(4):
            async with session.post(proxy.url + BIND) as answer:
                codes.append((answer.status, answer.headers.get("Retry-After")))
    assert codes == [(201, None), (429, "1"), (429, "1"), (201, None)]
    assert len(behind.reached) == 2


@pytest.mark.parametrize(("effect", "reached"), [("drop-before", 0), ("drop-after", 1)])
async def test_a_lost_answer_may_be_that_of_a_request_that_was_carried_out(effect: Any, reached: int) -> None:
    async with scene(Rule("bind", 1, 1, effect)) as (behind, proxy, session):
        with pytest.raises(aiohttp.ClientError):
            await session.post(proxy.url + BIND)
        assert len(behind.reached) == reached


@pytest.mark.parametrize(("rules", "answered"), [([], 201), ([Rule("bind", 1, 1, "drop-after")], 0)])
async def test_a_binding_is_recorded_with_what_its_sender_was_told(rules: list[Rule], answered: int) -> None:
    async with scene(*rules) as (_, proxy, session):
        with contextlib.suppress(aiohttp.ClientError):
            await session.post(proxy.url + BIND, json={"metadata": {"uid": "u"}, "target": {"name": "n"}})
        write = proxy.trouble.record.writes[0]
        while write.ended is None:
            await _turn()
    assert (write.sender, write.uid, write.node, write.status) == ("operator", "u", "n", answered)


async def test_what_is_late_comes_after_its_connection_has_died() -> None:
    async with scene(Rule("bind", 1, 1, "late", 0.05)) as (behind, proxy, session):
        with pytest.raises(aiohttp.ClientError):
            await session.post(proxy.url + BIND)
        assert behind.reached == []
        while not behind.reached:
            await _turn()


@pytest.mark.parametrize(("effect", "answered"), [("tell-before", "x 0"), ("tell-after", "x 1")])
async def test_something_else_may_happen_in_the_middle(effect: Any, answered: str) -> None:
    async with scene(Rule("bind", 1, 1, effect, what="x")) as (behind, proxy, session):
        answer = await session.post(proxy.url + BIND)
        assert (answer.status, await answer.read()) == (201, b"taken")
    assert behind.answers == [answered]


async def test_a_storm_meets_its_kinds_only() -> None:
    async with scene(storm=Storm(("bind",), 1.0, "status", status=500)) as (_, proxy, session):
        codes = []
        for path in (BIND, "/api/v1/namespaces/ns/pods"):
            async with session.post(proxy.url + path) as answer:
                codes.append(answer.status)
    assert codes == [500, 201]


@pytest.mark.parametrize(
    ("how", "last"), [("clean", b""), ("gone", b'"code": 410}}\n'), ("torn", b'"kind":"Po'), ("abrupt", b"")]
)
async def test_a_watch_ends_as_it_is_told_to(how: Cut, last: bytes) -> None:
    async with scene() as (_, proxy, session), session.get(proxy.url + WATCH) as answer:
        read = b""
        try:
            async for chunk in answer.content.iter_any():
                read += chunk
                proxy.cut(how)
            ended = True
        except aiohttp.ClientError:
            ended = False
    assert read.startswith(b'{"type":"ADDED"}\n')
    assert read.rstrip(b"\n").endswith(last.rstrip(b"\n"))
    assert ended == (how in ("clean", "gone"))


async def test_behind_a_closed_proxy_nothing_arrives_any_more() -> None:
    async with scene(Rule("bind", 1, 1, "late", 0.05)) as (behind, proxy, session):
        with pytest.raises(aiohttp.ClientError):
            await session.post(proxy.url + BIND)
        await proxy.close()
        for _ in range(10):
            await _turn()
        assert behind.reached == []
