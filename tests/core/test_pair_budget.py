"""Pods with costly rules: what one cycle compares is bounded, the rest follows, and other namespaces do not wait."""

from __future__ import annotations

from collections.abc import Sequence

import engine_objects
import pytest

from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import Event, Pod, PodDeleted, PodRules, PodTerm, PodUpserted, Requirement, Selector
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind
from cotide_core.state.selection.pair_budget import PAIRS_A_CYCLE, PairBudget

MAX_CYCLES = 200


def absent(own: str) -> Selector:
    """A long selector that no other equals, and that selects all pods."""
    return tuple(Requirement(f"{own}-{number}", "DoesNotExist") for number in range(60))


def costly(number: int, name: str = "e", terms: int = 16) -> Pod:
    """A pod with terms of its own over all namespaces, about domains that no node has."""
    rules = PodRules(
        anti_affinity=tuple(
            PodTerm("no-such-label", absent(f"{name}{number}-{part}"), namespace_selector=()) for part in range(terms)
        )
    )
    key = f"costly/{name}{number}"
    return engine_objects.pod(key, 1, key=key, uid=key, labels=(), rules=rules)


def cheap(number: int) -> Pod:
    """A pod of another namespace with labels of its own."""
    key = f"cheap/p{number}"
    return engine_objects.pod(key, 1, key=key, uid=key, labels=(("job-index", str(number)),))


def engine() -> Scheduler:
    scheduler = Scheduler(SchedulerConfig(policy="fifo", seed=1), HeuristicCatalogue())
    scheduler.handle([engine_objects.node_upserted(f"n{number}", 8000) for number in range(3)], 0.0)
    return scheduler


def cycles_until_bound(scheduler: Scheduler, pods: Sequence[Pod], start: float = 1.0) -> dict[str, int]:
    """Tell of pods at once, then call while there is work; return in which cycle each was bound."""
    bound: dict[str, int] = {}
    events: list[Event] = [PodUpserted(pod) for pod in pods]
    for cycle in range(MAX_CYCLES):
        now = start + cycle
        bound |= {one.key: cycle for one in scheduler.handle(events, now) if isinstance(one, Bind)}
        wakeup = scheduler.next_wakeup(now)
        if wakeup is None or wakeup > now:
            return bound
        events = []
    pytest.fail("there is always more to do")


def test_costly_pods_are_taken_up_over_several_cycles_and_all_of_them_are_bound() -> None:
    bound = cycles_until_bound(engine(), [costly(number) for number in range(60)])
    assert len(bound) == 60
    assert max(bound.values()) >= 2, "60 pods of 16 terms with 60 requirements each are too much for one cycle"
    in_order = [bound[f"costly/e{number}"] for number in range(60)]
    assert in_order == sorted(in_order), "those of one namespace stay in their order"


def test_a_cheap_pod_behind_costly_ones_of_another_namespace_is_bound_in_the_first_cycle() -> None:
    pods = [*(costly(number) for number in range(60)), cheap(0)]
    assert cycles_until_bound(engine(), pods)["cheap/p0"] == 0


def test_pods_that_costly_rules_of_placed_pods_concern_are_bound_within_a_few_cycles() -> None:
    scheduler = engine()
    cycles_until_bound(scheduler, [costly(number) for number in range(60)])
    bound = cycles_until_bound(scheduler, [cheap(number) for number in range(40)], 20.0)
    assert len(bound) == 40
    assert max(bound.values()) <= 3


def test_a_pod_that_waits_for_a_later_cycle_counts_as_waiting_and_may_go_or_change() -> None:
    scheduler = engine()
    scheduler.handle([PodUpserted(costly(number)) for number in range(60)], 1.0)
    assert scheduler.next_wakeup(1.0) == 1.0
    assert scheduler.pending()["active"] > 0
    gone, gated = "costly/e59", costly(58)._replace(gates=("wait",))
    changes: list[list[Event]] = [[PodDeleted(gone, gone), PodUpserted(gated)], *([] for _ in range(20))]
    later = {
        one.key
        for cycle, events in enumerate(changes)
        for one in scheduler.handle(events, 2.0 + cycle)
        if isinstance(one, Bind)
    }
    assert later
    assert not later & {gone, gated.key}
    assert scheduler.pending() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 1}


def test_the_same_calls_defer_the_same_pods() -> None:
    first, second = (cycles_until_bound(engine(), [costly(number) for number in range(60)]) for _ in range(2))
    assert first == second


def test_a_rule_of_a_pod_that_this_cycle_placed_concerns_those_behind_it() -> None:
    scheduler = Scheduler(SchedulerConfig(policy="fifo", seed=1), HeuristicCatalogue())
    zone = (("zone", "a"),)
    scheduler.handle([engine_objects.node_upserted("n", 8000, labels=zone)], 0.0)
    web = (Requirement("app", "In", ("web",)),)
    alone = PodRules(anti_affinity=(PodTerm("zone", web),))
    first = engine_objects.pod("alone", 1, labels=(("app", "db"),), rules=alone)
    second = engine_objects.pod("web", 1, labels=(("app", "web"),))
    instructions = scheduler.handle([PodUpserted(first), PodUpserted(second)], 1.0)
    assert [instruction.key for instruction in instructions if isinstance(instruction, Bind)] == [first.key]


def test_a_namespace_has_a_share_and_the_first_that_asks_may_go_on() -> None:
    budget = PairBudget()
    budget.begin()
    budget.charge("a", PAIRS_A_CYCLE)
    assert not budget.is_spent("a"), "each cycle gets something done"
    assert budget.is_spent("a")
    assert budget.is_spent("b"), "all of the cycle is spent"
    budget.begin()
    budget.charge("a", PAIRS_A_CYCLE // 2)
    assert not budget.is_spent("b")
    assert budget.is_spent("a")
    assert not budget.is_spent("b")
