"""An operator that frees nodes is killed at drawn points: no node stays cordoned for ever, nobody is evicted twice.

More of them: ``--chaos-runs N --chaos-seed S`` as in `test_seeded_runs`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
from chaos_plan import drain_plan, kill_plan
from chaos_steps import Plan
from report import Report

WHOLE: Final = replace(kill_plan("drain", 1), kill_at=())
CASES: Final[dict[str, tuple[Plan, str]]] = {
    "unmindful": (replace(WHOLE, kill_at=(8,)), "is cordoned and marked 'draining'"),
    "unmarked": (replace(WHOLE, kill_at=(3,)), "is cordoned and marked ''"),
    "evicts again": (WHOLE, "again, which was granted before"),
}


def test_killed_while_it_drains(seed: int, run_plan: Callable[[Plan], Report]) -> None:
    report = run_plan(drain_plan(seed))
    assert report.bound > 0
    assert -signal.SIGKILL in report.ends or report.starts >= 1


@pytest.mark.parametrize(
    "broken",
    [one if one == "evicts again" else pytest.param(one, marks=pytest.mark.asked_by("every")) for one in CASES],
)
def test_what_is_broken_is_caught(broken: str, report_of: Callable[[Plan], Report]) -> None:
    plan, caught_by = CASES[broken]
    violations = report_of(replace(plan, broken=broken, liveness_seconds=12.0)).violations
    assert any(caught_by in line for line in violations), violations
