"""The webhook's server: beside the deciding loop, with a limit, and never in its way."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest

from cotide_core.errors import InputError
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.observability.metrics import Metrics
from cotide_operator.webhooks.admission.review import Answer, Reviewer
from cotide_operator.webhooks.admission.server import BODY_LIMIT, PATH, READ_AT_ONCE, AdmissionServer
from cotide_operator.webhooks.serving.certificates import make_authority, make_serving
from cotide_operator.webhooks.serving.tls import ServingContext


class Held:
    """A reviewer that takes as long as the test wants."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.thread = ""

    def answer(self, body: bytes) -> Answer:
        self.thread = threading.current_thread().name
        self.begun.set()
        assert self.go_on.wait(20.0)
        return Answer("u")


@asynccontextmanager
async def serving(reviewer: Any) -> AsyncIterator[tuple[AdmissionServer, aiohttp.ClientSession, Metrics]]:
    context = ServingContext()
    now = datetime.now(UTC)
    context.use(make_serving(make_authority(now), ["localhost"], now), now)
    metrics = Metrics()
    server = AdmissionServer(reviewer, metrics)
    await server.start("127.0.0.1", 0, context.listening)
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    base = f"https://127.0.0.1:{server.port}"
    try:
        async with aiohttp.ClientSession(base, connector=aiohttp.TCPConnector(ssl=trusting)) as session:
            yield server, session, metrics
    finally:
        await server.stop()
    assert server.port == 0
    assert not [one for one in threading.enumerate() if one.name == "admission"]


async def test_a_review_that_takes_long_does_not_hold_up_the_loop() -> None:
    held = Held()
    async with serving(held) as (_, session, _):
        asking = asyncio.ensure_future(session.post(PATH, data=b"{}"))
        while not held.begun.is_set():  # the loop runs while the review is being answered
            await asyncio.sleep(0.001)
        held.go_on.set()
        async with await asking as answer:
            assert answer.status == 200
    assert held.thread == "admission"


@pytest.mark.parametrize("has_length", [True, False])
async def test_a_review_above_the_limit_is_not_read(has_length: bool) -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(BODY_LIMIT // 2**20 + 1):
            yield b" " * 2**20

    async with serving(Held()) as (_, session, metrics):
        sent: Any = b" " * (BODY_LIMIT + 1) if has_length else body()
        async with session.post(PATH, data=sent) as answer:
            assert answer.status == 413
        malformed = {"outcome": "malformed"}
        assert metrics.registry.get_sample_value("cotide_admission_reviews_total", malformed) == 1


async def test_bodies_that_come_slowly_hold_up_no_usual_review(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotide_operator.webhooks.admission.server.READ_SECONDS", 600.0)
    held, begun = Held(), asyncio.Semaphore(0)
    held.go_on.set()

    async def slowly() -> AsyncIterator[bytes]:
        yield b" "
        begun.release()
        await asyncio.Event().wait()

    async with serving(held) as (_, session, _), asyncio.timeout(20.0):
        slow = [asyncio.ensure_future(session.post(PATH, data=slowly())) for _ in range(READ_AT_ONCE)]
        for _ in slow:
            await begun.acquire()
        async with session.post(PATH, data=b"{}") as answer:
            assert answer.status == 200
        for one in slow:
            one.cancel()
        await asyncio.gather(*slow, return_exceptions=True)


async def test_a_body_that_does_not_come_in_time_is_waited_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotide_operator.webhooks.admission.server.READ_SECONDS", 0.01)

    async def never() -> AsyncIterator[bytes]:
        yield b" "
        await asyncio.Event().wait()

    async with serving(Held()) as (_, session, metrics), asyncio.timeout(20.0):
        async with session.post(PATH, data=never()) as answer:
            assert answer.status == 408
        malformed = {"outcome": "malformed"}
        assert metrics.registry.get_sample_value("cotide_admission_reviews_total", malformed) == 1


async def test_a_review_that_is_nested_too_deep_is_malformed() -> None:
    depth = 900  # orjson reads it; a walk over it would end in a RecursionError
    pod = '{"a":' * depth + "1" + "}" * depth
    body = (
        '{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE",'
        '"resource":{"group":"","version":"v1","resource":"pods"},"object":' + pod + "}}"
    )
    async with (
        serving(Reviewer(ObjectCache(), ("cotide",))) as (_, session, _),
        session.post(PATH, data=body) as answer,
    ):
        assert answer.status in (200, 400)


async def test_a_port_in_use_is_one_sentence() -> None:
    async with serving(Held()) as (server, _, _):
        context, now = ServingContext(), datetime.now(UTC)
        context.use(make_serving(make_authority(now), ["localhost"], now), now)
        with pytest.raises(InputError, match=f"port {server.port} on 127.0.0.1 is in use"):
            await AdmissionServer(Held(), Metrics()).start("127.0.0.1", server.port, context.listening)  # type: ignore[arg-type]  # a stub
