"""Policy hierarchical: predicted slack decides, batch makes room for itself, gratis waits, nobody steals the space."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import engine_objects
import pytest

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig, SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.errors import InputError
from cotide_core.events import (
    Event,
    EvictRefused,
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
from cotide_core.instructions import Bind, Evict, EvictCause, Instruction, Wait, WaitReason

GRATIS, BATCH, ONLINE = WorkloadClass.GRATIS, WorkloadClass.BATCH, WorkloadClass.ONLINE
RECLAIMED = "cotide.dev/reclaimed-cpu"
KNOBS = HierarchicalConfig(capacity_share=1.0)


def engine(*events: Event, **knobs: object) -> Scheduler:
    settings = replace(KNOBS, **knobs)  # type: ignore[arg-type]  # as named by each test
    scheduler = Scheduler(SchedulerConfig(policy="hierarchical", hierarchical=settings), HeuristicCatalogue())
    scheduler.handle(events, 0.0)
    return scheduler


def node(name: str = "a", cpu: int = 1000) -> NodeUpserted:
    """A node whose reclaimed cpu is not what limits it."""
    return engine_objects.node_upserted(name, cpu, offers={RECLAIMED: cpu})


def pod(name: str, cls: WorkloadClass, cpu: int, **fields: Any) -> Pod:
    """A pod that asks for cpu if it is online, for reclaimed cpu if it is not."""
    return engine_objects.pod(name, cls=cls, **{"requests": (("cpu" if cls is ONLINE else RECLAIMED, cpu),), **fields})


def arrives(name: str, cls: WorkloadClass, cpu: int, **fields: object) -> PodUpserted:
    return PodUpserted(pod(name, cls, cpu, **fields))


def runs(name: str, cls: WorkloadClass, cpu: int, at: str = "a", **fields: object) -> PodUpserted:
    started = {"started_seconds": 0.0, **fields}
    return PodUpserted(pod(name, cls, cpu, node=at, phase=PodPhase.RUNNING, **started))


def uses(cpu: float, at: str = "a", when: float = 0.0) -> NodeUsageSampled:
    return NodeUsageSampled(at, when, cpu, 0.0)


def forecast(cpu: float, batch: float = 0.0, at: str = "a", until: float = 300.0) -> NodeForecasted:
    return NodeForecasted(at, until, cpu, 0.0, batch, 0.0)


def gone(name: str) -> PodDeleted:
    return PodDeleted(f"d/{name}", f"u-{name}")


def binds(out: list[Instruction]) -> dict[str, str]:
    return {one.key[2:]: one.node for one in out if isinstance(one, Bind)}


def evicted(out: list[Instruction]) -> list[str]:
    return [one.key[2:] for one in out if isinstance(one, Evict)]


def test_a_batch_pod_goes_where_the_predicted_peak_leaves_most() -> None:
    # a: 1000 - 700 = 300 left; b: 1000 - 200 - 400 held = 400 left.
    scheduler = engine(node("a"), node("b"), runs("g", GRATIS, 400, "b"))
    out = scheduler.handle(
        [uses(100, "a"), uses(100, "b"), forecast(700, at="a"), forecast(200, 400, at="b"), arrives("x", BATCH, 300)],
        1.0,
    )
    assert binds(out) == {"x": "b"}
    (bind,) = [one for one in out if isinstance(one, Bind)]
    assert bind.reason == ("hierarchical: most is left there next to the predicted load (100m of 1000m cpu after it)")


def test_gratis_leaves_room_for_the_predicted_batch_load_where_batch_may_go() -> None:
    # Held 200, predicted 700, online 200: batch finds 600, gratis 100.
    given = [node(), runs("b", BATCH, 200), uses(200), forecast(200, 700)]
    assert binds(engine(*given).handle([arrives("x", BATCH, 500)], 1.0)) == {"x": "a"}
    (wait,) = engine(*given).handle([arrives("x", GRATIS, 500)], 1.0)
    assert isinstance(wait, Wait)
    assert wait.reason is WaitReason.INSUFFICIENT_SLACK
    assert wait.message == "0/1 nodes are available: 1 predicted to need the room for online and batch pods"


def test_a_placement_raises_the_predicted_load_for_the_next_gratis_pod_at_once() -> None:
    scheduler = engine(node(), uses(0), forecast(0, 300))
    out = scheduler.handle([arrives("x", GRATIS, 400), arrives("y", GRATIS, 400)], 1.0)
    # Predicted 300 leaves 700 for x; with x it is 700, which leaves 300 for y.
    assert binds(out) == {"x": "a"}


def test_without_a_forecast_the_online_pods_requests_count() -> None:
    scheduler = engine(node(), runs("web", ONLINE, 600))
    out = scheduler.handle([arrives("x", BATCH, 500), arrives("y", BATCH, 400)], 1.0)
    assert binds(out) == {"y": "a"}, "1000 - 600 leaves 400"


@pytest.mark.parametrize("cpu", [math.nan, math.inf, -1.0])
def test_a_forecast_that_can_not_be_is_no_forecast(cpu: float) -> None:
    scheduler = engine(node(), runs("web", ONLINE, 600), uses(0), forecast(0))
    out = scheduler.handle([forecast(cpu), arrives("x", BATCH, 500), arrives("y", BATCH, 400)], 1.0)
    assert binds(out) == {"y": "a"}


@pytest.mark.parametrize("cpu", [math.nan, math.inf, -1.0, 100_000.0])
def test_a_measurement_that_can_not_be_is_as_good_as_none(cpu: float) -> None:
    scheduler = engine(node(), runs("web", ONLINE, 600), forecast(0))
    out = scheduler.handle([uses(cpu), arrives("x", BATCH, 500), arrives("y", BATCH, 400)], 1.0)
    assert binds(out) == {"y": "a"}, "no fresh measurement beside the forecast: requests count"


def test_stale_measurements_take_the_forecast_out_of_force_and_fresh_ones_bring_it_back() -> None:
    scheduler = engine(node(), runs("web", ONLINE, 600), uses(100), forecast(100, until=1000.0))
    scheduler.handle([arrives("x", BATCH, 800)], 61.0)
    assert scheduler.pending()["unschedulable"] == 1
    assert binds(scheduler.handle([uses(100, when=62.0)], 62.0)) == {"x": "a"}


@pytest.mark.parametrize(("used", "predicted"), [(900.0, 300.0), (300.0, 900.0)])
def test_a_feed_that_falls_silent_frees_nothing(used: float, predicted: float) -> None:
    scheduler = engine(node(), runs("web", ONLINE, 200), uses(used), forecast(predicted))
    assert binds(scheduler.handle([arrives("x", BATCH, 200)], 59.0)) == {}, "1000 - 900 = 100"
    # Requests alone would leave 1000 - 200 = 800.
    assert binds(scheduler.handle([], 400.0)) == {}
    assert binds(scheduler.handle([uses(250.0, when=401.0)], 401.0)) == {"x": "a"}


def test_what_was_known_of_a_silent_node_is_forgotten_with_it() -> None:
    scheduler = engine(node(), runs("web", ONLINE, 200), uses(900.0))
    scheduler.handle([NodeDeleted("a"), node("a")], 100.0)
    assert binds(scheduler.handle([arrives("x", BATCH, 700)], 101.0)) == {"x": "a"}


def test_a_forecast_above_what_is_there_leaves_nothing_and_not_less() -> None:
    scheduler = engine(node(), uses(0), forecast(5000))
    assert binds(scheduler.handle([arrives("x", BATCH, 1)], 1.0)) == {}
    peak, believed = scheduler.state.host_load.online_peak(1.0, 60.0)
    assert (peak[0, 0], believed[0]) == (1000.0, True)


def test_an_online_pod_that_came_after_the_forecast_keeps_its_room_by_its_requests() -> None:
    scheduler = engine(node(), runs("web", ONLINE, 300), uses(100), forecast(200))
    scheduler.handle([runs("shop", ONLINE, 500)], 1.0)
    assert binds(scheduler.handle([arrives("x", BATCH, 400)], 2.0)) == {}, "1000 - 200 - 500 = 300"
    # The next forecast knows it; and one that goes frees what the next forecast says, not before.
    assert binds(scheduler.handle([forecast(350)], 3.0)) == {"x": "a"}
    scheduler.handle([gone("shop"), arrives("y", BATCH, 400)], 4.0)
    assert scheduler.pending()["unschedulable"] == 1, "1000 - 350 - 400 = 250"


def test_the_newest_measurement_corrects_a_forecast_that_is_too_low() -> None:
    scheduler = engine(node(), uses(500), forecast(100))
    assert binds(scheduler.handle([arrives("x", BATCH, 600)], 1.0)) == {}, "1000 - max(100, 500) = 500"


def test_a_new_node_in_the_row_of_an_old_one_inherits_no_forecast() -> None:
    scheduler = engine(node("old"), uses(0, "old"), forecast(0, at="old"))
    scheduler.handle([NodeDeleted("old"), node("new"), runs("web", ONLINE, 600, "new")], 1.0)
    assert binds(scheduler.handle([arrives("x", BATCH, 500)], 2.0)) == {}


def test_a_batch_pod_evicts_the_gratis_pod_whose_loss_is_least_and_gets_its_place() -> None:
    old, young = runs("old", GRATIS, 500, started_seconds=-600.0), runs("young", GRATIS, 500, started_seconds=-10.0)
    scheduler = engine(node(), old, young)
    out = scheduler.handle([arrives("x", BATCH, 400)], 0.0)
    assert evicted(out) == ["young"]
    (evict,) = [one for one in out if isinstance(one, Evict)]
    # 10 s of half a core.
    assert evict.reason == "makes room for batch pod d/x; a gratis pod with 5 core s done"
    assert evict.cause is EvictCause.PREEMPTED
    (wait,) = [one for one in out if isinstance(one, Wait)]
    assert wait.reason is WaitReason.INSUFFICIENT_SLACK
    assert wait.message == (
        "0/1 nodes are available: 1 Insufficient cotide.dev/reclaimed-cpu. preemption: 1 gratis pod leaves a for it"
    )
    assert (wait.nominated_node, wait.victims) == ("a", ("d/young",))
    assert (evict.nominee, evict.nominee_uid) == ("d/x", "u-x")
    assert scheduler.handle([], 1.0) == [], "nobody is asked twice"
    assert binds(scheduler.handle([gone("young")], 5.0)) == {"x": "a"}


def test_one_victim_is_better_than_two_cheaper_ones() -> None:
    small = [runs(f"small{n}", GRATIS, 200, started_seconds=-1.0) for n in range(2)]
    big = runs("big", GRATIS, 600, started_seconds=-100.0)
    assert evicted(engine(node(), *small, big).handle([arrives("x", BATCH, 400)], 0.0)) == ["big"]


def test_the_freed_space_is_not_stolen() -> None:
    scheduler = engine(node(), runs("g", GRATIS, 1000))
    assert evicted(scheduler.handle([arrives("x", BATCH, 1000)], 1.0)) == ["g"]
    # In one step the space comes free, and others ask for it; z even comes before x in the queue's order.
    out = scheduler.handle([gone("g"), arrives("y", GRATIS, 500), arrives("z", BATCH, 500, priority=5)], 2.0)
    assert binds(out) == {"x": "a"}


def test_space_that_nobody_came_for_is_open_again_after_a_while() -> None:
    scheduler = engine(node(), runs("g", GRATIS, 1000), nomination_seconds=20.0)
    # A gate is put on x while g leaves, so x doesn't take what was freed for it.
    scheduler.handle([arrives("x", BATCH, 1000)], 1.0)
    gated = arrives("x", BATCH, 1000, gates=("later",))
    assert binds(scheduler.handle([gated, gone("g"), arrives("y", GRATIS, 500)], 2.0)) == {}
    assert scheduler.next_wakeup(2.0) == 21.0
    assert binds(scheduler.handle([], 21.0)) == {"y": "a"}


@pytest.mark.parametrize("change", ["gone", "unschedulable"])
def test_a_claim_on_a_node_that_takes_no_pods_any_more_is_made_elsewhere(change: str) -> None:
    scheduler = engine(node("a"), node("b"), runs("g", GRATIS, 1000, "a"), runs("h", GRATIS, 1000, "b"))
    assert evicted(scheduler.handle([arrives("x", BATCH, 600)], 1.0)) == ["g"]
    closed = NodeUpserted(replace(node("a").node, unschedulable=True))
    # Its victim goes on leaving; x waits neither for the claim to run out (at 121 s) nor for its next turn.
    assert evicted(scheduler.handle([NodeDeleted("a") if change == "gone" else closed], 2.0)) == ["h"]
    assert binds(scheduler.handle([gone("h")], 62.0)) == {"x": "b"}


def test_a_claim_ends_with_its_pod() -> None:
    scheduler = engine(node(), runs("g", GRATIS, 1000))
    scheduler.handle([arrives("x", BATCH, 1000)], 1.0)
    assert binds(scheduler.handle([gone("x"), gone("g"), arrives("y", GRATIS, 500)], 2.0)) == {"y": "a"}


def test_a_victim_that_a_budget_protects_is_left_alone_and_another_is_found() -> None:
    first = runs("first", GRATIS, 500, started_seconds=-1.0)
    second = runs("second", GRATIS, 500, started_seconds=-100.0)
    scheduler = engine(node(), first, second)
    assert evicted(scheduler.handle([arrives("x", BATCH, 400)], 0.0)) == ["first"]
    refused = EvictRefused("d/first", "u-first", "a", 429, "disruption budget")
    assert evicted(scheduler.handle([refused], 1.0)) == ["second"]


def test_a_victim_that_does_not_go_is_given_up() -> None:
    scheduler = engine(node(), runs("g", GRATIS, 1000), eviction_timeout_seconds=10.0)
    assert evicted(scheduler.handle([arrives("x", BATCH, 400)], 0.0)) == ["g"]
    assert scheduler.next_wakeup(0.0) == 10.0
    assert evicted(scheduler.handle([], 10.0)) == ["g"], "and asked again, since there is no other"


def test_owners_wishes_are_honoured() -> None:
    never = runs("never", GRATIS, 400, do_not_disrupt=True)
    rather_not = runs("rather-not", GRATIS, 300, prefer_no_eviction=True)
    dear = runs("dear", GRATIS, 300, deletion_cost=10)
    given = [node(), never, rather_not, dear]
    assert evicted(engine(*given).handle([arrives("x", BATCH, 300)], 1.0)) == ["dear"]
    assert sorted(evicted(engine(*given).handle([arrives("x", BATCH, 600)], 1.0))) == ["dear", "rather-not"]
    assert evicted(engine(*given).handle([arrives("x", BATCH, 700)], 1.0)) == []


def test_the_node_whose_victims_cost_their_owners_least_is_emptied() -> None:
    dear, cheap = runs("dear", GRATIS, 1000, "a", deletion_cost=3), runs("cheap", GRATIS, 1000, "b", deletion_cost=-3)
    old = cheap.pod._replace(started_seconds=-1000.0)  # more work is lost with it, but the owner's word comes first
    scheduler = engine(node("a"), node("b"), dear, PodUpserted(old))
    assert evicted(scheduler.handle([arrives("x", BATCH, 400)], 1.0)) == ["cheap"]


def test_gratis_evicts_nobody_and_batch_never_evicts_batch_or_online() -> None:
    given = [node(), runs("web", ONLINE, 500), runs("b", BATCH, 500)]
    assert evicted(engine(*given).handle([arrives("x", BATCH, 400)], 1.0)) == []
    given = [node(), runs("g", GRATIS, 1000)]
    assert evicted(engine(*given).handle([arrives("x", GRATIS, 400)], 1.0)) == []


def test_nobody_goes_for_a_pod_that_never_preempts_and_it_speaks_for_no_other_of_its_shape() -> None:
    scheduler = engine(node(), runs("g", GRATIS, 1000))
    assert evicted(scheduler.handle([arrives("never", BATCH, 400, preempts=False)], 1.0)) == []
    assert evicted(scheduler.handle([arrives("may", BATCH, 400)], 2.0)) == ["g"]


def test_two_batch_pods_of_one_shape_free_room_for_both_at_once() -> None:
    scheduler = engine(node(), runs("g", GRATIS, 500), runs("h", GRATIS, 500))
    out = scheduler.handle([arrives("x", BATCH, 500), arrives("y", BATCH, 500)], 0.0)
    assert sorted(evicted(out)) == ["g", "h"]
    given = {one.key: one.victims for one in out if isinstance(one, Wait)}
    assert given == {"d/x": ("d/g",), "d/y": ("d/h",)}, "each names its own"
    assert binds(scheduler.handle([gone("g")], 1.0)) == {"x": "a"}
    assert binds(scheduler.handle([gone("h")], 2.0)) == {"y": "a"}


def test_random_victims_are_drawn_from_the_seed() -> None:
    def drawn(seed: int) -> list[str]:
        knobs = replace(KNOBS, victims="random")
        config = SchedulerConfig(policy="hierarchical", seed=seed, hierarchical=knobs)
        scheduler = Scheduler(config, HeuristicCatalogue())
        pods = [runs(f"g{number}", GRATIS, 100) for number in range(10)]
        return evicted(scheduler.handle([node(), *pods, arrives("x", BATCH, 300)], 0.0))

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(10)}) > 1
    assert {len(drawn(seed)) for seed in range(10)} == {3}


@pytest.mark.parametrize(
    ("field", "value"),
    [("victims", "nicest"), ("capacity_share", 0.0), ("relieved_share", 1.1), ("cordon_seconds", math.nan)],
)
def test_a_knob_out_of_range_is_the_users_error(field: str, value: object) -> None:
    with pytest.raises(InputError, match=r"hierarchical\."):
        replace(KNOBS, **{field: value})  # type: ignore[arg-type]  # wrong on purpose
