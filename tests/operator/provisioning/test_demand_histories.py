"""Demand that a Prometheus tells: what is asked, which history is made of the answer, and what is foreseen from it."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from pydantic import ValidationError

from cotide_core.errors import InputError
from cotide_operator.provisioning.place_queries import HISTORY_STEPS, Span, demand_histories, foreseen, history_of
from cotide_operator.provisioning.placing import PlaceSettings

QUARTER = 900.0
DAY = 96
MORNING = 1_795_680_000.0 + 100.0
"""A moment within a step, in epoch seconds."""


def settings(url: str | None = "http://unused", **service: Any) -> PlaceSettings:
    east = {"name": "east", "context": "e", "servers": 9, "delays": {"us": 0.02}, "delayQueries": {"eu": "rtt"}}
    fields = {"deployment": "web", "delaySeconds": 0.1, "serviceRate": 50, "demandQueries": {"us": "a", "eu": "b"}}
    data = {**fields, **service, "centres": [east], "prometheus": {"url": url} if url else None}
    return PlaceSettings.model_validate({name: value for name, value in data.items() if value is not None})


def matrix(span: Span, values: list[str], *, before: int = 0) -> dict[str, Any]:
    """Return an answer of one series whose last value is of so many steps before the last one."""
    first = span.last - (len(values) - 1 + before) * span.step_seconds
    samples = [[first + at * span.step_seconds, value] for at, value in enumerate(values)]
    return {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": samples}]}}


SPAN = Span(0.0, QUARTER, 6)


def test_a_history_is_of_steps_that_have_ended_at_whole_multiples_so_that_two_turns_see_the_same() -> None:
    span = Span.until(MORNING, QUARTER)
    assert span == Span.until(MORNING + 700, QUARTER)
    assert (span.last % QUARTER, span.steps) == (0.0, 15 * DAY)
    assert 0 <= MORNING - span.last < QUARTER


def test_a_history_of_short_steps_is_bounded() -> None:
    assert Span.until(MORNING, 10.0).steps == HISTORY_STEPS


def test_a_step_without_a_number_keeps_the_one_before_and_nothing_stands_before_the_first() -> None:
    found = history_of(matrix(SPAN, ["1", "NaN", "3"], before=1), SPAN)
    assert np.array_equal(found, [math.nan, math.nan, 1, 1, 3, 3], equal_nan=True)


def test_a_history_begins_after_a_gap_of_more_than_a_day_and_bridges_a_shorter_one() -> None:
    """Ten steps, then a gap of a day and a step, ten steps, one of a day, and two."""
    span = Span(0.0, QUARTER, 10 + DAY + 10 + DAY - 1 + 2)
    values = ["1"] * 10 + ["NaN"] * DAY + ["2"] * 10 + ["NaN"] * (DAY - 1) + ["3"] * 2
    with pytest.raises(InputError, match="only 12 of its last 107 steps have a number"):
        history_of(matrix(span, values), span)
    bridged = history_of(matrix(span, [*values[: 10 + DAY], *["2"] * 10, *["2"] * (DAY - 1), *["3"] * 2]), span)
    assert np.isnan(bridged[: 10 + DAY]).all()
    assert np.array_equal(bridged[10 + DAY :], [2.0] * (10 + DAY - 1) + [3.0] * 2)


def test_samples_outside_of_what_was_asked_for_are_not_taken_for_new_ones() -> None:
    with pytest.raises(InputError, match="its last two steps have no number"):
        history_of(matrix(Span(0.0, QUARTER, 100), ["1"] * 6), SPAN)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"result": [{"metric": {}}]},
        {"result": [{"metric": {}, "values": "many"}]},
        {"result": [{"metric": {}, "values": [[], {}, None, ["x", "1"], [0]]}]},
        {"result": [[0, "1"]]},
    ],
)
def test_an_answer_of_another_shape_is_told_in_a_sentence(data: Any) -> None:
    with pytest.raises(InputError, match=r"one is expected|no number"):
        history_of({"status": "success", "data": data}, SPAN)


@pytest.fixture
async def source() -> AsyncIterator[tuple[str, dict[str, list[str]], list[dict[str, str]]]]:
    """A Prometheus with a history a query, and what was asked of it."""
    histories: dict[str, list[str]] = {}
    asked: list[dict[str, str]] = []

    async def query(request: web.Request) -> web.Response:
        one = dict(request.query)
        asked.append(one)
        first, last, step = (float(one[name]) for name in ("start", "end", "step"))
        return web.json_response(matrix(Span(first, step, round((last - first) / step) + 1), histories[one["query"]]))

    app = web.Application()
    app.router.add_get("/api/v1/query_range", query)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", histories, asked
    await runner.cleanup()


async def test_networks_stand_in_their_order_and_a_history_begins_with_the_youngest(source: Any) -> None:
    url, histories, asked = source
    histories |= {"a": ["1", "2", "3"], "b": ["40", "50"]}
    found = await demand_histories(settings(url), MORNING)
    assert {name: table.tolist() for name, table in found.items()} == {"": [[40, 2], [50, 3]]}, "eu before us"
    assert {one["step"] for one in asked} == {"900.000"}


async def test_without_a_query_nobody_is_asked() -> None:
    assert await demand_histories(settings(demandQueries=None), MORNING) == {}


@pytest.mark.parametrize(
    ("queries", "words"),
    [
        ({"us": "a"}, "demandQueries: the file has a delay to, and no query for, eu"),
        ({"us": "a", "eu": "b", "mars": "c"}, "demandQueries: the file has no delay to mars"),
        ({"us": "a", "eu": ""}, "at least 1 character"),
    ],
)
def test_each_network_needs_a_query_and_no_other_has_one(queries: dict[str, str], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        settings(demandQueries=queries)


def test_queries_of_demand_need_somebody_to_ask() -> None:
    with pytest.raises(ValidationError, match="demandQueries need prometheus"):
        settings(url=None)


def test_a_wave_that_came_every_day_is_foreseen_before_it_comes() -> None:
    """The night has come; twelve hours ahead stands the next noon. Rates jitter by a tenth, as rates do."""
    hours = np.arange(2 * DAY) / 4
    noise = np.random.default_rng(1).normal(1.0, 0.1, len(hours))
    history = ((100 - 90 * np.cos(2 * np.pi * hours / 24)) * noise)[:, None]
    found = foreseen(settings().services[""], history, QUARTER, DAY)[0][:, 0]
    assert found[0] < 60
    assert found[46:50].min() >= 170
    assert np.isfinite(found).all()


def test_a_history_of_one_step_is_enough_and_one_of_nothing_asks_for_nothing() -> None:
    service = settings().services[""]
    found, score = foreseen(service, np.array([[10.0, 30.0]]), QUARTER, 2)
    assert found.sum(axis=1) == pytest.approx([51.0] * 2, abs=2.0)
    assert score is None
    found, score = foreseen(service, np.zeros((DAY, 2)), QUARTER, 2)
    assert found.max() < 1e-3
    assert score is None, "nothing came that an error could be a share of"
