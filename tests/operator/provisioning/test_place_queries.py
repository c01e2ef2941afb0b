"""Prices and delays of data centres by Prometheus: what is told is used, what can't be used is told."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError

from cotide_core.errors import InputError
from cotide_operator.provisioning.place_queries import queried
from cotide_operator.provisioning.placing import PlaceSettings

Answers = dict[str, Any]


@pytest.fixture
async def source() -> AsyncIterator[tuple[str, Answers]]:
    """A Prometheus that answers as a test says, by query."""
    answers: Answers = {}

    async def query(request: web.Request) -> web.Response:
        return web.json_response(answers[request.query["query"]])

    app = web.Application()
    app.router.add_get("/api/v1/query", query)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", answers
    await runner.cleanup()


def vector(*values: str) -> dict[str, Any]:
    result = [{"metric": {}, "value": [0, value]} for value in values]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def settings(url: str, **centre: Any) -> PlaceSettings:
    east = {"name": "east", "context": "e", "servers": 9, "delays": {"us": 0.02, "eu": 0.09}, **centre}
    west = {"name": "west", "context": "w", "servers": 9, "delays": {"us": 0.05}}
    rest = {"deployment": "web", "delaySeconds": 0.1, "serviceRate": 50, "centres": [east, west]}
    return PlaceSettings.model_validate({**rest, **({"prometheus": {"url": url}} if url else {})})


async def test_what_is_told_comes_over_what_the_file_says(source: tuple[str, Answers]) -> None:
    url, answers = source
    scalar = {"status": "success", "data": {"resultType": "scalar", "result": [0, "0.03"]}}
    answers |= {"price": vector("0.25"), "rtt": scalar}
    found, prices = await queried(settings(url, priceQuery="price", delayQueries={"us": "rtt"}))
    assert prices == {"east": 0.25}
    assert dict(found.centres[0].delays) == {"us": 0.03, "eu": 0.09}
    assert dict(found.centres[1].delays) == {"us": 0.05}


async def test_without_a_query_nobody_is_asked() -> None:
    asked = settings("")
    assert await queried(asked) == (asked, {})


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (vector(), "has 0 values where one is expected"),
        (vector("1", "2"), "has 2 values where one is expected"),
        (vector("NaN"), "not a number"),
        (vector("+Inf"), "not a number"),
        ({"status": "error", "error": "parse error"}, "parse error"),
        ({"status": "success", "data": []}, "has 0 values"),
        ({"status": "success", "data": {"resultType": "scalar", "result": [0]}}, "not a number"),
    ],
)
async def test_a_price_that_cannot_be_used_is_told_with_its_centre(
    source: tuple[str, Answers], answer: Any, words: str
) -> None:
    url, answers = source
    answers["price"] = answer
    with pytest.raises(InputError, match=f"the price of east is not known: .*{words}"):
        await queried(settings(url, priceQuery="price"))


async def test_a_delay_in_milliseconds_is_taken_for_a_slip(source: tuple[str, Answers]) -> None:
    url, answers = source
    answers["rtt"] = vector("20000")
    with pytest.raises(InputError, match="20000 s to us is not a delay"):
        await queried(settings(url, delayQueries={"us": "rtt"}))


async def test_nobody_there_is_told() -> None:
    with socket.socket() as held:  # bound, and nobody listens
        held.bind(("127.0.0.1", 0))
        with pytest.raises(InputError, match=r"the price of east is not known: .*can't be reached"):
            await queried(settings(f"http://127.0.0.1:{held.getsockname()[1]}", priceQuery="price"))


def test_a_query_needs_somebody_to_ask() -> None:
    with pytest.raises(ValidationError, match="need prometheus"):
        settings("", priceQuery="price")
