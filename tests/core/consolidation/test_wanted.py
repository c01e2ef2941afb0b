"""What waiting pods want of nodes that are held free: asked of all nodes at once, with the answer of each."""

from __future__ import annotations

import random

import pytest
from engine_objects import node, pod, running_pod

from cotide_core.consolidation.removal import wanted
from cotide_core.consolidation.removal.wanted import Wanted, WantedNodes
from cotide_core.events import (
    Node,
    NodeDeleted,
    NodeTerm,
    NodeUpserted,
    OpenClaim,
    Pod,
    PodUpserted,
    Requirement,
    Taint,
    Toleration,
)
from cotide_core.placement.node_predicates import refusal, uncordoned
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.node_columns import CPU_COLUMN
from cotide_core.state.shapes import Constraints


def state_of(*things: Node | Pod) -> ClusterState:
    state = ClusterState()
    for thing in things:
        state.apply(NodeUpserted(thing) if isinstance(thing, Node) else PodUpserted(thing))
    return state


def wanted_nodes(state: ClusterState, waiting: list[Pod], ours: list[str]) -> Wanted:
    return WantedNodes().of(state, waiting, ours)


def test_waiting_pods_get_as_many_of_our_nodes_as_they_fill() -> None:
    ours = [node(name, unschedulable=True) for name in ("f1", "f2", "f3")]
    waiting = [pod(f"w{number}", 400) for number in range(4)]
    state = state_of(*ours, node("full"), running_pod("big", "full", 900), *waiting)
    assert wanted_nodes(state, waiting[:1], ["f1", "f2", "f3"]) == (("f1",), True, False)
    assert wanted_nodes(state, waiting, ["f1", "f2", "f3"]) == (("f1", "f2"), True, False)
    # One node of 1,000 holds two of 400; what is being drained would hold the others.
    assert wanted_nodes(state, waiting, ["f1"]) == (("f1",), True, True)


def test_the_taint_of_cordoned_nodes_keeps_nobody_from_wanting_one_back() -> None:
    """The node controller of a real cluster puts it on whoever is cordoned, and takes it off again."""
    cordoned = (Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),)
    waiting = [pod("w", 400)]
    state = state_of(node("f", unschedulable=True, taints=cordoned), *waiting)
    assert wanted_nodes(state, waiting, ["f"]) == (("f",), True, False)
    own = (*cordoned, Taint("pool", "gpu", "NoSchedule"))
    state = state_of(node("f", unschedulable=True, taints=own), *waiting)
    assert wanted_nodes(state, waiting, ["f"]) == ((), False, False)


def test_a_pod_that_no_node_could_take_were_it_empty_wants_nothing_and_holds_up_nothing() -> None:
    state = state_of(node("f", unschedulable=True), node("a"), running_pod("b", "a", 900))
    huge, bound = pod("huge", 1001), pod("here", 10, node_selector=(("zone", "none"),))
    assert wanted_nodes(state, [huge, bound], ["f"]) == ((), False, False)
    # One that would find its place but for others gives hope, and none of our nodes.
    state = state_of(node("f", 100, unschedulable=True), node("a"), running_pod("b", "a", 900))
    assert wanted_nodes(state, [pod("w", 500)], ["f"]) == ((), True, True)


ZONES = ("a", "b", "c")


def drawn_node(name: str, draw: random.Random) -> Node:
    taints = (Taint("pool", draw.choice(ZONES), "NoSchedule"),) if draw.random() < 0.3 else ()
    pressures = ("DiskPressure",) if draw.random() < 0.1 else ()
    return node(
        name, draw.choice((500, 1000)), labels=(("zone", draw.choice(ZONES)),), taints=taints, pressures=pressures,
        ready=draw.random() < 0.9, unschedulable=draw.random() < 0.5,
    )  # fmt: skip


def drawn_pod(name: str, draw: random.Random) -> Pod:
    zone = (Requirement("zone", "In", (draw.choice((*ZONES, "none")),)),)
    more: dict[str, object] = {}
    if draw.random() < 0.4:
        more["node_selector"] = (("zone", draw.choice((*ZONES, "none"))),)
    if draw.random() < 0.3:
        more["node_terms"] = (NodeTerm(zone),)
    if draw.random() < 0.5:
        more["tolerations"] = (Toleration("pool", "Equal", draw.choice(ZONES), ""),)
    if draw.random() < 0.2:
        more["volume_terms"] = ((NodeTerm(zone),),)
    if draw.random() < 0.2:
        more["open_claims"] = (OpenClaim(provisions=True, topologies=(NodeTerm(zone),)),)
    return pod(name, draw.choice((100, 400, 700, 1001)), **more)


def one_by_one(state: ClusterState, waiting: list[Pod], idle: list[str]) -> Wanted:
    """Ask each node about each pod."""
    left = {name: int(state.columns.free[CPU_COLUMN, state.columns.row_of[name]]) for name in idle}
    found: dict[str, None] = {}
    hope = uncovered = False
    for one in waiting:
        rules = Constraints(one.node_selector, one.node_terms, one.tolerations, one.volume_terms, one.open_claims)
        cpu = dict(one.requests)["cpu"]
        able = [at.name for at in state.columns.nodes if at is not None and refusal(uncordoned(at), rules) is None]
        target = next((name for name in idle if name in able and left[name] >= cpu), None)
        if target is not None:
            found[target], hope = None, True
            left[target] -= cpu
            continue
        somewhere = any(dict(at.allocatable)["cpu"] >= cpu for at in state.columns.nodes if at and at.name in able)
        hope, uncovered = hope or somewhere, uncovered or somewhere
    return Wanted(tuple(found), hope, uncovered)


@pytest.mark.parametrize("seed", range(20))
def test_all_nodes_at_once_say_what_each_says_while_they_come_change_and_go(seed: int) -> None:
    draw, state, finder = random.Random(seed), ClusterState(), WantedNodes()
    for turn in range(12):
        for _ in range(3):
            name = f"n{draw.randrange(12)}"
            gone = name in state.columns.row_of and draw.random() < 0.3
            state.apply(NodeDeleted(name) if gone else NodeUpserted(drawn_node(name, draw)))
        waiting = [drawn_pod(f"p{turn}-{number}", draw) for number in range(draw.randrange(1, 5))]
        names = sorted(state.columns.row_of)
        idle = draw.sample(names, draw.randrange(len(names) + 1))
        assert finder.of(state, waiting, idle) == one_by_one(state, waiting, idle)


def test_another_state_is_looked_at_anew() -> None:
    finder, waiting = WantedNodes(), [pod("w", 400, node_selector=(("zone", "a"),))]
    assert finder.of(state_of(node("f", labels=(("zone", "a"),))), waiting, ["f"]).nodes == ("f",)
    assert finder.of(state_of(node("f", labels=(("zone", "b"),))), waiting, ["f"]) == ((), False, False)


def test_pods_of_many_kinds_that_no_node_takes_do_not_ask_each_node_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 such pods of one tenant held the deciding loop of 5,000 nodes for 11 s, at each look."""
    asked = 0

    def counted(*about: object, **more: object) -> str | None:
        nonlocal asked
        asked += 1
        return refusal(*about, **more)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(wanted, "refusal", counted)
    state = state_of(*(node(f"n{number}", labels=(("name", f"n{number}"),)) for number in range(200)))
    waiting = [pod(f"w{number}", 10, node_selector=(("name", f"x{number}"),)) for number in range(100)]
    assert WantedNodes().of(state, waiting, ["n0", "n1"]) == ((), False, False)
    assert asked <= len(waiting)
