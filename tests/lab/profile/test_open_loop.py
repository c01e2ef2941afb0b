"""Latency counts from when a request was due, and the generators that measure it on a real local server."""

from __future__ import annotations

import asyncio
import gc
import select
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from click.testing import CliRunner

from cotide_lab.profile import http_load, tcp_load
from cotide_lab.profile.open_loop import arrivals, latencies, report


def test_a_server_that_stalls_makes_all_requests_behind_it_late() -> None:
    """Due at 0, 1, 2 and 3 s, all answered at 3.5: 3.5, 2.5, 1.5 and .5 s, not 3.5 and 0."""
    found, missing = latencies(np.array([0.0, 1, 2, 3]), np.array([4]), np.array([3.5]), 4.0)
    assert found.tolist() == [3.5, 2.5, 1.5, 0.5]
    assert missing == 0


def test_what_is_never_answered_counts_with_its_age() -> None:
    found, missing = latencies(np.array([0.0, 1, 2]), np.array([1]), np.array([0.5]), 4.0)
    assert found.tolist() == [0.5, 3.0, 2.0]
    assert missing == 2


def test_nothing_answered_is_all_missing() -> None:
    found, missing = latencies(np.array([1.0]), np.array([], np.int64), np.array([]), 4.0)
    assert (found.tolist(), missing) == ([3.0], 1)


def test_arrivals_are_poisson_and_the_same_for_a_seed() -> None:
    """1000/s for 10 s: 10,000 +- 4 x 100; gaps with a mean and a deviation of 1 ms."""
    due = arrivals(1000.0, 10.0, 3)
    assert abs(len(due) - 10_000) < 400
    assert np.isclose(np.diff(due).std(), 0.001, rtol=0.1)
    assert due.tolist() == arrivals(1000.0, 10.0, 3).tolist()


def test_a_report_is_in_milliseconds() -> None:
    """Latencies of 1 to 100 ms: the p95 lies between 95 and 96, the p99.9 between 99 and 100."""
    found = report(np.arange(1, 101) / 1000.0, 2, 0.5, 0.0001, cut=False)
    assert 95 < found.p95_ms < 96
    assert 99 < found.p999_ms < 100
    assert found.requests_per_second == 196  # 98 answers in half a second
    assert found.lag_ms == 0.1


@contextmanager
def line_server(delay: float = 0.0) -> Iterator[int]:
    """Answer each line with one, in a thread; yield the port."""
    ready, port, stop = threading.Event(), [0], asyncio.Event()
    loop = asyncio.new_event_loop()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            await asyncio.sleep(delay)
            writer.write(b"+PONG\r\n")

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port[0] = server.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        server.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait(10)
    yield port[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@pytest.mark.parametrize("sleeps", [False, True])
def test_tcp_load_sends_each_request_and_times_each_answer(sleeps: bool) -> None:
    with line_server() as port:
        found = tcp_load.measure(
            f"tcp://127.0.0.1:{port}", 200.0, 0.1, 0.5, request=r"PING\r\n", harm=float("inf"), seed=1, sleeps=sleeps
        )
    due = arrivals(200.0, 0.6, 1)
    assert found.requests == int((due >= 0.1).sum())
    assert found.unanswered == 0
    assert 0 < found.p50_ms <= found.p95_ms <= found.p99_ms <= found.p999_ms


@pytest.mark.parametrize("sleeps", [False, True])
def test_a_generator_that_may_sleep_does_so_until_shortly_before_the_next_arrival(
    monkeypatch: pytest.MonkeyPatch, sleeps: bool
) -> None:
    """Ten arrivals in half a second: it never sleeps for longer than the longest gap, or than it waits for answers."""
    asked: list[float] = []
    wait = select.select

    def noted(*arguments: Any) -> Any:
        asked.append(arguments[-1])
        return wait(*arguments)

    monkeypatch.setattr(tcp_load.select, "select", noted)
    with line_server() as port:
        target = f"tcp://127.0.0.1:{port}"
        tcp_load.measure(target, 20.0, 0.0, 0.5, request="x\\r\\n", harm=float("inf"), seed=1, sleeps=sleeps)
    gaps = np.diff(arrivals(20.0, 0.5, 1), prepend=0.0)
    assert bool(asked) is sleeps
    assert all(0 < one < max(gaps.max(), tcp_load.DRAIN_SECONDS) for one in asked)


def test_a_window_that_is_sure_to_be_above_the_harm_is_cut_short() -> None:
    """Each connection answers once in 50 ms: at 2000/s on 16 connections all but 320/s wait ever longer."""
    with line_server(0.05) as port:
        found = tcp_load.measure(f"tcp://127.0.0.1:{port}", 2000.0, 0.0, 5.0, request=r"PING\r\n", harm=0.04, seed=1)
    assert found.cut
    assert found.seconds < 5.0
    assert found.p95_ms > 40


def test_the_garbage_collector_rests_only_while_requests_are_sent() -> None:
    with line_server() as port:
        tcp_load.measure(f"tcp://127.0.0.1:{port}", 20.0, 0.0, 0.5, request="x\\r\\n", harm=float("inf"), seed=1)
    assert gc.isenabled()


def test_nobody_at_the_address_is_one_sentence() -> None:
    done = CliRunner().invoke(tcp_load.main, ["--target", "tcp://127.0.0.1:1", "--rate", "10", "--seconds", "1"])
    assert done.exit_code == 1
    assert "tcp://127.0.0.1:1" in done.output
    assert "Traceback" not in done.output


@asynccontextmanager
async def http_server(status: int = 200) -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="ok", status=status)

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def test_http_load_gets_each_request_answered() -> None:
    async with http_server() as target:
        found = await http_load.measure(target, 100.0, 0.1, 0.4, harm=float("inf"), seed=2)
    assert found.requests == int((arrivals(100.0, 0.5, 2) >= 0.1).sum())
    assert found.unanswered == 0
    assert found.p95_ms > 0


async def test_a_server_that_refuses_is_no_fast_server() -> None:
    async with http_server(503) as target:
        with pytest.raises(http_load.Refused, match="503"):
            await http_load.measure(target, 100.0, 0.0, 0.2, harm=float("inf"), seed=2)
