"""Linear and quadratic programs as plain arrays, and the protocol of their solvers.

Built by `capacity_program` and `placement_program`; solved outside the core, which imports no solver
(`cotide_solvers.highs`, `cotide_solvers.clarabel`). Invariant: the matrix of one controller stays the same from step to
step and only its vectors change, so a solver may keep its factors and its last basis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int32]
Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SparseMatrix:
    """A matrix in compressed columns.

    Attributes
    ----------
    rows, columns : the shape.
    start : (columns + 1,) where each column begins in ``index`` and ``value``.
    index : (nonzeros,) row of each value, rising within a column.
    value : (nonzeros,) no two of the same row and column.
    """

    rows: int
    columns: int
    start: Indices
    index: Indices
    value: Floats

    def dense(self) -> Floats:
        """Return it as a (rows, columns) array: for tests and small instances."""
        full = np.zeros((self.rows, self.columns))
        for column in range(self.columns):
            part = slice(self.start[column], self.start[column + 1])
            full[self.index[part], column] = self.value[part]
        return full


@dataclass(frozen=True, slots=True, eq=False)
class Shift:
    """The columns and rows of the former program at the next step: a solver that starts warm finds its start there.

    Attributes
    ----------
    columns, rows : of the former program, by column and row of this one.
    """

    columns: NDArray[np.int64]
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, columns: Sequence[NDArray[np.int64]], rows: Sequence[NDArray[np.int64]]) -> Shift:
        """Return the shift of blocks with the step as their first axis; the last step represents itself."""
        taken = []
        for blocks in (columns, rows):
            indices = np.arange(sum(block.size for block in blocks))
            for block in blocks:
                indices[block[:-1]] = block[1:]
            taken.append(indices)
        return cls(taken[0], taken[1])


class Triplets:
    """Collects the entries of a sparse matrix by row, column and value; entries of one row and column add up."""

    def __init__(self) -> None:
        self._rows: list[NDArray[np.int64]] = []
        self._columns: list[NDArray[np.int64]] = []
        self._values: list[Floats] = []

    def add(self, rows: NDArray[np.int64], columns: NDArray[np.int64], values: Floats | float) -> None:
        """Add entries; the three are broadcast against each other."""
        wide = np.broadcast_arrays(rows, columns, np.asarray(values, dtype=np.float64))
        self._rows.append(wide[0].ravel())
        self._columns.append(wide[1].ravel())
        self._values.append(wide[2].ravel())

    def matrix(self, rows: int, columns: int) -> SparseMatrix:
        """Return the collected entries as a matrix."""
        at_row, at_column = np.concatenate(self._rows), np.concatenate(self._columns)
        value = np.concatenate(self._values)
        position, inverse = np.unique(at_column * rows + at_row, return_inverse=True)
        summed = np.bincount(inverse, weights=value, minlength=len(position))
        kept = summed != 0.0
        position, summed = position[kept], summed[kept]
        start = np.zeros(columns + 1, dtype=np.int32)
        np.cumsum(np.bincount(position // rows, minlength=columns), out=start[1:])
        return SparseMatrix(rows, columns, start, (position % rows).astype(np.int32), summed)


@dataclass(frozen=True, slots=True, eq=False)
class LinearProgram:
    """Minimise cost . x with row_lower <= A x <= row_upper and lower <= x <= upper.

    Attributes
    ----------
    whole : marks the columns that must be whole numbers; None for none.
    shift : how the program of a step follows from that of the former step; None where it does not.
    """

    matrix: SparseMatrix
    cost: Floats
    lower: Floats
    upper: Floats
    row_lower: Floats
    row_upper: Floats
    whole: Booleans | None = None
    shift: Shift | None = None


@dataclass(frozen=True, slots=True, eq=False)
class QuadraticProgram:
    """Minimise sum(quadratic x^2) / 2 + cost . x with A x = b in the first ``equalities`` rows, A x <= b below, x >= 0.

    ``quadratic`` is (n,), the diagonal, >= 0: penalties are separable here.
    """

    matrix: SparseMatrix
    quadratic: Floats
    cost: Floats
    bound: Floats
    equalities: int
    shift: Shift | None = None

    def linear(self) -> LinearProgram:
        """Return it as a linear program; only if nothing is quadratic."""
        columns = self.matrix.columns
        bottom = np.full(self.matrix.rows, -np.inf)
        bottom[: self.equalities] = self.bound[: self.equalities]
        return LinearProgram(
            self.matrix, self.cost, np.zeros(columns), np.full(columns, np.inf), bottom, self.bound, shift=self.shift
        )


class Status(StrEnum):
    """How a solver ended."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    STOPPED = "stopped"
    """Neither: a limit of time or steps, or numerical trouble."""


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A solver's answer.

    Attributes
    ----------
    x : (n,) the point; zeros unless the status is optimal.
    row_duals : (rows,) change of the optimal cost per unit of a row's bound; zeros for a program with whole numbers.
    bound_duals : (n,) change of the optimal cost per unit of a column's bound, where one binds.
    cost : of the point.
    steps : iterations of the solver.
    """

    status: Status
    x: Floats
    row_duals: Floats
    bound_duals: Floats
    cost: float
    steps: int


class LinearSolver(Protocol):
    """Solves linear programs, with whole numbers or without; may start from the former answer."""

    def solve(self, program: LinearProgram) -> Solution:
        """Return the optimum, or the reason why there is none."""
        ...


class QuadraticSolver(Protocol):
    """Solves convex quadratic programs; may reuse the factors of the former program."""

    def solve(self, program: QuadraticProgram) -> Solution:
        """Return the optimum, or the reason why there is none."""
        ...
