"""`LinearSolver`: the seam to a solver of linear and mixed-integer programs, which the planners do not import.

Fulfilled by `cotide_lab.experiments.consolidation.highs_once`; asked by `lower_bound` and `transfer_plan`. A problem is

    minimise costs x with row_low <= A x <= row_high, 0 <= x <= high, x whole with `whole`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from cotide_core.kernels.array_types import Floats, Integers

Status = Literal["optimal", "feasible", "infeasible", "unknown"]


@dataclass(frozen=True)
class LinearProblem:
    """A program by columns.

    Attributes
    ----------
    costs, high : (n,) of the variables; ``inf`` without an upper limit.
    starts : (n + 1,) where each variable's entries begin.
    rows, values : (entries,) of A.
    row_low, row_high : (m,) limits of the rows, infinite where a row has none.
    whole : whether all variables must be whole numbers.
    gap : a solution within this share of the bound is good enough, where variables are whole.
    """

    costs: Floats
    high: Floats
    starts: Integers
    rows: Integers
    values: Floats
    row_low: Floats
    row_high: Floats
    whole: bool = False
    gap: float = 0.0


@dataclass(frozen=True)
class LinearSolution:
    """A solver's answer.

    Attributes
    ----------
    status : ``feasible`` if it ran out of time with a solution, ``unknown`` without one.
    values, duals : (n,) and (m,); empty without a solution; duals of linear programs only.
    objective : of the values.
    bound : no solution is below it.
    """

    status: Status
    values: Floats
    duals: Floats
    objective: float
    bound: float


class LinearSolver(Protocol):
    """Solves one problem at a time."""

    def solve(self, problem: LinearProblem, time_limit_seconds: float) -> LinearSolution:
        """Return the best solution found within the time."""
        ...
