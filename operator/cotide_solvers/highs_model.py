"""The common part of both adapters of HiGHS: a quiet solver of one thread, and a program handed over by columns.

Called by `highs`, which starts warm, and by the laboratory's `highs_once`, which starts each program from scratch.
"""

from __future__ import annotations

from typing import Any

import highspy

from cotide_core.provisioning.programs import LinearProgram


def quiet_highs(**options: float) -> Any:
    """Return a solver of one thread that prints nothing, with these options of HiGHS."""
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]  # highspy is typed in part
    solver.silent()
    solver.setOptionValue("threads", 1)
    for name, value in options.items():
        solver.setOptionValue(name, value)
    return solver


def model_of(program: LinearProgram) -> Any:
    """Return the program as HiGHS takes it."""
    model = highspy.HighsLp()
    matrix = program.matrix
    model.num_col_, model.num_row_ = matrix.columns, matrix.rows
    model.col_cost_, model.col_lower_, model.col_upper_ = program.cost, program.lower, program.upper
    model.row_lower_, model.row_upper_ = program.row_lower, program.row_upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = matrix.start, matrix.index, matrix.value
    if program.whole is not None:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        model.integrality_ = [kinds[int(whole)] for whole in program.whole]
    return model
