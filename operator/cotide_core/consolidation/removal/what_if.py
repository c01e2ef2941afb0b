"""The effect of removing some nodes: which pods move where, which wait and why, and what breaks.

Called by `cotide whatif` and the tests; `node_by_node` answers for many nodes, each alone. Invariant: a question leaves
the columns unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.consolidation.removal.columns import EXTRA, RemovalColumns
from cotide_core.consolidation.removal.gangs import whole_or_none
from cotide_core.consolidation.removal.replacing import Board, board_of, each_alone, replace_pods
from cotide_core.consolidation.removal.stays import WORDS, Stay
from cotide_core.kernels.array_types import Booleans, Integers

BESIDE: Final = (
    "Insufficient physical cpu",
    "Insufficient physical memory",
    "Insufficient forecast cpu",
    "Insufficient forecast memory",
    "node(s) run a service that bears no further pod",
)
"""What a node lacks in each of the `EXTRA` columns."""


@dataclass(frozen=True, slots=True)
class Move:
    """A pod and its new node."""

    pod: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Left:
    """A pod that would be left without a node or must not be moved, and the reason."""

    pod: str
    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a removal.

    Attributes
    ----------
    moves : pods that find a node. waits : pods that find none.
    against : pods that the removal would disturb against a statement about them; they are in moves or waits, too.
    """

    moves: tuple[Move, ...]
    waits: tuple[Left, ...]
    against: tuple[Left, ...]


def without(columns: RemovalColumns, rows: Integers) -> Answer:
    """Answer for some nodes that go together."""
    board = board_of(columns)
    targets = np.full(len(columns.keys), -2, np.int64)
    replace_pods(board, rows, targets, all_or_none=False)
    torn = set(whole_or_none(columns.gang_of, columns.gang_spare, np.zeros_like(targets), targets).tolist())
    moves, waits, against = [], [], []
    gone = np.zeros(columns.nodes, np.bool_)
    gone[rows] = True
    for pod in np.flatnonzero(gone[columns.row_of]):
        key, source = columns.keys[pod], columns.names[columns.row_of[pod]]
        if targets[pod] >= 0:
            moves.append(Move(key, source, columns.names[targets[pod]]))
        elif pod in torn:
            waits.append(Left(key, source, "others of its gang find no node, and it starts with them or not at all"))
        elif targets[pod] == -1:
            waits.append(Left(key, source, why_not(columns, board, int(columns.shape_of[pod]))))
        stay = Stay(int(columns.stays[pod]))
        if stay in (Stay.DO_NOT_DISRUPT, Stay.BUDGET, Stay.NO_CONTROLLER, Stay.LOCAL_STORAGE, Stay.TIED, Stay.GANG):
            against.append(Left(key, source, WORDS[stay]))
    return Answer(tuple(moves), tuple(waits), tuple(against))


def node_by_node(columns: RemovalColumns, rows: Integers) -> tuple[Integers, Integers]:
    """For each node alone: returns how many pods would have no node, and each pod's target (see `replacing`).

    Of a gang that would fall below its minimum all pods of that node count, or none; those elsewhere do not.
    """
    board = board_of(columns)
    targets = np.full(len(columns.keys), -2, np.int64)
    missing = np.zeros(len(rows), np.int64)
    each_alone(board, rows, targets, missing)
    torn = whole_or_none(columns.gang_of, columns.gang_spare, columns.row_of, targets)
    missing += np.bincount(columns.row_of[torn], minlength=columns.nodes)[rows]
    return missing, targets


def why_not(columns: RemovalColumns, board: Board, shape: int) -> str:
    """Return why no node takes a pod of a shape, in kube-scheduler's words where it has them."""
    counts: dict[str, int] = {}
    alive = np.array([bool(name) for name in columns.names], np.bool_)
    left = alive.copy()
    for words, refused in _refusals(columns, board, shape):
        count = int(np.count_nonzero(left & refused))
        if count:
            counts[words] = counts.get(words, 0) + count
            left &= ~refused
    parts = ", ".join(
        f"{count} {words}" for words, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )
    return f"0/{np.count_nonzero(alive)} nodes are available: {parts}."


def _refusals(columns: RemovalColumns, board: Board, shape: int) -> Iterator[tuple[str, Booleans]]:
    """Yield each reason and its rows; of several reasons the first one counts."""
    yield "node(s) are removed", board.closed
    yield "node(s) didn't match the pod's constraints or a latency limit", ~board.allowed[shape]
    names: Sequence[str] = columns.resources
    for column in np.flatnonzero(columns.wants[shape]).tolist():
        short = board.free[column] - board.reserve[column] < columns.wants[shape, column]
        if column < len(names):
            yield "Too many pods" if names[column] == "pods" else f"Insufficient {names[column]}", short
        elif column < len(names) + EXTRA:
            yield BESIDE[column - len(names)], short
        else:
            yield "node(s) didn't have free ports for the requested pod ports", short
    yield "node(s) run another online service, and one of the two is exclusive", np.ones(columns.nodes, np.bool_)
