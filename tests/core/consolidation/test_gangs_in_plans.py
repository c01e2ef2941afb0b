"""Gangs and nodes that go: no plan takes a gang below its minimum, and what one lost comes back whole or not at all."""

from __future__ import annotations

import engine_objects
import numpy as np
from engine_objects import running_pod
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.consolidation.removal.columns import RemovalColumns, columns_of
from cotide_core.consolidation.removal.drain_plan import drain_plan
from cotide_core.consolidation.removal.scenario import Scenario, ScenarioAnswer, play_scenario
from cotide_core.consolidation.removal.stays import Constraints, MoveRules, PodFacts, Stay
from cotide_core.consolidation.removal.what_if import node_by_node, without
from cotide_core.events import Gang, NodeUpserted, Pod, PodPhase, PodUpserted
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.state.cluster_state import ClusterState

NOW = 10_000.0
NO_RESERVE = MoveRules(reserve_share=0.0)


def member(name: str, on: str, cpu: int, minimum: int, gang: str = "x", **fields: object) -> Pod:
    rule = Gang(f"d/{gang}", minimum, 60.0)
    return running_pod(name, on, cpu, WorkloadClass.ONLINE, gang=rule, **fields)


def cluster(*pods: Pod, nodes: int = 3, cpu: int = 1000) -> ClusterState:
    state = ClusterState()
    for number in range(nodes):
        state.apply(NodeUpserted(engine_objects.node(f"n{number}", cpu, pods=9)))
    for pod in pods:
        state.apply(PodUpserted(pod))
    return state


def moved(columns: RemovalColumns) -> list[str]:
    plan = drain_plan(columns, NO_RESERVE)
    return [move.pod for freed in plan.freed for move in freed.moves]


def test_a_gang_with_none_to_spare_keeps_its_nodes_and_the_plan_says_so() -> None:
    """Three pods of 300 on three nodes of 1,000: all would fit on one, and the gang needs three at once."""
    state = cluster(*[member(f"x{at}", f"n{at}", 300, 3) for at in range(3)])
    columns = columns_of(state, Constraints(), NOW)
    plan = drain_plan(columns, NO_RESERVE)
    assert plan.freed == ()
    assert {one.why for one in plan.kept} == {"its gang would be below its minimum without it"}


def test_no_more_pods_of_a_gang_move_than_it_can_spare() -> None:
    """One of three may go: a node is freed, the next one with a pod of the gang is not."""
    state = cluster(*[member(f"x{at}", f"n{at}", 300, 2) for at in range(3)])
    assert len(moved(columns_of(state, Constraints(), NOW))) == 1
    two_on_one = [member(f"x{at}", "n0", 100, 2) for at in range(2)]
    state = cluster(*two_on_one, member("x2", "n1", 300, 2), member("x3", "n2", 310, 3, "y"))
    assert moved(columns_of(state, Constraints(), NOW)) == ["d/x2"], "both of n0 are one too many, that of y is needed"


def test_pods_that_succeeded_count_as_there_and_those_on_their_way_out_do_not() -> None:
    """Of a minimum of three one succeeded and two run: none may go. With another that succeeded one may."""
    done = member("x9", "n2", 0, 3, phase=PodPhase.SUCCEEDED)
    pods = [member("x0", "n0", 300, 3), member("x1", "n1", 310, 3)]
    columns = columns_of(cluster(*pods, done), Constraints(), NOW)
    assert set(columns.stays[columns.stays != Stay.GOES].tolist()) == {Stay.GANG}
    another = replace_succeeded(pods[0], 2)
    assert moved(columns_of(cluster(another, pods[1], done), Constraints(), NOW)) == ["d/x0"]
    leaves = member("x2", "n2", 100, 3, terminating=True)
    assert not moved(columns_of(cluster(another, pods[1]._replace(terminating=True), leaves), Constraints(), NOW))


def replace_succeeded(pod: Pod, succeeded: int) -> Pod:
    assert pod.gang is not None
    return pod._replace(gang=pod.gang._replace(succeeded=succeeded))


def test_what_a_gang_lost_finds_nodes_whole_or_not_at_all() -> None:
    """Two pods of 400 lose n0; n1 has room for one of them. Where the gang can spare one, the other starts."""
    other = running_pod("other", "n1", 600, WorkloadClass.ONLINE)
    for minimum, moves, waits in ((2, 0, 2), (1, 1, 1)):
        state = cluster(member("x0", "n0", 400, minimum), member("x1", "n0", 400, minimum), other, nodes=2)
        columns = columns_of(state, Constraints(), NOW)
        answer = without(columns, np.array([0]))
        assert (len(answer.moves), len(answer.waits)) == (moves, waits)
        assert node_by_node(columns, np.array([0]))[0].tolist() == [waits]
    assert [one.why for one in answer.against] == []


