"""Plans beside drains that go on: room for what is still on those nodes is not given to anybody else."""

from __future__ import annotations

import numpy as np
from engine_objects import node, running_pod
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.consolidation.removal.columns import columns_of
from cotide_core.consolidation.removal.drain_plan import DrainPlan, drain_plan
from cotide_core.consolidation.removal.stays import Constraints, MoveRules, PodFacts
from cotide_core.events import NodeUpserted, PodUpserted
from cotide_core.state.cluster_state import ClusterState

NOW = 10_000.0
CORES = 1000
RULES = MoveRules(reserve_share=0.0)


def plan(*cpus: int, begun: tuple[str, ...], budgeted: tuple[str, ...] = ()) -> DrainPlan:
    """A node of 1,000 millicores for each figure, with a pod of so many (0: none); the begun ones are cordoned."""
    state = ClusterState()
    for number, cpu in enumerate(cpus):
        name = f"n{number}"
        state.apply(NodeUpserted(node(name, CORES, pods=9, unschedulable=name in begun)))
        if cpu:
            state.apply(PodUpserted(running_pod(str(number), name, cpu, WorkloadClass.ONLINE)))
    facts = {f"d/{name}": PodFacts(budgets=("used-up",)) for name in budgeted}
    columns = columns_of(state, Constraints(facts=facts, budgets={"used-up": 0}), NOW)
    cordoned = np.isin(np.array(columns.names), list(begun))
    return drain_plan(columns, RULES, None, cordoned)


def freed(made: DrainPlan) -> list[str]:
    return [one.node for one in made.freed]


def test_room_that_a_node_being_drained_needs_is_not_given_twice() -> None:
    # 500 are free on n2: for the 300 of n1 where nothing is begun, for those of n0 where that is being drained.
    assert freed(plan(0, 300, 500, begun=("n0",))) == ["n1"]
    made = plan(300, 300, 500, begun=("n0",))
    assert freed(made) == []
    assert (made.used_before, made.used_after) == (3, 2), "what is begun counts as done"


def test_a_plan_goes_on_beside_drains_where_there_is_room_for_both() -> None:
    made = plan(200, 300, 500, begun=("n0",))
    assert [(one.node, one.moves[0].target) for one in made.freed] == [("n1", "n2")]
    assert (made.used_before, made.used_after) == (3, 1)


def test_a_pod_that_a_budget_holds_for_the_moment_needs_its_room_all_the_same() -> None:
    assert freed(plan(300, 300, 500, begun=("n0",), budgeted=("0",))) == []


def test_while_a_pod_of_a_begun_drain_finds_no_node_nothing_more_is_freed() -> None:
    made = plan(950, 100, 300, begun=("n0",))
    assert freed(made) == []
    assert (made.used_before, made.used_after) == (3, 3)
    assert freed(plan(0, 100, 300, begun=("n0",))) == ["n1"]


def test_a_node_that_is_being_drained_is_not_planned_again() -> None:
    assert "n0" not in freed(plan(0, 100, 300, begun=("n0",)))


@given(st.lists(st.integers(0, 9), min_size=2, max_size=8), st.data())
@settings(max_examples=200, deadline=None)
def test_what_is_begun_and_what_is_planned_fit_on_the_nodes_that_are_left(
    tenths: list[int], data: st.DataObject
) -> None:
    cpus = [100 * tenth for tenth in tenths]
    begun = data.draw(st.sets(st.integers(0, len(cpus) - 1), max_size=len(cpus) - 1))
    made = plan(*cpus, begun=tuple(f"n{one}" for one in begun))
    left = [
        number
        for number in range(len(cpus))
        if number not in begun and f"n{number}" not in freed(made) and cpus[number]
    ]
    moving = any(one.moves for one in made.freed)
    assert not moving or sum(cpus) <= CORES * len(left)
    assert made.used_after >= made.fewest or not moving
