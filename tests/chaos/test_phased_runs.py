"""Phases under faults: no node beyond what it offers, no phase that waits for ever or is an empty promise, no Job lost.

More of them: ``--chaos-runs N --chaos-seed S`` as in `test_seeded_runs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
from chaos_plan import phases_plan
from chaos_steps import Plan, Step
from report import Report

MOST_REFUSED: Final = 3
"""Pods of one run that a kubelet had no room for: a phase that waited too long asks whatever is on its way there."""
JOB: Final = {"name": "j", "cls": "batch", "completions": 1, "parallelism": 1, "cpu": "0.1", "mute": False}
WEB: Final = {"prefix": "web", "cls": "online", "count": 1, "cpu": "1", "seconds": None}
BLOCKED: Final = replace(
    phases_plan(0),
    theme="a phase that finds no room",
    policy="fifo",
    nodes=(2,),
    steps=(
        Step(0.0, "job", {**JOB, "seconds": 1.5, "needs": (200, 1500)}),
        # 1.8 cores are free while the Job is in its first phase; of 1.5 that the second needs .8 are left.
        Step(1.0, "pods", WEB),
    ),
    rules=(),
    kill_at=(),
)
GROWING: Final = replace(BLOCKED, steps=(Step(0.0, "job", {**JOB, "seconds": 0.1, "needs": (200, 1500, 300, 1000)}),))
CASES: Final[dict[str, tuple[Plan, str]]] = {
    "promising": (GROWING, "which needs"),
    "never grants": (BLOCKED, "not settled"),
}


def test_jobs_with_phases_come_to_their_end(seed: int, run_plan: Callable[[Plan], Report]) -> None:
    report = run_plan(phases_plan(seed))
    assert report.bound > 0
    assert report.granted >= report.succeeded
    assert report.refused <= MOST_REFUSED


def test_a_phase_that_finds_no_room_goes_on_at_last(run_plan: Callable[[Plan], Report]) -> None:
    assert run_plan(BLOCKED).succeeded == 1


@pytest.mark.parametrize(
    "broken", [one if one == "promising" else pytest.param(one, marks=pytest.mark.asked_by("every")) for one in CASES]
)
def test_what_is_broken_is_caught(broken: str, report_of: Callable[[Plan], Report]) -> None:
    plan, caught_by = CASES[broken]
    violations = report_of(replace(plan, broken=broken, liveness_seconds=12.0)).violations
    assert any(caught_by in line for line in violations), violations
