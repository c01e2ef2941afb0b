"""`Highs`: the planners' `LinearSolver`, by HiGHS (Huangfu and Hall 2018).

Made by the command of the experiment and handed to `cotide_lab.consolidation`, which stays importable without it. One
thread and a fixed seed: the same problem has the same answer, unless time runs out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cotide_core.provisioning.programs import LinearProgram, SparseMatrix
from cotide_lab.consolidation.linear_solver import LinearProblem, LinearSolution, Status


class Highs:
    """Solves linear and mixed-integer programs."""

    def solve(self, problem: LinearProblem, time_limit_seconds: float) -> LinearSolution:
        """Return the best solution found within the time."""
        from cotide_solvers.highs_model import model_of, quiet_highs

        solver = quiet_highs(random_seed=0, time_limit=float(time_limit_seconds), mip_rel_gap=problem.gap)
        solver.passModel(model_of(_program(problem)))
        solver.run()
        return _read(solver, problem.whole)


def _program(problem: LinearProblem) -> LinearProgram:
    rows, columns = len(problem.row_low), len(problem.costs)
    matrix = SparseMatrix(rows, columns, problem.starts.astype(np.int32), problem.rows.astype(np.int32), problem.values)
    whole = np.ones(columns, np.bool_) if problem.whole else None
    return LinearProgram(
        matrix, problem.costs, np.zeros(columns), problem.high, problem.row_low, problem.row_high, whole
    )


def _read(highs: Any, whole: bool) -> LinearSolution:
    import highspy

    names: Any = highspy  # its own type hints are partial
    status = highs.getModelStatus()
    info = highs.getInfo()
    has_values = info.primal_solution_status == names.SolutionStatus.kSolutionStatusFeasible
    word: Status = "feasible" if has_values else "unknown"
    if status == names.HighsModelStatus.kOptimal:
        word = "optimal"
    elif status == names.HighsModelStatus.kInfeasible:
        word = "infeasible"
    solution = highs.getSolution()
    empty = np.zeros(0)
    objective = float(info.objective_function_value) if has_values else np.inf
    return LinearSolution(
        status=word,
        values=np.array(solution.col_value) if has_values else empty,
        duals=empty if whole or word != "optimal" else np.array(solution.row_dual),
        objective=objective,
        bound=float(info.mip_dual_bound) if whole else objective,
    )
