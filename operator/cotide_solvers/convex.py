"""Convex quadratic programs by the suitable solver: HiGHS for linear programs, Clarabel for quadratic ones.

Made by the code that plans placement. With linear penalties the program is linear, and the simplex method continues
from the last basis (a step of 10 data centres, 100 networks and 24 steps: about 0.1 s). Quadratic penalties need an
interior-point method, which can't (about 0.2 s). Invariant: both give the same cost on the same linear program.
"""

from __future__ import annotations

from cotide_core.provisioning.programs import QuadraticProgram, Solution
from cotide_solvers.clarabel import ClarabelSolver
from cotide_solvers.highs import HighsSolver


class ConvexSolver:
    """Fulfils `QuadraticSolver`."""

    def __init__(self, *, time_limit_seconds: float = 60.0) -> None:
        """Take a limit for both."""
        self._linear = HighsSolver(time_limit_seconds=time_limit_seconds)
        self._quadratic = ClarabelSolver(time_limit_seconds=time_limit_seconds)

    def solve(self, program: QuadraticProgram) -> Solution:
        """Return the optimum, or the reason why there is none."""
        if program.quadratic.any():
            return self._quadratic.solve(program)
        return self._linear.solve(program.linear())
