"""Debug pages: for callers whom the API server lets in, closed whenever it says nothing, and a page at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_operator.cache.decision_store import Decision, DecisionStore
from cotide_operator.observability.access import (
    ASKED_AT_ONCE,
    ASKED_TOGETHER,
    KEPT_SECONDS,
    MAX_KEPT,
    TOKEN_LIMIT,
    Access,
    AccessReviews,
)
from cotide_operator.observability.http_server import BOARD, BOARD_LIMIT, MAX_PAGE, HealthServer
from cotide_operator.observability.metrics import Metrics

USER = {"username": "ann", "uid": "7", "groups": ["team", "system:authenticated"], "extra": {"scope": ["x"]}}


class Api:
    """Answers reviews: the token ``ann`` is Ann's, who may see the decision store or not."""

    def __init__(self, *, allowed: bool = True) -> None:
        self.allowed = allowed
        self.fault: Exception | None = None
        self.answer: Any = None
        self.hold: asyncio.Event | None = None
        self.asked: list[dict[str, Any]] = []

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        if self.hold is not None:
            await self.hold.wait()
        if self.fault is not None:
            raise self.fault
        if self.answer is not None:
            return {**body, "status": self.answer}
        if path.endswith("/tokenreviews"):
            known = body["spec"]["token"] == "ann"
            return {**body, "status": {"authenticated": True, "user": USER} if known else {"error": "unknown"}}
        return {**body, "status": {"allowed": self.allowed}}


class Scene:
    def __init__(self, **how: bool) -> None:
        self.api: Any = Api(**how)
        self.now = 0.0
        self.reviews = AccessReviews(self.api, now=lambda: self.now)

    async def of(self, header: str = "Bearer ann") -> Access:
        return await self.reviews.of(header, BOARD)


async def test_a_known_user_with_the_right_is_let_in_and_asked_about_in_full() -> None:
    scene = Scene()
    assert await scene.of() is Access.ALLOWED
    _, access = scene.api.asked
    assert access["spec"] == {
        "user": "ann",
        "uid": "7",
        "groups": USER["groups"],
        "extra": USER["extra"],
        "nonResourceAttributes": {"path": BOARD, "verb": "get"},
    }


@pytest.mark.parametrize(
    "header", ["", "ann", "Basic ann", "Bearer ", "Bearer nobody", "Bearer " + "x" * (TOKEN_LIMIT + 1)]
)
async def test_a_caller_without_a_token_of_somebody_is_unknown(header: str) -> None:
    assert await Scene().of(header) is Access.UNKNOWN


async def test_a_user_without_the_right_is_forbidden() -> None:
    assert await Scene(allowed=False).of() is Access.FORBIDDEN


@pytest.mark.parametrize(
    "status",
    [
        None,
        "yes",
        [],
        {"authenticated": "true", "user": USER},
        {"authenticated": True},
        {"authenticated": True, "user": {}},
    ],
)
async def test_an_odd_answer_lets_nobody_in(status: Any) -> None:
    scene = Scene()
    scene.api.answer = status or {}
    assert await scene.of() is Access.UNKNOWN


async def test_an_odd_verdict_lets_nobody_in() -> None:
    for verdict in ({"allowed": "true"}, {"allowed": True, "denied": True}, {"allowed": 1}):
        scene = Scene()
        scene.api.answer = {"authenticated": True, "user": USER, **verdict}
        assert await scene.of() is Access.FORBIDDEN


@pytest.mark.parametrize("fault", [ClusterError("no answer"), ApiError(403, "Forbidden", "not yours")])
async def test_without_an_answer_everybody_stays_out_and_it_is_asked_again(fault: Exception) -> None:
    scene = Scene()
    scene.api.fault = fault
    assert await scene.of() is Access.UNDECIDED
    scene.api.fault = None
    assert await scene.of() is Access.ALLOWED


async def test_an_answer_is_kept_for_a_short_while_and_never_with_the_token() -> None:
    scene = Scene()
    await scene.of()
    scene.api.allowed = False
    scene.now = KEPT_SECONDS - 0.1
    assert await scene.of() is Access.ALLOWED
    assert len(scene.api.asked) == 2
    scene.now = KEPT_SECONDS
    assert await scene.of() is Access.FORBIDDEN
    assert "ann" not in repr(scene.reviews._kept)


async def test_forged_tokens_fill_no_memory() -> None:
    scene = Scene()
    for number in range(MAX_KEPT + 50):
        await scene.of(f"Bearer forged-{number}")
    assert len(scene.reviews._kept) == MAX_KEPT


