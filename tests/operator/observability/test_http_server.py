"""What the operator's own port answers to anybody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from cotide_operator.cache.decision_store import DecisionStore
from cotide_operator.observability import http_server
from cotide_operator.observability.http_server import HealthServer
from cotide_operator.observability.metrics import Metrics


@pytest.mark.parametrize(
    ("query", "series"),
    [
        ("?name[]=cotide_pending_pods", {"cotide_pending_pods"}),
        (
            "?name[]=cotide_pending_pods&name[]=cotide_binding_duration_seconds_count",
            {"cotide_pending_pods", "cotide_binding_duration_seconds_count"},
        ),
        ("?name[]=nobody_has_this", set()),
    ],
)
async def test_metrics_are_those_that_are_asked_for_by_name(query: str, series: set[str]) -> None:
    metrics = Metrics()
    metrics.pending.labels("active").set(3)
    metrics.binding_duration.observe(0.01)
    server = HealthServer(metrics, DecisionStore(), list)
    await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{server.port}/metrics{query}") as answer:
                asked = await answer.text()
            async with session.get(f"http://127.0.0.1:{server.port}/metrics") as answer:
                everything = await answer.text()
    finally:
        await server.stop()
    lines = [line for line in asked.splitlines() if not line.startswith("#")]
    assert {line.partition("{")[0].partition(" ")[0] for line in lines} == series
    assert set(lines) <= set(everything.splitlines())


@asynccontextmanager
async def serving() -> AsyncIterator[HealthServer]:
    server = HealthServer(Metrics(), DecisionStore(), list)
    await server.start("127.0.0.1", 0)
    try:
        async with asyncio.timeout(20.0):
            yield server
    finally:
        await server.stop()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Return whether the server closes a connection without a word; what it has not read makes that a reset."""
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


async def is_answered(server: HealthServer) -> bool:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{server.port}/healthz") as answer:
        return answer.status == 200


async def test_connections_beyond_a_bound_close_the_oldest_and_keep_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 4)
    async with serving() as server:
        half_open = []
        for _ in range(12):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost:")
            half_open.append((reader, writer))
        assert await is_answered(server)
        for reader, _ in half_open[:8]:
            assert await is_closed(reader)
        for _, writer in half_open:
            writer.close()


async def test_a_connection_without_a_whole_request_is_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.05)
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost:")
        assert await is_closed(reader)
        writer.close()
        assert await is_answered(server)


async def test_broken_requests_write_one_line_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as server:
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
            await reader.read()
            writer.close()
        assert await is_answered(server)
    lines = [record for record in caplog.records if "request" in record.getMessage().lower()]
    assert len(lines) <= 1
    assert not any(record.exc_info for record in caplog.records)
