"""The best few of many rows, in one pass over their scores.

Called by `placement.placer` for each attempt under a rank that draws its scores, where the order of the attempt before
gives no help. Called by `placement.top_rows` for a fresh list. After numpy's partition the ties must be separated. That
took seven times as long as this for 2,000 drawn scores, and a hundred times for 50,000 equal nodes.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.array_types import Booleans, Floats, Integers
from cotide_core.kernels.compiled import compiled


@compiled
def best_rows(scores: Floats, among: Booleans, order: Integers, count: int) -> Integers:
    """Return the at most ``count`` rows with the highest scores, best first, equal ones in the given order.

    Parameters
    ----------
    scores : (N,) no NaN.
    among : (N,) rows that may be returned.
    order : (N,) every row once.
    count : at least 1.
    """
    rows = np.empty(count, np.int64)
    found = 0
    for row in order:
        if not among[row]:
            continue
        score = scores[row]
        if found == count and score <= scores[rows[count - 1]]:
            continue
        slot = found if found < count else count - 1
        while slot > 0 and scores[rows[slot - 1]] < score:
            rows[slot] = rows[slot - 1]
            slot -= 1
        rows[slot] = row
        found = min(found + 1, count)
    return rows[:found]
