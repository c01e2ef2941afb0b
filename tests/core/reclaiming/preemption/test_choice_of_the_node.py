"""Which node is emptied for a pod: kube-scheduler's order of criteria, each decided by the one before it first.

The cases are those of the documentation of DefaultPreemption (pickOneNodeForPreemption), worked out by hand.
"""

from __future__ import annotations

from engine_objects import node_upserted
from preemption_scene import BATCH, GRATIS, ONLINE, budget, comes, engine, evicted, labelled, nominated, runs

from cotide_core.events import Event


def chosen(*events: Event) -> str:
    """The node that is emptied for an online pod of 1000 millicores and priority 100, of nodes that are full."""
    nodes = dict.fromkeys(event.pod.node or "" for event in events if hasattr(event, "pod"))
    scheduler = engine(*(node_upserted(name) for name in nodes), *events)
    return nominated(scheduler.handle([comes("p", 1000, 100)], 10.0))["p"]


def test_the_node_where_fewer_budgets_break_is_chosen_whatever_the_priorities() -> None:
    kept = runs("kept", "a", 1000, 0, labels=labelled("web"))
    assert chosen(kept, runs("high", "b", 1000, 99), budget("web")) == "b"
    assert chosen(kept, runs("high", "b", 1000, 99), budget("web", allowed=1)) == "a"


def test_a_pod_that_its_budget_counts_as_gone_breaks_it_no_more() -> None:
    kept = runs("kept", "a", 1000, 0, labels=labelled("web"))
    assert chosen(kept, runs("high", "b", 1000, 99), budget("web", disrupted=("kept",))) == "a"


def test_a_pod_that_must_not_be_disrupted_counts_as_one_that_a_budget_keeps() -> None:
    kept = runs("kept", "a", 1000, 0, do_not_disrupt=True)
    assert chosen(kept, runs("high", "b", 1000, 99)) == "b"
    assert chosen(kept) == "a"


def test_a_protection_that_ended_counts_no_more() -> None:
    """The pod arrives at 10 s: 5 s from the start are over, 15 s are not."""
    high = runs("high", "b", 1000, 99)
    assert chosen(runs("kept", "a", 1000, 0, protected_seconds=15.0, started_seconds=0.0), high) == "b"
    assert chosen(runs("kept", "a", 1000, 0, protected_seconds=5.0, started_seconds=0.0), high) == "a"


def test_a_node_is_found_again_once_time_ends_a_protection_there() -> None:
    """No event concerns the node meanwhile: only the time passes."""
    kept = runs("kept", "a", 1000, 0, BATCH, protected_seconds=30.0, started_seconds=0.0)
    scheduler = engine(node_upserted("a"), kept)
    assert evicted(scheduler.handle([comes("early", 1000, 100)], 10.0)) == []
    assert evicted(scheduler.handle([comes("late", 1000, 100)], 30.0)) == ["kept"]


def test_a_node_is_found_again_once_an_owner_takes_a_protection_off() -> None:
    kept = runs("kept", "a", 1000, 0, BATCH, do_not_disrupt=True)
    scheduler = engine(node_upserted("a"), kept)
    assert evicted(scheduler.handle([comes("early", 1000, 100)], 10.0)) == []
    assert evicted(scheduler.handle([runs("kept", "a", 1000, 0, BATCH), comes("late", 1000, 100)], 20.0)) == ["kept"]


def test_then_the_lowest_of_the_highest_priorities_decides() -> None:
    low = [runs(f"low{number}", "a", 250, 10) for number in range(4)]
    assert chosen(*low, runs("high", "b", 1000, 11)) == "a"


def test_then_the_smallest_sum_of_priorities_decides() -> None:
    a = [runs("a1", "a", 500, 10), runs("a2", "a", 500, 9)]
    b = [runs("b1", "b", 500, 10), runs("b2", "b", 500, 8)]
    assert chosen(*a, *b) == "b"


def test_fewer_pods_sum_to_less_even_where_their_priorities_are_negative() -> None:
    a = [runs("a1", "a", 500, -10), runs("a2", "a", 500, -10)]
    assert chosen(*a, runs("b1", "b", 1000, -10)) == "b"


def test_then_the_latest_start_of_the_most_important_victims_decides() -> None:
    a = [runs("a1", "a", 500, 10, started_seconds=5.0), runs("a2", "a", 500, 0, started_seconds=9.0)]
    b = [runs("b1", "b", 500, 10, started_seconds=6.0), runs("b2", "b", 500, 0, started_seconds=1.0)]
    assert chosen(*a, *b) == "b"
    earlier = runs("b2", "b", 500, 10, started_seconds=1.0)
    later = runs("a2", "a", 500, 10, started_seconds=9.0)
    assert chosen(a[0], later, b[0], earlier) == "a", "the earliest of those counts: 5 against 1"


def test_a_pod_that_has_not_begun_counts_as_begun_now() -> None:
    assert chosen(runs("a", "a", 1000, started_seconds=9.0), runs("b", "b", 1000, started_seconds=None)) == "b"


def test_of_nodes_that_are_equal_the_first_is_chosen() -> None:
    assert chosen(runs("a", "a", 1000), runs("b", "b", 1000)) == "a"


def test_a_lower_class_goes_first_whatever_its_priority() -> None:
    assert chosen(runs("a", "a", 1000, 0, ONLINE), runs("b", "b", 1000, 99, BATCH)) == "b"
    assert chosen(runs("a", "a", 1000, 0, BATCH), runs("b", "b", 1000, 99, GRATIS)) == "b"


def test_among_jobs_of_equal_rank_the_least_work_is_lost() -> None:
    old, young = runs("old", "a", 1000, 0, BATCH, started_seconds=1.0), runs("young", "b", 1000, 0, BATCH)
    young = runs("young", "b", 1000, 0, BATCH, started_seconds=9.0)
    assert chosen(old, young) == "b"


def test_a_node_with_room_is_taken_and_no_pod_goes() -> None:
    scheduler = engine(node_upserted("a"), node_upserted("b", 2000), runs("low", "a", 1000), runs("low2", "b", 1000))
    assert evicted(scheduler.handle([comes("p", 1000, 100)], 1.0)) == []


def test_a_node_is_found_again_once_a_pod_there_counts_with_a_lower_priority() -> None:
    """A namespace may lower the priority with which its pods count while they run."""
    scheduler = engine(node_upserted("a"), runs("there", "a", 1000, 500))
    assert evicted(scheduler.handle([comes("early", 1000, 100)], 10.0)) == []
    assert evicted(scheduler.handle([runs("there", "a", 1000, 50), comes("late", 1000, 100)], 20.0)) == ["there"]
