"""`not_freed`: why a plan leaves nodes in use, found for each once all of the plan's moves are made.

Called by `cotide consolidate`. Nodes with a pod that must stay are the plan's own `kept`. This module explains the
others. It names one pod of each that finds no node, in the words of `why_not` (room, a forecast, a latency limit), or
the bound that was met. Room only becomes less as a plan grows, so what is true at its end was true when it tried the
node. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

import numpy as np

from cotide_core.consolidation.removal.columns import RemovalColumns
from cotide_core.consolidation.removal.drain_plan import DrainPlan
from cotide_core.consolidation.removal.replacing import WAITS, Board, board_of, put, replace_pods, take_back
from cotide_core.consolidation.removal.stays import WORDS, MoveRules, Stay
from cotide_core.consolidation.removal.what_if import Left, why_not
from cotide_core.events import Node
from cotide_core.kernels.array_types import Booleans
from cotide_core.units import counted


def in_pools(node: Node, pools: Mapping[str, Collection[str]]) -> bool:
    """Return whether a node has one of the values of one of the labels."""
    labels = dict(node.labels)
    return any(labels.get(label) in values for label, values in pools.items())


def not_freed(
    columns: RemovalColumns,
    rules: MoveRules,
    plan: DrainPlan,
    excluded: Booleans,
    most: int,
    kept: Mapping[str, str] = MappingProxyType({}),
) -> tuple[tuple[Left, ...], int]:
    """Return a line for each node in use that is neither freed, left to empty nor kept, and the number of further ones.

    Parameters
    ----------
    columns, rules, excluded : the input of the plan.
    most : lines at most; nodes that the plan failed to free come first, of these the lightest, then those that take
    pods
        or are left out.
    kept : by name, why no program may take a node out of service.
    """
    present = columns.stays != Stay.GOES
    loads = np.bincount(columns.row_of[present], minlength=columns.nodes)
    explained = (
        {freed.node for freed in plan.freed}
        | {emptying.node for emptying in plan.emptying}
        | {left.node for left in plan.kept}
    )
    rows = [int(row) for row in np.flatnonzero(loads) if columns.names[row] and columns.names[row] not in explained]
    board, received = _after(columns, rules, plan)
    rows.sort(key=lambda row: (bool(excluded[row]) or columns.names[row] in received, loads[row], row))
    spare, moved = _gang_spare(columns, plan), plan.moves
    lines = []
    for row in rows[:most]:
        if excluded[row]:
            why, pod = kept.get(columns.names[row], "it is left out or cordoned"), ""
        elif columns.names[row] in received:
            why, pod = "it receives pods of freed nodes", ""
        else:
            pod, why = _asked(columns, rules, board, row) or _bound(columns, rules, row, spare, moved)
        lines.append(Left(pod, columns.names[row], why))
    return tuple(lines), len(rows) - len(lines)


def _after(columns: RemovalColumns, rules: MoveRules, plan: DrainPlan) -> tuple[Board, set[str]]:
    """Return the board with all moves made, and the nodes that took a pod."""
    board = board_of(columns, rules.reserve_share)
    rows = {name: row for row, name in enumerate(columns.names) if name}
    pods = {key: pod for pod, key in enumerate(columns.keys)}
    received = set()
    for step in plan.freed:
        board.closed[rows[step.node]] = True
        for move in step.moves:
            put(board, int(columns.shape_of[pods[move.pod]]), rows[move.target], 1)
            received.add(move.target)
    for emptying in plan.emptying:
        board.closed[rows[emptying.node]] = True
    return board, received


def _asked(columns: RemovalColumns, rules: MoveRules, board: Board, row: int) -> tuple[str, str] | None:
    """Return a pod of the node that finds no other, the largest of those, and the reason; None when all find one."""
    of_node = board.pods[board.first[row] : board.first[row + 1]]
    movable = int(np.count_nonzero(columns.stays[of_node] == Stay.NONE))
    if movable > rules.moves_per_node:
        return "", f"{counted(movable, 'pod')} would move, at most {rules.moves_per_node} may for one node"
    one, targets = np.array([row], np.int64), np.full(len(columns.keys), -2, np.int64)
    found = None
    if replace_pods(board, one, targets, False):
        pod = int(next(pod for pod in of_node if targets[pod] == WAITS))
        found = columns.keys[pod], why_not(columns, board, int(columns.shape_of[pod]))
    take_back(board, one, targets)
    return found


def _bound(columns: RemovalColumns, rules: MoveRules, row: int, spare: dict[int, int], moved: int) -> tuple[str, str]:
    """Return the bound that keeps a node although all its pods would find another."""
    wanted: dict[int, int] = {}
    for pod in np.flatnonzero((columns.row_of == row) & (columns.stays == Stay.NONE) & (columns.gang_of >= 0)):
        gang = int(columns.gang_of[pod])
        wanted[gang] = wanted.get(gang, 0) + 1
        if wanted[gang] > spare[gang]:
            return columns.keys[pod], WORDS[Stay.GANG]
    return "", f"the plan already moves {counted(moved, 'pod')}, at most {rules.most_moves} may"


def _gang_spare(columns: RemovalColumns, plan: DrainPlan) -> dict[int, int]:
    """Return how many more pods each gang can spare once the plan is carried out."""
    spare = {gang: max(int(left), 0) for gang, left in enumerate(columns.gang_spare)}
    gangs = dict(zip(columns.keys, columns.gang_of.tolist(), strict=True))
    for move in (move for step in plan.freed for move in step.moves):
        if gangs[move.pod] >= 0:
            spare[gangs[move.pod]] -= 1
    return spare
