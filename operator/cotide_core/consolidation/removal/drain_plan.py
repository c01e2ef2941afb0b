"""The live plan: finds nodes that can be freed and the moves for it, within all rules and budgets.

Called by `cotide consolidate`. Nodes are tried cheapest first (fewest pods, then fewest bytes), each as a whole: a node
is free only when every pod of it finds another. Nodes that took a moved pod are not freed, so no pod moves twice. Moves
need no order among each other: every target has room as things are, and none is freed. So a light node that took a pod
of a lighter one costs a freed node, or a heavier one in its place. Further tries reserve the lightest nodes, as many as
the first try freed and some more. These take nothing until the plan finds that they can't go. The try that frees most
nodes counts; of several, the one that moves fewest pods. Empty nodes are free without a move, and take nothing. A gang
moves no more pods than it can spare, or all of them, off its one node. Nodes that are being drained come first: their
remaining pods will need room too, and room that is not kept for them would be given twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from cotide_core.consolidation.removal.columns import RemovalColumns
from cotide_core.consolidation.removal.replacing import Board, best_node, board_of, replace_pods
from cotide_core.consolidation.removal.stays import WORDS, MoveRules, Stay
from cotide_core.consolidation.removal.what_if import Left, Move
from cotide_core.kernels.array_types import Booleans, Integers
from cotide_core.kernels.compiled import compiled
from cotide_core.state.node_columns import CPU_COLUMN, MEMORY_COLUMN

SET_ASIDE: Final = (1.0, 1.05, 1.1, 1.2)
"""Nodes that further tries reserve, as shares of the nodes that the first try freed (chosen: no single share is always
best).
"""
MAX_SET_ASIDE: Final = 2000
"""Largest cluster with further tries (chosen: all take less than the first takes with 10,000)."""


@dataclass(frozen=True, slots=True)
class Freed:
    """A node that can go, and its cost.

    Attributes
    ----------
    together : keys of pods that are evicted at once, gang by gang: each gang leaves as a whole.
    """

    node: str
    moves: tuple[Move, ...]
    millicores: int
    memory_bytes: int
    together: tuple[tuple[str, ...], ...] = ()

    @property
    def at_once(self) -> int:
        """Most pods that are on their way at once."""
        return max((len(pair) for pair in self.together), default=min(len(self.moves), 1))


@dataclass(frozen=True, slots=True)
class Emptying:
    """A node that will be empty by itself: cordon it and wait for the median and p90 times."""

    node: str
    p50_seconds: float
    p90_seconds: float


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """What to do, and what stays.

    Attributes
    ----------
    freed : in the order of draining. emptying : nodes that had better empty by themselves.
    kept : nodes with a pod that must stay, one such pod each.
    used_before, used_after : nodes with pods to place, now and after this plan and the drains in progress.
    fewest : the least number of nodes in use of any plan (by volume of the requests).
    """

    freed: tuple[Freed, ...]
    emptying: tuple[Emptying, ...]
    kept: tuple[Left, ...]
    used_before: int
    used_after: int
    fewest: int

    @property
    def moves(self) -> int:
        """Pods that move."""
        return sum(len(freed.moves) for freed in self.freed)


def drain_plan(
    columns: RemovalColumns, rules: MoveRules, excluded: Booleans | None = None, draining: Booleans | None = None
) -> DrainPlan:
    """Return the plan of further nodes.

    Parameters
    ----------
    excluded : (N,) nodes that must not be freed (they may take pods).
    draining : (N,) nodes that are being drained. Their pods get room before all others; if one of them finds none, no
        node with pods is freed.
    """
    board = board_of(columns, rules.reserve_share)
    draining = np.zeros(columns.nodes, np.bool_) if draining is None else draining & ~board.closed
    alive = ~board.closed
    present = columns.stays != Stay.GOES
    loads = np.bincount(columns.row_of[present], minlength=columns.nodes)
    weights = np.bincount(columns.row_of[present], weights=columns.weight[present], minlength=columns.nodes)
    blocked = np.zeros(columns.nodes, np.bool_)
    blocked[columns.row_of[present & (columns.stays != Stay.NONE)]] = True
    used = alive & (loads > 0)
    excluded = draining if excluded is None else excluded | draining
    emptying = _emptying(columns, rules, used & ~excluded)
    on_their_own = np.isin(np.arange(columns.nodes), [row for row, _ in emptying])
    # Nodes that are or will be empty take nothing.
    board.closed[alive & ((loads == 0) | on_their_own) & ~excluded] = True
    targets = np.full(len(columns.keys), -2, np.int64)
    # A pod that a budget holds now, since another of its service is on its way, goes anyway when that is ready.
    stuck = replace_pods(board, np.flatnonzero(draining), targets, False) > 0
    received = np.zeros(columns.nodes, np.bool_)
    received[targets[targets >= 0]] = True
    tried = np.flatnonzero(used & ~blocked & ~excluded & ~on_their_own & ~received)
    tried = np.zeros(0, np.int64) if stuck else tried[np.lexsort((tried, weights[tried], loads[tried]))]
    best = _best_try(columns, board, rules, tried, targets)
    empty = np.flatnonzero(alive & (loads == 0) & ~excluded)
    freed = [_freed(columns, board, int(row), best.targets) for row in (*empty, *tried[best.freed])]
    return DrainPlan(
        tuple(freed),
        tuple(one for _, one in emptying),
        tuple(_kept(columns, np.flatnonzero(blocked & used & ~on_their_own))),
        int(np.count_nonzero(used)),
        int(np.count_nonzero(used if stuck else used & ~draining)) - best.nodes,
        _fewest(columns, present),
    )


class _Try(NamedTuple):
    """Which of the rows it freed, each pod's target, and how many nodes and pods these are."""

    freed: Booleans
    targets: Integers
    nodes: int
    moves: int


