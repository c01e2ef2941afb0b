"""The solver behind the core's protocol, on programs that are solved by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_lab.consolidation.linear_solver import LinearProblem
from cotide_lab.experiments.consolidation.highs_once import Highs


def problem(whole: bool, least: float = 3.0) -> LinearProblem:
    """Minimise x + y with 2 x + y >= least and x + 3 y >= 4."""
    return LinearProblem(
        costs=np.ones(2), high=np.full(2, np.inf), starts=np.array([0, 2, 4]), rows=np.array([0, 1, 0, 1]),
        values=np.array([2.0, 1.0, 1.0, 3.0]), row_low=np.array([least, 4.0]), row_high=np.full(2, np.inf), whole=whole,
    )  # fmt: skip


def test_a_linear_program_has_values_and_prices() -> None:
    found = Highs().solve(problem(whole=False), 5.0)
    # Both rows bind: x = y = 1; prices p with 2 p + q = 1 and p + 3 q = 1: p = 2/5, q = 1/5.
    assert found.status == "optimal"
    assert found.values == pytest.approx([1.0, 1.0])
    assert found.duals == pytest.approx([0.4, 0.2])
    assert found.objective == found.bound == pytest.approx(2.0)


def test_whole_numbers_cost_more() -> None:
    # 2 x + y >= 3.5 and x + 3 y >= 4: (1.3, 0.9) costs 2.2; in whole numbers x = 2, y = 1 costs 3.
    found = Highs().solve(problem(whole=True, least=3.5), 5.0)
    assert (found.status, found.objective, found.bound) == ("optimal", pytest.approx(3.0), pytest.approx(3.0))


def test_what_has_no_solution_is_said() -> None:
    wanted = problem(whole=False)
    found = Highs().solve(LinearProblem(**{**vars(wanted), "high": np.zeros(2)}), 5.0)
    assert found.status == "infeasible"
    assert not len(found.values)
