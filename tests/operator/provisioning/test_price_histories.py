"""Histories of prices from a Prometheus: the last good one stays, and grows old."""

from __future__ import annotations

from typing import Any

import pytest
from told_demand import told_demand

from cotide_operator.provisioning.place_queries import PriceHistories
from cotide_operator.provisioning.placing import PlaceSettings

NOON = 1_700_000_000.0 // 900 * 900


def settings(url: str, **top: Any) -> PlaceSettings:
    centre = {"name": "east", "context": "east", "servers": 4, "delays": {"us": 0.02}, "priceQuery": "money"}
    service = {"deployment": "web", "delaySeconds": 0.1, "serviceRate": 50}
    return PlaceSettings.model_validate(
        {"centres": [centre], **service, "prometheus": {"url": url}, "priceHistoryDays": 1, **top}
    )


async def test_a_price_that_is_not_told_any_more_is_the_last_one_and_older_by_each_turn() -> None:
    histories, known = {"money": ["1", "-2", "3"]}, PriceHistories()
    with told_demand(histories) as url:
        found, wrong = await known.ask(settings(url), NOON + 10)
        assert (found["east"].values.tolist(), found["east"].age_seconds, wrong) == ([1, -2, 3], 0, {})
        histories.clear()
        found, wrong = await known.ask(settings(url), NOON + 1810)
    assert (found["east"].values.tolist(), found["east"].age_seconds) == ([1, -2, 3], 1800)
    assert str(wrong["east"]) == (
        "east.priceQuery: the price of east is not known: the query has 0 series where one is expected"
    )


async def test_what_another_query_told_is_forgotten() -> None:
    known = PriceHistories()
    with told_demand({"money": ["1"]}) as url:
        await known.ask(settings(url), NOON)
        centre = {"name": "east", "context": "east", "servers": 4, "delays": {"us": 0.02}, "priceQuery": "other"}
        found, wrong = await known.ask(settings(url, centres=[centre]), NOON)
    assert (found, list(wrong)) == ({}, ["east"])


@pytest.mark.parametrize(("days", "step", "samples"), [(1, 900, 96), (31, 10, 3000)])
async def test_a_long_history_is_asked_for_in_no_more_than_three_thousand_steps(
    days: int, step: float, samples: int
) -> None:
    with told_demand({"money": ["1"] * 4000}) as url:
        found, _ = await PriceHistories().ask(settings(url, priceHistoryDays=days, stepSeconds=step), NOON)
    assert len(found["east"].values) == samples


async def test_without_days_of_history_nobody_is_asked() -> None:
    assert await PriceHistories().ask(settings("http://127.0.0.1:1", priceHistoryDays=0), NOON) == ({}, {})