def test_a_pod_that_waits_for_its_gang_says_so() -> None:
    other = running_pod("other", "n1", 600, WorkloadClass.ONLINE)
    state = cluster(member("x0", "n0", 400, 2), member("x1", "n0", 400, 2), other, nodes=2)
    answer = without(columns_of(state, Constraints(), NOW), np.array([0]))
    words = {wait.why for wait in answer.waits}
    assert "others of its gang find no node, and it starts with them or not at all" in words
    assert {one.why for one in answer.against} == {"its gang would be below its minimum without it"}


def played(state: ClusterState, *gone: str) -> ScenarioAnswer:
    return play_scenario(state, Scenario(gone), NOW, SchedulerConfig(policy="fifo"), HeuristicCatalogue())


def batch(pod: Pod) -> Pod:
    return pod._replace(workload_class=WorkloadClass.BATCH, ours=True)


def test_in_a_scenario_a_gang_moves_whole_or_waits_and_the_rest_of_it_is_released() -> None:
    """Three pods of 400, of which two lose n0; the third stands on n1, which takes one more beside it."""
    pods = [batch(member(f"x{at}", "n0" if at < 2 else "n1", 400, 3)) for at in range(3)]
    answer = played(cluster(*pods, nodes=2), "n0")
    assert answer.moves == ()
    assert {wait.pod for wait in answer.waits} == {"d/x0", "d/x1"}
    assert [(one.pod, one.node) for one in answer.evicted] == [("d/x2", "n1")]
    assert answer.evicted[0].why == "gang d/x: 1 of 3 hold a node, and after 60 s they go"
    answer = played(cluster(*pods, nodes=3), "n0")
    assert {move.pod for move in answer.moves} == {"d/x0", "d/x1"}
    assert (answer.waits, answer.evicted) == ((), ())


def test_in_a_scenario_pods_that_succeeded_count_as_there() -> None:
    """Of three one succeeded on the node that goes; the two others stay, and nobody is released."""
    pods = [batch(member(f"x{at}", "n1", 400, 3)) for at in range(2)]
    done = batch(member("x2", "n0", 400, 3, phase=PodPhase.SUCCEEDED))
    answer = played(cluster(*pods, done, nodes=2), "n0")
    assert (answer.moves, answer.waits, answer.evicted) == ((), (), ())


@st.composite
def gangs_on_nodes(draw: st.DrawFn) -> ClusterState:
    count = draw(st.integers(2, 6))
    pods = []
    for gang in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, 5))
        minimum = draw(st.integers(1, size + 1))
        for at in range(size):
            name, on = f"g{gang}-{at}", f"n{draw(st.integers(0, count - 1))}"
            pods.append(member(name, on, draw(st.integers(50, 400)), minimum, f"g{gang}"))
    for at in range(draw(st.integers(0, 4))):
        on = f"n{draw(st.integers(0, count - 1))}"
        pods.append(running_pod(f"s{at}", on, draw(st.integers(50, 400)), WorkloadClass.ONLINE))
    return cluster(*pods, nodes=count)


