"""Live host load around a real engine: what is read becomes samples, forecasts, scores and offers, or nothing."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig, SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import (
    Event,
    ForecastScored,
    Node,
    NodeDeleted,
    NodeForecasted,
    NodeUpserted,
    NodeUsageSampled,
    Pod,
    PodDeleted,
    PodPhase,
    PodUpserted,
)
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Evict
from cotide_core.state.host_load import offered
from cotide_operator.host_load.history import History
from cotide_operator.host_load.history_replay import HistoryReplay
from cotide_operator.host_load.live import Knobs, LiveHostLoad
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reclaimed.node_outlook import NodeOutlook, Outlooks
from cotide_operator.usage.prometheus import Series
from cotide_operator.usage.sources import CPU, MEMORY, SourceDown, UsageReading

MILLICORES = 4000
GIB = 2**30
PHYSICAL = {"cpu": MILLICORES, "memory": 16 * GIB}
SLOT = 300.0
STALE = 60.0
EPOCH = 3_000_000.0  # begins a slot
INTO_SLOT = 40.0
SHARE = 0.95


@dataclass
class HandClock:
    """Runs ``speed`` times as fast as ``wall``; both agree at `EPOCH`."""

    speed: float = 1.0
    wall: float = EPOCH + INTO_SLOT
    held: float = float("-inf")

    def now(self) -> float:
        self.held = max(self.held, self.from_wall(self.wall))
        return self.held

    def from_wall(self, wall_seconds: float) -> float:
        return EPOCH + (wall_seconds - EPOCH) * self.speed

    def to_wall(self, clock_seconds: float) -> float:
        return EPOCH + (clock_seconds - EPOCH) / self.speed


@dataclass
class HandLoop:
    """Has the engine handle what was told when somebody waits for it."""

    clock: HandClock
    scheduler: Scheduler
    told: list[Event] = field(default_factory=list)
    inbox: list[Event] = field(default_factory=list)
    evictions: list[Evict] = field(default_factory=list)

    def tell(self, event: Event) -> None:
        self.told.append(event)
        self.inbox.append(event)

    async def caught_up(self) -> None:
        inbox, self.inbox = self.inbox, []
        out = self.scheduler.handle(inbox, self.clock.now())
        self.evictions += [one for one in out if isinstance(one, Evict)]


class Scene:
    def __init__(self, *, speed: float = 1.0, tells_scores: bool = False, settling: float = 0.0) -> None:
        self.clock = HandClock(speed, EPOCH + INTO_SLOT / speed)
        self.telemetry, self.outlooks = Metrics(), Outlooks()
        self.put: list[NodeOutlook] = []
        self.outlooks.subscribe(self.put.extend)
        stale = STALE * max(1.0, speed)
        config = SchedulerConfig(
            policy="hierarchical",
            hierarchical=HierarchicalConfig(capacity_share=SHARE, usage_stale_seconds=stale),
        )
        self.loop = HandLoop(self.clock, Scheduler(config, HeuristicCatalogue()))
        self.state = self.loop.scheduler.state
        self.pods: dict[str, Pod] = {}
        self.knobs = Knobs(SLOT, 0.9, stale, STALE, 5.0, SHARE, settling, tells_scores)
        self.live = self.make()

    def make(self, rebuilding: HistoryReplay | None = None) -> LiveHostLoad:
        return LiveHostLoad(
            self.knobs, state=self.state, pods=self.pods, clock=self.clock, loop=self.loop, telemetry=self.telemetry,
            outlooks=self.outlooks, rebuilding=rebuilding, wall=lambda: self.clock.wall,
        )  # fmt: skip

    async def happens(self, *events: Event) -> None:
        self.loop.inbox += events
        await self.loop.caught_up()

    async def nodes(self, *names: str, **amounts: int) -> None:
        physical = tuple(sorted((PHYSICAL | amounts | {"pods": 110}).items()))
        await self.happens(*(NodeUpserted(Node(name, physical)) for name in names))

    async def place(self, *pods: Pod) -> None:
        self.pods.update({pod.key: pod for pod in pods})
        await self.happens(*map(PodUpserted, pods))

    async def remove(self, pod: Pod) -> None:
        del self.pods[pod.key]
        await self.happens(PodDeleted(pod.key, pod.uid))

    async def read(self, *readings: UsageReading) -> list[Event]:
        """Take in one reading of the source; return what was told of it."""
        self.loop.told.clear()
        await self.live.take(list(readings))
        return list(self.loop.told)

    async def slot(self, *readings: UsageReading) -> list[Event]:
        """Read at the present place of the slot, go to the same place of the next; return what the end told."""
        await self.read(*readings)
        self.passes(SLOT / self.clock.speed)
        self.loop.told.clear()
        assert await self.live.end_slots()
        return list(self.loop.told)

    def passes(self, wall_seconds: float) -> None:
        self.clock.wall += wall_seconds

    def use(
        self, pod: str, millicores: float | None, memory: float | None = GIB, age: float = 0.0
    ) -> list[UsageReading]:
        wall = self.clock.wall - age
        return [UsageReading(f"ns/{pod}", CPU, millicores, wall), UsageReading(f"ns/{pod}", MEMORY, memory, wall)]

    def count(self, name: str, outcome: str) -> float:
        return self.telemetry.registry.get_sample_value(f"cotide_{name}_total", {"outcome": outcome}) or 0.0

    def metric(self, name: str, **labels: str) -> float | None:
        return self.telemetry.registry.get_sample_value(f"cotide_{name}", labels)

    def outlook(self, node: str = "a") -> NodeOutlook:
        found = self.outlooks.get(node)
        assert found is not None
        return found


def online(name: str, node: str = "a", millicores: int = 1000, memory: int = 2 * GIB) -> Pod:
    requests = (("cpu", millicores), ("memory", memory))
    return Pod(f"ns/{name}", f"u-{name}", WorkloadClass.ONLINE, requests, 0.0, node=node, phase=PodPhase.RUNNING)


def batch(name: str, millicores: int = 500, node: str = "a") -> Pod:
    requests = (("cotide.dev/reclaimed-cpu", millicores), ("cotide.dev/reclaimed-memory", GIB))
    return Pod(f"ns/{name}", f"u-{name}", WorkloadClass.BATCH, requests, 0.0, node=node, phase=PodPhase.RUNNING)


def samples(told: Iterable[Event]) -> list[tuple[str, float, float]]:
    return [
        (one.node, one.online_millicores, one.online_memory_bytes) for one in told if isinstance(one, NodeUsageSampled)
    ]


def forecasts(told: Iterable[Event]) -> dict[str, NodeForecasted]:
    return {one.node: one for one in told if isinstance(one, NodeForecasted)}


async def one_node(*pods: Pod, **options: object) -> Scene:
    scene = Scene(**options)
    await scene.nodes("a")
    await scene.place(*pods)
    return scene


# What is read becomes a sample of the node.


async def test_the_online_pods_of_a_node_are_summed_and_others_are_not() -> None:
    scene = await one_node(online("web"), online("db"), batch("job"), online("else", node="nowhere"))
    told = await scene.read(*scene.use("web", 250), *scene.use("db", 150), *scene.use("job", 900))
    assert samples(told) == [("a", 400.0, 2.0 * GIB)]
    assert [one.at_seconds for one in told if isinstance(one, NodeUsageSampled)] == [EPOCH + INTO_SLOT]


async def test_a_pod_without_a_reading_counts_with_its_request() -> None:
    scene = await one_node(online("web"), online("new", millicores=1000, memory=2 * GIB))
    assert samples(await scene.read(*scene.use("web", 250))) == [("a", 1250.0, 3.0 * GIB)]  # 250 + 1000, 1 + 2 GiB


async def test_a_node_most_of_whose_pods_are_unknown_has_no_sample() -> None:
    scene = await one_node(online("web"), online("x"), online("y"))
    await scene.nodes("b")
    await scene.place(online("other", node="b"))
    told = await scene.read(*scene.use("web", 250), *scene.use("other", 70))
    assert samples(told) == [("b", 70.0, float(GIB))]  # of a's three pods one is known
    assert (scene.count("node_samples", "incomplete"), scene.count("node_samples", "taken")) == (1, 1)


async def test_a_memory_query_that_gives_nothing_leaves_no_sample_of_cpu_alone() -> None:
    scene = await one_node(online("web"))
    assert samples(await scene.read(*[one for one in scene.use("web", 250) if one.resource == CPU])) == []
    assert scene.count("node_samples", "incomplete") == 1


async def test_a_pod_that_ended_counts_no_more() -> None:
    scene = await one_node(online("web"), online("done")._replace(phase=PodPhase.SUCCEEDED))
    assert samples(await scene.read(*scene.use("web", 250))) == [("a", 250.0, float(GIB))]


@pytest.mark.parametrize(
    ("millicores", "memory", "outcome"),
    [
        (None, GIB, "invalid"),  # NaN, infinite and negative ones leave a source as None
        (100 * MILLICORES, GIB, "implausible"),  # a hundredfold
        (250, 0.0, "implausible"),  # nothing runs in no memory: a zero by missing
    ],
)
async def test_an_impossible_value_is_missing_and_counted(
    millicores: float | None, memory: float, outcome: str
) -> None:
    scene = await one_node(online("web"), online("db"))
    ((_, cpu, held),) = samples(await scene.read(*scene.use("web", millicores, memory), *scene.use("db", 100)))
    assert cpu == (350.0 if millicores == 250 else 1100.0)  # 250 + 100, or the request of 1000 + 100
    assert held == (2.0 * GIB if memory else 3.0 * GIB)
    assert scene.count("usage_readings", outcome) == 1


async def test_a_rate_over_two_minutes_says_too_little_of_a_pod_that_has_just_started() -> None:
    scene = await one_node(online("web"), online("new")._replace(started_seconds=EPOCH), settling=120.0)
    readings = [*scene.use("web", 250), *scene.use("new", 5)]
    assert samples(await scene.read(*readings)) == [("a", 1250.0, 3.0 * GIB)]  # the request of the new one
    assert scene.count("usage_readings", "settling") == 2
    scene.passes(120.0)
    readings = [*scene.use("web", 250), *scene.use("new", 300)]
    assert samples(await scene.read(*readings)) == [("a", 550.0, 2.0 * GIB)]


async def test_an_idle_pod_may_use_no_cpu() -> None:
    scene = await one_node(online("web"))
    assert samples(await scene.read(*scene.use("web", 0.0))) == [("a", 0.0, float(GIB))]


@pytest.mark.parametrize(("age", "outcome"), [(61.0, "stale"), (-61.0, "future")])
async def test_a_reading_from_another_time_is_dropped(age: float, outcome: str) -> None:
    scene = await one_node(online("web"))
    assert samples(await scene.read(*scene.use("web", 250, age=age))) == []
    assert scene.count("usage_readings", outcome) == 2


async def test_of_duplicates_the_higher_counts() -> None:
    scene = await one_node(online("web"))
    told = await scene.read(*scene.use("web", 250), *scene.use("web", 300), *scene.use("web", 200))
    assert samples(told) == [("a", 300.0, float(GIB))]
    assert scene.count("usage_readings", "duplicate") == 4


async def test_a_reading_older_than_the_last_changes_nothing() -> None:
    scene = await one_node(online("web"))
    await scene.read(*scene.use("web", 250))
    assert samples(await scene.read(*scene.use("web", 900, age=20.0))) == []
    assert scene.count("usage_readings", "late") == 2


async def test_a_pod_that_was_replaced_has_no_reading_of_its_former_self() -> None:
    scene = await one_node(online("web"), online("db"))
    await scene.read(*scene.use("web", 250), *scene.use("db", 100))
    await scene.place(online("web")._replace(uid="another"))
    scene.passes(5.0)
    assert samples(await scene.read(*scene.use("db", 100))) == [("a", 1100.0, 3.0 * GIB)]


async def test_what_the_engine_knows_is_told_again_only_to_stay_fresh() -> None:
    scene = await one_node(online("web"))
    assert len(samples(await scene.read(*scene.use("web", 250)))) == 1
    found = []
    for _ in range(6):  # every 5 s: told again after 15 s, a quarter of the 60 s that it holds
        scene.passes(5.0)
        found.append(len(samples(await scene.read(*scene.use("web", 251)))))
    assert found == [0, 0, 1, 0, 0, 1]
    scene.passes(5.0)
    assert samples(await scene.read(*scene.use("web", 300))) == [("a", 300.0, float(GIB))]  # moved by more than 1 %


async def test_a_step_back_of_the_machines_clock_does_not_stop_the_samples_for_ever() -> None:
    scene = await one_node(online("web"))
    await scene.read(*scene.use("web", 250))
    scene.passes(-3600.0)
    assert scene.clock.now() == EPOCH + INTO_SLOT  # held
    told = await scene.read(*scene.use("web", 900))
    assert samples(told) == [] or samples(told) == [("a", 900.0, float(GIB))]
    scene.passes(3605.0)
    assert samples(await scene.read(*scene.use("web", 900))) == [("a", 900.0, float(GIB))]


# A slot becomes a forecast, and a forecast an offer.


async def test_the_highest_sample_of_a_slot_is_what_is_learnt() -> None:
    scene = await one_node(online("web"))
    for millicores in (200, 1200, 400):
        await scene.read(*scene.use("web", millicores))
        scene.passes(20.0)
    scene.passes(-60.0)
    told = await scene.slot(*scene.use("web", 300))
    found = forecasts(told)["a"]
    assert 1200 <= found.online_millicores < 1200 + 0.2 * MILLICORES  # the last state and what all hosts vary by
    assert found.until_seconds >= EPOCH + 2 * SLOT


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
    told: list[Event] = []
    for _ in range(14):  # 70 s without an answer
        scene.passes(5.0)
        told += await scene.read()
    assert samples(told) == []
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
    told = [forecasts(await scene.slot()) for _ in range(4)]
    assert [("a" in found) for found in told] == [True, True, False, False]  # nothing is told of what was long ago
    assert told[1]["a"].online_millicores > 700  # a gap is no zero
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
            told = [*await scene.slot(*scene.use("web", millicores, memory, age), *scene.use("db", 50))]
            told += await scene.read(*scene.use("web", memory, millicores, age))
            for one in told:
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


# Scores, trust and its loss.


async def play(scene: Scene, loads: Iterable[float]) -> list[dict[str, NodeForecasted]]:
    return [forecasts(await scene.slot(*scene.use("web", load))) for load in loads]


async def test_each_forecast_is_scored_once_against_its_slot() -> None:
    scene = await one_node(online("web"), tells_scores=True)
    first = await scene.slot(*scene.use("web", 400))
    assert not any(isinstance(one, ForecastScored) for one in first)  # nothing was forecast for it
    told = await scene.slot(*scene.use("web", 500))
    scored = {one.forecaster: one for one in told if isinstance(one, ForecastScored)}
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
    told = await play(scene, [400.0] * 60)
    assert told[-1]
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
    told = forecasts(await scene.slot(*scene.use("web", 400), *readings))
    assert len(told) == 101
    assert all(500 + number <= told[f"n{number}"].online_millicores < 2000 for number in range(100))
    assert 400 <= told["a"].online_millicores < 700


async def test_a_node_that_vanished_leaves_nothing_to_the_next_and_one_that_is_back_at_once_keeps_its_past() -> None:
    scene = await one_node(online("web"))
    await play(scene, [3000.0] * 3)
    await scene.happens(NodeDeleted("a"))
    await scene.read()
    await scene.nodes("a")
    told = forecasts(await scene.slot(*scene.use("web", 3000)))
    assert told["a"].online_millicores >= 3000
    await scene.happens(NodeDeleted("a"))
    scene.passes(SLOT + 1)
    await scene.read()
    await scene.remove(scene.pods["ns/web"])
    await scene.nodes("b")
    await scene.place(online("other", node="b"))
    await scene.read()
    assert scene.outlooks.get("a") is None
    assert "b" not in forecasts(await scene.slot())
    told = forecasts(await scene.slot(*scene.use("other", 100)))
    assert 100 <= told["b"].online_millicores < 100 + 0.2 * MILLICORES


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
    told = await scene.slot(*scene.use("web", 400))  # 5 s of the wall
    assert scene.clock.wall == EPOCH + INTO_SLOT / 60 + 5.0
    assert forecasts(told)["a"].until_seconds == EPOCH + 2 * SLOT + 30.0 + 60.0  # a tenth of a slot, a wall second
    await scene.read(*scene.use("web", 400, age=1.0))
    assert scene.outlook().trusted


# The past after a restart.


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
    scene.loop.told.clear()
    await scene.live.rebuild()
    return list(scene.loop.told)


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
    told = await restarted(scene, rising)
    assert 990 <= forecasts(told)["a"].online_millicores < 1200  # the newest is 995, the oldest 500


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
    told = await restarted(scene, scene_past)
    assert forecasts(told)["a"].online_millicores >= 1600  # 300 + 300 and the request of the new one
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
    assert "nothing is known of the past" in caplog.text
    assert scene.outlook().reason == "TooFewRecords"