def _best_try(columns: RemovalColumns, board: Board, rules: MoveRules, rows: Integers, targets: Integers) -> _Try:
    """Return the try that frees most, then moves least, then reserves fewest nodes; `targets`: of pods placed
    before.
    """
    before = int(np.count_nonzero(targets >= 0))

    def one(aside: int) -> _Try:
        found = targets.copy()
        spare = GangSpare(columns.gang_of, np.maximum(columns.gang_spare, 0))
        own = board._replace(free=board.free.copy(), services=board.services.copy(), closed=board.closed.copy())
        freed = free_in_turn(own, spare, rows, found, rules.most_moves, rules.moves_per_node, aside)
        return _Try(freed, found, int(np.count_nonzero(freed)), int(np.count_nonzero(found >= 0)) - before)

    best = first = one(0)
    if len(rows) and columns.nodes <= MAX_SET_ASIDE:
        for aside in sorted({min(round(first.nodes * share), len(rows)) for share in SET_ASIDE} - {0}):
            other = one(aside)
            if (other.nodes, -other.moves) > (best.nodes, -best.moves):
                best = other
    return best


class GangSpare(NamedTuple):
    """(P,) each pod's gang, -1 for none; (G,) how many of it may still move, written."""

    gang_of: Integers
    left: Integers


@compiled
def give_spare(board: Board, spare: GangSpare, row: int, sign: int) -> bool:
    """Give back what the gangs of a node's pods can spare, or take it with sign -1; whether all stay at zero or
    above.
    """
    enough = True
    for index in range(board.first[row], board.first[row + 1]):
        pod = board.pods[index]
        gang = spare.gang_of[pod]
        if gang >= 0 and board.stays[pod] == 0:
            spare.left[gang] += sign
            enough = enough and spare.left[gang] >= 0
    return enough


@compiled
def take_spare(board: Board, spare: GangSpare, row: int) -> bool:
    """Take the spare pods that a node's pods need of their gangs; nothing if one gang has too few."""
    if give_spare(board, spare, row, -1):
        return True
    give_spare(board, spare, row, 1)
    return False


@compiled
def free_one(board: Board, spare: GangSpare, row: int, targets: Integers) -> int:
    """Free a node if all its pods find another: returns 0 then, otherwise the number of a pod that finds none plus 1,
    -1 for gangs.
    """
    if not take_spare(board, spare, row):
        return -1
    alone = np.full(1, row, np.int64)
    without = replace_pods(board, alone, targets, True)
    if without:
        give_spare(board, spare, row, 1)
    return without


@compiled
def movable_pods(board: Board, row: int) -> int:
    """Return the number of pods of a node that would move."""
    count = 0
    for index in range(board.first[row], board.first[row + 1]):
        count += board.stays[board.pods[index]] == 0
    return count


