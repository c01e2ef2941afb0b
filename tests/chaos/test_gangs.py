"""Gangs of 2 to 64 pods among single ones, with kills, nodes that go and pods that are taken away.

None holds nodes for nothing beyond its time-out, each succeeds in the end, and no node is ever overfilled. More of
them: ``--chaos-runs N --chaos-seed S`` as in `test_seeded_runs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from chaos_plan import gang_plan
from chaos_steps import Plan, Step
from report import Report


def gang(pods: int, **how: Any) -> dict[str, Any]:
    return {
        "name": "g",
        "cls": "batch",
        "completions": pods,
        "parallelism": pods,
        "cpu": "1",
        "seconds": 0.3,
        "gang": {"timeoutSeconds": 2},
        **how,
    }


CALM: Final = replace(gang_plan(0), theme="gangs", policy="fifo", election=False, rules=(), kill_at=())
BUSY: Final = {"prefix": "full", "cls": "batch", "count": 2, "cpu": "1", "seconds": 13.0}
CASES: Final[dict[str, tuple[Plan, str]]] = {
    # Two of four places are taken for thirteen seconds: half of the gang must not hold the others.
    "piecemeal": (
        replace(
            CALM,
            nodes=(4,),
            steps=(Step(0.0, "pods", BUSY), Step(0.5, "job", gang(4, seconds=12.0)), Step(14.0, "calm")),
        ),
        "gang chaos-0/g: ",
    ),
}


def test_gangs_start_whole_and_are_released_in_time(seed: int, run_plan: Callable[[Plan], Report]) -> None:
    plan = gang_plan(seed)
    report = run_plan(plan)
    assert report.succeeded == sum(step.how["completions"] for step in plan.steps if step.what == "job")


@pytest.mark.parametrize("broken", CASES)
def test_what_is_broken_is_caught(broken: str, report_of: Callable[[Plan], Report]) -> None:
    plan, caught_by = CASES[broken]
    violations = report_of(replace(plan, broken=broken)).violations
    assert any(caught_by in line and "its time-out is" in line for line in violations), violations
    assert report_of(plan).violations == []