async def test_a_crowd_of_strangers_makes_us_ask_a_few_times_at_once() -> None:
    scene = Scene()
    scene.api.hold = asyncio.Event()
    waiting = [asyncio.ensure_future(scene.of(f"Bearer {number}")) for number in range(ASKED_AT_ONCE)]
    await asyncio.sleep(0)
    assert await scene.of("Bearer one-more") is Access.UNDECIDED
    scene.api.hold.set()
    assert await asyncio.gather(*waiting) == [Access.UNKNOWN] * ASKED_AT_ONCE


@asynccontextmanager
async def board_of(count: int, *, trouble: str = "") -> AsyncIterator[tuple[DecisionStore, str]]:
    store = DecisionStore()
    for number in reversed(range(count)):
        position = None if number % 10 == 9 else number + 1
        store.publish(Decision(f"d/p{number:05}", "u", 1.0, None, "QosAtRisk", "why", queue_position=position))
    scene = Scene()
    notes = [trouble] if trouble else []
    server = HealthServer(Metrics(), store, list, access=scene.reviews, notes=lambda: notes)
    await server.start("127.0.0.1", 0)
    try:
        yield store, f"http://127.0.0.1:{server.port}"
    finally:
        await server.stop()


async def read(url: str, query: Mapping[str, str] | None = None, whose: str = "ann") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {whose}"}
    async with aiohttp.ClientSession() as session, session.get(url + BOARD, params=query, headers=headers) as answer:
        return answer.status, await answer.json() if answer.status == 200 else await answer.text()


async def test_the_board_is_read_by_pages_in_the_order_of_the_queue() -> None:
    async with board_of(25) as (_, url):
        keys: list[str] = []
        for page in ("1", "2", "3"):
            status, body = await read(url, {"page": page, "limit": "10"})
            assert (status, body["total"], body["pages"]) == (200, 25, 3)
            keys += [one["key"] for one in body["decisions"]]
        waiting = [number for number in range(25) if number % 10 != 9]
        assert keys == [f"d/p{number:05}" for number in (*waiting, 9, 19)]  # those without a position come last
        assert (await read(url, {"page": "4", "limit": "10"}))[1]["decisions"] == []


async def test_one_pod_is_found_without_a_look_at_the_others() -> None:
    async with board_of(3) as (_, url):
        status, body = await read(url, {"pod": "d/p00001"})
        assert (status, [one["queue_position"] for one in body["decisions"]]) == (200, [2])
        assert (await read(url, {"pod": "d/none"}))[1]["decisions"] == []


@pytest.mark.parametrize(
    "query",
    [
        {"page": "0"},
        {"page": "x"},
        {"limit": str(MAX_PAGE + 1)},
        {"limit": "0"},
        {"page": str(BOARD_LIMIT // 100 + 1), "limit": "100"},
        {"page": "9" * 5000},
    ],
)
async def test_a_page_that_would_cost_too_much_is_refused(query: dict[str, str]) -> None:
    async with board_of(1) as (_, url):
        assert (await read(url, query))[0] == 400


async def test_a_board_without_anybody_to_ask_is_closed() -> None:
    server = HealthServer(Metrics(), DecisionStore(), list)
    await server.start("127.0.0.1", 0)
    try:
        assert (await read(f"http://127.0.0.1:{server.port}"))[0] == 503
    finally:
        await server.stop()


async def test_a_stranger_gets_no_word_about_pods() -> None:
    async with board_of(2) as (_, url):
        status, text = await read(url, whose="forged")
        assert status == 401
        assert "d/p" not in text


async def test_a_ready_replica_says_what_is_wrong_nevertheless() -> None:
    trouble = "the ledger in /l can't be written: No space left on device"
    async with (
        board_of(0, trouble=trouble) as (_, url),
        aiohttp.ClientSession() as session,
        session.get(f"{url}/readyz") as answer,
    ):
        assert (answer.status, await answer.text()) == (200, f"ok\nnote: {trouble}\n")


async def test_new_tokens_are_asked_about_at_a_bounded_rate_and_those_of_users_always() -> None:
    scene = Scene()
    assert await scene.of("Bearer ann") is Access.ALLOWED
    asked = len(scene.api.asked)
    verdicts = [await scene.of(f"Bearer forged-{number}") for number in range(200)]
    assert verdicts[ASKED_TOGETHER:] == [Access.UNDECIDED] * (200 - ASKED_TOGETHER)
    assert len(scene.api.asked) <= asked + ASKED_TOGETHER
    scene.now += KEPT_SECONDS + 0.5  # what was answered is forgotten
    for number in range(200):
        await scene.of(f"Bearer more-{number}")
    assert await scene.of("Bearer ann") is Access.ALLOWED
