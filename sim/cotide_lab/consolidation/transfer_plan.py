"""The plan: fewest nodes, then least transfer, then the lowest switches; compared with DMNS and with bounds.

Called by the experiments. Starts from the best of DMNS under four orders of emptying, and then

1. closes further nodes, letting an application push another one on (`_close_more`);
2. at the number of nodes reached, goes through the sets of nodes to empty, cheapest first. It stops at the first that
   can be packed into the others as they are: nothing cheaper is possible without moving what could stay
   (`_cheapest_set`);
3. asks a solver, if given and if the instance is small, for a cheaper plan;
4. sends applications back home where there is room. It exchanges targets of equal sizes so that they cross fewer
   switches, which costs neither nodes nor transfer.

Invariant: `cost` never exceeds that of DMNS.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Booleans, Floats, Integers
from cotide_core.kernels.compiled import compiled
from cotide_lab.consolidation.dmas import by_largest_application
from cotide_lab.consolidation.dmns import search
from cotide_lab.consolidation.instance import Instance, Outcome
from cotide_lab.consolidation.kmns import by_load
from cotide_lab.consolidation.linear_solver import LinearProblem, LinearSolver
from cotide_lab.consolidation.lower_bound import NodeBound, fewest_nodes, least_transfer
from cotide_lab.consolidation.switch_tree import SwitchTree

MOST_SETS: Final = 200
"""Sets of nodes to empty in one search (chosen)."""
MOST_VARIABLES: Final = 20_000
"""Applications times nodes above which no solver is asked (chosen: HiGHS then needs minutes)."""
SEARCH_LIMIT: Final = 40_000_000
"""Applications times nodes with trials of all four orders for unequal nodes; beyond it, of one order (chosen)."""


@dataclass(frozen=True)
class Measured:
    """A plan and the bounds that no plan can beat.

    Attributes
    ----------
    outcome : the plan.
    nodes_bound : of the number of nodes; None without a solver.
    transfer_bound : least transfer of any plan with as few nodes.
    """

    outcome: Outcome
    nodes_bound: NodeBound | None
    transfer_bound: int

    @property
    def nodes_gap(self) -> int:
        """Nodes above the bound."""
        return 0 if self.nodes_bound is None else self.outcome.nodes_used - self.nodes_bound.nodes

    @property
    def transfer_gap(self) -> float:
        """Transfer above the bound, as a share of it."""
        return gap(self.outcome.transfer, self.transfer_bound)


def gap(value: int, bound: int) -> float:
    """Return how far a value is above its bound, as a share of the bound; infinite above a bound of 0."""
    if value <= bound:
        return 0.0
    return value / bound - 1 if bound else float("inf")


def plan(
    instance: Instance,
    *,
    tree: SwitchTree | None = None,
    solver: LinearSolver | None = None,
    time_limit_seconds: float = 10.0,
) -> Measured:
    """Return the best plan found, and how far from optimal it can be at most."""
    best = min((search(instance, order).outcome for order in _orders(instance)), key=lambda found: found.cost)
    best = _close_more(instance, best)
    bound = None if solver is None else fewest_nodes(instance, solver, best)
    floor = instance.fewest_by_volume if bound is None else bound.nodes
    for nodes in range(floor, best.nodes_used + 1):
        if nodes == best.nodes_used and best.transfer <= least_transfer(instance, nodes):
            break
        found = _cheapest_set(instance, nodes, best)
        if found is None and solver is not None:
            found = _solved(instance, nodes, best, solver, time_limit_seconds)
        if found is not None and found.cost < best.cost:
            best = found
            break
    best = _return_home(instance, best)
    if tree is not None:
        best = instance.outcome(exchange(instance, best.targets, tree))
    return Measured(best, bound, least_transfer(instance, best.nodes_used))


def _orders(instance: Instance) -> list[Integers]:
    orders = [by_load(instance)]
    if instance.is_uniform or instance.applications * instance.nodes <= SEARCH_LIMIT:
        numbers = np.arange(instance.nodes)
        held = instance.capacities / instance.capacities.max(axis=0)
        orders.append(by_largest_application(instance))
        if not instance.is_uniform:
            orders.append(np.lexsort((numbers, instance.node_weights)))
            # Small nodes first: their applications find room in fewer large ones.
            orders.append(np.lexsort((numbers, instance.load_shares, held.sum(axis=1))))
    return orders


def _close_more(instance: Instance, best: Outcome) -> Outcome:
    """Empty one used node after the other, the lightest first, while each application finds a node."""
    targets = best.targets.copy()
    rooms = instance.capacities - _loads(instance, targets)
    on_node = np.bincount(targets, minlength=instance.nodes)
    weights = np.zeros(instance.nodes, np.int64)
    np.add.at(weights, targets, instance.moving)
    is_open = on_node > 0
    closed = 0
    for node in np.lexsort((weights, ~is_open))[: int(is_open.sum())]:
        moving = np.flatnonzero(targets == node)
        moving = moving[np.lexsort((moving, -instance.size_shares[moving]))]
        tried_rooms, tried_targets = rooms.copy(), targets.copy()
        is_open[node] = False
        if push_out(instance.sizes, instance.capacities, tried_rooms, tried_targets, is_open, moving):
            rooms, targets, closed = tried_rooms, tried_targets, closed + 1
            rooms[node] = instance.capacities[node]
        else:
            is_open[node] = True
    return instance.outcome(targets) if closed else best


@compiled
def push_out(
    sizes: Integers,
    capacities: Integers,
    rooms: Integers,
    targets: Integers,
    is_open: Booleans,
    moving: Integers,
) -> bool:
    """Place each of `moving` on an open node by best fit, or on a node that can push another application on.

    Writes rooms and targets, even if it fails. Returns whether all found a node.
    """
    for item in moving:
        node = _fullest(rooms, capacities, is_open, sizes[item], -1)
        if node < 0:
            for other in range(targets.shape[0]):
                at = targets[other]
                if not is_open[at] or not _fits(rooms[at] + sizes[other], sizes[item]):
                    continue
                beyond = _fullest(rooms, capacities, is_open, sizes[other], at)
                if beyond >= 0:
                    rooms[at] += sizes[other]
                    rooms[beyond] -= sizes[other]
                    targets[other] = beyond
                    node = at
                    break
        if node < 0:
            return False
        rooms[node] -= sizes[item]
        targets[item] = node
    return True


@compiled
def _fits(room: Integers, size: Integers) -> bool:
    fits = True
    for resource in range(size.shape[0]):
        fits = fits and size[resource] <= max(room[resource], 0)
    return fits


@compiled
def _fullest(rooms: Integers, capacities: Integers, is_open: Booleans, size: Integers, but: int) -> int:
    """Return the open node with room for an application that is fullest afterwards; -1 when there is none."""
    best, best_left = -1, 2.0
    for node in range(rooms.shape[0]):
        if is_open[node] and node != but and _fits(rooms[node], size):
            left = 1.0
            for resource in range(size.shape[0]):
                left = min(left, (rooms[node, resource] - size[resource]) / capacities[node, resource])
            if left < best_left:
                best, best_left = node, left
    return best


def _cheapest_set(instance: Instance, nodes: int, best: Outcome) -> Outcome | None:
    """Return the placement that empties the cheapest possible set of nodes: their applications fit into the others as
    they are.

    None if no cheaper set than `best` fits.
    """
    limit = best.transfer if nodes == best.nodes_used else None
    order = np.lexsort((np.arange(instance.nodes), instance.node_weights))
    weights = instance.node_weights[order]
    for cost, chosen in _sets_by_weight(weights, instance.nodes - nodes):
        if limit is not None and cost >= limit:
            return None
        emptied = order[chosen]
        moving = np.flatnonzero(np.isin(instance.homes, emptied))
        moving = moving[np.lexsort((moving, -instance.size_shares[moving]))]
        is_open = np.ones(instance.nodes, np.bool_)
        is_open[emptied] = False
        targets = instance.homes.copy()
        if _pack(instance, targets, is_open, moving):
            return instance.outcome(targets)
    return None


def _pack(instance: Instance, targets: Integers, is_open: Booleans, moving: Integers) -> bool:
    rooms = instance.capacities - instance.loads
    for item in moving:
        node = _fullest(rooms, instance.capacities, is_open, instance.sizes[item], -1)
        if node < 0:
            break
        rooms[node] -= instance.sizes[item]
        targets[item] = node
    else:
        return True
    if rooms.shape[1] > 1:
        return False
    return _fill(instance, targets, is_open, moving)


def _fill(instance: Instance, targets: Integers, is_open: Booleans, moving: Integers) -> bool:
    """Fill the nodes one after the other as far as the sizes allow, the one with the least room first."""
    rooms = np.maximum(instance.capacities[:, 0] - instance.loads[:, 0], 0)
    receivers = np.flatnonzero(is_open & (rooms > 0))
    receivers = receivers[np.argsort(rooms[receivers], kind="stable")]
    unit = int(np.gcd.reduce(instance.sizes[:, 0]))
    if not unit or int(rooms.max()) // unit > 10_000:
        return False
    chosen = fill_in_turn(instance.sizes[moving, 0] // unit, rooms[receivers] // unit)
    if (chosen < 0).any():
        return False
    targets[moving] = receivers[chosen]
    return True


@compiled
def fill_in_turn(sizes: Integers, rooms: Integers) -> Integers:
    """Fill rooms in turn, each as full as the remaining sizes can make it, large ones preferred.

    Parameters
    ----------
    sizes : (M,) largest first.
    rooms : (N,) the free room of each node.

    Returns
    -------
    (M,) position of the room of each; -1 for those without one.
    """
    chosen = np.full(sizes.shape[0], -1)
    for at in range(rooms.shape[0]):
        room = rooms[at]
        last = np.full(room + 1, -1)
        reached = np.zeros(room + 1, np.bool_)
        reached[0] = True
        for item in range(sizes.shape[0]):
            if reached[room]:
                break
            if chosen[item] >= 0 or sizes[item] > room:
                continue
            for filled in range(room, sizes[item] - 1, -1):
                if not reached[filled] and reached[filled - sizes[item]]:
                    reached[filled] = True
                    last[filled] = item
        filled = room
        while not reached[filled]:
            filled -= 1
        while filled > 0:
            chosen[last[filled]] = at
            filled -= sizes[last[filled]]
    for item in range(sizes.shape[0]):
        if chosen[item] < 0 and sizes[item] == 0:
            chosen[item] = 0
    return chosen


def _sets_by_weight(weights: Integers, count: int) -> Iterator[tuple[int, Integers]]:
    """Yield sets of `count` positions of ascending weights, the lightest sets first, at most `MOST_SETS`."""
    if not 0 <= count <= len(weights):
        return
    first = tuple(range(count))
    waiting: list[tuple[int, tuple[int, ...]]] = [(int(weights[:count].sum()), first)]
    seen = {first}
    for _ in range(MOST_SETS):
        if not waiting:
            return
        weight, chosen = heapq.heappop(waiting)
        yield weight, np.array(chosen, np.int64)
        for at in range(count):
            after = chosen[at] + 1
            if after < len(weights) and (at + 1 == count or after < chosen[at + 1]):
                other = (*chosen[:at], after, *chosen[at + 1 :])
                if other not in seen:
                    seen.add(other)
                    heapq.heappush(waiting, (weight - int(weights[chosen[at]]) + int(weights[after]), other))


def _solved(
    instance: Instance, nodes: int, best: Outcome, solver: LinearSolver, time_limit_seconds: float
) -> Outcome | None:
    """Ask the solver for a placement on so many nodes that moves less than the best; None if it finds none."""
    count, total = instance.applications, instance.nodes
    if count * total > MOST_VARIABLES or not count:
        return None
    # Variables: application x node, by application, and then whether each node is used. Rows: each application once;
    # each node and resource at most its capacity if used; and the number of nodes.
    resources = instance.sizes.shape[1]
    per_item = 1 + resources
    item = np.repeat(np.arange(count), total)
    node = np.tile(np.arange(total), count)
    shares: Floats = instance.sizes[item] / instance.capacities[node]
    rows = np.column_stack([item, count + node[:, None] * resources + np.arange(resources)])
    values = np.column_stack([np.ones(len(item)), shares])
    used_rows = count + np.arange(total)[:, None] * resources + np.arange(resources)
    used_rows = np.column_stack([used_rows, np.full(total, count + total * resources)])
    used_values = np.column_stack([-np.ones((total, resources)), np.ones(total)])
    entries = np.concatenate([np.full(len(item), per_item), np.full(total, resources + 1)])
    heaviest = max(1, int(instance.moving.max()))
    costs = np.where(node == instance.homes[item], 0.0, instance.moving[item] / heaviest)
    problem = LinearProblem(
        costs=np.concatenate([costs, np.zeros(total)]),
        high=np.ones(len(item) + total),
        starts=np.concatenate([[0], np.cumsum(entries)]).astype(np.int64),
        rows=np.concatenate([rows.reshape(-1), used_rows.reshape(-1)]).astype(np.int64),
        values=np.concatenate([values.reshape(-1), used_values.reshape(-1)]),
        row_low=np.concatenate([np.ones(count), np.full(total * resources + 1, -np.inf)]),
        row_high=np.concatenate([np.ones(count), np.zeros(total * resources), [float(nodes)]]),
        whole=True,
    )
    found = solver.solve(problem, time_limit_seconds)
    if not len(found.values):
        return None
    targets = found.values[: len(item)].reshape(count, total).argmax(axis=1).astype(np.int64)
    if (_loads(instance, targets) > np.maximum(instance.capacities, instance.loads)).any():
        return None  # Within the solver's tolerance, not within the node.
    outcome = instance.outcome(targets)
    return outcome if outcome.cost < best.cost else None


def _return_home(instance: Instance, best: Outcome) -> Outcome:
    """Send applications back to their own node where it is used and has room, the heaviest first."""
    targets = best.targets.copy()
    rooms = instance.capacities - _loads(instance, targets)
    used = np.bincount(targets, minlength=instance.nodes) > 0
    moved = np.flatnonzero(targets != instance.homes)
    for item in moved[np.lexsort((moved, -instance.moving[moved]))]:
        home, size = instance.homes[item], instance.sizes[item]
        if used[home] and (size <= np.maximum(rooms[home], 0)).all():
            rooms[home] -= size
            rooms[targets[item]] += size
            targets[item] = home
    return instance.outcome(targets)


def exchange(instance: Instance, targets: Integers, tree: SwitchTree) -> Integers:
    """Deal the targets of moved applications of equal size again, so that they cross the fewest switches.

    In a tree it is best to pair those under one switch first, level by level: distances only grow upwards.
    """
    dealt = targets.copy()
    moved = np.flatnonzero(targets != instance.homes)
    if not len(moved):
        return dealt
    alike = np.column_stack([instance.sizes[moved], instance.moving[moved]])
    _, group = np.unique(alike, axis=0, return_inverse=True)
    group = group.reshape(-1)
    for number in np.unique(group):
        items = moved[group == number]
        free = targets[items].tolist()
        left = items.tolist()
        # The level below the first is the node itself: one that could stay at home does.
        for level in (np.arange(instance.nodes), *tree.switches):
            by_level: dict[int, list[int]] = {}
            for node in free:
                by_level.setdefault(int(level[node]), []).append(node)
            still = []
            for item in left:
                here = by_level.get(int(level[instance.homes[item]]))
                if here:
                    dealt[item] = here.pop()
                else:
                    still.append(item)
            left = still
            free = [node for nodes in by_level.values() for node in nodes]
    return dealt


def _loads(instance: Instance, targets: Integers) -> Integers:
    loads = np.zeros(instance.capacities.shape, np.int64)
    np.add.at(loads, targets, instance.sizes)
    return loads
