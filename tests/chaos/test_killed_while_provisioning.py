"""An operator that orders machines and has them switched off is killed at drawn points, at machines full of mishaps.

No need gets two machines, no pod is on one that is switched off, none goes that was needed a moment before, where it is
to stay for a while, and in the end as many are on as are needed. More of them: ``--chaos-runs N --chaos-seed S`` as in
`test_seeded_runs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
from chaos_plan import provision_plan
from chaos_steps import Plan, Step
from report import Report

from cotide_sim.kubelets.fake_nodes import Mishaps

UP: Final = Step(0.0, "service", {"name": "own", "replicas": 6, "cpu": "1"})
QUIET: Final = replace(
    provision_plan(0), policy="fifo", election=False, steps=(UP,), kill_at=(), mishaps=Mishaps(0.3), stays_seconds=0.0
)
SHRINKS: Final = replace(QUIET, steps=(UP, Step(10.0, "scale", {"name": "own", "replicas": 1})))
# Killed when it needs fewer, and long before those that it needed may go.
STAYS: Final = replace(SHRINKS, steps=(*SHRINKS.steps, Step(12.0, "kill")), stays_seconds=30.0)
CASES: Final[dict[str, tuple[Plan, str]]] = {
    # The two orders arrive at point 16, as counted: those machines boot when the next operator comes.
    "off the book": (replace(QUIET, kill_at=(18,), mishaps=Mishaps(10.0)), "begun at one time"),
    "impatient": (replace(QUIET, mishaps=Mishaps(2.5)), "begun at one time"),
    "undrained": (SHRINKS, "was on a machine that was switched off"),
    "anew": (STAYS, "were needed"),
}


def test_killed_while_it_provisions(seed: int, run_plan: Callable[[Plan], Report]) -> None:
    report = run_plan(provision_plan(seed))
    assert report.bound > 0


@pytest.mark.parametrize("broken", [pytest.param(one, marks=pytest.mark.asked_by("every")) for one in CASES])
def test_what_is_broken_is_caught(broken: str, report_of: Callable[[Plan], Report]) -> None:
    plan, caught_by = CASES[broken]
    violations = report_of(replace(plan, broken=broken, liveness_seconds=30.0)).violations
    assert any(caught_by in line for line in violations), violations


@pytest.mark.parametrize("case", [pytest.param(one, marks=pytest.mark.asked_by("every")) for one in CASES])
def test_what_is_whole_is_clean_where_the_broken_is_caught(case: str, run_plan: Callable[[Plan], Report]) -> None:
    run_plan(CASES[case][0])
