"""The tries of a plan: light nodes that are to go take no pods of others, so that more nodes go, or less moves."""

from __future__ import annotations

import pytest
from engine_objects import node, running_pod
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.consolidation.removal import drain_plan as module
from cotide_core.consolidation.removal.columns import RemovalColumns, columns_of
from cotide_core.consolidation.removal.drain_plan import DrainPlan, drain_plan
from cotide_core.consolidation.removal.not_freed import not_freed
from cotide_core.consolidation.removal.stays import Constraints, MoveRules
from cotide_core.events import NodeUpserted, PodUpserted
from cotide_core.state.cluster_state import ClusterState

RULES = MoveRules(reserve_share=0.0)


def columns(*nodes: tuple[int, ...]) -> RemovalColumns:
    """Nodes of 1,000 millicores, each with pods of so many."""
    state = ClusterState()
    for number, cpus in enumerate(nodes):
        state.apply(NodeUpserted(node(f"n{number}", 1000, pods=20)))
        for at, cpu in enumerate(cpus):
            state.apply(PodUpserted(running_pod(f"{number}-{at}", f"n{number}", cpu, WorkloadClass.ONLINE)))
    return columns_of(state, Constraints(), 10_000.0)


def freed(made: DrainPlan) -> list[str]:
    return [one.node for one in made.freed if one.moves]


def test_a_light_node_that_is_to_go_takes_no_pod_of_a_lighter_one() -> None:
    # n1 is fullest by cpu and lightest by pods but for n0: with the pod of n0 on it, n2 would go in its place.
    laid = columns((100,), (600, 100), (100, 100, 100), (100, 100, 100, 100))
    made = drain_plan(laid, RULES)
    assert (freed(made), made.moves) == (["n0", "n1"], 3)


def only_one_try(laid: RemovalColumns, monkeypatch: pytest.MonkeyPatch) -> DrainPlan:
    with monkeypatch.context() as patched:
        patched.setattr(module, "MAX_SET_ASIDE", 0)
        return drain_plan(laid, RULES)


def test_more_tries_never_free_less_nor_move_more_for_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    @given(st.lists(st.lists(st.integers(1, 9).map(lambda one: 100 * one), max_size=4), min_size=2, max_size=9))
    @settings(max_examples=150, deadline=None)
    def holds(sizes: list[list[int]]) -> None:
        laid = columns(*(tuple(size) for size in sizes if sum(size) <= 1000))
        made, first = drain_plan(laid, RULES), only_one_try(laid, monkeypatch)
        assert (-made.used_after, -made.moves) >= (-first.used_after, -first.moves)
        targets = {move.target for one in made.freed for move in one.moves}
        assert not targets & {one.node for one in made.freed}, "what takes a pod is not freed"
        load = {f"n{at}": sum(size) for at, size in enumerate(size for size in sizes if sum(size) <= 1000)}
        for one in made.freed:
            for move in one.moves:
                load[move.target] += int(laid.takes[laid.shape_of[laid.keys.index(move.pod)], 0])
        assert all(load[target] <= 1000 for target in targets)
        # At the end nobody else could go: each node that stays has a pod that finds no other, or took one.
        lines, _ = not_freed(laid, RULES, made, laid.allowed.any(axis=0) & False, 50)
        assert not any("already" in line.why for line in lines)

    holds()


def test_a_budget_of_moves_bounds_every_try() -> None:
    laid = columns((100,), (600, 100), (100, 100, 100), (100, 100, 100, 100))
    assert drain_plan(laid, MoveRules(reserve_share=0.0, most_moves=2)).moves <= 2
