"""Which pods of a node leave for a pod: only less important ones, no more than it takes, the most important last."""

from __future__ import annotations

import pytest
from engine_objects import node_upserted
from preemption_scene import (
    BATCH,
    GRATIS,
    ONLINE,
    bound,
    budget,
    comes,
    engine,
    evicted,
    gone,
    labelled,
    leaves,
    nominated,
    runs,
)

from cotide_core.classes import WorkloadClass
from cotide_core.events import HostPort, PodUpserted, Taint
from cotide_core.instructions import Evict, EvictCause, Wait, WaitReason

POLICIES = (
    "fifo",
    "random",
    "qpsm",
    "fifo-guarded",
    "predictive",
    "hierarchical",
    "easy",
    "conservative",
    "svf",
    "fair",
)


@pytest.mark.parametrize("policy", POLICIES)
def test_an_online_pod_displaces_one_of_lower_priority_and_gets_its_node(policy: str) -> None:
    scheduler = engine(node_upserted(), runs("low", "a", 600, 1), runs("mid", "a", 400, 50), policy=policy)
    out = scheduler.handle([comes("high", 500, 100)], 1.0)
    (evict,) = [one for one in out if isinstance(one, Evict)]
    assert (evict.key, evict.cause, evict.by_priority) == ("d/low", EvictCause.PREEMPTED, True)
    assert (evict.nominee, evict.nominee_uid, evict.node) == ("d/high", "u-high", "a")
    assert evict.reason == "makes room for online pod d/high; an online pod of priority 1, below 100"
    (wait,) = [one for one in out if isinstance(one, Wait)]
    assert (wait.nominated_node, wait.victims, wait.reason) == ("a", ("d/low",), WaitReason.INSUFFICIENT_SLACK)
    assert wait.message.endswith("preemption: 1 less important pod leaves a for it")
    assert scheduler.handle([], 2.0) == [], "no pod is asked twice"
    assert bound(scheduler.handle([gone("low")], 3.0)) == {"high": "a"}


@pytest.mark.parametrize("priority", [0, -5])
def test_no_pod_of_equal_or_higher_priority_goes(priority: int) -> None:
    scheduler = engine(node_upserted(), runs("a", "a", 500, 0), runs("b", "a", 500, 7))
    assert evicted(scheduler.handle([comes("p", 100, priority)], 1.0)) == []


@pytest.mark.parametrize(
    ("cls", "least"), [(ONLINE, [BATCH, GRATIS]), (BATCH, [GRATIS]), (GRATIS, list[WorkloadClass]())]
)
@pytest.mark.parametrize("policy", ["fifo", "hierarchical"])
def test_a_class_displaces_the_classes_below_it_and_none_above(
    cls: WorkloadClass, least: list[WorkloadClass], policy: str
) -> None:
    for other in (ONLINE, BATCH, GRATIS):
        scheduler = engine(node_upserted(), runs("v", "a", 1000, 99, other), policy=policy)
        out = scheduler.handle([comes("p", 1000, 0, cls)], 1.0)
        assert evicted(out) == (["v"] if other in least else [])
        assert not any(one.by_priority for one in out if isinstance(one, Evict))


def test_predictive_keeps_gratis_pods_from_batch_pods_and_not_from_online_ones() -> None:
    for cls, goes in ((BATCH, []), (ONLINE, ["v"])):
        scheduler = engine(node_upserted(), runs("v", "a", 1000, 0, GRATIS), policy="predictive")
        assert evicted(scheduler.handle([comes("p", 1000, 0, cls)], 1.0)) == goes


def test_a_pod_that_never_preempts_waits() -> None:
    scheduler = engine(node_upserted(), runs("low", "a", 1000))
    assert evicted(scheduler.handle([comes("never", 500, 100, preempts=False)], 1.0)) == []
    assert evicted(scheduler.handle([comes("may", 500, 100)], 2.0)) == ["low"]


def test_as_many_as_possible_stay_the_most_important_first() -> None:
    pods = [runs("p5", "a", 300, 5), runs("p4", "a", 300, 4), runs("p3", "a", 400, 3)]
    assert evicted(engine(node_upserted(), *pods).handle([comes("p", 400, 9)], 1.0)) == ["p3"]
    assert evicted(engine(node_upserted(), *pods).handle([comes("p", 300, 9)], 1.0)) == ["p3"]
    assert evicted(engine(node_upserted(), *pods).handle([comes("p", 500, 9)], 1.0)) == ["p3", "p4"]


def test_of_equals_the_one_that_began_first_stays() -> None:
    early, late = runs("early", "a", 500, started_seconds=1.0), runs("late", "a", 500, started_seconds=2.0)
    assert evicted(engine(node_upserted(), late, early).handle([comes("p", 400, 9)], 5.0)) == ["late"]


