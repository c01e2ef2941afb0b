"""What if a node went: every answer holds before the engine's own feasibility, and by hand."""

from __future__ import annotations

from typing import Any

import engine_objects
import numpy as np
import pytest
from engine_objects import running_pod
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.consolidation.removal.columns import Outlook, columns_of
from cotide_core.consolidation.removal.drain_plan import drain_plan
from cotide_core.consolidation.removal.stays import Constraints, MoveRules, PodFacts, Stay
from cotide_core.consolidation.removal.what_if import node_by_node, without
from cotide_core.errors import InputError
from cotide_core.events import (
    HostPort,
    Node,
    NodeUpserted,
    Pod,
    PodPhase,
    PodUpserted,
    Taint,
    Workload,
    WorkloadUpserted,
)  # fmt: skip
from cotide_core.placement.feasibility import FITS, Feasibility
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.shapes import ShapeTable
from cotide_core.state.snapshot import Snapshot

NOW = 10_000.0


def node(name: str, cpu: int = 1000, **fields: Any) -> Node:
    """A node for five pods."""
    return engine_objects.node(name, cpu, pods=5, **fields)


def pod(name: str, on: str, cpu: int, **fields: Any) -> Pod:
    """An online pod, which a plan may move; one field says what keeps it."""
    return running_pod(name, on, cpu, WorkloadClass.ONLINE, **fields)


def state_of(*things: Node | Pod | Workload) -> ClusterState:
    state = ClusterState()
    for thing in things:
        if isinstance(thing, Node):
            state.apply(NodeUpserted(thing))
        elif isinstance(thing, Pod):
            state.apply(PodUpserted(thing))
        else:
            state.apply(WorkloadUpserted(thing))
    return state


def test_pods_go_to_the_fullest_node_that_has_room() -> None:
    state = state_of(node("a"), node("b"), node("c"), pod("1", "a", 300), pod("2", "b", 200), pod("3", "c", 600))
    columns = columns_of(state, Constraints(), NOW)
    answer = without(columns, columns.rows(["a"]))
    assert [(move.pod, move.source, move.target) for move in answer.moves] == [("d/1", "a", "c")]
    assert answer.waits == ()


def test_who_waits_is_told_why_in_the_schedulers_words() -> None:
    tainted = node("c", taints=(Taint("gpu", "yes", "NoSchedule"),))
    state = state_of(node("a"), node("b"), tainted, pod("1", "a", 700), pod("2", "b", 600))
    columns = columns_of(state, Constraints(), NOW)
    answer = without(columns, columns.rows(["a"]))
    assert [wait.pod for wait in answer.waits] == ["d/1"]
    assert answer.waits[0].why == (
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) are removed,"
        " 1 node(s) didn't match the pod's constraints or a latency limit."
    )


def test_an_unknown_node_is_the_users_mistake() -> None:
    columns = columns_of(state_of(node("a")), Constraints(), NOW)
    with pytest.raises(InputError, match="no node is called 'z'"):
        columns.rows(["z"])


def test_a_host_port_and_an_exclusive_service_keep_a_node_for_themselves() -> None:
    port = (HostPort("TCP", "0.0.0.0", 80),)  # noqa: S104 - compared as data
    state = state_of(
        Workload("d/alone", exclusive=True), Workload("d/other"), node("a"), node("b"), node("c"),
        pod("1", "a", 10, host_ports=port), pod("2", "b", 10, host_ports=port), pod("3", "a", 10, workload="d/other"),
        pod("4", "c", 10, workload="d/alone"),
    )  # fmt: skip
    columns = columns_of(state, Constraints(), NOW)
    answer = without(columns, columns.rows(["a"]))
    # The port is free on c only; the other service must not join the exclusive one on c, and goes to b.
    assert {move.pod: move.target for move in answer.moves} == {"d/1": "c", "d/3": "b"}


def test_many_ports_of_few_pods_are_few_columns() -> None:
    """A column each would be 700 MB of 5,000 nodes, for fifteen pods of one tenant."""

    def ports(first: int) -> tuple[HostPort, ...]:
        return tuple(HostPort("TCP", "0.0.0.0", first + number) for number in range(50))  # noqa: S104 - compared as data

    lone = [pod(f"lone-{number}", "a", 10, host_ports=ports(1000 + 50 * number)) for number in range(3)]
    pair = [pod(f"pair-{name}", name, 10, host_ports=ports(5000)) for name in ("a", "b")]
    plain = columns_of(state_of(*(node(name) for name in "abc"), *lone), Constraints(), NOW).capacity.shape[1]
    columns = columns_of(state_of(*(node(name) for name in "abc"), *lone, *pair), Constraints(), NOW)
    assert columns.capacity.shape[1] == plain + 1, "ports that the same pods hold share one"
    answer = without(columns, columns.rows(["a"]))
    assert {move.pod: move.target for move in answer.moves}["d/pair-a"] == "c"


