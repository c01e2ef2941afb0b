"""The tables in which the latency guard keeps what forecasters said, by shape and row.

Owned by `guard.QosGuard`; read and written by the kernels of `guard_answers`. A shape has an index in the tables;
indices of shapes that were not used for longest are given to others. Beside the answers stand, for each job type and
row, the smallest job that was refused there. A forecast never falls in counts, input bytes or pressure, so what was
refused to it is refused to any job of its type with at least its size and cpu, for as long as nothing on the row got
better. Invariant: what is remembered of a shape is of its present promise and expected rate.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.guard_answers import (
    JOB,
    LEAST_CPU,
    LEAST_RELIEF,
    LEAST_SIZE,
    MARKS,
    PROMISED,
    SHAPE_COLUMNS,
    UNPROMISED,
)
from cotide_core.state.node_columns import UNMEASURED_RATE
from cotide_core.state.shapes import Shape
from cotide_core.state.snapshot import Snapshot

SHAPES_REMEMBERED: Final = 256
"""Shapes whose answers are kept, the latest used (chosen: 40 bytes a node each, 51 MB at 5,000 nodes)."""
FIRST_SHAPES: Final = 16
"""Places in new tables (chosen; they double up to `SHAPES_REMEMBERED`)."""
NEVER: Final = -1


class AnswerTables:
    """Answers and smallest refusals.

    Attributes
    ----------
    shapes, arriving : (S, 5) and (S, 2) what a question needs of the shape at each index; see `guard_answers` and
        `mix_rows`.
    marks, probabilities : (S, 5, N) and (S, N) the answers.
    least, least_probabilities : (T, 5, N) and (T, N) the smallest refusals.
    """

    def __init__(self) -> None:
        self.shapes: Integers = np.zeros((FIRST_SHAPES, SHAPE_COLUMNS), np.int64)
        self.arriving: Floats = np.zeros((FIRST_SHAPES, 2))
        self.marks: Integers = np.zeros((FIRST_SHAPES, MARKS, 0), np.int64)
        self.probabilities: Floats = np.zeros((FIRST_SHAPES, 0))
        self.least: Integers = np.zeros((0, MARKS, 0), np.int64)
        self.least_probabilities: Floats = np.zeros((0, 0))
        self._indices: dict[Shape, int] = {}

    def index_of(self, snapshot: Snapshot, shape: Shape) -> int:
        """Return the index of a shape, which is now the latest used."""
        indices = self._indices
        index = indices.pop(shape, NEVER)
        if index == NEVER:
            index = self._take_index(snapshot)
            self._describe(snapshot, shape, index)
            self._clear(index)
        elif shape.online and self._describe(snapshot, shape, index):
            self._clear(index)
        indices[shape] = index
        return index

    def known_index(self, shape: Shape) -> int:
        """Return the index of a shape that has one."""
        return self._indices[shape]

    def fit(self, snapshot: Snapshot) -> None:
        """Make room for the rows and job types of a snapshot."""
        rows, types = self.marks.shape[2], len(self.least)
        if snapshot.size <= rows and len(snapshot.types) <= types:
            return
        rows, types = max(rows, snapshot.columns.capacity), max(types, len(snapshot.types))
        self.marks = _widened(self.marks, (len(self.marks), MARKS, rows), NEVER)
        self.probabilities = _widened(self.probabilities, (len(self.marks), rows), 0.0)
        self.least = _widened(self.least, (types, MARKS, rows), NEVER)
        self.least_probabilities = _widened(self.least_probabilities, (types, rows), 0.0)

    def covers(self, snapshot: Snapshot, shape: Shape, row: int) -> bool:
        """Return whether a refusal that still stands implies that a job's shape is refused on a row."""
        self.fit(snapshot)
        least, column = self.least, shape.type_column
        return bool(
            least.item(column, LEAST_RELIEF, row) == snapshot.relief_versions.item(row)
            and least.item(column, LEAST_SIZE, row) <= shape.input_bytes
            and least.item(column, LEAST_CPU, row) <= shape.fit.millicores
        )

    def _take_index(self, snapshot: Snapshot) -> int:
        self.fit(snapshot)
        used = len(self._indices)
        if used >= SHAPES_REMEMBERED:
            return self._indices.pop(next(iter(self._indices)))
        if used == len(self.shapes):
            indices = min(2 * used, SHAPES_REMEMBERED)
            self.shapes = _widened(self.shapes, (indices, SHAPE_COLUMNS), 0)
            self.arriving = _widened(self.arriving, (indices, 2), 0.0)
            self.marks = _widened(self.marks, (indices, *self.marks.shape[1:]), NEVER)
            self.probabilities = _widened(self.probabilities, (indices, *self.probabilities.shape[1:]), 0.0)
        return used

    def _describe(self, snapshot: Snapshot, shape: Shape, index: int) -> bool:
        """Write down what questions need of a shape; returns whether what its pods bring changed."""
        fit = shape.fit
        promise = snapshot.state.workload(fit.service)
        number, limit, expected = NEVER, 0.0, snapshot.state.expected_rate(fit.service)
        rate = UNMEASURED_RATE if expected is None else expected
        if promise is not None:
            number, limit = snapshot.columns.workload_number(promise.key), promise.latency_p95_milliseconds
        kind = JOB if not shape.online else UNPROMISED if fit.service is None else PROMISED
        changed = (self.arriving.item(index, 0), self.arriving.item(index, 1)) != (rate, limit)
        self.shapes[index] = shape.type_column, shape.input_bytes, fit.millicores, kind, number
        self.arriving[index] = rate, limit
        return changed

    def _clear(self, index: int) -> None:
        self.marks[index] = NEVER
        self.probabilities[index] = 0.0


def _widened(table: NDArray[Any], shape: tuple[int, ...], value: float) -> NDArray[Any]:
    wider = np.full(shape, value, table.dtype)
    wider[tuple(slice(0, length) for length in table.shape)] = table
    return wider
