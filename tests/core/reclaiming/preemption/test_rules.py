"""Preemption for pods with rules about other pods: exactly what the filters would say once the victims are gone."""

from __future__ import annotations

from typing import Any

import pytest
from engine_objects import node_upserted
from hypothesis import given, settings
from hypothesis import strategies as st
from preemption_scene import bound, comes, engine, evicted, gone, labelled, nominated, runs

from cotide_core.events import PodRules, PodTerm, Requirement, Spread
from cotide_core.instructions import Evict
from cotide_core.placement.feasibility import FITS, Feasibility
from cotide_core.reclaiming.preemption import plans
from cotide_core.state.snapshot import Snapshot

HOST, ZONE = "kubernetes.io/hostname", "zone"


def term(app: str, key: str = HOST) -> PodTerm:
    return PodTerm(key, (Requirement("app", "In", (app,)),))


def apart_from(app: str, key: str = HOST) -> PodRules:
    return PodRules(anti_affinity=(term(app, key),))


def near(app: str, key: str = HOST) -> PodRules:
    return PodRules(affinity=(term(app, key),))


def spread(app: str, key: str = HOST, skew: int = 1) -> PodRules:
    return PodRules(spreads=(Spread(key, skew, (Requirement("app", "In", (app,)),)),))


def there(name: str, cpu: int = 1000, zone: str = "") -> Any:
    labels = {HOST: name, **({ZONE: zone} if zone else {})}
    return node_upserted(name, cpu, labels=tuple(sorted(labels.items())))


def test_a_less_important_pod_that_is_kept_away_from_leaves() -> None:
    low, other = runs("low", "a", 100, 1, labels=labelled("db")), runs("other", "a", 100, 0)
    scheduler = engine(there("a"), low, other)
    assert evicted(scheduler.handle([comes("p", 100, 9, rules=apart_from("db"))], 1.0)) == ["low"]
    assert bound(scheduler.handle([gone("low")], 2.0)) == {"p": "a"}


def test_a_less_important_pod_that_keeps_others_off_leaves() -> None:
    low = runs("low", "a", 100, 1, rules=apart_from("web"))
    scheduler = engine(there("a"), low, runs("other", "a", 100, 0))
    assert evicted(scheduler.handle([comes("p", 100, 9, labels=labelled("web"))], 1.0)) == ["low"]


def test_no_pod_leaves_where_a_more_important_one_is_in_the_way_as_well() -> None:
    low, high = (runs(name, "a", 100, value, labels=labelled("db")) for name, value in (("low", 1), ("high", 99)))
    scheduler = engine(there("a"), low, high)
    assert evicted(scheduler.handle([comes("p", 100, 9, rules=apart_from("db"))], 1.0)) == []


def test_pods_of_other_nodes_of_a_domain_are_not_asked() -> None:
    low = runs("low", "b", 100, 1, labels=labelled("db"))
    scheduler = engine(there("a", zone="z"), there("b", zone="z"), low)
    out = scheduler.handle([comes("p", 100, 9, rules=apart_from("db", ZONE))], 1.0)
    assert nominated(out) == {"p": "b"}, "kube-scheduler has no preemption across nodes either"


def test_a_pod_near_a_more_important_one_displaces_others_there() -> None:
    peer, other = runs("peer", "a", 500, 99, labels=labelled("db")), runs("other", "a", 500, 5)
    scheduler = engine(there("a"), there("b"), peer, other)
    assert evicted(scheduler.handle([comes("p", 400, 9, rules=near("db"))], 1.0)) == ["other"]


def test_a_pod_near_a_less_important_one_displaces_none_as_in_kube_scheduler() -> None:
    peer, other = runs("peer", "a", 500, 0, labels=labelled("db")), runs("other", "a", 500, 5)
    scheduler = engine(there("a"), there("b"), peer, other)
    assert evicted(scheduler.handle([comes("p", 400, 9, rules=near("db"))], 1.0)) == []


def test_as_many_leave_as_the_spread_takes() -> None:
    """The spec of Kubernetes: one victim frees the room, and two keep the skew."""
    high = runs("high", "a", 900, 99, labels=labelled("x"))
    low = [runs(f"low{number}", "b", 300, 1, labels=labelled("x")) for number in range(3)]
    scheduler = engine(there("a"), there("b"), high, *low)
    out = scheduler.handle([comes("medium", 300, 50, labels=labelled("x"), rules=spread("x"))], 1.0)
    assert len(evicted(out)) == 2
    out = scheduler.handle([gone(name) for name in evicted(out)], 2.0)
    assert bound(out) == {"medium": "b"}


