"""Answers of a latency forecaster that came before their question: summed up by pair, and stored when the question
comes.

Called by `qos.prefetched_answers` and `qos.qos_guard`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.guard_answers import worst_mix, write_answer

ROW: Final = 0
VERSION: Final = 1
WORST: Final = 2
BASIS: Final = 3
"""Columns of the marks of an answer. They are the row, its version at the question, the number of the Workload that is
most at risk, and the basis of the answer (see `qos.applicability`).
"""
FETCHED_MARKS: Final = 4


@compiled
def worst_of_mixes(
    rows: Integers, starts: Integers, each: Floats, numbers: Integers, bases: Integers, versions: Integers
) -> tuple[Floats, Integers]:
    """Return for (P,) pairs the (P,) highest probability among their mixes, and (P, 4) the marks of that answer.

    Parameters
    ----------
    starts : (P,) first mix of each pair.
    each, numbers, bases : (n,) probability of each mix, the Workload that it is about, and the basis of the answer.
    versions : (N,) of all rows.
    """
    pairs = rows.shape[0]
    highest = np.empty(pairs)
    marks = np.empty((pairs, FETCHED_MARKS), np.int64)
    for pair in range(pairs):
        worst = worst_mix(starts, each, pair)
        highest[pair] = each[worst]
        marks[pair, ROW] = rows[pair]
        marks[pair, VERSION] = versions[rows[pair]]
        marks[pair, WORST] = numbers[worst]
        marks[pair, BASIS] = bases[worst]
    return highest, marks


@compiled
def write_fetched(
    index: int,
    rows: Integers,
    first: int,
    end: int,
    highest: Floats,
    fetched: Integers,
    threshold: float,
    shapes: Integers,
    marks: Integers,
    probabilities: Floats,
    least: Integers,
    least_probabilities: Floats,
    versions: Integers,
    reliefs: Integers,
) -> bool:
    """Store the answers about a shape on some rows, as `guard_answers.take_answers` would; False, and nothing stored,
    unless each row has a current answer.

    It takes many arguments, because numba unpacks thirteen arrays in 2.2 us and one tuple of them in 4.7 us. Each
    attempt calls this.

    Parameters
    ----------
    index : of the shape in the guard's tables.
    rows : (K,)
    first, end : where the answers about the shape are among the fetched ones.
    highest, fetched : (P,) and (P, 4) the results of `worst_of_mixes`.
    """
    found = np.empty(rows.shape[0], np.int64)
    for question in range(rows.shape[0]):
        row = rows[question]
        at = first
        while at < end and (fetched[at, ROW] != row or fetched[at, VERSION] != versions[row]):
            at += 1
        if at == end:
            return False
        found[question] = at
    for question in range(rows.shape[0]):
        at = found[question]
        write_answer(
            index,
            rows[question],
            highest[at],
            fetched[at, WORST],
            fetched[at, BASIS],
            threshold,
            shapes,
            marks,
            probabilities,
            least,
            least_probabilities,
            versions,
            reliefs,
        )
    return True