@compiled
def free_in_turn(
    board: Board, spare: GangSpare, rows: Integers, targets: Integers, most_moves: int, moves_per_node: int, aside: int
) -> Booleans:
    """Free one node after the other while all its pods find another; returns which of the rows were freed.

    The first `aside` rows take nothing until they were tried and did not go. After them room only becomes less as the
    plan grows. So a shape that finds no node in two tries (each time all but the node itself were looked at) never
    finds one again. Nodes with such a pod are skipped.
    """
    freed = np.zeros(rows.shape[0], np.bool_)
    received = np.zeros(board.closed.shape[0], np.bool_)
    moved = 0
    for at in range(aside):
        board.closed[rows[at]] = True
    for at in range(aside):
        row, count = rows[at], movable_pods(board, rows[at])
        if count <= moves_per_node and moved + count <= most_moves and not received[row]:
            freed[at] = free_one(board, spare, row, targets) == 0
        board.closed[row] = freed[at]
        if freed[at]:
            moved += count
            note_received(board, row, targets, received)
    hopeless = np.zeros(board.takes.shape[0], np.int64)
    for at in range(rows.shape[0]):
        row, count = rows[at], movable_pods(board, rows[at])
        stuck = False
        for index in range(board.first[row], board.first[row + 1]):
            pod = board.pods[index]
            stuck = stuck or (board.stays[pod] == 0 and hopeless[board.shape_of[pod]] > 1)
        if stuck or freed[at] or received[row] or count > moves_per_node or moved + count > most_moves:
            continue
        without = free_one(board, spare, row, targets)
        if without > 0:
            # Another pod of its own node may have taken the last room: try it alone.
            shape = board.shape_of[without - 1]
            board.closed[row] = True
            hopeless[shape] += best_node(board, shape) < 0
            board.closed[row] = False
        elif without == 0:
            freed[at] = True
            moved += count
            note_received(board, row, targets, received)
    return freed


@compiled
def note_received(board: Board, row: int, targets: Integers, received: Booleans) -> None:
    """Mark the nodes that took the pods of a freed one."""
    for index in range(board.first[row], board.first[row + 1]):
        if targets[board.pods[index]] >= 0:
            received[targets[board.pods[index]]] = True


def _freed(columns: RemovalColumns, board: Board, row: int, targets: Integers) -> Freed:
    pods = board.pods[board.first[row] : board.first[row + 1]]
    name = columns.names[row]
    moves = tuple(Move(columns.keys[pod], name, columns.names[targets[pod]]) for pod in pods if targets[pod] >= 0)
    cpu, memory = int(columns.capacity[row, CPU_COLUMN]), int(columns.capacity[row, MEMORY_COLUMN])
    gangs: dict[int, list[str]] = {}
    for pod in pods:
        if targets[pod] >= 0 and columns.whole_of[pod] >= 0:
            gangs.setdefault(int(columns.whole_of[pod]), []).append(columns.keys[pod])
    return Freed(name, moves, cpu, memory, tuple(tuple(gang) for gang in gangs.values()))


def _emptying(columns: RemovalColumns, rules: MoveRules, candidates: Booleans) -> list[tuple[int, Emptying]]:
    """Return the nodes with pods that all end soon, nine times in ten."""
    last = np.zeros((2, columns.nodes))
    present = columns.stays != Stay.GOES
    np.maximum.at(last[0], columns.row_of[present], columns.p50[present])
    np.maximum.at(last[1], columns.row_of[present], columns.p90[present])
    rows = np.flatnonzero(candidates & (last[1] <= rules.empties_within_seconds))
    return [(int(row), Emptying(columns.names[row], float(last[0, row]), float(last[1, row]))) for row in rows]


def _kept(columns: RemovalColumns, rows: Integers) -> list[Left]:
    staying = np.flatnonzero(columns.stays > Stay.GOES)
    first: dict[int, int] = {}
    for pod in staying[np.argsort(columns.stays[staying], kind="stable")]:
        first.setdefault(int(columns.row_of[pod]), int(pod))
    found = [(columns.names[row], first[int(row)]) for row in rows]
    return [Left(columns.keys[pod], name, WORDS[Stay(int(columns.stays[pod]))]) for name, pod in found]


def _fewest(columns: RemovalColumns, present: Booleans) -> int:
    """Return a lower bound of nodes in use, by the volume of each resource on the largest nodes."""
    if not present.any():
        return 0
    most = 1
    for column in range(len(columns.resources)):
        wanted = float(columns.takes[columns.shape_of[present], column].sum())
        held = np.cumsum(-np.sort(-columns.capacity[:, column]), dtype=np.float64) * (1 + 1e-12)
        if wanted > 0:
            most = max(most, int(np.searchsorted(held, wanted)) + 1)
    return min(most, sum(bool(name) for name in columns.names))
