"""The overload monitor: waits before it acts, takes the cheapest first, never online, rests a flapping node."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig, SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import (
    Event,
    EvictRefused,
    Node,
    NodeContended,
    NodeDeleted,
    NodeUpserted,
    NodeUsageSampled,
    Pod,
    PodDeleted,
    PodPhase,
    PodUpserted,
)
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind, Evict, EvictCause, Instruction

GRATIS, BATCH, ONLINE = WorkloadClass.GRATIS, WorkloadClass.BATCH, WorkloadClass.ONLINE
KNOBS = HierarchicalConfig(overload_observation_seconds=0.0, overload_pause_seconds=0.0, relieved_share=1.0)


def engine(*events: Event, **knobs: object) -> Scheduler:
    settings = replace(KNOBS, **knobs)  # type: ignore[arg-type]  # as named by each test
    scheduler = Scheduler(SchedulerConfig(policy="hierarchical", hierarchical=settings), HeuristicCatalogue())
    node = Node("a", (("cotide.dev/reclaimed-cpu", 1000), ("cpu", 1000), ("pods", 50)))
    scheduler.handle([NodeUpserted(node), *events], 0.0)
    return scheduler


def runs(name: str, cls: WorkloadClass, cpu: int, since: float = 0.0, **fields: object) -> PodUpserted:
    resource = "cpu" if cls is ONLINE else "cotide.dev/reclaimed-cpu"
    base = Pod(f"d/{name}", f"u-{name}", cls, ((resource, cpu),), 0.0, PodPhase.RUNNING, "a", started_seconds=since)
    return PodUpserted(base._replace(**fields))  # type: ignore[arg-type]  # as named by each test


def uses(cpu: float, when: float) -> NodeUsageSampled:
    return NodeUsageSampled("a", when, cpu, 0.0)


def gone(name: str) -> PodDeleted:
    return PodDeleted(f"d/{name}", f"u-{name}")


def evicted(out: list[Instruction]) -> list[str]:
    return [one.key[2:] for one in out if isinstance(one, Evict)]


def test_gratis_goes_before_batch_and_the_least_work_lost_before_more() -> None:
    pods = [runs("batch", BATCH, 300), runs("old", GRATIS, 300, since=-100.0), runs("young", GRATIS, 300, since=-5.0)]
    out = engine(*pods).handle([uses(200, 0.0)], 0.0)
    # 200 used + 900 held = 1100: one pod of 300 is enough.
    assert evicted(out) == ["young"]
    (evict,) = [one for one in out if isinstance(one, Evict)]
    assert evict.cause is EvictCause.OVERLOADED
    assert evict.reason == "a is overloaded (cpu at 110 % of what is allocatable); a gratis pod with 2 core s done"
    assert sorted(evicted(engine(*pods).handle([uses(600, 0.0)], 0.0))) == ["old", "young"]
    assert sorted(evicted(engine(*pods).handle([uses(900, 0.0)], 0.0))) == ["batch", "old", "young"]


def test_a_victim_that_would_not_help_is_spared() -> None:
    nothing = runs("nothing", GRATIS, 0)
    assert evicted(engine(nothing, runs("g", GRATIS, 500, since=-100.0)).handle([uses(600, 0.0)], 0.0)) == ["g"]


def test_online_pods_and_those_that_must_not_be_disrupted_are_never_touched() -> None:
    scheduler = engine(runs("web", ONLINE, 900), runs("never", GRATIS, 500, do_not_disrupt=True))
    assert evicted(scheduler.handle([uses(1400, 0.0)], 0.0)) == []


def test_a_pod_that_is_protected_from_its_start_leaves_an_overloaded_node_when_that_time_is_over() -> None:
    scheduler = engine(runs("day", GRATIS, 500, protected_seconds=60.0, started_seconds=0.0))
    assert evicted(scheduler.handle([uses(600, 59.0)], 59.0)) == []
    assert evicted(scheduler.handle([uses(600, 60.0)], 60.0)) == ["day"]


def test_a_short_peak_is_waited_out() -> None:
    scheduler = engine(runs("g", GRATIS, 500), overload_observation_seconds=30.0)
    assert evicted(scheduler.handle([uses(600, 0.0)], 0.0)) == []
    assert evicted(scheduler.handle([uses(400, 20.0)], 20.0)) == []
    assert evicted(scheduler.handle([uses(600, 25.0)], 25.0)) == [], "the observation starts again"
    assert scheduler.next_wakeup(25.0) == 55.0
    assert evicted(scheduler.handle([uses(600, 54.0)], 54.0)) == []
    assert evicted(scheduler.handle([], 55.0)) == ["g"]


def test_relief_goes_on_down_to_the_lower_share() -> None:
    pods = [runs(f"g{number}", GRATIS, 100, since=-number) for number in range(6)]
    out = engine(*pods, relieved_share=0.8).handle([uses(500, 0.0)], 0.0)
    # 500 + 600 = 1100, down to 800: three pods, the youngest.
    assert sorted(evicted(out)) == ["g0", "g1", "g2"]


def test_a_round_is_limited_and_the_next_one_waits_for_its_effect() -> None:
    pods = [runs(f"g{number}", GRATIS, 100, since=-number) for number in range(6)]
    scheduler = engine(*pods, overload_evictions=2, overload_pause_seconds=15.0)
    assert evicted(scheduler.handle([uses(800, 0.0)], 0.0)) == ["g0", "g1"]
    assert evicted(scheduler.handle([gone("g0"), gone("g1"), uses(800, 10.0)], 10.0)) == []
    assert scheduler.next_wakeup(10.0) == 15.0
    assert evicted(scheduler.handle([], 15.0)) == ["g2", "g3"], "800 + 400 is still 200 too much"


def test_pods_on_their_way_out_count_as_gone() -> None:
    pods = [runs("g", GRATIS, 500, since=-99.0), runs("h", GRATIS, 400)]
    scheduler = engine(*pods)
    assert evicted(scheduler.handle([uses(400, 0.0)], 0.0)) == ["h"]
    assert evicted(scheduler.handle([uses(400, 1.0)], 1.0)) == []
    leaving = engine(runs("g", GRATIS, 500), runs("h", GRATIS, 400, terminating=True))
    assert evicted(leaving.handle([uses(400, 0.0)], 0.0)) == []


def test_a_refused_eviction_takes_the_next_victim() -> None:
    scheduler = engine(runs("g", GRATIS, 500), runs("h", GRATIS, 500, since=-99.0))
    assert evicted(scheduler.handle([uses(500, 0.0)], 0.0)) == ["g"]
    refused = EvictRefused("d/g", "u-g", "a", 429, "disruption budget")
    assert evicted(scheduler.handle([refused], 1.0)) == ["h"]


@pytest.mark.parametrize("cpu", [math.nan, math.inf, -5.0, 1e9])
def test_nobody_is_evicted_on_a_measurement_that_can_not_be(cpu: float) -> None:
    assert evicted(engine(runs("g", GRATIS, 500)).handle([uses(cpu, 0.0)], 0.0)) == []


def test_nobody_is_evicted_on_an_old_measurement() -> None:
    scheduler = engine(runs("g", GRATIS, 500), overload_observation_seconds=100.0)
    scheduler.handle([uses(900, 0.0)], 0.0)
    assert evicted(scheduler.handle([], 200.0)) == []


def test_a_node_that_flaps_gets_no_batch_for_a_while() -> None:
    scheduler = engine(flap_episodes=2, flap_window_seconds=600.0, cordon_seconds=120.0)
    for turn, moment in enumerate((0.0, 100.0)):
        name = f"g{turn}"
        out = scheduler.handle([runs(name, GRATIS, 500), uses(600, moment)], moment)
        assert evicted(out) == [name]
        scheduler.handle([gone(name), uses(100, moment + 10.0)], moment + 10.0)
    wish = Pod("d/x", "u-x", BATCH, (("cotide.dev/reclaimed-cpu", 100),), 0.0, ours=True)
    (wait,) = scheduler.handle([PodUpserted(wish)], 111.0)
    assert getattr(wait, "message", "") == "0/1 nodes are available: 1 cordoned after 2 overloads"
    assert scheduler.alarms.cordoned == (("a", 220.0),), "100 s + 120 s"
    web = Pod("d/w", "u-w", ONLINE, (("cpu", 100),), 0.0, ours=True)
    assert [type(one) for one in scheduler.handle([PodUpserted(web)], 112.0)] == [Bind], "online pods may come"
    out = scheduler.handle([uses(100, 220.0)], 220.0)
    assert [one.key for one in out if isinstance(one, Bind)] == ["d/x"]


def test_a_cordon_that_an_earlier_run_noted_holds_until_its_end() -> None:
    noted = Node("a", (("cotide.dev/reclaimed-cpu", 1000), ("cpu", 1000), ("pods", 50)), cordoned_until_seconds=50.0)
    scheduler = engine(cordon_seconds=120.0)
    scheduler.handle([NodeUpserted(noted)], 1.0)
    wish = PodUpserted(Pod("d/x", "u-x", BATCH, (("cotide.dev/reclaimed-cpu", 100),), 0.0, ours=True))
    (wait,) = scheduler.handle([wish], 2.0)
    assert "cordoned" in getattr(wait, "message", "")
    assert scheduler.next_wakeup(2.0) == 50.0
    assert [getattr(one, "node", "") for one in scheduler.handle([], 50.0)] == ["a"]


@pytest.mark.parametrize("until", [-5.0, 1.0, 1e12, math.nan, math.inf])
def test_a_noted_cordon_that_is_over_or_can_not_be_ours_closes_no_node(until: float) -> None:
    noted = Node("a", (("cotide.dev/reclaimed-cpu", 1000), ("cpu", 1000), ("pods", 50)), cordoned_until_seconds=until)
    scheduler = engine(cordon_seconds=120.0)
    scheduler.handle([NodeUpserted(noted)], 1.0)
    assert scheduler.alarms.cordoned == ()


def test_an_administrator_may_override_what_owners_of_gratis_pods_wrote_before_batch_goes() -> None:
    pods = [runs("batch", BATCH, 300), runs("kept", GRATIS, 300, do_not_disrupt=True), runs("gratis", GRATIS, 100)]
    assert sorted(evicted(engine(*pods).handle([uses(600, 0.0)], 0.0))) == ["batch", "gratis"], "off by default"
    out = engine(*pods, overload_overrides_owners=True).handle([uses(600, 0.0)], 0.0)
    # 600 used + 700 held = 1300: 100 of the willing one and 300 of the kept one are enough.
    assert sorted(evicted(out)) == ["gratis", "kept"]
    sentences = {one.key: (one.override, one.reason.partition("; ")[2]) for one in out if isinstance(one, Evict)}
    assert sentences["d/kept"] == (
        True,
        "a gratis pod with 0 core s done; an administrator's setting overrides its do-not-disrupt",
    )
    assert sentences["d/gratis"] == (True, "a gratis pod with 0 core s done"), "a budget would be overridden, too"


def waits(share: float | None, when: float, node: str = "a") -> NodeContended:
    return NodeContended(node, when, share)


def test_a_node_whose_services_wait_for_a_cpu_is_relieved_by_one_pod_after_the_other() -> None:
    pods = [runs("young", GRATIS, 100, since=-5.0), runs("old", GRATIS, 100, since=-90.0), runs("b", BATCH, 100)]
    scheduler = engine(*pods, overload_contended_share=0.2)
    assert evicted(scheduler.handle([uses(200, 0.0), waits(0.2, 0.0)], 0.0)) == []
    out = scheduler.handle([waits(0.3, 1.0)], 1.0)  # 500 of 1000 in use: by load it is far from full
    assert evicted(out) == ["young"]
    (evict,) = [one for one in out if isinstance(one, Evict)]
    why = "a service there waits for a cpu for 30% of its time, cpu at 50 % of what is allocatable"
    assert evict.reason == f"a is overloaded ({why}); a gratis pod with 1 core s done"
    assert evicted(scheduler.handle([waits(0.3, 2.0)], 2.0)) == [], "it is on its way out"
    assert evicted(scheduler.handle([gone("young"), waits(0.3, 3.0)], 3.0)) == ["old"]
    assert evicted(scheduler.handle([gone("old"), waits(0.15, 4.0)], 4.0)) == [], "not calm, and not above it"
    assert evicted(scheduler.handle([waits(0.3, 5.0)], 5.0)) == ["b"]
    assert evicted(scheduler.handle([gone("b"), waits(0.05, 6.0)], 6.0)) == []


def test_a_short_contention_is_waited_out() -> None:
    scheduler = engine(
        runs("g", GRATIS, 100), uses(200, 0.0), overload_contended_share=0.2, overload_observation_seconds=30.0
    )
    for second, share, out in ((0.0, 0.5, []), (20.0, 0.1, []), (40.0, 0.5, []), (69.0, 0.5, []), (70.0, 0.5, ["g"])):
        assert evicted(scheduler.handle([uses(200, second), waits(share, second)], second)) == out


@pytest.mark.parametrize(
    "event", [waits(math.nan, 1.0), waits(math.inf, 1.0), waits(-1.0, 1.0), waits(None, 1.0), waits(0.9, 1.0, "b")]
)
def test_nobody_is_evicted_for_a_contention_that_can_not_be(event: NodeContended) -> None:
    scheduler = engine(runs("g", GRATIS, 100), uses(200, 0.0), overload_contended_share=0.2)
    assert evicted(scheduler.handle([event], 1.0)) == []


def test_nobody_is_evicted_for_a_contention_of_long_ago_or_where_nobody_looks() -> None:
    scheduler = engine(runs("g", GRATIS, 100), uses(200, 0.0), overload_contended_share=0.2)
    assert evicted(scheduler.handle([uses(200, 100.0), waits(0.9, 1.0)], 100.0)) == []
    assert evicted(engine(runs("g", GRATIS, 100)).handle([uses(200, 0.0), waits(0.9, 0.0)], 0.0)) == []


def test_what_was_told_of_a_node_that_is_gone_is_not_said_of_the_next_one() -> None:
    scheduler = engine(runs("g", GRATIS, 100), uses(200, 0.0), waits(0.9, 0.0), overload_observation_seconds=30.0)
    state = scheduler.state
    assert state.contention.waiting(0.0, 60.0).tolist() == [0.9]
    state.apply(NodeDeleted("a"))
    state.apply(NodeUpserted(Node("c", (("cpu", 1000),))))
    assert state.contention.waiting(0.0, 60.0).tolist() == [0.0]
