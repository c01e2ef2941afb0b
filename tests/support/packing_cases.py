"""Instances by hand and by Hypothesis, and the obvious program for KMNS, for the tests of consolidation."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from cotide_lab.consolidation.instance import Instance


def instance_of(*nodes: list[int], capacity: int = 100) -> Instance:
    """Nodes as lists of application sizes, one resource."""
    sizes = [size for node in nodes for size in node]
    homes = [number for number, node in enumerate(nodes) for _ in node]
    return Instance(
        np.array(sizes, np.int64).reshape(-1, 1),
        np.array(homes, np.int64),
        np.full((len(nodes), 1), capacity, np.int64),
    )


@st.composite
def uniform_instances(draw: st.DrawFn, most_nodes: int = 9) -> Instance:
    """Nodes of one size, with any load up to that, empty ones among them."""
    capacity = draw(st.sampled_from([7, 100, 1000, 2**41]))
    unit = max(1, capacity // 100)
    nodes = []
    for _ in range(draw(st.integers(1, most_nodes))):
        left = draw(st.integers(0, capacity // unit)) * unit
        held = []
        while left and len(held) < 5:
            size = draw(st.integers(1, left // unit)) * unit
            held.append(size)
            left -= size
        nodes.append(held)
    return instance_of(*nodes, capacity=capacity)


@st.composite
def vector_instances(draw: st.DrawFn) -> Instance:
    """Unequal nodes with two resources and weights."""
    count = draw(st.integers(1, 6))
    capacities = np.array([[draw(st.integers(5, 40)), draw(st.integers(5, 40))] for _ in range(count)], np.int64)
    rooms = capacities.copy()
    sizes, homes, weights = [], [], []
    for _ in range(draw(st.integers(0, 14))):
        size = np.array([draw(st.integers(0, 12)), draw(st.integers(0, 12))])
        fits = np.flatnonzero((rooms >= size).all(axis=1))
        if len(fits):
            node = int(fits[draw(st.integers(0, len(fits) - 1))])
            rooms[node] -= size
            sizes.append(size)
            homes.append(node)
            weights.append(draw(st.integers(0, 9)))
    table = np.array(sizes, np.int64).reshape(-1, 2)
    return Instance(table, np.array(homes, np.int64), capacities, np.array(weights, np.int64))


def obvious_kmns(instance: Instance, drained: int, order: np.ndarray) -> tuple[int, int]:
    """Nodes used and transfer of KMNS(K) with lists and dictionaries: one resource, equal nodes."""
    capacity = int(instance.capacities[0, 0])
    rank = {int(node): position for position, node in enumerate(order)}
    rooms = [
        [capacity - int(instance.loads[node, 0]), position] for node, position in rank.items() if position >= drained
    ]
    amounts: dict[tuple[int, int], int] = {}
    holding = {position for node, position in rank.items() if position >= drained and instance.loads[node, 0]}
    moved = 0
    items = [(-int(size), index) for index, size in enumerate(instance.sizes[:, 0])]
    for negative, index in sorted(items):
        source = rank[int(instance.homes[index])]
        if source >= drained:
            continue
        size = -negative
        fitting = sorted(room for room in rooms if room[0] >= size)
        if not fitting:
            rooms.append([capacity, instance.nodes + sum(room[1] >= instance.nodes for room in rooms)])
            fitting = rooms[-1:]
        target = fitting[0]
        target[0] -= size
        holding.add(target[1])
        moved += size
        if target[1] >= instance.nodes:
            amounts[target[1], source] = amounts.get((target[1], source), 0) + size
    matched: dict[int, int] = {}
    for (node, source), amount in sorted(amounts.items(), key=lambda entry: (-entry[1], entry[0])):
        if node not in matched and source not in matched.values():
            matched[node] = source
            moved -= amount
    return len(holding), moved