@given(gangs_on_nodes(), st.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_no_plan_and_no_answer_leaves_a_gang_below_its_minimum_with_some_of_it_moved(
    state: ClusterState, at: int
) -> None:
    columns = columns_of(state, Constraints(), NOW)
    of_gang: dict[str, list[Pod]] = {}
    for record in state.records():
        if record.pod.gang is not None:
            of_gang.setdefault(record.pod.gang.key, []).append(record.pod)
    moving, row = set(moved(columns)), at % columns.nodes
    found = {move.pod for move in without(columns, np.array([row])).moves}
    for pods in of_gang.values():
        rule = pods[0].gang
        assert rule is not None
        going = sum(pod.key in moving for pod in pods)
        assert going == 0 or len(pods) - going >= rule.minimum
        lost = [pod for pod in pods if pod.node == columns.names[row]]
        again = sum(pod.key in found for pod in lost)
        assert again == 0 or len(pods) - len(lost) + again >= rule.minimum


WHOLE = Constraints(MoveRules(reserve_share=0.0, gang_most=3))


def test_a_gang_that_stands_on_one_node_moves_as_a_whole_where_that_is_asked_for() -> None:
    """Three pods of 100 on a node of their own, and room beside four of 150 that stay; all are named together."""
    here = [member(f"x{at}", "n0", 100, 3) for at in range(3)]
    others = [running_pod(f"s{at}", "n1", 150, WorkloadClass.ONLINE, do_not_disrupt=True) for at in range(4)]
    state = cluster(*here, *others, nodes=2)
    assert not moved(columns_of(state, Constraints(), NOW))
    (freed,) = drain_plan(columns_of(state, WHOLE, NOW), NO_RESERVE).freed
    assert freed.together == (("d/x0", "d/x1", "d/x2"),)
    assert (freed.node, freed.at_once, len(freed.moves)) == ("n0", 3, 3)


def test_no_pod_of_a_gang_moves_where_one_of_it_finds_no_room() -> None:
    """Two of three would fit beside four of 185, of which none fits beside three of 300."""
    here = [member(f"x{at}", "n0", 100 if at else 300, 3) for at in range(3)]
    others = [running_pod(f"s{at}", "n1", 185, WorkloadClass.ONLINE) for at in range(4)]
    state = cluster(*here, *others, nodes=2)
    assert not moved(columns_of(state, WHOLE, NOW))


def kept(state: ClusterState, constraints: Constraints = WHOLE) -> set[str]:
    return {one.why for one in drain_plan(columns_of(state, constraints, NOW), NO_RESERVE).kept}


def test_why_a_gang_that_could_only_move_as_a_whole_does_not_is_said() -> None:
    apart = cluster(member("x0", "n0", 100, 2), member("x1", "n1", 100, 2))
    assert kept(apart) == {"its gang can only move as a whole, and is on several nodes"}
    large = cluster(*[member(f"x{at}", "n0", 100, 4) for at in range(4)])
    assert kept(large) == {"its gang can only move as a whole, which is more pods than may be on their way at once"}
    covered = {f"d/x{at}": PodFacts(budgets=("d/b",)) for at in range(2)}
    state = cluster(*[member(f"x{at}", "n0", 100, 2) for at in range(2)])
    one_by_one = Constraints(WHOLE.rules, covered, {"d/b": 1})
    assert kept(state, one_by_one) == {
        "its gang can only move as a whole, and a disruption budget allows fewer at once"
    }
    assert kept(state, Constraints(WHOLE.rules, covered, {"d/b": 2})) == set()
    partial = cluster(*[member(f"x{at}", "n0", 100, 3) for at in range(2)])
    assert kept(partial) == {"its gang would be below its minimum without it"}, "it does no work, and may be whole soon"


def test_a_gang_that_can_spare_as_many_moves_one_by_one_all_the_same() -> None:
    state = cluster(member("x0", "n0", 100, 1), member("x1", "n1", 200, 1), nodes=2)
    plan = drain_plan(columns_of(state, WHOLE, NOW), NO_RESERVE)
    assert [(one.node, one.together, one.at_once) for one in plan.freed] == [("n0", (), 1)]


@given(gangs_on_nodes(), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_a_plan_moves_of_a_gang_what_it_can_spare_or_all_of_it_off_one_node_and_never_a_part(
    state: ClusterState, budget: int
) -> None:
    facts = {record.pod.key: PodFacts(budgets=("d/b",) if record.row % 2 else ()) for record in state.records()}
    rules = MoveRules(reserve_share=0.0, gang_most=3)
    columns = columns_of(state, Constraints(rules, facts, {"d/b": budget}), NOW)
    plan = drain_plan(columns, rules)
    moves = {move.pod: move for freed in plan.freed for move in freed.moves}
    together = {frozenset(group) for freed in plan.freed for group in freed.together}
    of_gang: dict[str, list[Pod]] = {}
    for record in state.records():
        if record.pod.gang is not None:
            of_gang.setdefault(record.pod.gang.key, []).append(record.pod)
    named = set[frozenset[str]]()
    for pods in of_gang.values():
        going = [pod.key for pod in pods if pod.key in moves]
        rule = pods[0].gang
        assert rule is not None
        if not going or len(pods) - len(going) >= rule.minimum:
            continue
        named.add(frozenset(going))
        assert len(going) == len(pods) <= rules.gang_most
        assert len({moves[key].source for key in going}) == 1
        assert sum(bool(facts[key].budgets) for key in going) <= budget
    assert named <= together, "they are evicted at once"
    held = dict.fromkeys(columns.names, 0)
    for record in state.records():
        move = moves.get(record.pod.key)
        held[str(record.node) if move is None else move.target] += dict(record.pod.requests)["cpu"]
    assert all(held[move.target] <= 1000 for move in moves.values()), "all have room after all moves"


def test_plans_without_gangs_are_not_touched_by_the_rule() -> None:
    """The same pods without the word: every node but one is freed."""
    pods = [member(f"x{at}", f"n{at}", 300, 3)._replace(gang=None) for at in range(3)]
    columns = columns_of(cluster(*pods), Constraints(), NOW)
    assert len(moved(columns)) == 2
    assert (columns.gang_of.tolist(), columns.gang_spare.tolist()) == ([-1, -1, -1], [])