def test_what_a_node_costs_is_found_again_once_a_pod_of_its_domain_was_placed() -> None:
    """Between two pods of one shape a third is placed on c, in the zone of b, from which they keep away."""
    full = [runs("low-a", "a", 1000, 0), runs("low-b", "b", 1000, 1)]
    scheduler = engine(there("a", zone="1"), there("b", zone="2"), there("c", 500, "2"), *full)
    away = apart_from("db", ZONE)
    first, second = (comes(f"p{number}", 900, 9, rules=away) for number in range(2))
    out = scheduler.handle([first, comes("db", 400, 9, labels=labelled("db")), second], 1.0)
    assert (bound(out), evicted(out)) == ({"db": "c"}, ["low-a"])


@pytest.mark.parametrize(("refusing", "leaves"), [(3, ["low3"]), (4, [])])
def test_a_bounded_number_of_nodes_is_tried_where_rules_refuse_them(
    refusing: int, leaves: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node in ten is tried where amounts decide, four times as many where rules do."""
    monkeypatch.setattr(plans, "NODES_TRIED_LEAST", 1)
    peers = [
        runs(f"db{number}", f"n{number}", 100, 99 if number == refusing else 1, labels=labelled("db"))
        for number in range(refusing + 1)
    ]
    low = [runs(f"low{number}", f"n{number}", 900) for number in range(refusing + 1)]
    scheduler = engine(*(there(f"n{number}") for number in range(10)), *peers, *low)
    assert evicted(scheduler.handle([comes("p", 900, 9, rules=near("db"))], 1.0)) == leaves


APPS = ("x", "y")
PODS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.sampled_from(APPS), st.sampled_from(["", "apart", "near"])),
    max_size=7,
)
RULES = st.sampled_from(
    [apart_from("x"), apart_from("x", ZONE), near("x"), near("y", ZONE), spread("x"), spread("x", ZONE), PodRules()]
)


@settings(max_examples=150, deadline=None)
@given(pods=PODS, rules=RULES, app=st.sampled_from(APPS))
def test_a_trial_without_pods_says_what_the_filters_say_once_they_are_gone(
    pods: list[tuple[str, int, str, str]], rules: PodRules, app: str
) -> None:
    given_rules = {"": None, "apart": apart_from("x", ZONE), "near": near("y")}
    placed = [
        runs(f"r{number}", on, 10, priority, labels=labelled(of), rules=given_rules[kind])
        for number, (on, priority, of, kind) in enumerate(pods)
    ]
    scheduler = engine(there("a", zone="1"), there("b", zone="1"), there("c", zone="2"), *placed)
    waiting = comes("p", 10, 9, labels=labelled(app), rules=None if rules == PodRules() else rules, gates=("held",))
    scheduler.handle([waiting], 1.0)
    shape = scheduler._shapes.of(waiting.pod, scheduler.state)
    before = Feasibility().peer_trial(shape.fit, Snapshot.of(scheduler.state))
    if before is None:
        return
    for row, name in enumerate("abc"):
        leaving = [one for one in placed if one.pod.node == name and one.pod.priority < 2]
        said = before.passes(row, [one.pod for one in leaving])
        after = engine(
            there("a", zone="1"), there("b", zone="1"), there("c", zone="2"),
            *(one for one in placed if one not in leaving), waiting,
        )  # fmt: skip
        fit = after._shapes.of(waiting.pod, after.state).fit
        assert said == (Feasibility().node_codes(fit, Snapshot.of(after.state))[row] == FITS)


@settings(max_examples=60, deadline=None)
@given(pods=PODS, rules=RULES, app=st.sampled_from(APPS))
def test_a_pod_is_placed_where_its_victims_were(
    pods: list[tuple[str, int, str, str]], rules: PodRules, app: str
) -> None:
    placed = [
        runs(f"r{number}", on, 300, priority, labels=labelled(of)) for number, (on, priority, of, _) in enumerate(pods)
    ]
    scheduler = engine(there("a", 2100, "1"), there("b", 2100, "1"), there("c", 2100, "2"), *placed)
    out = scheduler.handle([comes("p", 1700, 9, labels=labelled(app), rules=rules)], 1.0)
    asked = [one for one in out if isinstance(one, Evict)]
    if asked:
        assert bound(scheduler.handle([gone(one.key[2:]) for one in asked], 2.0)) == {"p": asked[0].node}
