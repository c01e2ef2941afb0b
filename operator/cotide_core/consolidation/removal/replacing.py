"""`replace_pods`: the compiled step of every question: where would the pods of these nodes go?

Called by `what_if` and `drain_plan`. Best fit: the node that is fullest afterwards, by the larger of its cpu and memory
shares; of equal ones the lowest row. Pods come largest first, as in KMNS.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from cotide_core.consolidation.removal.columns import RemovalColumns
from cotide_core.consolidation.removal.stays import Stay
from cotide_core.kernels.array_types import Booleans, Floats, Integers
from cotide_core.kernels.compiled import compiled
from cotide_core.state.node_columns import CPU_COLUMN, MEMORY_COLUMN

WAITS: Final = -1
"""Target of a pod that finds no node."""
UNTOUCHED: Final = -2
"""Target of a pod that needs none."""
MOVABLE: Final = int(Stay.NONE)


class Board(NamedTuple):
    """What the kernel reads and writes; `free`, `services` and `closed` are written.

    Attributes
    ----------
    free : (K, N), transposed, since one column of all nodes is read at a time.
    takes, wants, allowed, shape_of, stays, services, exclusive, service_of : as in `RemovalColumns`.
    closed : (N,) nodes that take nothing. reserve : (K, N) what must stay free on a node that takes something.
    per_cpu, per_memory : (N,) 1 / the node's amount.
    first, pods : pods by node: those of row n are ``pods[first[n]:first[n + 1]]``, largest first.
    columns_first, columns_of : columns that a shape wants, laid out in the same way.
    """

    free: Integers
    takes: Integers
    wants: Integers
    allowed: Booleans
    shape_of: Integers
    stays: Integers
    services: Integers
    exclusive: Booleans
    service_of: Integers
    closed: Booleans
    reserve: Integers
    per_cpu: Floats
    per_memory: Floats
    first: Integers
    pods: Integers
    columns_first: Integers
    columns_of: Integers


def board_of(columns: RemovalColumns, reserve_share: float = 0.0) -> Board:
    """Lay the columns out for the kernel; rows without a node are closed."""
    resources = len(columns.resources)
    reserve = np.zeros(columns.free.T.shape, np.int64)
    if reserve_share:
        # Only of cpu and memory: of pods or devices, of which a node has few, a share would be a whole one.
        for column in (CPU_COLUMN, MEMORY_COLUMN):
            reserve[column] = np.ceil(columns.capacity[:, column] * reserve_share)
    physical = np.maximum(columns.capacity[:, [CPU_COLUMN, MEMORY_COLUMN]], 1)
    size = (columns.takes[:, :resources] / columns.capacity[:, :resources].max(axis=0, initial=1)).max(
        axis=1, initial=0.0
    )
    of_pod = size[columns.shape_of] if len(columns.shape_of) else np.zeros(0)
    pods = np.lexsort((np.arange(len(of_pod)), -of_pod, columns.row_of))
    first = np.searchsorted(columns.row_of[pods], np.arange(columns.nodes + 1))
    wanted = [np.flatnonzero(row) for row in columns.wants]
    columns_first = np.concatenate([[0], np.cumsum([len(row) for row in wanted])]).astype(np.int64)
    return Board(
        free=np.array(columns.free.T, order="C"),
        takes=columns.takes,
        wants=columns.wants,
        allowed=columns.allowed,
        shape_of=columns.shape_of,
        stays=columns.stays,
        services=columns.services.copy(),
        exclusive=columns.exclusive,
        service_of=columns.service_of,
        closed=np.array([not name for name in columns.names], np.bool_),
        reserve=reserve,
        per_cpu=1.0 / physical[:, 0],
        per_memory=1.0 / physical[:, 1],
        first=first.astype(np.int64),
        pods=pods.astype(np.int64),
        columns_first=columns_first,
        columns_of=np.concatenate([*wanted, np.zeros(0, np.int64)]).astype(np.int64),
    )


@compiled
def fits_on(board: Board, shape: int, node: int) -> bool:
    """Whether a node takes one more pod of a shape, closed or not."""
    if not board.allowed[shape, node]:
        return False
    for at in range(board.columns_first[shape], board.columns_first[shape + 1]):
        column = board.columns_of[at]
        if board.free[column, node] - board.reserve[column, node] < board.wants[shape, column]:
            return False
    own = board.service_of[shape]
    if own >= 0:
        for service in range(board.exclusive.shape[0]):
            others = service != own and board.services[node, service] > 0
            if others and (board.exclusive[service] or board.exclusive[own]):
                return False
    return True


@compiled
def best_node(board: Board, shape: int) -> int:
    """Return the open node with room that is fullest with one more pod of a shape; -1 if there is none."""
    best, best_left = -1, 2.0
    cpu, memory = board.takes[shape, CPU_COLUMN], board.takes[shape, MEMORY_COLUMN]
    free_cpu, free_memory = board.free[CPU_COLUMN], board.free[MEMORY_COLUMN]
    for node in range(board.closed.shape[0]):
        if board.closed[node] or not board.allowed[shape, node]:
            continue
        # For a resource that is not requested, an overfull node lacks nothing.
        left_cpu = free_cpu[node] - cpu
        left_memory = free_memory[node] - memory
        if (left_cpu < 0 and cpu > 0) or (left_memory < 0 and memory > 0):
            continue
        left = min(left_cpu * board.per_cpu[node], left_memory * board.per_memory[node])
        if left < best_left and fits_on(board, shape, node):
            best, best_left = node, left
    return best


@compiled
def put(board: Board, shape: int, node: int, sign: int) -> None:
    """Put a pod of a shape on a node, or take it off with sign -1."""
    for column in range(board.takes.shape[1]):
        board.free[column, node] -= sign * board.takes[shape, column]
    if board.service_of[shape] >= 0:
        board.services[node, board.service_of[shape]] += sign


@compiled
def replace_pods(board: Board, rows: Integers, targets: Integers, all_or_none: bool) -> int:
    """Close some nodes and find their pods a node each; writes the targets of those pods.

    With `all_or_none` it stops at the first pod that stays or finds no node, and undoes everything. Otherwise pods that
    stay (`Stay`) are placed as well, since a node can vanish with them. Returns how many pods have no node. With
    `all_or_none` it returns the number of the first such pod plus 1, or 0 for none.
    """
    for row in rows:
        board.closed[row] = True
    missing = 0
    for row in rows:
        for at in range(board.first[row], board.first[row + 1]):
            pod = board.pods[at]
            targets[pod] = UNTOUCHED
            if board.stays[pod] == 1:
                continue
            stays = all_or_none and board.stays[pod] != MOVABLE
            node = -1 if stays else best_node(board, board.shape_of[pod])
            targets[pod] = node
            if node >= 0:
                put(board, board.shape_of[pod], node, 1)
            else:
                missing += 1
                if all_or_none:
                    take_back(board, rows, targets)
                    return int(pod) + 1
    return missing


@compiled
def take_back(board: Board, rows: Integers, targets: Integers) -> None:
    """Undo `replace_pods` for the same nodes; their pods get the target of pods outside the question."""
    for row in rows:
        board.closed[row] = False
        for at in range(board.first[row], board.first[row + 1]):
            pod = board.pods[at]
            if targets[pod] >= 0:
                put(board, board.shape_of[pod], targets[pod], -1)
            targets[pod] = UNTOUCHED


@compiled
def each_alone(board: Board, rows: Integers, targets: Integers, missing: Integers) -> None:
    """For each node alone: the result of removing it. Writes the pods' targets and, for each node, those without a
    node.
    """
    alone = np.zeros(1, np.int64)
    kept = np.empty_like(targets)
    for at in range(rows.shape[0]):
        alone[0] = rows[at]
        missing[at] = replace_pods(board, alone, targets, False)
        for index in range(board.first[rows[at]], board.first[rows[at] + 1]):
            kept[board.pods[index]] = targets[board.pods[index]]
        take_back(board, alone, targets)
    for row in rows:
        for index in range(board.first[row], board.first[row + 1]):
            targets[board.pods[index]] = kept[board.pods[index]]
