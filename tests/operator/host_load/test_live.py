"""A slot becomes a forecast, and a forecast an offer that the engine keeps to."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

from host_load_scene import (
    EPOCH,
    GIB,
    MILLICORES,
    PHYSICAL,
    SHARE,
    SLOT,
    STALE,
    batch,
    forecasts,
    one_node,
    online,
    samples,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.events import (
    Event,
    NodeForecasted,
    NodeUsageSampled,
)
from cotide_core.state.host_load import offered


async def test_the_highest_sample_of_a_slot_is_what_is_learnt() -> None:
    scene = await one_node(online("web"))
    for millicores in (200, 1200, 400):
        await scene.read(*scene.use("web", millicores))
        scene.passes(20.0)
    scene.passes(-60.0)
    published = await scene.slot(*scene.use("web", 300))
    found = forecasts(published)["a"]
    assert 1200 <= found.online_millicores < 1200 + 0.2 * MILLICORES  # the last state and what all hosts vary by
    assert found.until_seconds >= EPOCH + 2 * SLOT


async def test_longer_horizons_are_told_beside_the_slot_and_reach_to_the_end_of_theirs() -> None:
    scene = await one_node(online("web"))
    scene.knobs = replace(scene.knobs, ahead_slots=(2, 4))
    scene.live = scene.make()
    for millicores in (300, 900, 300, 900, 300):
        published = await scene.slot(*scene.use("web", millicores))
    found = forecasts(published)["a"]
    assert [round(one.until_seconds - found.until_seconds) for one in found.ahead] == [SLOT, 3 * SLOT]
    peaks = [one.online_millicores for one in found.ahead]
    assert 0 < found.online_millicores <= MILLICORES
    assert all(0 < peak <= MILLICORES for peak in peaks)


async def test_what_is_offered_is_what_the_engine_will_place() -> None:
    scene = await one_node(online("web", millicores=3000))
    await scene.slot(*scene.use("web", 800))
    await scene.read(*scene.use("web", 820))
    load, now = scene.state.host_load, scene.clock.now()
    peak, believed = load.online_peak(now, STALE)
    amounts = offered(load.physical(), peak, believed, SHARE)
    found = scene.outlook()
    assert believed[0]
    assert (found.offered_millicores, found.offered_memory_bytes) == tuple(amounts[:, 0].tolist())
    assert found.online_millicores == peak[0, 0]
    assert (found.trusted, found.reason) == (True, "TooFewRecords")
    assert found.offered_millicores > MILLICORES - 3000  # more than what is not requested


async def test_without_any_reading_nodes_offer_what_is_not_requested() -> None:
    scene = await one_node(online("web", millicores=3000))
    await scene.read()
    found = scene.outlook()
    assert (found.offered_millicores, found.offered_memory_bytes) == (1000, 14 * GIB)
    assert (found.trusted, found.reason) == (False, "NoForecast")
    assert scene.metric("node_outlooks", reason="NoForecast") == 1


async def test_a_source_that_goes_down_ends_in_requests_and_never_in_zero() -> None:
    scene = await one_node(online("web", millicores=3000))
    for _ in range(2):
        await scene.slot(*scene.use("web", 800))
    await scene.read(*scene.use("web", 800))
    assert scene.outlook().trusted
    published: list[Event] = []
    for _ in range(14):  # 70 s without an answer
        scene.passes(5.0)
        published += await scene.read()
    assert samples(published) == []
    found = scene.outlook()
    assert (found.trusted, found.reason, found.offered_millicores) == (False, "StaleFeed", 1000)
    assert scene.metric("node_outlooks", reason="StaleFeed") == 1
    await scene.read(*scene.use("web", 800))
    assert scene.outlook().trusted  # back by itself


async def test_while_nothing_is_read_nothing_is_told_not_even_of_a_node_without_pods() -> None:
    scene = await one_node(online("web"))
    await scene.nodes("empty")
    assert samples(await scene.read(*scene.use("web", 800))) == [("a", 800.0, float(GIB)), ("empty", 0.0, 0.0)]
    scene.passes(30.0)  # long enough for a sample to be told again
    assert samples(await scene.read()) == []


async def test_slots_without_a_source_are_gaps_and_end_the_forecasts() -> None:
    scene = await one_node(online("web"))
    for _ in range(3):
        await scene.slot(*scene.use("web", 800))
    published = [forecasts(await scene.slot()) for _ in range(4)]
    assert [("a" in found) for found in published] == [True, True, False, False]  # nothing is told of what was long ago
    assert published[1]["a"].online_millicores > 700  # a gap is no zero
    assert scene.metric("online_cpu_millicores", view="measured") == 800
    assert "a" in forecasts(await scene.slot(*scene.use("web", 800)))


async def test_a_burst_above_the_forecast_shrinks_the_offer_within_the_slot() -> None:
    scene = await one_node(online("web"))
    await scene.slot(*scene.use("web", 400))
    await scene.read(*scene.use("web", 400))
    before = scene.outlook().offered_millicores
    scene.passes(5.0)
    await scene.read(*scene.use("web", 3000))
    assert scene.outlook().offered_millicores == math.floor(SHARE * MILLICORES - 3000) < before


async def test_what_batch_pods_hold_is_forecast_and_moves_with_a_placement() -> None:
    scene = await one_node(online("web"))
    await scene.slot(*scene.use("web", 400))
    assert forecasts(await scene.slot(*scene.use("web", 400)))["a"].batch_millicores < 250
    await scene.place(batch("job", 1000))
    found = forecasts(await scene.read(*scene.use("web", 400)))["a"]
    assert 1000 <= found.batch_millicores < 1250
    assert forecasts(await scene.read(*scene.use("web", 400))) == {}  # nothing moved since


VALUES = st.none() | st.floats(0, 2 * MILLICORES) | st.floats(min_value=0, allow_nan=False, allow_infinity=False)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES, st.floats(-100, 100)), min_size=1, max_size=5), st.integers(0, 5000))
def test_whatever_is_read_what_is_told_is_possible_and_what_is_offered_is_there(
    read: list[tuple[float | None, float | None, float]], requested: int
) -> None:
    async def play_out() -> None:
        scene = await one_node(online("web", millicores=requested), online("db", millicores=100))
        for millicores, memory, age in read:
            published = [*await scene.slot(*scene.use("web", millicores, memory, age), *scene.use("db", 50))]
            published += await scene.read(*scene.use("web", memory, millicores, age))
            for one in published:
                if isinstance(one, NodeUsageSampled):
                    assert 0 <= one.online_millicores <= 1.5 * MILLICORES
                    assert 0 < one.online_memory_bytes <= 1.5 * PHYSICAL["memory"]
                if isinstance(one, NodeForecasted):
                    assert 0 <= one.online_millicores <= MILLICORES
                    assert 0 <= one.batch_millicores <= MILLICORES
            found = scene.outlook()
            assert 0 <= found.offered_millicores <= MILLICORES
            assert 0 <= found.offered_memory_bytes <= PHYSICAL["memory"]
            usable = SHARE * MILLICORES if found.trusted else MILLICORES
            assert found.offered_millicores == 0 or found.online_millicores + found.offered_millicores <= usable + 1

    asyncio.run(play_out())