def test_a_forecast_without_room_keeps_pods_off() -> None:
    state = state_of(node("a"), node("b"), node("c"), pod("1", "a", 300), pod("2", "b", 200), pod("3", "c", 600))
    room = np.array([[1e9, 1e9, 100.0], [1e9, 1e9, 1e9]])
    columns = columns_of(state, Constraints(), NOW, Outlook(room=room))
    assert without(columns, columns.rows(["a"])).moves[0].target == "b"


class Refuses:
    """Refuses one row to every pod."""

    def refused(self, shape: object, rows: np.ndarray, snapshot: Snapshot) -> np.ndarray:
        return np.asarray(rows == 2)


def test_a_latency_limit_keeps_pods_off() -> None:
    state = state_of(node("a"), node("b"), node("c"), pod("1", "a", 300), pod("2", "b", 200), pod("3", "c", 600))
    columns = columns_of(state, Constraints(), NOW, Outlook(guard=Refuses()))
    assert without(columns, columns.rows(["a"])).moves[0].target == "b"


@st.composite
def clusters(draw: st.DrawFn) -> ClusterState:
    """Small clusters with ports, services, taints and a cordon."""
    names = [f"n{number}" for number in range(draw(st.integers(2, 5)))]
    nodes = [
        node(name, draw(st.integers(200, 1000)), unschedulable=draw(st.integers(0, 9)) == 0,
             taints=(Taint("k", "v", "NoSchedule"),) * (draw(st.integers(0, 5)) == 0))
        for name in names
    ]  # fmt: skip
    services = [Workload("d/w0", exclusive=draw(st.booleans())), Workload("d/w1")]
    pods = []
    for number in range(draw(st.integers(0, 10))):
        batch = draw(st.booleans())
        address = draw(st.sampled_from(["0.0.0.0", "10.0.0.1"]))  # noqa: S104 - compared as data
        numbers = draw(st.sampled_from([(80,), (80, 81), (80, 81, 82), (82,)]))
        ports = tuple(HostPort("TCP", address, port) for port in numbers)
        pods.append(
            pod(str(number), draw(st.sampled_from(names)), draw(st.integers(0, 400)))._replace(
                workload_class=WorkloadClass.BATCH if batch else WorkloadClass.ONLINE,
                workload=None if batch else draw(st.sampled_from([None, "d/w0", "d/w1"])),
                host_ports=ports if draw(st.integers(0, 2)) == 0 else (),
            )
        )
    return state_of(*services, *nodes, *pods)


@given(clusters(), st.integers(0, 4))
@settings(max_examples=150, deadline=None)
def test_every_move_passes_the_engines_own_rules_one_after_the_other(state: ClusterState, at: int) -> None:
    columns = columns_of(state, Constraints(), NOW)
    row = at % columns.nodes
    answer = without(columns, np.array([row]))
    feasibility = Feasibility()
    for move in answer.moves:
        # The pod leaves its node and is then judged by the engine on the target, as if it came new.
        moving = state.pod(move.pod)
        assert moving is not None
        state.apply(PodUpserted(moving._replace(node=None, phase=PodPhase.PENDING)))
        shape = ShapeTable().of(moving, state)
        target = columns.rows([move.target])[0]
        now = Snapshot.of(state)
        assert feasibility.row_code(shape.fit, now)(int(target), feasibility.matches(shape.fit, now)) == FITS
        state.apply(PodUpserted(moving._replace(node=move.target)))


@given(clusters())
@settings(max_examples=60, deadline=None)
def test_asking_of_all_nodes_at_once_gives_what_asking_of_each_gives(state: ClusterState) -> None:
    columns = columns_of(state, Constraints(), NOW)
    rows = np.arange(columns.nodes)
    missing, targets = node_by_node(columns, rows)
    for row in rows:
        answer = without(columns, np.array([row]))
        assert missing[row] == len(answer.waits)
        found = {columns.keys[pod]: targets[pod] for pod in np.flatnonzero(columns.row_of == row) if targets[pod] >= 0}
        assert {key: columns.names[target] for key, target in found.items()} == {
            move.pod: move.target for move in answer.moves
        }


def spread(*cpus: int) -> ClusterState:
    """One pod on each node."""
    nodes = [node(f"n{number}") for number in range(len(cpus))]
    return state_of(*nodes, *[pod(str(number), f"n{number}", cpu) for number, cpu in enumerate(cpus)])


def test_the_cheapest_nodes_are_freed_while_their_pods_find_a_place_with_the_reserve() -> None:
    # 100, 200 and 700: with a tenth in reserve 700 takes up to 900, the 100 and no more; 200 has no other place but n2.
    columns = columns_of(spread(100, 200, 700), Constraints(), NOW)
    plan = drain_plan(columns, MoveRules())
    assert [one.node for one in plan.freed] == ["n0"]
    assert plan.freed[0].moves[0].target == "n2"
    assert (plan.used_before, plan.used_after, plan.fewest, plan.moves) == (3, 2, 1, 1)
    # Without a reserve both fit: 100 + 200 + 700 = 1,000.
    assert [one.node for one in drain_plan(columns, MoveRules(reserve_share=0)).freed] == ["n0", "n1"]


