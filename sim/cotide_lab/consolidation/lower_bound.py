"""Lower bounds on the nodes of any placement and on its transfer: the measure of every heuristic.

Called by `transfer_plan` and the experiments. `fewest_nodes` is the bound of Gilmore and Gomory 1961: the
linear program over all ways to fill a node. Only useful ways are made, each by a knapsack. Each round gives a bound,
exact or not, by Farley 1990: prices that no way of filling a node exceeds, once divided by the dearest. With too many
sizes or kinds of nodes, sizes are rounded down and nodes up, which can only lower the bound.

`least_transfer` holds for any placement on so many nodes: the other nodes are empty, and they held at least as much as
the lightest.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final, Literal

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.compiled import compiled
from cotide_lab.consolidation.instance import Instance, Outcome
from cotide_lab.consolidation.linear_solver import LinearProblem, LinearSolver

MOST_SIZES: Final = 400
"""Different sizes that the program distinguishes; beyond it they are rounded down to a grid (chosen)."""
GRID: Final = 64
"""Steps of that grid, in the largest node (chosen)."""
MOST_KINDS: Final = 6
"""Kinds of nodes that are distinguished (chosen; beyond it, neighbours in size count as the larger)."""
TABLE_LIMIT: Final = 20_000_000
"""Entries of a knapsack's table; a larger one is left to the solver (chosen: 20 MB)."""
MOST_ROUNDS: Final = 300
"""Rounds after which the present bound is used (chosen)."""
PRICING_GAP: Final = 0.005
"""How near the solver comes to the dearest filling (chosen; the bound uses the proved value)."""
PRICING_SECONDS: Final = 2.0
"""Longest time for one solve (chosen)."""
TOLERANCE: Final = 1e-6


@dataclass(frozen=True)
class NodeBound:
    """A lower bound on the number of nodes.

    Attributes
    ----------
    nodes : no placement has fewer.
    method : its source.
    rounds : of column generation.
    """

    nodes: int
    method: Literal["volume", "column generation"]
    rounds: int = 0


def least_transfer(instance: Instance, nodes_used: int) -> int:
    """Return a lower bound on the transfer of any placement on so many nodes."""
    emptied = instance.nodes - nodes_used
    return int(np.sort(instance.node_weights)[:emptied].sum()) if emptied > 0 else 0


def fewest_nodes(
    instance: Instance, solver: LinearSolver, incumbent: Outcome, *, most_rounds: int = MOST_ROUNDS
) -> NodeBound:
    """Bound the number of nodes from below, by volume and by column generation.

    Parameters
    ----------
    incumbent : any placement; its nodes are the first columns, and the bound stops when it reaches them.
    """
    volume = instance.fewest_by_volume
    if volume >= incumbent.nodes_used or not instance.applications:
        return NodeBound(volume, "volume")
    master = _Master(instance, incumbent)
    best, rounds = float(volume), 0
    while rounds < most_rounds:
        rounds += 1
        value, prices, limits = master.solve(solver)
        if prices is None:
            break
        filled = [_dearest(master, kind, prices, solver) for kind in range(len(master.kinds))]
        worths = np.array([worth for _, worth in filled])
        best = max(best, master.bound(prices, worths))
        if ceil(best - TOLERANCE) >= min(ceil(value - TOLERANCE), incumbent.nodes_used):
            break
        useful = [kind for kind, worth in enumerate(worths) if worth > 1 - limits[kind] + TOLERANCE]
        fresh = [master.add(filled[kind][0], kind) for kind in useful]
        if not any(fresh):
            break
    nodes = ceil(best - TOLERANCE)
    return NodeBound(nodes, "column generation" if nodes > volume else "volume", rounds)


class _Master:
    """The linear program over the known ways to fill a node."""

    def __init__(self, instance: Instance, incumbent: Outcome) -> None:
        sizes, self.counts, number = _sizes(instance)
        self.sizes = sizes
        self.kinds, self.available, kind_of = _kinds(instance)
        self._known: set[tuple[int, ...]] = set()
        self._columns: list[tuple[Integers, int]] = []
        patterns = np.zeros((instance.nodes, len(sizes)), np.int64)
        held = number >= 0
        np.add.at(patterns, (incumbent.targets[held], number[held]), 1)
        for node in np.flatnonzero(patterns.any(axis=1)):
            self.add(patterns[node], int(kind_of[node]))

    def add(self, pattern: Integers, kind: int) -> bool:
        """Add a way to fill a node; returns whether it is a new one."""
        key = (kind, *pattern.tolist())
        if key in self._known:
            return False
        self._known.add(key)
        self._columns.append((pattern, kind))
        return True

    def solve(self, solver: LinearSolver) -> tuple[float, Floats | None, Floats]:
        """Return the value, the price of each size and the (never positive) price of one node more of each kind."""
        sizes = len(self.sizes)
        rows, values, starts = [], [], [0]
        for pattern, kind in self._columns:
            held = np.flatnonzero(pattern)
            rows += [held, np.array([sizes + kind])]
            values += [pattern[held].astype(np.float64), np.ones(1)]
            starts.append(starts[-1] + len(held) + 1)
        count = len(self._columns)
        problem = LinearProblem(
            costs=np.ones(count),
            high=np.full(count, np.inf),
            starts=np.array(starts, np.int64),
            rows=np.concatenate(rows).astype(np.int64),
            values=np.concatenate(values),
            row_low=np.concatenate([self.counts.astype(np.float64), np.full(len(self.kinds), -np.inf)]),
            row_high=np.concatenate([np.full(sizes, np.inf), self.available.astype(np.float64)]),
        )
        found = solver.solve(problem, 60.0)
        if found.status != "optimal":
            return np.inf, None, np.zeros(0)
        return found.objective, np.maximum(found.duals[:sizes], 0.0), np.minimum(found.duals[sizes:], 0.0)

    def bound(self, prices: Floats, worths: Floats) -> float:
        """Return the bound that these prices prove, given the worth of the dearest filling of each kind, or more.

        Let p x (any filling of kind c) <= w_c for prices p. Then no placement has fewer nodes than (sum of p) - (sum
        over c of nodes of the kind x (w_c - 1 where that is positive)). The same holds for p / max w.
        """
        total = float(self.counts @ prices)
        best = 0.0
        for scale in (1.0, max(1.0, float(worths.max())) if len(worths) else 1.0):
            over = np.maximum(worths / scale - 1.0, 0.0)
            best = max(best, total / scale - float(self.available @ over))
        return best


