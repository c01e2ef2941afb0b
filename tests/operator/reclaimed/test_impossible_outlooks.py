"""What cannot be true is never offered: a node falls back to what nobody asked for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from reclaimed_scene import EMPTY, MI, Scene, outlook

FREE = (8000 - 3000, (8192 - 2048) * MI)
"""What is left beside the requests of the online pods below."""
IMPOSSIBLE = [
    ("not a number", {"offered_millicores": math.nan}),
    ("infinite", {"offered_memory_bytes": math.inf}),
    ("below zero", {"offered_millicores": -1}),
    ("a peak that is not a number", {"online_millicores": math.nan}),
    ("a peak below zero", {"online_memory_bytes": -1.0}),
]


@pytest.mark.parametrize("fields", [case[1] for case in IMPOSSIBLE], ids=[case[0] for case in IMPOSSIBLE])
async def test_an_outlook_that_can_not_be_falls_back_to_requests_never_to_zero(
    scene: Scene, fields: dict[str, Any]
) -> None:
    scene.held["n1"] = replace(EMPTY, online=(3000, 2048 * MI))
    scene.emit(outlook(**fields))
    assert await scene.after() == [FREE]
    condition = scene.nodes["n1"]["status"]["conditions"][0]
    assert (condition["status"], condition["reason"]) == ("False", "ImpossibleForecast")
    assert condition["message"] == "the forecast held an impossible figure: the pods' requests count instead"


async def test_a_hundredfold_offer_is_cut_to_what_is_physically_there(scene: Scene) -> None:
    scene.emit(outlook(400_000, 400_000 * MI))
    assert await scene.after() == [(8000, 8192 * MI)]


async def test_an_honest_zero_is_published_and_is_no_accident(scene: Scene) -> None:
    scene.emit(outlook(0, 0))
    assert await scene.after() == [(0, 0)]


async def test_an_outlook_that_is_long_over_falls_back_to_requests(scene: Scene) -> None:
    scene.held["n1"] = replace(EMPTY, online=(3000, 2048 * MI))
    scene.emit(outlook(7000))
    assert await scene.after() == [(7000, 4096 * MI)]
    assert await scene.after(599.0) == []  # it held for 300 s and gets another slot's grace
    assert await scene.after(2.0) == [FREE]
    assert scene.events[-1][3] == "no forecast came for a whole slot: the pods' requests count instead"
    assert await scene.after(100.0) == []


async def test_fallen_back_a_node_offers_no_more_than_is_not_asked_for_by_now(scene: Scene) -> None:
    fallen = outlook(6000, 6000 * MI, trusted=False, reason="StaleFeed")
    scene.emit(fallen)
    await scene.after()
    scene.held["n1"] = replace(EMPTY, online=(5000, 0))  # an online pod came since
    scene.emit(fallen)
    assert await scene.after(60.0) == [(3000, 6000 * MI)]


async def test_what_plain_batch_pods_hold_is_not_offered_a_second_time(scene: Scene) -> None:
    scene.held["n1"] = replace(EMPTY, plain_batch=(1500, 5000 * MI))
    scene.emit(outlook())
    assert await scene.after() == [(2500, 0)]  # 4000 - 1500; 4096 - 5000 is nothing
