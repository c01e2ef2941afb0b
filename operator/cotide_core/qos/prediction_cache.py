"""The tables of the latency guard's forecasts, by shape and row.

Owned by `guard.QosGuard`; read and written by the kernels of `guard_answers`. A shape has an index in the tables; the
least recently used indices go to other shapes. The tables also hold, for each job type and row, the smallest job that
was refused there. A forecast never falls in counts, input bytes or pressure. A refusal therefore applies to any job of
the type with at least that size and cpu, until something on the row improves. Invariant: the stored answers of a shape
belong to its present promise and expected rate.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.guard_answers import (
    JOB,
    LEAST_CPU,
    LEAST_HORIZON,
    LEAST_MARKS,
    LEAST_RELIEF,
    LEAST_SIZE,
    MARKS,
    PROMISED,
    SHAPE_COLUMNS,
    UNPROMISED,
)
from cotide_core.kernels.sparse_zeros import sparse_zeros
from cotide_core.state.node_columns import UNMEASURED_RATE, unmeasured
from cotide_core.state.shapes import Shape
from cotide_core.state.snapshot import Snapshot

SHAPES_REMEMBERED: Final = 256
"""Shapes with stored answers, the latest used (chosen: 48 bytes a node each, 61 MB at 5,000 nodes). Tables are made for
all of them at once, as `sparse_zeros`: growing tables by doubling delayed the first cycle on 50,000 nodes by 2 s.
"""
FIRST_TYPES: Final = 8
"""Job types in new tables (chosen; they double)."""
NONE: Final = -1
"""No index, and no number of a Workload. In the tables themselves 0 means never: versions of rows begin at 1."""


class AnswerTables:
    """Answers and smallest refusals.

    Attributes
    ----------
    shapes, arriving : (S, 6) and (S, 2) the inputs of a question for the shape at each index; see `guard_answers` and
        `mix_rows`.
    marks, probabilities : (S, N, 5) and (S, N) the answers.
    least, least_probabilities : (T, N, 6) and (T, N) the smallest refusals.
    """

    def __init__(self) -> None:
        self.shapes: Integers = np.zeros((SHAPES_REMEMBERED, SHAPE_COLUMNS), np.int64)
        self.arriving: Floats = np.zeros((SHAPES_REMEMBERED, 2))
        self.marks: Integers = np.zeros((SHAPES_REMEMBERED, 0, MARKS), np.int64)
        self.probabilities: Floats = np.zeros((SHAPES_REMEMBERED, 0))
        self.least: Integers = np.zeros((FIRST_TYPES, 0, LEAST_MARKS), np.int64)
        self.least_probabilities: Floats = np.zeros((FIRST_TYPES, 0))
        self._indices: dict[Shape, int] = {}
        self._horizons: tuple[float, ...] = ()
        """The horizons of forecast rates in the descriptions of the shapes."""

    def given(self) -> tuple[Integers, Integers, Floats, Integers, Floats]:
        """Return the arrays that the kernels of `guard_answers` and `fetched` read and write, in their order."""
        return self.shapes, self.marks, self.probabilities, self.least, self.least_probabilities

    def index_of(self, snapshot: Snapshot, shape: Shape) -> int:
        """Return the index of a shape, which is now the latest used."""
        if snapshot.state.rate_forecasts.horizons_seconds != self._horizons:
            self._follow_horizons(snapshot)
        indices = self._indices
        index = indices.pop(shape, NONE)
        if index == NONE:
            index = self._take_index(snapshot)
            self._describe(snapshot, shape, index)
        elif shape.online and self._describe(snapshot, shape, index):
            self._clear(index)
        indices[shape] = index
        return index

    def known_index(self, shape: Shape) -> int:
        """Return the index of a shape that has one."""
        return self._indices[shape]

    def fit(self, snapshot: Snapshot) -> None:
        """Make room for the rows and job types of a snapshot."""
        rows, types = self.marks.shape[1], len(self.least)
        if snapshot.size <= rows and len(snapshot.types) <= types:
            return
        rows = max(rows, snapshot.columns.capacity)
        while types < len(snapshot.types):
            types *= 2
        if rows > self.marks.shape[1]:
            used = len(self._indices)
            self.marks = _widened(self.marks, (len(self.marks), rows, MARKS), used)
            self.probabilities = _widened(self.probabilities, (len(self.marks), rows), used)
        self.least = _widened(self.least, (types, rows, LEAST_MARKS), len(self.least))
        self.least_probabilities = _widened(self.least_probabilities, (types, rows), len(self.least_probabilities))

    def covers(self, snapshot: Snapshot, shape: Shape, row: int) -> bool:
        """Return whether a current refusal implies that a job's shape is refused on a row."""
        self.fit(snapshot)
        least, column = self.least, shape.type_column
        return bool(
            least.item(column, row, LEAST_RELIEF) == snapshot.relief_versions.item(row)
            and least.item(column, row, LEAST_SIZE) <= shape.input_bytes
            and least.item(column, row, LEAST_CPU) <= shape.fit.millicores
            and least.item(column, row, LEAST_HORIZON) <= snapshot.state.rate_forecasts.horizon_of(shape.seconds)
        )

    def _follow_horizons(self, snapshot: Snapshot) -> None:
        """Describe all shapes again by other horizons; earlier answers are forgotten."""
        self._horizons = snapshot.state.rate_forecasts.horizons_seconds
        for shape, index in self._indices.items():
            self._describe(snapshot, shape, index)
            self._clear(index)
        self.least[:, :, LEAST_RELIEF] = 0

    def _take_index(self, snapshot: Snapshot) -> int:
        self.fit(snapshot)
        used = len(self._indices)
        if used < len(self.shapes):
            return used
        index = self._indices.pop(next(iter(self._indices)))
        self._clear(index)
        return index

    def _describe(self, snapshot: Snapshot, shape: Shape, index: int) -> bool:
        """Store the question's inputs for a shape; returns whether the contribution of its pods changed."""
        fit = shape.fit
        promise = snapshot.state.workload(fit.service)
        number, limit, rate = NONE, 0.0, UNMEASURED_RATE
        if promise is not None:
            expected = snapshot.state.expected_rate(fit.service)
            rate = unmeasured(snapshot.state.estimates.of(fit.millicores)) if expected is None else expected
            number, limit = snapshot.columns.workload_number(promise.key), promise.latency_p95_milliseconds
        kind = JOB if not shape.online else UNPROMISED if fit.service is None else PROMISED
        changed = (self.arriving.item(index, 0), self.arriving.item(index, 1)) != (rate, limit)
        horizon = snapshot.state.rate_forecasts.horizon_of(shape.seconds)
        self.shapes[index] = shape.type_column, shape.input_bytes, fit.millicores, kind, number, horizon
        self.arriving[index] = rate, limit
        return changed

    def _clear(self, index: int) -> None:
        self.marks[index] = 0
        self.probabilities[index] = 0.0


def _widened(table: NDArray[Any], shape: tuple[int, ...], used: int) -> NDArray[Any]:
    """Return a table with more zeros, and a copy of the first ``used`` indices."""
    wider = sparse_zeros(shape, table.dtype)
    wider[(slice(0, used), *(slice(0, length) for length in table.shape[1:]))] = table[:used]
    return wider