def _sizes(instance: Instance) -> tuple[Integers, Integers, Integers]:
    """Return the different sizes, the count of each, and each application's (-1: of no size at all)."""
    sizes = instance.sizes
    if len(np.unique(sizes, axis=0)) > MOST_SIZES:
        step = np.maximum(instance.capacities.max(axis=0) // GRID, 1)
        sizes = sizes // step * step
    different, number, counts = np.unique(sizes, axis=0, return_inverse=True, return_counts=True)
    number = number.reshape(-1)
    if len(different) and not different[0].any():
        return different[1:], counts[1:], number - 1
    return different, counts, number


def _kinds(instance: Instance) -> tuple[Integers, Integers, Integers]:
    """Return the capacity of each kind of node, the count of each, and the kind of each node."""
    kinds, number, counts = np.unique(instance.capacities, axis=0, return_inverse=True, return_counts=True)
    number = number.reshape(-1)
    if len(kinds) <= MOST_KINDS:
        return kinds, counts, number
    group = np.arange(len(kinds)) * MOST_KINDS // len(kinds)
    merged = np.array([kinds[group == number].max(axis=0) for number in range(MOST_KINDS)])
    return merged, np.bincount(group, weights=counts).astype(np.int64), group[number]


def _dearest(master: _Master, kind: int, prices: Floats, solver: LinearSolver) -> tuple[Integers, float]:
    """Return the filling of one kind of node with the highest worth, and an upper bound of that worth."""
    sizes, capacity = master.sizes, master.kinds[kind]
    with np.errstate(divide="ignore"):
        most = np.where(sizes > 0, capacity // np.maximum(sizes, 1), np.iinfo(np.int64).max).min(axis=1)
    most = np.where(prices > 0, np.minimum(most, master.counts), 0)
    if sizes.shape[1] == 1:
        # Whole units of the greatest common divisor keep the table small.
        unit = int(np.gcd.reduce(sizes[:, 0]))
        room = int(capacity[0]) // unit
        bits = np.where(most > 0, np.floor(np.log2(np.maximum(most, 1))).astype(np.int64) + 1, 0)
        if int(bits.sum()) * (room + 1) <= TABLE_LIMIT:
            pattern = knapsack(sizes[:, 0] // unit, prices, most, room, int(bits.sum()))
            return pattern, float(pattern @ prices)
    return _solved(sizes, prices, most, capacity, solver)


def _solved(
    sizes: Integers, prices: Floats, most: Integers, capacity: Integers, solver: LinearSolver
) -> tuple[Integers, float]:
    count, resources = sizes.shape
    problem = LinearProblem(
        costs=-prices,
        high=most.astype(np.float64),
        starts=np.arange(count + 1, dtype=np.int64) * resources,
        rows=np.tile(np.arange(resources, dtype=np.int64), count),
        # Shares of the node: bytes next to millicores would exceed the solver's tolerances.
        values=(sizes / capacity).reshape(-1),
        row_low=np.full(resources, -np.inf),
        row_high=np.ones(resources),
        whole=True,
        gap=PRICING_GAP,
    )
    found = solver.solve(problem, PRICING_SECONDS)
    if not len(found.values):
        return np.zeros(count, np.int64), float(prices @ most)
    pattern = np.round(found.values).astype(np.int64)
    while (pattern @ sizes > capacity).any():  # within the solver's tolerance, not within the node
        pattern[np.flatnonzero(pattern)[0]] -= 1
    return pattern, max(-found.bound, float(pattern @ prices))


@compiled
def knapsack(sizes: Integers, prices: Floats, most: Integers, room: int, parts: int) -> Integers:
    """Return how many of each size to take so that they fit into `room` and are worth most.

    Parameters
    ----------
    most : (T,) the count of each.
    parts : sum of the numbers of binary digits of `most`: each size is cut into lots of 1, 2, 4 ... pieces.
    """
    worth = np.zeros(room + 1)
    taken = np.zeros((parts, room + 1), np.bool_)
    lot_of = np.zeros(parts, np.int64)
    lot_pieces = np.zeros(parts, np.int64)
    part = 0
    for size in range(sizes.shape[0]):
        left, lot = most[size], 1
        while left > 0:
            pieces = min(lot, left)
            left -= pieces
            lot *= 2
            weight, price = pieces * sizes[size], pieces * prices[size]
            for filled in range(room, weight - 1, -1):
                if worth[filled - weight] + price > worth[filled]:
                    worth[filled] = worth[filled - weight] + price
                    taken[part, filled] = True
            lot_of[part], lot_pieces[part] = size, pieces
            part += 1
    pattern = np.zeros(sizes.shape[0], np.int64)
    filled = room
    for at in range(part - 1, -1, -1):
        if taken[at, filled]:
            pattern[lot_of[at]] += lot_pieces[at]
            filled -= lot_pieces[at] * sizes[lot_of[at]]
    return pattern
