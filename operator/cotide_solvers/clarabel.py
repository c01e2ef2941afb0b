"""Convex quadratic programs by Clarabel, an interior-point solver.

Made by the code that plans placement; kept from step to step. An interior-point method can't start from the last
answer. While the matrix is the same object the set-up is kept: ordering, symbolic factors and scaling. A step hands
over two vectors. Half of the time went into refining the answers of linear systems, which Clarabel's own tests of gap
and feasibility do not need. So refinement is left out, and a program that fails these tests is solved once more with
it. Invariant: an answer is independent of earlier programs.
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

_SURE: Final = ("Solved", "PrimalInfeasible", "MaxTime")
"""Ends that a second attempt would not improve."""


class ClarabelSolver:
    """Fulfils `QuadraticSolver`."""

    def __init__(self, *, time_limit_seconds: float = 60.0, tolerance: float = 1e-7) -> None:
        """Take limits: ``tolerance`` is that of the gap and of feasibility."""
        self._time_limit, self._tolerance = time_limit_seconds, tolerance
        self._solver: Any = None
        self._matrix: SparseMatrix | None = None

    def solve(self, program: QuadraticProgram) -> Solution:
        """Return the optimum, or the reason why there is none."""
        if self._matrix is program.matrix:
            self._solver.update(q=program.cost, b=np.concatenate((program.bound, np.zeros(program.matrix.columns))))
        else:
            self._solver = self._set_up(program, refined=False)
            self._matrix = program.matrix
        found = self._solver.solve()
        if str(found.status) not in _SURE:
            self._matrix = None
            found = self._set_up(program, refined=True).solve()
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

    def _set_up(self, program: QuadraticProgram, *, refined: bool) -> Any:
        settings: Any = clarabel.DefaultSettings()
        settings.verbose = False
        settings.time_limit = self._time_limit
        settings.presolve_enable = False  # with it the data can't be updated
        settings.max_threads = 1
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = self._tolerance
        settings.iterative_refinement_enable = refined
        matrix = program.matrix
        columns = matrix.columns
        stated = sparse.csc_matrix((matrix.value, matrix.index, matrix.start), shape=(matrix.rows, columns))
        constraints = sparse.vstack((stated, -sparse.identity(columns)), format="csc")
        bound = np.concatenate((program.bound, np.zeros(columns)))
        above = matrix.rows - program.equalities + columns
        quadratic = sparse.diags(program.quadratic, format="csc")
        cones = [clarabel.ZeroConeT(program.equalities), clarabel.NonnegativeConeT(above)]
        return clarabel.DefaultSolver(quadratic, program.cost, constraints, bound, cones, settings)
