"""The latency guard's memory, on arrays: the pairs of a shape and a row to ask about, and the answers.

Called by `qos_guard` for each attempt. An attempt has a handful of rows, and numpy would spend its time on calls.
Invariant: pairs are processed in order. So a pair sees the results of those before it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.compiled import compiled

TYPE: Final = 0
SIZE: Final = 1
CPU: Final = 2
KIND: Final = 3
PROMISE: Final = 4
HORIZON: Final = 5
"""Columns of the table of shapes: column of the job type, input bytes, millicores, one of the kinds below. Then the
number of the Workload that gives an arriving pod its promise (-1 for none). Last the horizon of forecast rates that
judges it, counted from 1 (0 for the present rates).
"""
SHAPE_COLUMNS: Final = 6

JOB: Final = 0
PROMISED: Final = 1
UNPROMISED: Final = 2
"""Kinds of shapes: batch or gratis; online with a promise, and without."""

VERSION: Final = 0
RELIEF: Final = 1
REFUSED: Final = 2
WORST: Final = 3
BASIS: Final = 4
"""Of an answer: the row's version and relief version at that time (0 for never). Then the same relief version for a
refusal (otherwise 0). The last two are the number of the Workload that is most at risk, and the basis of the answer
about it (see `applicability`).
"""
LEAST_SIZE: Final = 0
LEAST_CPU: Final = 1
LEAST_RELIEF: Final = 2
LEAST_WORST: Final = 3
LEAST_BASIS: Final = 4
LEAST_HORIZON: Final = 5
"""Of the smallest refused job of a type: input bytes, millicores and relief version (0 for never). Then the Workload at
risk, the basis of the answer, and its horizon. Rates never fall from a horizon to a longer one.
"""
MARKS: Final = 5
LEAST_MARKS: Final = 6


@compiled
def copy_dominated_refusal(
    index: int,
    row: int,
    shapes: Integers,
    marks: Integers,
    probabilities: Floats,
    least: Integers,
    least_probabilities: Floats,
    reliefs: Integers,
) -> bool:
    """Copy a smaller job's refusal to a shape that has not seen it, if the row has one. Returns whether it did.

    The refusal is about an earlier version of the row, hence its version 0.
    """
    column, relief = shapes[index, TYPE], reliefs[row]
    stands: bool = (
        least[column, row, LEAST_RELIEF] == relief
        and least[column, row, LEAST_SIZE] <= shapes[index, SIZE]
        and least[column, row, LEAST_CPU] <= shapes[index, CPU]
        and least[column, row, LEAST_HORIZON] <= shapes[index, HORIZON]
        and marks[index, row, RELIEF] != relief
    )
    if stands:
        probabilities[index, row] = least_probabilities[column, row]
        marks[index, row, VERSION] = 0
        marks[index, row, RELIEF] = marks[index, row, REFUSED] = relief
        marks[index, row, WORST] = least[column, row, LEAST_WORST]
        marks[index, row, BASIS] = least[column, row, LEAST_BASIS]
    return stands


@compiled
def cache_misses(
    indices: Integers,
    ends: Integers,
    rows: Integers,
    shapes: Integers,
    marks: Integers,
    probabilities: Floats,
    least: Integers,
    least_probabilities: Floats,
    versions: Integers,
    reliefs: Integers,
    services: Integers,
    type_counts: Integers,
) -> Integers:
    """Return (2, n) the questions and rows that need a forecast. The other pairs are answered at once.

    It takes many arguments, because numba unpacks thirteen arrays in 2.2 us and one tuple of them in 4.7 us. Each
    attempt calls this.

    Parameters
    ----------
    indices : (Q,) index of each question's shape in the tables.
    ends : (Q,) where its rows end among ``rows``.
    shapes : (S, 6)
    marks, probabilities : (S, N, 5) and (S, N) answers.
    least, least_probabilities : (T, N, 6) and (T, N) the smallest refused job of each type.
    versions, reliefs, services : (N,) of the rows.
    type_counts : (T, N)
    """
    asked = np.empty((2, rows.shape[0]), np.int64)
    count = 0
    first = 0
    for question in range(indices.shape[0]):
        index = indices[question]
        kind = shapes[index, KIND]
        for at in range(first, ends[question]):
            row = rows[at]
            if marks[index, row, VERSION] == versions[row] or marks[index, row, REFUSED] == reliefs[row]:
                continue
            if kind == JOB:
                if copy_dominated_refusal(
                    index, row, shapes, marks, probabilities, least, least_probabilities, reliefs
                ):
                    continue
                needed = services[row] > 0
            else:
                needed = kind == PROMISED and services[row] > 0
                if kind == PROMISED and not needed:
                    for other in range(type_counts.shape[0]):
                        needed = needed or type_counts[other, row] != 0
            if needed:
                asked[0, count] = question
                asked[1, count] = row
                count += 1
            else:
                probabilities[index, row] = 0.0
                marks[index, row, BASIS] = 0
                marks[index, row, VERSION] = versions[row]
                marks[index, row, RELIEF] = reliefs[row]
                marks[index, row, REFUSED] = 0
        first = ends[question]
    return asked[:, :count].copy()


@compiled
def write_answer(
    index: int,
    row: int,
    highest: float,
    worst: int,
    basis: int,
    threshold: float,
    shapes: Integers,
    marks: Integers,
    probabilities: Floats,
    least: Integers,
    least_probabilities: Floats,
    versions: Integers,
    reliefs: Integers,
) -> None:
    """Store the answer to one pair, and note a refusal of the smallest job of its type.

    It takes many arguments, because numba unpacks thirteen arrays in 2.2 us and one tuple of them in 4.7 us. Each
    attempt calls this.
    """
    relief = reliefs[row]
    probabilities[index, row] = highest
    marks[index, row, VERSION] = versions[row]
    marks[index, row, RELIEF] = relief
    marks[index, row, WORST] = worst
    marks[index, row, BASIS] = basis
    marks[index, row, REFUSED] = relief if highest > threshold else 0
    if highest > threshold and shapes[index, KIND] == JOB:
        column, size, cpu = shapes[index, TYPE], shapes[index, SIZE], shapes[index, CPU]
        horizon = shapes[index, HORIZON]
        if least[column, row, LEAST_RELIEF] != relief or (
            least[column, row, LEAST_SIZE] >= size
            and least[column, row, LEAST_CPU] >= cpu
            and least[column, row, LEAST_HORIZON] >= horizon
        ):
            least[column, row, LEAST_HORIZON] = horizon
            least[column, row, LEAST_SIZE] = size
            least[column, row, LEAST_CPU] = cpu
            least[column, row, LEAST_RELIEF] = relief
            least[column, row, LEAST_WORST] = worst
            least[column, row, LEAST_BASIS] = basis
            least_probabilities[column, row] = highest


@compiled
def worst_mix(starts: Integers, each: Floats, pair: int) -> int:
    """Return the mix of the highest probability among those of a pair, the first of equals."""
    end = starts[pair + 1] if pair + 1 < starts.shape[0] else each.shape[0]
    worst = int(starts[pair])
    for mix in range(worst + 1, end):
        if each[mix] > each[worst]:
            worst = mix
    return worst


@compiled
def take_answers(
    pair_shapes: Integers,
    rows: Integers,
    starts: Integers,
    each: Floats,
    numbers: Integers,
    bases: Integers,
    threshold: float,
    shapes: Integers,
    marks: Integers,
    probabilities: Floats,
    least: Integers,
    least_probabilities: Floats,
    versions: Integers,
    reliefs: Integers,
) -> Floats:
    """Store the answers to (P,) pairs and return them: for each pair the highest among its mixes.

    It takes many arguments, because numba unpacks thirteen arrays in 2.2 us and one tuple of them in 4.7 us. Each
    attempt calls this.

    Parameters
    ----------
    starts : (P,) first mix of each pair.
    each, numbers, bases : (n,) probability of each mix, the Workload that it is about, and the basis of the answer.
    """
    pairs = rows.shape[0]
    answers = np.empty(pairs)
    for pair in range(pairs):
        worst = worst_mix(starts, each, pair)
        answers[pair] = each[worst]
        write_answer(
            pair_shapes[pair],
            rows[pair],
            each[worst],
            numbers[worst],
            bases[worst],
            threshold,
            shapes,
            marks,
            probabilities,
            least,
            least_probabilities,
            versions,
            reliefs,
        )
    return answers


@compiled
def not_covered(
    index: int,
    rows: Integers,
    shapes: Integers,
    marks: Integers,
    probabilities: Floats,
    least: Integers,
    least_probabilities: Floats,
    reliefs: Integers,
) -> Integers:
    """Return the rows without a standing refusal of a smaller job; the other rows copy that refusal."""
    rest = np.empty(rows.shape[0], np.int64)
    count = 0
    for row in rows:
        if not copy_dominated_refusal(index, row, shapes, marks, probabilities, least, least_probabilities, reliefs):
            rest[count] = row
            count += 1
    return rest[:count].copy()


@compiled
def least_risky(probabilities: Floats, threshold: float, step: float) -> int:
    """Return the first index of the lowest accepted risk, in steps. With a step of 0 it returns the first accepted; -1
    if none is accepted.
    """
    best, lowest = -1, np.inf
    for index in range(probabilities.shape[0]):
        if probabilities[index] <= threshold:
            if step == 0.0:
                return index
            level = np.floor(probabilities[index] / step)
            if level < lowest:
                best, lowest = index, level
    return best


@compiled
def by_service(index: int, rows: Integers, marks: Integers, probabilities: Floats) -> tuple[Integers, Floats]:
    """Group refused rows by the Workload at risk.

    Returns (3, G) its number, the count of rows, the nearest; and (G,) the probability of the nearest. The nearest is
    the row with the lowest probability, the lowest such row. Groups come in order of appearance.
    """
    groups = np.empty((3, rows.shape[0]), np.int64)
    nearest = np.empty(rows.shape[0])
    count = 0
    for row in rows:
        number, probability = marks[index, row, WORST], probabilities[index, row]
        group = 0
        while group < count and groups[0, group] != number:
            group += 1
        if group == count:
            groups[0, group], groups[1, group], groups[2, group] = number, 0, row
            nearest[group] = probability
            count += 1
        groups[1, group] += 1
        if probability < nearest[group] or (probability == nearest[group] and row < groups[2, group]):
            nearest[group] = probability
            groups[2, group] = row
    return groups[:, :count].copy(), nearest[:count].copy()
