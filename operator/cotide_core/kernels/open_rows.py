"""Finds the nodes with enough slack for a pod, and counts the others that are short of it, in one pass over the rows.

Called by `reclaiming.forecast_slack` for each attempt of a batch or gratis pod. Some twenty passes of numpy would cost
more than the rest of the decision.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Booleans, Floats, Integers
from cotide_core.kernels.compiled import compiled

HELD: Final = 0
EXPECTED: Final = 1
BOTH: Final = 2
"""Values of the amount to subtract from a node's slack: what batch and gratis pods hold, what they are expected to
hold, or their sum.
"""

OPEN: Final = 0
CORDONED: Final = 1
SHORT: Final = 2
LATER: Final = 3
"""Rows of the tally: nodes that are open; cordoned; short of slack; and short only until the pod would have ended."""
COUNT: Final = 0
FIRST: Final = 1
"""Columns of the tally: how many, and the lowest such row."""


@compiled
def open_rows(
    fits: NDArray[np.int16],
    cordoned: Booleans,
    denied: Booleans,
    slack: Floats,
    soon: Floats,
    held: Integers,
    expected: Floats,
    reserved: Floats,
    taken: int,
    asked_cpu: float,
    asked_memory: float,
    enough: float,
) -> tuple[Booleans, Integers]:
    """Return (N,) whether each row is open to a pod, and the (4, 2) tally of the rows that fit.

    It takes many arguments, because numba unpacks thirteen arrays in 2.2 us and one tuple of them in 4.7 us. Each
    attempt calls this.

    Parameters
    ----------
    fits : (N,) 0 where the pod fits; other rows are not counted.
    cordoned, denied : (N,) rows that take no batch or gratis pod, and rows where others' claims leave no room.
    slack, soon : (2, N) millicores and bytes until the pod will have ended, and in the coming slot.
    held : (3, 2, >= N) what pods of each class hold, gratis and batch first.
    expected, reserved : (2, N) what these are expected to hold, read according to ``taken``; what is reserved.
    asked_cpu, asked_memory : millicores and bytes.
    enough : tolerated shortage, at most 0.
    """
    rows = fits.shape[0]
    is_open = np.zeros(rows, np.bool_)
    tally = np.zeros((4, 2), np.int64)
    for row in range(rows):
        if fits[row] != 0:
            continue
        if cordoned[row]:
            count_row(tally, CORDONED, row)
            continue
        cpu, memory = float(held[0, 0, row] + held[1, 0, row]), float(held[0, 1, row] + held[1, 1, row])
        if taken == EXPECTED:
            cpu, memory = expected[0, row], expected[1, row]
        elif taken == BOTH:
            cpu, memory = cpu + expected[0, row], memory + expected[1, row]
        cpu, memory = slack[0, row] - cpu, slack[1, row] - memory
        lasts = (
            not denied[row]
            and cpu - reserved[0, row] - asked_cpu >= enough
            and memory - reserved[1, row] - asked_memory >= enough
        )
        if lasts:
            is_open[row] = True
            count_row(tally, OPEN, row)
            continue
        more_cpu, more_memory = soon[0, row] - slack[0, row], soon[1, row] - slack[1, row]
        later = (
            (more_cpu > 0.0 or more_memory > 0.0)
            and cpu + more_cpu - asked_cpu >= enough
            and memory + more_memory - asked_memory >= enough
        )
        count_row(tally, LATER if later else SHORT, row)
    return is_open, tally


@compiled
def count_row(tally: Integers, kind: int, row: int) -> None:
    """Count one row."""
    if tally[kind, COUNT] == 0:
        tally[kind, FIRST] = row
    tally[kind, COUNT] += 1


@compiled
def rows_with_slack(
    rows: Integers,
    services: Integers,
    slack: Floats,
    held: Integers,
    asked_cpu: float,
    asked_memory: float,
    enough: float,
) -> Integers:
    """Return the rows, in their order, that carry a service and have enough slack after subtracting what is held."""
    found = np.empty(rows.shape[0], np.int64)
    count = 0
    for row in rows:
        if services[row] == 0:
            continue
        cpu, memory = held[0, 0, row] + held[1, 0, row], held[0, 1, row] + held[1, 1, row]
        if slack[0, row] - cpu - asked_cpu >= enough and slack[1, row] - memory - asked_memory >= enough:
            found[count] = row
            count += 1
    return found[:count]
