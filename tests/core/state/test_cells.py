"""A cell shows what the arrays hold, whatever moved them."""

from __future__ import annotations

import numpy as np
import pytest
from engine_objects import node, pod

from cotide_core.events import NodeUpserted, PodUpserted
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.node_columns import FIRST_CAPACITY
from cotide_core.state.snapshot import Snapshot


def held_on_a() -> ClusterState:
    """Return a node with a batch pod that was counted, so that the cells were asked for."""
    state = ClusterState()
    state.apply(NodeUpserted(node("a")))
    state.apply(PodUpserted(pod("first", node="a", type="sort")))
    return state


def more_nodes(state: ClusterState) -> None:
    for number in range(FIRST_CAPACITY):  # with the one that is there, one more than there is room for
        state.apply(NodeUpserted(node(f"n{number}")))


def a_resource(state: ClusterState) -> None:
    state.apply(NodeUpserted(node("b", offers={"example.com/gpu": 4})))


def a_type(state: ClusterState) -> None:
    state.apply(PodUpserted(pod("other", node="a", type="grep")))


@pytest.mark.parametrize("move", [more_nodes, a_resource, a_type])
def test_cells_are_those_of_the_arrays_that_moved(move) -> None:
    state = held_on_a()
    move(state)
    state.apply(PodUpserted(pod("second", node="a", type="sort", input_bytes=7)))
    columns, cells, row = state.columns, Snapshot.of(state).cells, state.columns.row_of["a"]
    # Both pods of the type are on the node; the second alone has an input.
    assert columns.type_counts[columns.types["sort"], row] == 2
    assert columns.type_bytes[columns.types["sort"], row] == 7
    assert columns.free[0, row] == columns.allocatable[0, row] - columns.held[1, 0, row]
    for name in ("allocatable", "free", "type_counts", "type_bytes"):
        np.testing.assert_array_equal([list(column) for column in getattr(cells, name)], getattr(columns, name))
    for name in ("batch_millicores", "service_counts", "service_rates"):
        np.testing.assert_array_equal(list(getattr(cells, name)), getattr(columns, name))
    held = [[list(column) for column in of_class] for of_class in cells.held]
    np.testing.assert_array_equal(held, columns.held)
