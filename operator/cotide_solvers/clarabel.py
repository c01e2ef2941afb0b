"""Convex quadratic programs by Clarabel, an interior-point solver.

Made by whoever plans placement; kept from step to step. An interior-point method can't start from the last answer;
what is kept while the matrix is the same object is the set-up: ordering, symbolic factors and scaling, and a step hands
over two vectors. Invariant: an answer does not depend on what was solved before.
"""

from __future__ import annotations

from typing import Any, Final

import clarabel
import numpy as np
from scipy import sparse

from cotide_core.provisioning.programs import QuadraticProgram, Solution, SparseMatrix, Status

_ENDS: Final = {
    "Solved": Status.OPTIMAL,
    "AlmostSolved": Status.OPTIMAL,
    "PrimalInfeasible": Status.INFEASIBLE,
    "AlmostPrimalInfeasible": Status.INFEASIBLE,
}


class ClarabelSolver:
    """Fulfils `QuadraticSolver`."""

    def __init__(self, *, time_limit_seconds: float = 60.0, tolerance: float = 1e-7) -> None:
        """Take limits: ``tolerance`` is that of the gap and of feasibility."""
        settings: Any = clarabel.DefaultSettings()
        settings.verbose = False
        settings.time_limit = time_limit_seconds
        settings.presolve_enable = False  # with it the data can't be updated
        settings.max_threads = 1
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        self._settings = settings
        self._solver: Any = None
        self._matrix: SparseMatrix | None = None

    def solve(self, program: QuadraticProgram) -> Solution:
        """Return the optimum, or why there is none."""
        if self._matrix is program.matrix:
            self._solver.update(q=program.cost, b=np.concatenate((program.bound, np.zeros(program.matrix.columns))))
        else:
            self._set_up(program)
        found = self._solver.solve()
        status = _ENDS.get(str(found.status), Status.STOPPED)
        columns, rows = program.matrix.columns, program.matrix.rows
        none = np.zeros(columns)
        if status is not Status.OPTIMAL:
            self._matrix = None
            return Solution(status, none, np.zeros(rows), none, np.nan, int(found.iterations))
        x = np.array(found.x)
        cost = float(program.cost @ x + program.quadratic @ (x * x) / 2.0)
        # Clarabel's z is >= 0 for A x + s = b; relaxing b lowers the cost by z.
        return Solution(status, x, -np.array(found.z)[:rows], none, cost, int(found.iterations))

    def _set_up(self, program: QuadraticProgram) -> None:
        matrix = program.matrix
        columns = matrix.columns
        stated = sparse.csc_matrix((matrix.value, matrix.index, matrix.start), shape=(matrix.rows, columns))
        constraints = sparse.vstack((stated, -sparse.identity(columns)), format="csc")
        bound = np.concatenate((program.bound, np.zeros(columns)))
        above = matrix.rows - program.equalities + columns
        quadratic = sparse.diags(program.quadratic, format="csc")
        cones = [clarabel.ZeroConeT(program.equalities), clarabel.NonnegativeConeT(above)]
        self._solver = clarabel.DefaultSolver(quadratic, program.cost, constraints, bound, cones, self._settings)
        self._matrix = matrix
