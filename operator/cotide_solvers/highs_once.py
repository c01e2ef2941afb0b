"""`Highs`: the core's `LinearSolver`, by HiGHS (Huangfu and Hall 2018).

Made by the experiments and by the commands and handed to `cotide_core.consolidation`. It stands here, below both
shells, since the live plan and the experiments ask the same solver; the core stays importable without it. One thread
and a fixed seed: the same problem has the same answer, unless time runs out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cotide_core.consolidation.linear_solver import LinearProblem, LinearSolution, Status


class Highs:
    """Solves linear and mixed-integer programs."""

    def solve(self, problem: LinearProblem, time_limit_seconds: float) -> LinearSolution:
        """Return the best solution found within the time."""
        import highspy

        count, rows = len(problem.costs), len(problem.row_low)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = count, rows
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = problem.costs, np.zeros(count), problem.high
        lp.row_lower_, lp.row_upper_ = problem.row_low, problem.row_high
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = problem.starts.astype(np.int32)
        lp.a_matrix_.index_ = problem.rows.astype(np.int32)
        lp.a_matrix_.value_ = problem.values
        if problem.whole:
            lp.integrality_ = [highspy.HighsVarType.kInteger] * count
        names: Any = highspy  # its own type hints are partial
        solver = names.Highs()
        solver.silent()
        solver.setOptionValue("threads", 1)
        solver.setOptionValue("random_seed", 0)
        solver.setOptionValue("time_limit", float(time_limit_seconds))
        solver.setOptionValue("mip_rel_gap", problem.gap)
        solver.passModel(lp)
        solver.run()
        return _read(names, solver, problem.whole)


def _read(names: Any, highs: Any, whole: bool) -> LinearSolution:
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
