"""Answers of a latency forecaster that came before their question: summed up by pair, and found again.

Called by `qos.prefetched_answers` and `qos.qos_guard`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.compiled import compiled

ROW: Final = 0
VERSION: Final = 1
WORST: Final = 2
BASIS: Final = 3
"""Columns of the marks of an answer: the row, its version when it was asked about, the number of the Workload that is
most at risk, and what the answer about it rests on (see `qos.applicability`)."""
FETCHED_MARKS: Final = 4


@compiled
def worst_of_mixes(
    rows: Integers, starts: Integers, each: Floats, numbers: Integers, bases: Integers, versions: Integers
) -> tuple[Floats, Integers]:
    """Return of (P,) pairs the (P,) highest probability among their mixes, and (P, 4) the marks of that answer.

    Parameters
    ----------
    starts : (P,) first mix of each pair.
    each, numbers, bases : (n,) probability of each mix, the Workload that it is about, and what the answer rests on.
    versions : (N,) of all rows.
    """
    pairs = rows.shape[0]
    highest = np.empty(pairs)
    marks = np.empty((pairs, FETCHED_MARKS), np.int64)
    for pair in range(pairs):
        end = starts[pair + 1] if pair + 1 < pairs else each.shape[0]
        worst = starts[pair]
        for mix in range(worst + 1, end):
            if each[mix] > each[worst]:
                worst = mix
        highest[pair] = each[worst]
        marks[pair, ROW] = rows[pair]
        marks[pair, VERSION] = versions[rows[pair]]
        marks[pair, WORST] = numbers[worst]
        marks[pair, BASIS] = bases[worst]
    return highest, marks


@compiled
def find_fetched(rows: Integers, first: int, end: int, marks: Integers, versions: Integers) -> Integers:
    """Return (K,) where the answers about rows as they are now stand, between two indices; -1 first if one is missing.

    Parameters
    ----------
    rows : (K,) at least one.
    """
    found = np.empty(rows.shape[0], np.int64)
    for index in range(rows.shape[0]):
        row = rows[index]
        at = first
        while at < end and (marks[at, ROW] != row or marks[at, VERSION] != versions[row]):
            at += 1
        if at == end:
            found[0] = -1
            return found
        found[index] = at
    return found
