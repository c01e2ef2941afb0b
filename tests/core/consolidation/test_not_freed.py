"""Why a plan leaves nodes in use: each has one line, with the pod and the bound that was met."""

from __future__ import annotations

from typing import Any

import engine_objects
import numpy as np
from engine_objects import running_pod
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.consolidation.removal.columns import Outlook, columns_of
from cotide_core.consolidation.removal.drain_plan import drain_plan
from cotide_core.consolidation.removal.not_freed import in_pools, not_freed
from cotide_core.consolidation.removal.stays import Constraints, MoveRules, PodFacts
from cotide_core.consolidation.removal.what_if import Left
from cotide_core.events import Gang, NodeUpserted, Pod, PodUpserted
from cotide_core.state.cluster_state import ClusterState

NOW = 10_000.0
NO_RESERVE = MoveRules(reserve_share=0.0)


def cluster(*pods: Pod, nodes: int = 3) -> ClusterState:
    state = ClusterState()
    for number in range(nodes):
        state.apply(NodeUpserted(engine_objects.node(f"n{number}", 1000, pods=9)))
    for pod in pods:
        state.apply(PodUpserted(pod))
    return state


def service(name: str, on: str, cpu: int, **fields: Any) -> Pod:
    return running_pod(name, on, cpu, WorkloadClass.ONLINE, **fields)


def lines(
    state: ClusterState,
    rules: MoveRules = NO_RESERVE,
    *,
    outlook: Outlook | None = None,
    left_out: str = "",
    most: int = 9,
) -> tuple[dict[str, Left], int]:
    columns = columns_of(state, Constraints(), NOW, outlook)
    excluded = np.array([name == left_out for name in columns.names])
    found, more = not_freed(columns, rules, drain_plan(columns, rules, excluded), excluded, most)
    return {one.node: one for one in found}, more


def test_a_node_whose_pod_finds_no_room_names_it_and_what_is_lacking() -> None:
    """600 and 700 of 1,000 never share a node."""
    found, more = lines(cluster(service("a", "n0", 600), service("b", "n1", 700), nodes=2))
    assert found["n0"].pod == "d/a"
    assert found["n0"].why == "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) are removed."
    assert (set(found), more) == ({"n0", "n1"}, 0)


def test_a_target_that_its_forecast_rules_out_is_said() -> None:
    """By requests there is room for 200 on n1; by the forecast only 100 are left, and none on n0."""
    room = np.array([[0.0, 100.0], [1e9, 1e9]])
    state = cluster(service("a", "n0", 200), service("b", "n1", 300), nodes=2)
    found, _ = lines(state, outlook=Outlook(room=room))
    assert found["n0"].why == "0/2 nodes are available: 1 Insufficient forecast cpu, 1 node(s) are removed."


class Refuses:
    """Refuses every node to every pod, as a guard of a latency limit at risk."""

    def refused(self, shape: object, rows: np.ndarray, snapshot: object) -> np.ndarray:
        return np.ones(len(rows), np.bool_)


def test_a_latency_limit_that_would_break_is_said() -> None:
    state = cluster(service("a", "n0", 200), service("b", "n1", 300), nodes=2)
    found, _ = lines(state, outlook=Outlook(guard=Refuses()))
    assert "1 node(s) didn't match the pod's constraints or a latency limit" in found["n0"].why


def test_two_pods_of_which_either_alone_would_fit_are_not_called_a_matter_of_services() -> None:
    """300 are free on n1: one of the two pods of 200 fits, the other lacks cpu."""
    state = cluster(service("a", "n0", 200), service("b", "n0", 200), service("c", "n1", 700), nodes=2)
    found, _ = lines(state)
    assert found["n0"].why == "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) are removed."


def test_a_node_that_takes_pods_and_one_that_is_left_out_say_so() -> None:
    state = cluster(service("a", "n0", 100), service("b", "n1", 300), service("c", "n2", 200))
    found, _ = lines(state, left_out="n2")
    assert found["n1"].why == "it receives pods of freed nodes"
    assert found["n2"] == Left("", "n2", "it is left out or cordoned")
    assert "n0" not in found


def test_bounds_of_moves_are_told_apart() -> None:
    spread = [service(str(at), f"n{at}", 100) for at in range(3)]
    found, _ = lines(cluster(*spread), MoveRules(reserve_share=0.0, moves_per_node=0))
    assert found["n0"].why == "1 pod would move, at most 0 may for one node"
    found, _ = lines(cluster(*spread), MoveRules(reserve_share=0.0, most_moves=1))
    assert found["n2"].why == "the plan already moves 1 pod, at most 1 may"


def test_a_gang_that_can_spare_no_more_is_the_reason() -> None:
    """Of three pods two must run: one node is freed; the second one's pod is the gang's, the third took the first's."""
    pods = [service(f"x{at}", f"n{at}", 300 + at, gang=Gang("d/x", 2, 60.0)) for at in range(3)]
    found, _ = lines(cluster(*pods))
    assert found["n1"] == Left("d/x1", "n1", "its gang would be below its minimum without it")


def test_nodes_that_were_tried_in_vain_come_before_those_that_take_pods() -> None:
    """200 of n0 goes to n1, which is lighter than n2 and has a line only after it."""
    pods = [service("a", "n0", 200), service("b", "n1", 700), service("c", "n2", 400), service("d", "n2", 500)]
    found, _ = lines(cluster(*pods))
    assert list(found) == ["n2", "n1"]


def test_the_lightest_nodes_come_first_and_the_others_are_counted() -> None:
    pods = [service(f"{at}{copy}", f"n{at}", 990 // (at + 1)) for at in range(3) for copy in range(at + 1)]
    found, more = lines(cluster(*pods), most=1)
    assert (list(found), more) == (["n0"], 2)


def test_a_node_is_of_a_pool_by_one_value_of_one_label() -> None:
    node = engine_objects.node("n", labels=(("pool", "gpu"), ("zone", "a")))
    assert in_pools(node, {"pool": ("gpu", "ingress")})
    assert not in_pools(node, {"pool": ("ingress",), "gpu": ("pool",)})
    assert not in_pools(node, {})


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 600), st.sampled_from([True, True, False])), max_size=14),
    st.sampled_from([0.0, 0.1]),
)
@settings(max_examples=100, deadline=None)
def test_every_node_in_use_has_one_line_and_room_is_never_taken_for_a_bound(
    given: list[tuple[int, int, bool]], reserve: float
) -> None:
    """What a plan of unbounded moves did not free it could not: so no such line speaks of a bound of moves."""
    pods = [service(str(at), f"n{on}", cpu) for at, (on, cpu, _) in enumerate(given)]
    facts = {f"d/{at}": PodFacts(controlled=free) for at, (_, _, free) in enumerate(given)}
    columns = columns_of(cluster(*pods, nodes=5), Constraints(facts=facts), NOW)
    rules = MoveRules(reserve_share=reserve)
    excluded = np.zeros(columns.nodes, np.bool_)
    plan = drain_plan(columns, rules, excluded)
    before = columns.free.copy()
    found, more = not_freed(columns, rules, plan, excluded, 9)
    assert (columns.free == before).all()
    named = [one.node for one in (*found, *plan.kept)]
    freed = {one.node for one in plan.freed if one.moves}
    assert sorted([*named, *freed]) == sorted({f"n{on}" for on, _, _ in given})
    assert more == 0
    assert not [one for one in found if one.why.startswith("the plan moves")]
