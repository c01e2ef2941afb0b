"""What the forecasters of a node cost: nothing before its cluster's first slot, and no more than was recorded after."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
from host_load_scene import Scene, online

from cotide_operator.host_load.forecasters import Forecasters
from cotide_operator.host_load.node_rows import FIRST_ROWS, NodeRows
from cotide_operator.host_load.sampler import NodeTable

KIB = 1024


def held(make: Callable[[], object]) -> float:
    """Bytes that are held by what is made."""
    tracemalloc.start()
    try:
        made = make()
        found = tracemalloc.get_traced_memory()[0]
        assert made is not None
        return found
    finally:
        tracemalloc.stop()


def taught(nodes: int, slots: int) -> Forecasters:
    forecasters = Forecasters(nodes, ahead_slots=(3, 12, 36))
    for value in np.linspace(0.2, 0.6, slots):
        forecasters.record(np.full((4, nodes), value))
    return forecasters


def table(nodes: int) -> NodeTable:
    names = [f"n{number}" for number in range(nodes)]
    whole = np.ones((2, nodes))
    return NodeTable(names, {name: index for index, name in enumerate(names)}, whole, whole)


async def test_forecasters_are_made_for_all_nodes_when_there_is_a_slot_to_learn_from() -> None:
    scene = Scene()
    await scene.nodes(*(f"n{number}" for number in range(1000)))
    await scene.place(online("web", node="n999"))
    await scene.read(*scene.use("web", 400))
    await scene.live.rebuild()
    assert scene.live.forecasters.rows == FIRST_ROWS
    assert scene.outlook("n999").reason == "NoForecast"
    await scene.slot(*scene.use("web", 400))
    assert scene.live.forecasters.rows >= 1000


def test_a_node_whose_day_has_begun_takes_what_the_slots_so_far_need() -> None:
    taught(2, 3)  # kernels are compiled
    young, older = (held(lambda slots=slots: taught(500, slots)) / 500 for slots in (1, 13))
    assert young < 45 * KIB
    assert older < 62 * KIB


def test_a_cluster_of_five_thousand_nodes_has_room_for_a_sixteenth_more() -> None:
    rows = NodeRows(300.0)
    assert len(set(rows.follow(table(5000), 0.0).tolist())) == 5000
    assert 5000 <= rows.capacity <= 5000 * 17 / 16 + FIRST_ROWS
    assert rows.physical.shape == (2, rows.capacity)


def test_nodes_that_join_one_by_one_are_made_room_for_in_larger_steps() -> None:
    rows = NodeRows(300.0)
    capacities = set()
    for nodes in range(2000, 2400, 4):
        rows.follow(table(nodes), 0.0)
        capacities.add(rows.capacity)
    assert len(capacities) <= 4
