"""The extender's server: a request beyond its limit is not read, and the next one is answered."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cotide_core.limits import EXTENDER_AT_ONCE, EXTENDER_BYTES
from cotide_operator.observability.metrics import Metrics
from cotide_operator.webhooks.extender import server
from cotide_operator.webhooks.extender.server import ExtenderServer
from cotide_operator.webhooks.extender.verbs import Reply
from cotide_operator.webhooks.serving import https_server, served_certificate
from cotide_operator.webhooks.serving.certificates import make_authority, make_serving
from cotide_operator.webhooks.serving.request_bodies import SMALL_BODY
from cotide_operator.webhooks.serving.served_certificate import ServedCertificate
from cotide_operator.webhooks.serving.tls import ServingContext

MEBIBYTE = 2**20


class Reading:
    """Verbs that answer what they were sent with its length."""

    async def prioritize(self, body: bytes) -> Reply:
        return Reply(str(len(body)).encode(), "answered")

    filter = preempt = bind = prioritize

    def rest(self) -> None: ...


@asynccontextmanager
async def opened() -> AsyncIterator[Any]:
    yield Reading()


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[aiohttp.ClientSession, Metrics]]:
    context, now, metrics = ServingContext(), datetime.now(UTC), Metrics()
    context.use(make_serving(make_authority(now), ["localhost"], now), now)
    extender = ExtenderServer(opened, metrics)
    await extender.start("127.0.0.1", 0, context.listening)
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    connector = aiohttp.TCPConnector(ssl=trusting)
    try:
        async with aiohttp.ClientSession(f"https://127.0.0.1:{extender.port}", connector=connector) as session:
            yield session, metrics
    finally:
        await extender.stop()


@pytest.mark.parametrize("has_length", [True, False])
async def test_a_request_above_the_limit_is_not_read_and_the_next_is_answered(has_length: bool) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(EXTENDER_BYTES // MEBIBYTE + 1):
            yield b" " * MEBIBYTE

    async with serving() as (session, metrics):
        sent: Any = b" " * (EXTENDER_BYTES + 1) if has_length else pieces()
        async with session.post("/filter", data=sent) as answer:
            assert answer.status == 413
            assert await answer.text() == f"a request has at most {EXTENDER_BYTES} bytes\n"
        malformed = {"verb": "filter", "outcome": "malformed"}
        assert metrics.registry.get_sample_value("cotide_extender_requests_total", malformed) == 1
        async with session.post("/filter", data=b" " * EXTENDER_BYTES) as answer:
            assert (answer.status, await answer.text()) == (200, str(EXTENDER_BYTES))


async def test_bodies_that_come_slowly_hold_up_no_usual_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "READ_SECONDS", 600.0)
    begun = asyncio.Semaphore(0)

    async def slowly() -> AsyncIterator[bytes]:
        yield b" "
        begun.release()
        await asyncio.Event().wait()

    async with serving() as (session, _), asyncio.timeout(20.0):
        slow = [asyncio.ensure_future(session.post("/filter", data=slowly())) for _ in range(EXTENDER_AT_ONCE)]
        for _ in slow:
            await begun.acquire()
        async with session.post("/filter", data=b"{}") as answer:
            assert (answer.status, await answer.text()) == (200, "2")
        for one in slow:
            one.cancel()
        await asyncio.gather(*slow, return_exceptions=True)


async def test_bodies_that_do_not_come_in_time_leave_their_turns_to_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "READ_SECONDS", 0.05)

    async def never() -> AsyncIterator[bytes]:
        yield b" "
        await asyncio.Event().wait()

    async with serving() as (session, metrics), asyncio.timeout(20.0):
        slow = [asyncio.ensure_future(session.post("/filter", data=never())) for _ in range(EXTENDER_AT_ONCE)]
        assert {(await one).status for one in slow} == {408}
        malformed = {"verb": "filter", "outcome": "malformed"}
        counted = metrics.registry.get_sample_value("cotide_extender_requests_total", malformed)
        assert counted == EXTENDER_AT_ONCE
        async with session.post("/filter", data=b" " * MEBIBYTE) as answer:
            assert (answer.status, await answer.text()) == (200, str(MEBIBYTE))


async def test_large_bodies_that_one_client_sends_slowly_leave_a_turn_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "READ_SECONDS", 600.0)
    begun = asyncio.Semaphore(0)

    async def never() -> AsyncIterator[bytes]:
        yield b" "
        begun.release()
        await asyncio.Event().wait()

    async with serving() as (session, _), asyncio.timeout(20.0):
        trusting = session.connector._ssl  # type: ignore[union-attr]
        slow = [asyncio.ensure_future(session.post("/filter", data=never())) for _ in range(EXTENDER_AT_ONCE)]
        other = aiohttp.TCPConnector(ssl=trusting, local_addr=("127.0.0.2", 0))
        async with aiohttp.ClientSession(session._base_url, connector=other) as client:
            for _ in slow:
                await begun.acquire()
            async with client.post("/filter", data=b" " * MEBIBYTE) as answer:
                assert (answer.status, await answer.text()) == (200, str(MEBIBYTE))
        for one in slow:
            one.cancel()
        await asyncio.gather(*slow, return_exceptions=True)


async def test_whoever_opens_connections_and_asks_nothing_keeps_nobody_out_and_holds_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(https_server, "MAX_CONNECTIONS", 4, raising=False)
    async with serving() as (session, _), asyncio.timeout(20.0):
        url, trusting = session._base_url, session.connector._ssl  # type: ignore[union-attr]
        assert url is not None
        idle = [await asyncio.open_connection(url.host, url.port, ssl=trusting) for _ in range(7)]
        async with session.post("/filter", data=b"{}") as answer:
            assert answer.status == 200
        for reader, _ in idle[:4]:  # those that came first made room: for three others, and for the request
            assert await reader.read() == b""
        for _, writer in idle:
            writer.close()


async def test_a_request_under_way_is_not_what_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https_server, "MAX_CONNECTIONS", 2, raising=False)
    begun, rest = asyncio.Event(), asyncio.Event()

    async def in_two_parts() -> AsyncIterator[bytes]:
        yield b"{"
        begun.set()
        await rest.wait()
        yield b"}"

    async with serving() as (session, _), asyncio.timeout(20.0):
        url, trusting = session._base_url, session.connector._ssl  # type: ignore[union-attr]
        assert url is not None
        first = asyncio.ensure_future(session.post("/filter", data=in_two_parts()))
        await begun.wait()
        async with session.post("/filter", data=b"{}") as answer:  # whoever is answered was opened behind the first
            assert answer.status == 200
        idle = [await asyncio.open_connection(url.host, url.port, ssl=trusting) for _ in range(3)]
        rest.set()
        assert await (await first).text() == "2"
        for _, writer in idle:
            writer.close()


async def test_a_compressed_body_is_not_unpacked() -> None:
    bomb = gzip.compress(b" " * MEBIBYTE)
    assert len(bomb) < SMALL_BODY  # it would take no turn
    async with serving() as (session, metrics), asyncio.timeout(20.0):
        async with session.post("/filter", data=bomb, headers={"Content-Encoding": "gzip"}) as answer:
            assert (answer.status, await answer.text()) == (415, "a compressed body is not read\n")
        malformed = {"verb": "filter", "outcome": "malformed"}
        assert metrics.registry.get_sample_value("cotide_extender_requests_total", malformed) == 1


async def test_a_server_that_trips_over_the_cluster_ends_nothing_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now, tries = datetime.now(UTC), [0]
    pair = make_serving(make_authority(now), ["localhost"], now)
    (tmp_path / "tls.crt").write_bytes(pair.certificate_pem)
    (tmp_path / "tls.key").write_bytes(pair.key_pem)

    @asynccontextmanager
    async def tripping() -> AsyncIterator[Any]:
        tries[0] += 1
        if tries[0] < 3:
            raise OverflowError("too large for a column")
        yield Reading()

    monkeypatch.setattr(served_certificate, "RETRY_SECONDS", 0.0)
    metrics = Metrics()
    extender = ExtenderServer(tripping, metrics)
    served = ServedCertificate(
        "extender",
        extender,
        directory=tmp_path,
        shared=None,  # type: ignore[arg-type]  # it is not looked at where a directory is given
        expiry=metrics.extender_certificate_expiry,
        now=lambda: now,
    )
    running = asyncio.ensure_future(served.run("127.0.0.1", 0))
    async with asyncio.timeout(20.0):
        while not served.listening and not running.done():
            await asyncio.sleep(0.01)
    assert served.listening
    assert len([record for record in caplog.records if "will be retried" in record.message]) == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
