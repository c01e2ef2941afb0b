"""Scores, trust and its loss; nodes that come, go and change."""

from __future__ import annotations

import numpy as np
import pytest
from host_load_scene import (
    EPOCH,
    INTO_SLOT,
    MILLICORES,
    SLOT,
    Scene,
    forecasts,
    one_node,
    online,
    play,
)

from cotide_core.events import (
    ForecastScored,
    NodeDeleted,
)


async def test_each_forecast_is_scored_once_against_its_slot() -> None:
    scene = await one_node(online("web"), tells_scores=True)
    first = await scene.slot(*scene.use("web", 400))
    assert not any(isinstance(one, ForecastScored) for one in first)  # nothing was forecast for it
    published = await scene.slot(*scene.use("web", 500))
    scored = {one.forecaster: one for one in published if isinstance(one, ForecastScored)}
    assert set(scored) == {"online-cpu", "online-memory", "batch-cpu", "batch-memory"}
    cpu = scored["online-cpu"]
    assert (cpu.until_seconds, cpu.measured) == (EPOCH + 2 * SLOT, 500.0)
    assert cpu.point == pytest.approx(400.0)  # the last state
    assert cpu.absolute_error_share == pytest.approx(100 / MILLICORES, rel=1e-6)
    assert cpu.bias_share == pytest.approx(-100 / MILLICORES, rel=1e-6)
    assert (cpu.underestimate_share, cpu.trusted) == (1.0, True)
    assert scene.metric("forecast_underestimates_total", forecaster="online-cpu") == 1
    assert scene.metric("forecast_absolute_error_sum", forecaster="online-cpu") == pytest.approx(100 / MILLICORES)
    assert scene.metric("forecast_bias_share", forecaster="online-cpu") == pytest.approx(-100 / MILLICORES, rel=1e-6)
    assert scene.metric("forecast_coverage_ratio", forecaster="online-memory", quantile="0.99") == 1.0


async def test_scores_are_told_only_where_somebody_keeps_them() -> None:
    scene = await one_node(online("web"))
    for _ in range(3):
        assert not any(isinstance(one, ForecastScored) for one in await scene.slot(*scene.use("web", 400)))


async def test_forecasts_that_cover_too_little_are_not_used_and_come_back_by_themselves() -> None:
    scene = await one_node(online("web", millicores=3000))
    published = await play(scene, [400.0] * 60)
    assert published[-1]
    assert scene.outlook().reason in ("Calibrated", "StaleFeed")
    scene.passes(6.0 - INTO_SLOT)  # so early in the slot the last forecast is still in force for the engine
    for _ in range(8):  # each time just above the p99
        (cpu, *_), _ = scene.live.forecasters.forecasts()
        (fallen,) = await play(scene, [MILLICORES * float(cpu.p99[0]) + 10])
        if not fallen:
            break
    await scene.read(*scene.use("web", 400))
    found = scene.outlook()
    assert fallen == {}
    assert scene.state.host_load.in_force(scene.clock.now()).all()
    assert (found.trusted, found.reason, found.offered_millicores) == (False, "CoverageTooLow", 1000)
    assert found.coverage_p99 is not None
    assert found.coverage_p99 < 0.9675
    assert "covered" in found.message
    assert "cpu" in found.message
    assert scene.metric("node_outlooks", reason="CoverageTooLow") == 1
    calm = np.full((4, scene.live.forecasters.rows), 0.1)
    for _ in range(310):  # a window of 288 slots, and twelve good ones in a row
        scene.live.forecasters.record(calm)
    (back,) = await play(scene, [400.0])
    assert back
    await scene.read(*scene.use("web", 400))
    assert scene.outlook().reason == "Calibrated"


# Nodes come and go.


async def test_a_node_that_joins_is_forecast_after_its_first_slot_beside_the_others() -> None:
    scene = await one_node(online("web"))
    await play(scene, [400.0] * 3)
    await scene.nodes(*(f"n{number}" for number in range(100)))  # more than there was room for
    await scene.place(*(online(f"p{number}", node=f"n{number}") for number in range(100)))
    readings = [one for number in range(100) for one in scene.use(f"p{number}", 500 + number)]
    published = forecasts(await scene.slot(*scene.use("web", 400), *readings))
    assert len(published) == 101
    assert all(500 + number <= published[f"n{number}"].online_millicores < 2000 for number in range(100))
    assert 400 <= published["a"].online_millicores < 700


async def test_a_node_that_vanished_leaves_nothing_to_the_next_and_one_that_is_back_at_once_keeps_its_past() -> None:
    scene = await one_node(online("web"))
    await play(scene, [3000.0] * 3)
    await scene.happens(NodeDeleted("a"))
    await scene.read()
    await scene.nodes("a")
    published = forecasts(await scene.slot(*scene.use("web", 3000)))
    assert published["a"].online_millicores >= 3000
    await scene.happens(NodeDeleted("a"))
    scene.passes(SLOT + 1)
    await scene.read()
    await scene.remove(scene.pods["ns/web"])
    await scene.nodes("b")
    await scene.place(online("other", node="b"))
    await scene.read()
    assert scene.outlooks.get("a") is None
    assert "b" not in forecasts(await scene.slot())
    published = forecasts(await scene.slot(*scene.use("other", 100)))
    assert 100 <= published["b"].online_millicores < 100 + 0.2 * MILLICORES


async def test_a_node_that_changed_its_size_starts_anew() -> None:
    scene = await one_node(online("web"))
    await play(scene, [2000.0] * 3)
    await scene.nodes("a", cpu=8000)
    assert "a" not in forecasts(await scene.slot())  # half of the old node is not half of the new one
    assert forecasts(await scene.slot(*scene.use("web", 2000)))["a"].online_millicores >= 2000


async def test_a_node_with_nothing_allocatable_is_passed_over() -> None:
    scene = Scene()
    await scene.nodes("a", cpu=0)
    await scene.place(online("web"))
    assert forecasts(await scene.slot(*scene.use("web", 0.0))) == {}
    assert scene.outlook().offered_millicores == 0


async def test_simulated_time_counts_slots_in_seconds_of_the_operators_clock() -> None:
    scene = await one_node(online("web"), speed=60.0)
    published = await scene.slot(*scene.use("web", 400))  # 5 s of the wall
    assert scene.clock.wall == EPOCH + INTO_SLOT / 60 + 5.0
    assert forecasts(published)["a"].until_seconds == EPOCH + 2 * SLOT + 30.0 + 60.0  # a tenth of a slot, a wall second
    await scene.read(*scene.use("web", 400, age=1.0))
    assert scene.outlook().trusted
