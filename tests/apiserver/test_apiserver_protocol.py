"""What stands before the API: tokens, injected faults, malformed and pipelined requests, the end of a server."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from emulator_client import PODS, pod, serving

from cotide_sim.apiserver.http.faults import Fault
from cotide_sim.apiserver.http.http_protocol import Connection, Connections


async def test_token_is_demanded_of_everyone_but_health_checks() -> None:
    async with serving(token="secret") as (_, call):
        assert (await call("GET", "/readyz"))[0] == 200
        assert (await call("GET", "/api/v1/pods"))[0] == 401
        assert (await call("GET", "/api/v1/pods", Authorization="Bearer wrong"))[0] == 401
        assert (await call("GET", "/api/v1/pods", Authorization="Bearer secret"))[0] == 200


async def test_injected_faults_strike_what_they_name_and_no_more() -> None:
    async with serving(fault_endpoint=True) as (_, call):
        await call("POST", "/_faults", {"status": 429, "method": "POST", "path": "/pods$", "retry_after_seconds": 3})
        assert (await call("GET", PODS))[0] == 200
        code, _ = await call("POST", PODS, pod())
        assert (code, call.headers["Retry-After"]) == (429, "3")
        assert (await call("POST", PODS, pod()))[0] == 201
        assert (await call("POST", "/_faults", {"cows": 1}))[0] == 400


async def test_injected_faults_delay_and_meet_watches_by_path_and_count() -> None:
    async with serving() as (server, call):
        loop = asyncio.get_running_loop()
        slow = server.faults.add(Fault(delay_seconds=0.2, method="GET", path="/configmaps$"))
        begin = loop.time()
        assert (await call("GET", "/api/v1/namespaces/default/configmaps"))[0] == 200
        assert loop.time() - begin >= 0.2
        assert slow.met == 1
        gone = server.faults.add(Fault(status=410, method="WATCH", path="/pods$", skip=1, count=2))
        assert (await call("GET", PODS))[0] == 200
        answers = [(await call("GET", f"{PODS}?watch=1&timeoutSeconds=1&resourceVersion=1"))[0] for _ in range(4)]
        assert answers == [200, 410, 410, 200]
        assert gone.met == 2
        server.faults.add(Fault(status=500, count=-1))
        assert [(await call("GET", PODS))[0] for _ in range(3)] == [500, 500, 500]
        server.faults.clear()
        assert (await call("GET", PODS))[0] == 200


async def test_malformed_http_is_refused_and_the_server_lives_on() -> None:
    async with serving() as (server, call):
        for text in (b"nonsense\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n"):
            reader, writer = await asyncio.open_connection(server.host, server.port)
            writer.write(text)
            assert (await reader.read()).split(b" ")[1] in (b"400", b"413")
            writer.close()
        assert (await call("GET", "/version"))[1]["minor"] == "32"


async def test_split_and_pipelined_requests_are_answered_in_order() -> None:
    async with serving() as (server, _):
        reader, writer = await asyncio.open_connection(server.host, server.port)
        body = json.dumps(pod()).encode()
        chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        first = f"POST {PODS} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + chunked
        second = f"GET {PODS}/web HTTP/1.1\r\nConnection: close\r\n\r\n".encode()
        for byte in range(0, len(first), 40):
            writer.write(first[byte : byte + 40])
            await writer.drain()
        writer.write(second)
        text = await asyncio.wait_for(reader.read(), 5)
        assert text.startswith(b"HTTP/1.1 201 ")
        assert text.count(b"HTTP/1.1 200 OK") == 1
        writer.close()


async def test_what_needs_a_container_is_refused_in_a_sentence() -> None:
    async with serving() as (_, call):
        await call("POST", PODS, pod())
        for subresource in ("log", "exec", "portforward"):
            status, answer = await call("GET", f"{PODS}/web/{subresource}")
            assert (status, answer["reason"]) == (501, "NotImplemented")
            assert answer["message"] == f"pods/{subresource} is not served: this emulator runs no containers"


class Line:
    """A transport that only knows whether it was cut."""

    cut = False

    def abort(self) -> None:
        self.cut = True


def test_who_is_accepted_while_the_server_ends_is_cut() -> None:
    # A client that watched a server that has ended would wait for news that nobody sends.
    open_ones, early, late = Connections(), Line(), Line()
    Connection(cast(Any, None), open_ones).connection_made(cast(Any, early))
    open_ones.closed = True
    Connection(cast(Any, None), open_ones).connection_made(cast(Any, late))
    assert (early.cut, late.cut) == (False, True)