def test_of_equal_jobs_the_one_with_most_work_done_stays() -> None:
    early = runs("early", "a", 500, 0, BATCH, started_seconds=1.0)
    late = runs("late", "a", 500, 0, BATCH, started_seconds=3.0)
    out = engine(node_upserted(), early, late).handle([comes("p", 400, 9, BATCH)], 5.0)
    (evict,) = [one for one in out if isinstance(one, Evict)]
    assert evict.reason == "makes room for batch pod d/p; a batch pod of priority 0, below 9 with 1 core s done"


def test_a_pod_that_a_budget_keeps_stays_as_long_as_others_suffice_and_goes_else() -> None:
    kept, other = runs("kept", "a", 500, 0, labels=labelled("web")), runs("other", "a", 500, 5)
    scheduler = engine(node_upserted(), kept, other, budget("web"))
    assert evicted(scheduler.handle([comes("p", 400, 9)], 1.0)) == ["other"], "although it is more important"
    scheduler = engine(node_upserted(), kept, other, budget("web"))
    assert evicted(scheduler.handle([comes("p", 900, 9)], 1.0)) == ["kept", "other"], "budgets are best effort"


def test_a_budget_or_an_owner_keeps_a_job_from_a_higher_class() -> None:
    for fields in ({"labels": labelled("web")}, {"do_not_disrupt": True}):
        scheduler = engine(node_upserted(), runs("kept", "a", 1000, 0, BATCH, **fields), budget("web"))
        assert evicted(scheduler.handle([comes("p", 400, 9)], 1.0)) == []


@pytest.mark.parametrize("refuses", ["taint", "unschedulable", "selector"])
def test_a_node_that_takes_no_such_pod_is_not_emptied(refuses: str) -> None:
    fields = {"taints": (Taint("k", "", "NoSchedule"),)} if refuses == "taint" else {}
    scheduler = engine(node_upserted("a", unschedulable=refuses == "unschedulable", **fields), runs("low", "a", 1000))
    wishes = {"node_selector": (("zone", "x"),)} if refuses == "selector" else {}
    assert evicted(scheduler.handle([comes("p", 400, 9, **wishes)], 1.0)) == []


def test_a_pod_that_is_too_large_for_the_node_empties_nothing() -> None:
    scheduler = engine(node_upserted(), runs("low", "a", 1000))
    assert evicted(scheduler.handle([comes("p", 1001, 9)], 1.0)) == []


def test_a_host_port_is_freed() -> None:
    port = (HostPort("TCP", "0.0.0.0", 80),)  # noqa: S104 - compared as data
    holder, other = runs("holder", "a", 100, 5, host_ports=port), runs("other", "a", 100, 1)
    scheduler = engine(node_upserted(), holder, other)
    assert evicted(scheduler.handle([comes("p", 100, 9, host_ports=port)], 1.0)) == ["holder"]
    assert bound(scheduler.handle([comes("q", 100, 9, host_ports=port), gone("holder")], 2.0)) == {"p": "a"}


def test_a_pod_that_holds_none_of_what_lacks_stays_though_it_is_the_least_important() -> None:
    asks = (("cpu", 100), ("example.com/gpu", 1))
    holder = runs("holder", "a", 100, 5, requests=asks)
    scheduler = engine(node_upserted(offers={"example.com/gpu": 1}), runs("plain", "a", 100, 0), holder)
    assert evicted(scheduler.handle([comes("p", 100, 9, requests=asks)], 1.0)) == ["holder"]


def test_pods_on_their_way_out_are_counted_on() -> None:
    low = runs("low", "a", 1000)
    scheduler = engine(node_upserted("a"), node_upserted("b"), low, runs("low2", "b", 1000))
    out = scheduler.handle([leaves(low), comes("p", 400, 9)], 1.0)
    assert (evicted(out), nominated(out)) == ([], {"p": "a"})


def test_an_equal_that_leaves_is_not_waited_for() -> None:
    equal = runs("equal", "a", 1000, 9)
    scheduler = engine(node_upserted("a"), node_upserted("b"), equal, runs("low", "b", 1000))
    assert evicted(scheduler.handle([leaves(equal), comes("p", 400, 9)], 1.0)) == ["low"]


def test_critical_pods_displace_by_their_value() -> None:
    scheduler = engine(node_upserted(), runs("user", "a", 1000, 1_000_000_000))
    out = scheduler.handle([comes("critical", 500, 2_000_000_000), comes("node", 500, 2_000_001_000)], 1.0)
    assert evicted(out) == ["user"]
    assert nominated(out) == {"critical": "a", "node": "a"}, "one victim makes room for both"
    assert bound(scheduler.handle([gone("user")], 2.0)) == {"critical": "a", "node": "a"}


def test_each_of_many_pods_asks_for_its_own_victim() -> None:
    nodes = [node_upserted(f"n{number}") for number in range(3)]
    low = [runs(f"low{number}", f"n{number}", 1000) for number in range(3)]
    scheduler = engine(*nodes, *low)
    waiting: list[PodUpserted] = [comes(f"p{number}", 800, 9) for number in range(4)]
    out = scheduler.handle(waiting, 1.0)
    assert evicted(out) == ["low0", "low1", "low2"]
    assert sorted(nominated(out).values()) == ["", "n0", "n1", "n2"]
