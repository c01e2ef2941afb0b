"""The live plan: which nodes can be freed, by which moves, within all rules and budgets.

Called by `cotide consolidate`. Nodes are tried cheapest first (fewest pods, then fewest bytes), each as a whole: only
when every pod of a node finds another is it freed. Nodes that took a moved pod are not freed, so that nobody moves
twice, and moves need no order among each other: every target has room as things are, and none is freed. Nodes that are
empty are free without a move, and take nothing. No more pods of a gang move than it can spare. Nodes that are being
drained come first: what is still on them will need room too, and room that is not kept for it would be given twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cotide_core.consolidation.instance import Booleans, Integers
from cotide_core.consolidation.removal.columns import RemovalColumns
from cotide_core.consolidation.removal.replacing import Board, best_node, board_of, replace_pods
from cotide_core.consolidation.removal.stays import WORDS, MoveRules, Stay
from cotide_core.consolidation.removal.what_if import Left, Move
from cotide_core.kernels.compiled import compiled
from cotide_core.state.node_columns import CPU_COLUMN, MEMORY_COLUMN


@dataclass(frozen=True, slots=True)
class Freed:
    """A node that can go, and what it takes."""

    node: str
    moves: tuple[Move, ...]
    millicores: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Emptying:
    """A node that will be empty by itself: cordon it and wait, the median and nine times in ten."""

    node: str
    p50_seconds: float
    p90_seconds: float


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """What to do, and what was left.

    Attributes
    ----------
    freed : in the order to go through. emptying : nodes better left to empty by themselves.
    kept : nodes with a pod that must stay, one such pod each.
    used_before, used_after : nodes with pods to place, now and when this plan, and what is begun, is carried out.
    fewest : no plan, whatever it moves, has fewer nodes in use (by volume of the requests).
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
        return sum(len(one.moves) for one in self.freed)


def drain_plan(
    columns: RemovalColumns, rules: MoveRules, excluded: Booleans | None = None, begun: Booleans | None = None
) -> DrainPlan:
    """Return the plan of further nodes.

    Parameters
    ----------
    excluded : (N,) nodes that are not to be freed (they may take pods).
    begun : (N,) nodes that are being drained. Their pods get room before all others; where one of them finds none, no
        node with pods is freed.
    """
    board = board_of(columns, rules.reserve_share)
    begun = np.zeros(columns.nodes, np.bool_) if begun is None else begun & ~board.closed
    alive = ~board.closed
    present = columns.stays != Stay.GOES
    loads = np.bincount(columns.row_of[present], minlength=columns.nodes)
    weights = np.bincount(columns.row_of[present], weights=columns.weight[present], minlength=columns.nodes)
    blocked = np.zeros(columns.nodes, np.bool_)
    blocked[columns.row_of[present & (columns.stays != Stay.NONE)]] = True
    used = alive & (loads > 0)
    excluded = begun if excluded is None else excluded | begun
    emptying = _emptying(columns, rules, used & ~excluded)
    on_their_own = np.isin(np.arange(columns.nodes), [row for row, _ in emptying])
    # What is empty, or will be, takes nothing.
    board.closed[alive & ((loads == 0) | on_their_own) & ~excluded] = True
    targets = np.full(len(columns.keys), -2, np.int64)
    # A pod that a budget holds now, since another of its service is on its way, goes all the same when that is ready.
    stuck = replace_pods(board, np.flatnonzero(begun), targets, False) > 0
    received = np.zeros(columns.nodes, np.bool_)
    received[targets[targets >= 0]] = True
    tried = np.flatnonzero(used & ~blocked & ~excluded & ~on_their_own & ~received)
    tried = np.zeros(0, np.int64) if stuck else tried[np.lexsort((tried, weights[tried], loads[tried]))]
    spare = GangSpare(columns.gang_of, np.maximum(columns.gang_spare, 0))
    freed_rows = free_in_turn(board, spare, tried, targets, rules.most_moves, rules.moves_per_node)
    empty = np.flatnonzero(alive & (loads == 0) & ~excluded)
    freed = [_freed(columns, board, int(row), targets) for row in (*empty, *tried[freed_rows])]
    return DrainPlan(
        tuple(freed),
        tuple(one for _, one in emptying),
        tuple(_kept(columns, np.flatnonzero(blocked & used & ~on_their_own))),
        int(np.count_nonzero(used)),
        int(np.count_nonzero(used if stuck else used & ~begun)) - int(np.count_nonzero(freed_rows)),
        _fewest(columns, present),
    )


class GangSpare(NamedTuple):
    """(P,) each pod's gang, -1 for none; (G,) how many of it may still move, written."""

    gang_of: Integers
    left: Integers


@compiled
def give_spare(board: Board, spare: GangSpare, row: int, sign: int) -> bool:
    """Give back what the gangs of a node's pods can spare, or take it with sign -1; whether none has less than none."""
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
    """Take what the pods of a node need of what their gangs can spare; nothing where one of these can't."""
    if give_spare(board, spare, row, -1):
        return True
    give_spare(board, spare, row, 1)
    return False


@compiled
def free_in_turn(
    board: Board, spare: GangSpare, rows: Integers, targets: Integers, most_moves: int, moves_per_node: int
) -> Booleans:
    """Free one node after the other while all its pods find another; returns which of the rows were freed.

    Room only becomes less as the plan grows. So a shape that finds no node when one node asks and none when another
    does (each time all but the asking node were looked at) never will again; nodes with such a pod are passed over.
    """
    hopeless = np.zeros(board.takes.shape[0], np.int64)
    freed = np.zeros(rows.shape[0], np.bool_)
    received = np.zeros(board.closed.shape[0], np.bool_)
    one = np.zeros(1, np.int64)
    moved = 0
    for at in range(rows.shape[0]):
        row = rows[at]
        count, stuck = 0, False
        for index in range(board.first[row], board.first[row + 1]):
            if board.stays[board.pods[index]] == 0:
                count += 1
                stuck = stuck or hopeless[board.shape_of[board.pods[index]]] > 1
        if stuck or received[row] or count > moves_per_node or moved + count > most_moves:
            continue
        if not take_spare(board, spare, row):
            continue
        one[0] = row
        without = replace_pods(board, one, targets, True)
        if without:
            # It may have been another pod of its own node that took the last room: ask for it alone.
            shape = board.shape_of[without - 1]
            board.closed[row] = True
            hopeless[shape] += best_node(board, shape) < 0
            board.closed[row] = False
            give_spare(board, spare, row, 1)
        else:
            freed[at] = True
            moved += count
            for index in range(board.first[row], board.first[row + 1]):
                if targets[board.pods[index]] >= 0:
                    received[targets[board.pods[index]]] = True
    return freed


def _freed(columns: RemovalColumns, board: Board, row: int, targets: Integers) -> Freed:
    pods = board.pods[board.first[row] : board.first[row + 1]]
    name = columns.names[row]
    moves = tuple(Move(columns.keys[pod], name, columns.names[targets[pod]]) for pod in pods if targets[pod] >= 0)
    return Freed(name, moves, int(columns.capacity[row, CPU_COLUMN]), int(columns.capacity[row, MEMORY_COLUMN]))


def _emptying(columns: RemovalColumns, rules: MoveRules, candidates: Booleans) -> list[tuple[int, Emptying]]:
    """Return the nodes whose pods all end soon, nine times in ten."""
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