def test_budgets_of_moves_bound_a_plan() -> None:
    columns = columns_of(spread(100, 100, 100, 100), Constraints(), NOW)
    assert drain_plan(columns, MoveRules(most_moves=2)).moves == 2
    assert drain_plan(columns, MoveRules(moves_per_node=0)).moves == 0


@pytest.mark.parametrize(
    ("facts", "fields", "stay"),
    [
        (PodFacts(controlled=False), {}, Stay.NO_CONTROLLER),
        (PodFacts(local_storage=True), {}, Stay.LOCAL_STORAGE),
        (PodFacts(budgets=("b",)), {}, Stay.BUDGET),
        (PodFacts(budgets=("free", "too")), {}, Stay.BUDGET),
        (PodFacts(goes_with_node=True), {}, Stay.GOES),
        (PodFacts(), {"do_not_disrupt": True}, Stay.DO_NOT_DISRUPT),
        (PodFacts(), {"protected_seconds": 1000.0, "started_seconds": NOW - 999}, Stay.DO_NOT_DISRUPT),
        (PodFacts(), {"protected_seconds": 1000.0, "started_seconds": NOW - 1000}, Stay.NONE),
        (PodFacts(goes_with_node=True, keeps_node=True), {"do_not_disrupt": True}, Stay.DO_NOT_DISRUPT),
        (PodFacts(goes_with_node=True), {"do_not_disrupt": True}, Stay.GOES),
        (PodFacts(goes_with_node=True, keeps_node=True), {"do_not_disrupt": True, "terminating": True}, Stay.GOES),
        (PodFacts(), {"prefer_no_eviction": True}, Stay.PREFER_NO_EVICTION),
        (PodFacts(), {"started_seconds": NOW - 599}, Stay.TOO_YOUNG),
        (PodFacts(), {"unsupported": ("spec.affinity",)}, Stay.UNSUPPORTED),
        (PodFacts(), {"terminating": True}, Stay.GOES),
        (PodFacts(remaining_p50=1799.0), {"workload_class": WorkloadClass.BATCH}, Stay.ENDS_SOON),
        (PodFacts(remaining_p50=1801.0), {"workload_class": WorkloadClass.BATCH}, Stay.NONE),
        (PodFacts(budgets=("free",)), {}, Stay.NONE),
    ],
)
def test_a_pod_stays_for_the_reason_that_is_said(facts: PodFacts, fields: dict[str, object], stay: Stay) -> None:
    state = state_of(node("n0"), node("n1"), pod("0", "n0", 100, **fields), pod("1", "n1", 300))
    constraints = Constraints(facts={"d/0": facts}, budgets={"b": 0, "free": 1, "too": 1})
    columns = columns_of(state, constraints, NOW)
    assert columns.stays[columns.keys.index("d/0")] == stay
    freed = [one.node for one in drain_plan(columns, MoveRules()).freed]
    assert ("n0" in freed) == (stay in (Stay.NONE, Stay.GOES))


def test_a_node_whose_pods_all_end_soon_is_left_to_empty_by_itself() -> None:
    batch = {"workload_class": WorkloadClass.BATCH}
    state = state_of(node("n0"), node("n1"), pod("0", "n0", 100, **batch), pod("1", "n1", 300))
    facts = {"d/0": PodFacts(remaining_p50=420.0, remaining_p90=720.0)}
    plan = drain_plan(columns_of(state, Constraints(facts=facts), NOW), MoveRules())
    assert [(one.node, one.p50_seconds, one.p90_seconds) for one in plan.emptying] == [("n0", 420.0, 720.0)]
    assert plan.freed == ()


def test_a_load_that_breathes_is_not_moved_to_and_fro() -> None:
    # Twelve nodes, half of the pods go and come back every half hour for six hours, where best fit puts them.
    moves = 0
    on = {f"{number}": f"n{number % 12}" for number in range(24)}
    started = dict.fromkeys(on, 0.0)
    for turn in range(12):
        now = NOW + 1800.0 * turn
        there = {name: host for name, host in on.items() if turn % 2 == 0 or int(name) < 12}
        for name in on:
            if name not in there:
                started[name] = now + 1800.0  # it comes back anew
        pods = [pod(name, host, 250, started_seconds=started[name]) for name, host in there.items()]
        state = state_of(*[node(f"n{number}") for number in range(12)], *pods)
        plan = drain_plan(columns_of(state, Constraints(), now), MoveRules())
        moves += plan.moves
        for freed in plan.freed:
            for move in freed.moves:
                name = move.pod.removeprefix("d/")
                on[name], started[name] = move.target, now
    # 24 pods of 250 fit on 8 nodes with the reserve (3 each): each pod moves about once, not once a turn.
    assert moves <= 30
