"""Linear programs, with whole numbers or without, by HiGHS.

Made by the code that plans capacity; kept from step to step. While the matrix is the same object, only bounds and costs
are handed over and the simplex method starts from the last basis. Invariant: an answer is independent of earlier
programs, except for the choice among equally good points. A large program is solved by an interior-point method and a
crossover. Where several services compete for data centres, the simplex method takes ten times as long, warm or not.
"""

from __future__ import annotations

from typing import Any, Final

import highspy
import numpy as np

from cotide_core.provisioning.programs import LinearProgram, Solution, SparseMatrix, Status
from cotide_solvers.highs_model import model_of, quiet_highs

_ENDS: Final = {
    highspy.HighsModelStatus.kOptimal: Status.OPTIMAL,
    highspy.HighsModelStatus.kInfeasible: Status.INFEASIBLE,
}


SIMPLEX_COLUMNS: Final = 30_000
"""Largest program for the simplex method; chosen: on either side of it the other method takes twice as long."""


class HighsSolver:
    """Fulfils `LinearSolver`."""

    def __init__(self, *, time_limit_seconds: float = 60.0, gap: float = 1e-4) -> None:
        """Take limits: ``gap`` is the relative gap that ends a search for whole numbers."""
        self._highs: Any = quiet_highs(mip_rel_gap=gap)
        self._limit = time_limit_seconds
        self._matrix: SparseMatrix | None = None

    def solve(self, program: LinearProgram) -> Solution:
        """Return the optimum, or the reason why there is none."""
        is_large = program.whole is None and program.matrix.columns > SIMPLEX_COLUMNS
        if self._matrix is program.matrix and program.whole is None and not is_large:
            self._change(program)
        else:
            self._pass(program)
        self._highs.setOptionValue("solver", "ipm" if is_large else "choose")
        # The limit counts from the creation of the object, not from this call.
        self._highs.setOptionValue("time_limit", self._highs.getRunTime() + self._limit)
        self._highs.run()
        status = _ENDS.get(self._highs.getModelStatus(), Status.STOPPED)
        columns, rows = program.matrix.columns, program.matrix.rows
        info = self._highs.getInfo()
        if status is not Status.OPTIMAL:
            self._matrix = None  # A new start next time: a broken basis is useless.
            return Solution(status, np.zeros(columns), np.zeros(rows), np.zeros(columns), np.nan, 0)
        found = self._highs.getSolution()
        x = np.array(found.col_value)
        duals = (np.array(found.row_dual), np.array(found.col_dual)) if program.whole is None else None
        row_duals, bound_duals = duals or (np.zeros(rows), np.zeros(columns))
        return Solution(
            status, x, row_duals, bound_duals, float(program.cost @ x), max(int(info.simplex_iteration_count), 0)
        )

    def _change(self, program: LinearProgram) -> None:
        """Hand over vectors only, and start from the last basis, a step further on."""
        columns, rows = program.matrix.columns, program.matrix.rows
        indices = np.arange(columns, dtype=np.int32)
        self._highs.changeColsCost(columns, indices, program.cost)
        self._highs.changeColsBounds(columns, indices, program.lower, program.upper)
        self._highs.changeRowsBounds(rows, np.arange(rows, dtype=np.int32), program.row_lower, program.row_upper)

        if program.shift is not None:
            basis = self._highs.getBasis()
            of_columns, of_rows = basis.col_status, basis.row_status
            basis.col_status = [of_columns[index] for index in program.shift.columns]
            basis.row_status = [of_rows[index] for index in program.shift.rows]
            basis.alien = True  # it may have too many or too few basic columns: HiGHS repairs that
            self._highs.setBasis(basis)

    def _pass(self, program: LinearProgram) -> None:
        """Hand over everything."""
        self._highs.clearSolver()
        self._highs.passModel(model_of(program))
        self._matrix = program.matrix if program.whole is None else None
