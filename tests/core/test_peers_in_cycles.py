"""Pods with rules about other pods, from arrival to node: batches see one another, who waits wakes when it helps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import engine_objects
import pytest

from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import (
    Event,
    Namespace,
    NamespaceUpserted,
    NodeDeleted,
    NodeUpserted,
    Pod,
    PodDeleted,
    PodRules,
    PodTerm,
    PodUpserted,
    Requirement,
    Spread,
)
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind, Instruction, Wait
from cotide_core.placement.candidates import Candidates
from cotide_core.state.snapshot import Snapshot

WEB = (Requirement("app", "In", ("web",)),)
APART = PodRules(anti_affinity=(PodTerm("zone", WEB),))
NEAR = PodRules(affinity=(PodTerm("zone", WEB),))
EVEN = PodRules(spreads=(Spread("zone", 1, WEB),))


def node(name: str, zone: str, cpu: int = 1000) -> NodeUpserted:
    """A node of a zone."""
    return engine_objects.node_upserted(name, cpu, labels=(("zone", zone),))


def pod(name: str, rules: PodRules | None = None, app: str = "web", **fields: object) -> Pod:
    """A small pod of an app, with rules about others."""
    return engine_objects.pod(name, 100, **{"uid": name, "labels": (("app", app),), "rules": rules, **fields})


def engine(*events: Event, policy: str = "fifo") -> Scheduler:
    scheduler = Scheduler(replace(SchedulerConfig(), policy=policy), HeuristicCatalogue())
    scheduler.handle([node("a", "a"), node("b", "b"), *events], 0.0)
    return scheduler


def bound(instructions: Sequence[Instruction]) -> dict[str, str]:
    return {instruction.key: instruction.node for instruction in instructions if isinstance(instruction, Bind)}


def waits(instructions: Sequence[Instruction]) -> dict[str, str]:
    return {instruction.key: instruction.message for instruction in instructions if isinstance(instruction, Wait)}


def confirmed(instructions: Sequence[Instruction], *pods: Pod) -> list[Event]:
    at = bound(instructions)
    return [PodUpserted(one._replace(node=at[one.key])) for one in pods if one.key in at]


def test_pods_of_one_batch_that_keep_apart_get_a_domain_each_and_the_last_waits() -> None:
    for policy in ("fifo", "qpsm", "hierarchical"):
        instructions = engine(policy=policy).handle([PodUpserted(pod(f"p{n}", APART)) for n in range(3)], 1.0)
        assert sorted(bound(instructions).values()) == ["a", "b"], policy
        assert "2 node(s) didn't match pod anti-affinity rules" in waits(instructions)["d/p2"], policy


def test_plans_keep_pods_apart_too() -> None:
    scheduler = engine(policy="easy")
    pods = [pod(f"p{n}", APART) for n in range(3)]
    found: dict[str, str] = {}
    for cycle in range(4):
        found |= bound(scheduler.handle([PodUpserted(one) for one in pods] if not cycle else [], 1.0 + cycle))
    assert sorted(found.values()) == ["a", "b"]


def test_a_batch_is_spread_evenly() -> None:
    instructions = engine().handle([PodUpserted(pod(f"p{n}", EVEN)) for n in range(8)], 1.0)
    assert sorted(bound(instructions).values()) == ["a"] * 4 + ["b"] * 4


def test_a_pod_near_others_wakes_when_the_first_of_them_is_placed_and_not_by_anything_else() -> None:
    scheduler = engine()
    assert "didn't match pod affinity rules" in waits(scheduler.handle([PodUpserted(pod("p", NEAR, "db"))], 1.0))["d/p"]
    other = pod("other", app="db")
    assert set(bound(scheduler.handle([PodUpserted(other)], 2.0))) == {"d/other"}
    assert scheduler.pending()["unschedulable"] == 1
    web = pod("w")
    (at,) = bound(scheduler.handle([PodUpserted(web)], 3.0)).values()
    # The bind itself wakes it: no event has to come.
    assert scheduler.next_wakeup(3.0) == 3.0
    assert bound(scheduler.handle([], 3.0)) == {"d/p": at}


def test_a_pod_that_keeps_apart_wakes_when_one_of_the_others_goes_anywhere_in_the_domain() -> None:
    scheduler = engine(node("a2", "a", 100))
    others = [pod(f"w{n}", node=name) for n, name in enumerate(("a2", "b"))]
    scheduler.handle([PodUpserted(other) for other in others], 1.0)
    waiting = pod("p", APART, requests=(("cpu", 500),))
    assert set(waits(scheduler.handle([PodUpserted(waiting)], 2.0))) == {"d/p"}
    # a2 is freed, which is too small for it; a, in the same zone, is not.
    assert bound(scheduler.handle([PodDeleted("d/w0", "w0")], 3.0)) == {"d/p": "a"}


def test_who_waits_for_an_even_spread_wakes_when_the_emptiest_domain_is_gone() -> None:
    scheduler = engine(node("c", "c", cpu=50), PodUpserted(pod("w", node="a")), PodUpserted(pod("v", node="b")))
    assert set(waits(scheduler.handle([PodUpserted(pod("p", EVEN))], 1.0))) == {"d/p"}
    scheduler.handle([], 1.5)
    assert set(bound(scheduler.handle([NodeDeleted("c")], 2.0))) == {"d/p"}


def test_who_waits_for_a_pod_beside_it_wakes_when_the_node_of_that_pod_comes_into_its_domain() -> None:
    scheduler = engine(node("c", "c", cpu=100), PodUpserted(pod("w", node="c")))
    assert set(waits(scheduler.handle([PodUpserted(pod("p", NEAR, app="db"))], 1.0))) == {"d/p"}
    scheduler.handle([], 1.5)
    assert bound(scheduler.handle([node("c", "b", cpu=100)], 2.0)) == {"d/p": "b"}


def test_who_waits_for_a_pod_in_namespaces_by_label_wakes_whichever_of_its_terms_says_so() -> None:
    red = PodTerm("zone", WEB, namespaces=("e",), namespace_selector=(Requirement("team", "In", ("red",)),))
    both = PodRules(affinity=(PodTerm("zone", WEB, namespaces=("d", "e")), red))
    scheduler = engine(PodUpserted(pod("w", node="b")))
    other = pod("p", both, app="db")._replace(key="f/p")
    assert set(waits(scheduler.handle([PodUpserted(other)], 1.0))) == {"f/p"}
    labelled = Namespace("d", labels=(("team", "red"),))
    assert bound(scheduler.handle([NamespaceUpserted(labelled)], 2.0)) == {"f/p": "b"}


def test_a_new_rule_of_a_placed_pod_reaches_those_that_wait_already() -> None:
    scheduler = engine()
    big = pod("p", requests=(("cpu", 1000),))
    scheduler.handle([PodUpserted(pod("x", node="a", app="x")), PodUpserted(pod("y", node="b", app="x"))], 1.0)
    assert "Insufficient cpu" in waits(scheduler.handle([PodUpserted(big)], 2.0))["d/p"]
    keeper = pod("k", APART, "db", node="a", requests=())
    gone = [PodDeleted("d/x", "x"), PodUpserted(keeper)]
    instructions = scheduler.handle(gone, 3.0)
    assert bound(instructions) == {}, "room on a is free, but a pod there keeps it off"
    assert bound(scheduler.handle([PodDeleted("d/k", "k")], 4.0)) == {"d/p": "a"}


def test_a_changed_label_of_a_waiting_pod_is_looked_at() -> None:
    scheduler = engine(PodUpserted(pod("k", APART, "db", node="a")), PodUpserted(pod("l", APART, "db", node="b")))
    assert set(waits(scheduler.handle([PodUpserted(pod("p"))], 1.0))) == {"d/p"}
    assert set(bound(scheduler.handle([PodUpserted(pod("p", app="db"))], 2.0))) == {"d/p"}


def test_a_pod_whose_claim_is_open_waits_and_says_for_what() -> None:
    scheduler = engine()
    open_claim = pod("p", blocked="pod has unbound immediate PersistentVolumeClaims")
    assert waits(scheduler.handle([PodUpserted(open_claim)], 1.0)) == {"d/p": open_claim.blocked}
    assert set(bound(scheduler.handle([PodUpserted(pod("p"))], 2.0))) == {"d/p"}


def test_a_claim_for_one_pod_alone_is_held_by_one() -> None:
    scheduler = engine()
    first, second = pod("p", sole_claims=("d/c",)), pod("q", sole_claims=("d/c",))
    instructions = scheduler.handle([PodUpserted(first), PodUpserted(second)], 1.0)
    assert set(bound(instructions)) == {"d/p"}
    assert "ReadWriteOncePod" in waits(instructions)["d/q"]
    scheduler.handle(confirmed(instructions, first), 2.0)
    assert set(bound(scheduler.handle([PodDeleted("d/p", "p")], 3.0))) == {"d/q"}


def with_volume(name: str, volume: str, **fields: object) -> Pod:
    """A pod with a volume, of which a node of the tests below takes one."""
    return engine_objects.pod(name, 100, **{"uid": name, "attachments": (("ebs", volume),), **fields})


def engine_of_single_volumes(*placed: Pod) -> Scheduler:
    limits = {"attach_limits": (("ebs", 1),)}
    nodes = [engine_objects.node_upserted(name, 1000, **limits) for name in ("a", "b")]
    scheduler = Scheduler(replace(SchedulerConfig(), policy="fifo"), HeuristicCatalogue())
    scheduler.handle([*nodes, *(PodUpserted(one) for one in placed)], 0.0)
    return scheduler


def test_who_waits_for_a_place_for_a_volume_wakes_when_one_goes_and_the_others_are_not_evaluated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = engine_of_single_volumes(with_volume("x", "vx", node="a"), with_volume("y", "vy", node="b"))
    pods = [with_volume(f"p{number}", f"v{number}") for number in range(20)]
    assert len(waits(scheduler.handle([PodUpserted(one) for one in pods], 1.0))) == 20
    evaluated = 0
    evaluate = Candidates._evaluate_all

    def count(self: Candidates, snapshot: Snapshot) -> None:
        nonlocal evaluated
        evaluated += 1
        evaluate(self, snapshot)

    monkeypatch.setattr(Candidates, "_evaluate_all", count)
    plain = engine_objects.running_pod("plain", "b", 100)
    scheduler.handle([PodUpserted(plain)], 2.0)
    assert bound(scheduler.handle([PodDeleted(plain.key, plain.uid)], 3.0)) == {}
    assert evaluated == 0, "more room for cpu is none for a volume"
    assert list(bound(scheduler.handle([PodDeleted("d/x", "x")], 4.0)).values()) == ["a"]


def test_who_waits_with_a_volume_that_another_brings_to_a_node_wakes() -> None:
    scheduler = engine_of_single_volumes(with_volume("x", "vx", node="a"), with_volume("y", "vy", node="b"))
    first, second = with_volume("p", "shared", node_selector=(("disk", "ssd"),)), with_volume("q", "shared")
    assert waits(scheduler.handle([PodUpserted(second)], 1.0))
    ssd = {"attach_limits": (("ebs", 1),), "labels": (("disk", "ssd"),)}
    taken = with_volume("z", "vz", node="c")
    scheduler.handle([PodUpserted(taken), engine_objects.node_upserted("c", 1000, **ssd)], 2.0)
    moved = scheduler.handle([PodDeleted("d/z", "z"), PodUpserted(first)], 3.0)
    found = bound(moved) | bound(scheduler.handle(confirmed(moved, first, second), 4.0))
    assert found == {"d/p": "c", "d/q": "c"}, "one volume for both"
