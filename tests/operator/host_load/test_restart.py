"""The past after a restart: asked of Prometheus, learnt in order, never waited for for ever."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping

import numpy as np
import pytest
from host_load_scene import (
    EPOCH,
    GIB,
    MILLICORES,
    SLOT,
    Scene,
    forecasts,
    one_node,
    online,
)

from cotide_core.events import (
    Event,
)
from cotide_operator.host_load.history import History
from cotide_operator.host_load.history_replay import HistoryReplay
from cotide_operator.usage.prometheus import Series
from cotide_operator.usage.sources import CPU, SourceDown


class Past:
    """Answers range queries from what each pod used at a moment of the wall; down as often as told."""

    def __init__(self, use: Mapping[str, object], down: int = 0, answers: int = 10**9) -> None:
        self.use = use
        self.answers = answers
        self.down = down
        self.asked: list[tuple[int, float, float, float]] = []

    async def usage_range(self, resource: int, start: float, end: float, step: float) -> list[Series]:
        self.asked.append((resource, start, end, step))
        if len(self.asked) > self.answers:
            raise SourceDown("out of memory")
        if self.down:
            self.down -= 1
            raise SourceDown("no route")
        found = []
        for pod, use in self.use.items():
            moments = [moment for moment in np.arange(start, end + step / 2, step).tolist() if use(moment) is not None]
            values = [float(use(moment)) if resource == CPU else float(GIB) for moment in moments]
            found.append(Series(f"ns/{pod}", moments, values))
        return found


async def restarted(scene: Scene, past: Past, slots: int = 100) -> list[Event]:
    scene.live = scene.make(HistoryReplay(History(past, scene.clock, SLOT), slots))
    scene.loop.published.clear()
    await scene.live.rebuild()
    return list(scene.loop.published)


async def test_a_restart_forecasts_at_once_from_the_past_of_the_present_pods() -> None:
    scene = await one_node(online("web"))
    past = Past({"web": lambda moment: 600 if int(moment // SLOT) % 2 else 500, "gone": lambda moment: 9000})
    found = forecasts(await restarted(scene, past))["a"]
    assert 600 <= found.online_millicores < 800
    assert found.until_seconds >= EPOCH + SLOT
    await scene.read(*scene.use("web", 500))
    assert scene.outlook().reason == "Calibrated"  # its forecasts of the past were scored
    assert scene.metric("forecast_underestimates_total", forecaster="online-cpu") is None  # but count in no total
    assert past.asked[0][1:3] == pytest.approx((EPOCH - 100 * SLOT + 37.5, EPOCH - 0.75))


async def test_a_restart_learns_the_slots_in_the_order_in_which_they_were() -> None:
    scene = await one_node(online("web"))
    rising = Past({"web": lambda moment: 1000 + (moment - EPOCH) / SLOT * 5})
    published = await restarted(scene, rising)
    assert 990 <= forecasts(published)["a"].online_millicores < 1200  # the newest is 995, the oldest 500


async def test_at_sixty_times_the_speed_the_past_is_asked_for_in_sixtieths() -> None:
    scene = await one_node(online("web"), speed=60.0)
    past = Past({"web": lambda moment: 600})
    assert forecasts(await restarted(scene, past))["a"].online_millicores >= 600
    (_, start, end, step) = past.asked[0]
    assert step == 1.25  # 300 s / 4 / 60
    assert (start, end) == pytest.approx((EPOCH - 500 + 0.625, EPOCH - 0.0125))


async def test_before_most_pods_came_there_is_no_past_and_no_idleness() -> None:
    scene = await one_node(online("web"), online("db"), online("new"))
    hour_ago = EPOCH - 3600

    def since(moment: float) -> float | None:
        return 300 if moment >= hour_ago else None

    scene_past = Past({"web": lambda moment: 300, "db": since, "new": lambda moment: None})
    published = await restarted(scene, scene_past)
    assert forecasts(published)["a"].online_millicores >= 1600  # 300 + 300 and the request of the new one
    await scene.read(*scene.use("web", 300), *scene.use("db", 300))
    assert scene.outlook().reason == "TooFewRecords"  # twelve slots, of which eleven were forecast


async def test_the_past_of_a_pod_begins_when_its_rate_has_settled() -> None:
    started = EPOCH - 2 * SLOT
    scene = await one_node(online("web")._replace(started_seconds=started))
    young = Past({"web": lambda moment: 5 if moment < started + SLOT else 300})
    scene.live = scene.make(HistoryReplay(History(young, scene.clock, SLOT, settling_wall_seconds=SLOT), 100))
    await scene.live.rebuild()
    assert scene.live.forecasters.histories()[0][0, 0, -3:].tolist() == pytest.approx(
        [math.nan, math.nan, 300 / MILLICORES], nan_ok=True
    )


async def test_an_empty_node_has_no_past_of_idleness() -> None:
    scene = await one_node()
    assert forecasts(await restarted(scene, Past({"gone": lambda moment: 3000}))) == {}


async def test_a_prometheus_that_answers_late_is_asked_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotide_operator.host_load.history_replay.RETRY_WALL_SECONDS", 0.0)
    caplog.set_level(logging.INFO)
    scene = await one_node(online("web"))
    assert forecasts(await restarted(scene, Past({"web": lambda moment: 600}, down=3)))
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if "can't be read" in line] == [
        "the past can't be read from Prometheus for now: no route"
    ]
    assert any("100 slots of 1 nodes were rebuilt" in line for line in lines)


async def test_what_a_prometheus_that_died_did_not_say_is_a_gap_in_the_calendar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cotide_operator.host_load.history_replay.RETRY_WALL_SECONDS", 0.0)
    monkeypatch.setattr("cotide_operator.host_load.history.POINTS_AT_A_TIME", 40)  # ten slots of one pod
    scene = await one_node(online("web"))
    past = Past({"web": lambda moment: 600}, answers=2 * 3)
    scene.live = scene.make(HistoryReplay(History(past, scene.clock, SLOT), 100))
    rebuilding = asyncio.create_task(scene.live.rebuild())
    await scene.read(*scene.use("web", 400))
    scene.passes(SLOT)
    await scene.read(*scene.use("web", 400))
    await asyncio.wait_for(rebuilding, 5.0)
    kept = scene.live.forecasters.histories()[0][0, 0]
    assert np.isfinite(kept).tolist() == [True] * 30 + [False] * 70 + [True]
    assert kept[-1] == pytest.approx(400 / MILLICORES)


async def test_without_a_past_the_first_live_slot_begins(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotide_operator.host_load.history_replay.RETRY_WALL_SECONDS", 0.0)
    caplog.set_level(logging.INFO)
    scene = await one_node(online("web"))
    scene.live = scene.make(HistoryReplay(History(Past({}, down=10**9), scene.clock, SLOT), 100))
    rebuilding = asyncio.create_task(scene.live.rebuild())
    await scene.read(*scene.use("web", 400))
    assert not rebuilding.done()
    scene.passes(SLOT)
    await scene.read(*scene.use("web", 400))  # closes the first live slot
    await asyncio.wait_for(rebuilding, 5.0)
    assert scene.live.rebuilt.is_set()
    assert "the past of these pods is unknown" in caplog.text
    assert scene.outlook().reason == "TooFewRecords"
