"""What trips the forecasts costs a slot, a past or a fit: nodes offer requests meanwhile, and the tasks go on."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from host_load_scene import SLOT, Scene, one_node, online

from cotide_operator.host_load import factory
from cotide_operator.host_load.forecasters import Forecasters
from cotide_operator.host_load.history import History
from cotide_operator.host_load.history_replay import HistoryReplay
from cotide_operator.host_load.refits import Refits
from cotide_operator.observability.metrics import Metrics
from cotide_operator.usage.prometheus import Series


class HostilePast:
    """Answers with moments and values of different number."""

    async def usage_range(self, resource: int, start: float, end: float, step: float) -> list[Series]:
        return [Series("ns/web", [start, start + step], [1.0])]


def left_out(scene: Scene) -> float | None:
    return scene.metric("measurement_faults_total", place="host load")


async def test_a_past_that_trips_us_is_no_past_and_forecasts_begin() -> None:
    scene = await one_node(online("web"))
    scene.live = scene.make(HistoryReplay(History(HostilePast(), scene.clock, SLOT), 100))
    await asyncio.wait_for(scene.live.rebuild(), 5.0)
    assert scene.live.rebuilt.is_set()
    assert left_out(scene) == 1
    assert not scene.live.lock.locked()
    await scene.slot(*scene.use("web", 400))
    assert not math.isnan(scene.outlook().online_millicores)


async def test_a_first_forecast_that_trips_us_leaves_the_next_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = await one_node(online("web"))

    def trips(*_: Any) -> Any:
        raise FloatingPointError("a poisoned row")

    with monkeypatch.context() as patched:
        patched.setattr(scene.live, "_learn", trips)
        await scene.live.rebuild()
    assert left_out(scene) == 1
    assert not scene.live.lock.locked()
    await scene.slot(*scene.use("web", 400))
    assert not math.isnan(scene.outlook().online_millicores)


async def test_without_a_source_nodes_that_trip_us_are_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = asyncio.Event()
    rounds = 0

    async def take(readings: list[Any]) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise OverflowError("a poisoned node")
        taken.set()

    async def caught_up() -> None:
        pass

    monkeypatch.setattr(factory, "_live", lambda *_: SimpleNamespace(take=take))
    monkeypatch.setattr(factory, "WITHOUT_SOURCE_SECONDS", 0.0)
    dependencies: Any = SimpleNamespace(metrics=Metrics(), loop=SimpleNamespace(caught_up=caught_up))
    running = asyncio.ensure_future(factory.follow_nodes(dependencies))
    await asyncio.wait({running, waiting := asyncio.ensure_future(taken.wait())}, return_when="FIRST_COMPLETED")
    assert waiting.done()
    running.cancel()


async def test_a_slot_that_trips_us_is_left_out_and_the_next_one_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = await one_node(online("web"))
    ended = asyncio.Event()
    rounds = 0

    async def trips_once() -> bool:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise FloatingPointError("a poisoned slot")
        ended.set()
        await asyncio.Event().wait()
        return True

    async def at_once(seconds: float) -> None:
        await pause(0)

    pause = asyncio.sleep
    monkeypatch.setattr("cotide_operator.host_load.live.asyncio.sleep", at_once)
    monkeypatch.setattr(scene.live, "end_slots", trips_once)
    running = asyncio.ensure_future(scene.live.run())
    await asyncio.wait({running, waiting := asyncio.ensure_future(ended.wait())}, return_when="FIRST_COMPLETED")
    assert waiting.done()
    assert rounds == 2
    assert left_out(scene) == 1
    running.cancel()


async def test_a_fit_that_trips_us_is_tried_again_after_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    again = asyncio.Event()
    loop = asyncio.get_running_loop()

    def trips(histories: Any, **options: Any) -> Any:
        tried.append(len(histories))
        if len(tried) == 2:
            loop.call_soon_threadsafe(again.set)
        raise np.linalg.LinAlgError("a poisoned history")

    monkeypatch.setattr("cotide_predictors.host_load.refit.refit", trips)
    forecasters = Forecasters(8)
    for _ in range(60):
        forecasters.record(np.full((4, 8), 0.3))
    rebuilt = asyncio.Event()
    rebuilt.set()
    running = asyncio.ensure_future(Refits(forecasters, asyncio.Lock(), 0.0).run(after=rebuilt))
    await asyncio.wait({running, waiting := asyncio.ensure_future(again.wait())}, return_when="FIRST_COMPLETED")
    assert waiting.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
