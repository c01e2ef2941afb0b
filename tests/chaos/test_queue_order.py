"""Pods that came seconds apart wait after a kill as they waited before, under every policy that has an order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
from calm_plan import CALM, SOME
from chaos_steps import Plan, Step
from report import Report

EVERY: Final = (
    "fifo", "fifo-guarded", "easy", "easy-sjbf", "conservative", "slack", "sjf", "sdf", "svf", "qpsm", "hierarchical",
    "predictive",
)  # fmt: skip
"""Those whose order the API tells; not those that draw, or that go by what was used so far."""
SHORT: Final = ("svf",)
"""Those that every run of the tests has."""
STEPS: Final = (
    Step(0.0, "pods", {"prefix": "full", "count": 2, "seconds": None, **SOME, "cls": "online"}),
    Step(0.3, "pods", {"prefix": "z", "count": 2, "seconds": 0.1, **SOME}),
    Step(1.6, "pods", {"prefix": "m", "count": 2, "seconds": 0.1, **SOME}),
    Step(2.9, "pods", {"prefix": "a", "count": 2, "seconds": 0.1, **SOME, "cls": "batch"}),
    Step(4.2, "pods", {"prefix": "b", "count": 2, "seconds": 0.1, **SOME}),
    Step(5.2, "kill"),
    Step(7.5, "take", {"of": "bound", "which": 0.0}),
    Step(7.5, "take", {"of": "bound", "which": 0.5}),
)


@pytest.mark.parametrize(
    "policy", [one if one in SHORT else pytest.param(one, marks=pytest.mark.asked_by("every")) for one in EVERY]
)
def test_the_queue_is_after_a_kill_as_it_was_before(policy: str, run_plan: Callable[[Plan], Report]) -> None:
    report = run_plan(replace(CALM, theme="a queue", policy=policy, warm=True, ordered=True, steps=STEPS))
    # Eight pods wait in both queues, made two by two: 28 pairs, less one of each couple of a second.
    assert report.compared >= 24
