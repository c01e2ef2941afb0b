"""An operator that is broken on purpose is caught, and the same run with a whole one is clean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
from calm_plan import CALM, SOME
from chaos_steps import Plan, Step
from fault_proxy import Rule
from report import Report

WAITING = (
    Step(0.0, "pods", {"prefix": "full", "count": 2, "seconds": None, **SOME, "cls": "online"}),
    Step(0.2, "pods", {"prefix": "a", "count": 2, "seconds": 0.1, **SOME}),
    Step(1.6, "pods", {"prefix": "m", "count": 2, "seconds": 0.1, **SOME}),
    Step(3.0, "pods", {"prefix": "z", "count": 2, "seconds": 0.1, **SOME}),
    Step(4.5, "kill"),
    Step(6.5, "take", {"of": "bound", "which": 0.0}),
    Step(6.5, "take", {"of": "bound", "which": 0.5}),
)
COME = Step(0.0, "pods", {"prefix": "x", "count": 6, "seconds": 0.3, **SOME})
COME_LATER = Step(2.5, "pods", {"prefix": "y", "count": 4, "seconds": 0.3, **SOME})
JOB = {"name": "j", "cls": "batch", "completions": 6, "parallelism": 3, "cpu": "0.5", "seconds": 0.3}
UNWATCHED = replace(
    CALM,
    tidy=True,
    warm=True,
    steps=(Step(0.0, "job", JOB), Step(0.2, "away", {"seconds": 0.8}), Step(1.5, "calm")),
)
FROZEN = replace(
    CALM,
    nodes=(16, 16),
    election=True,
    standby=True,
    warm=True,
    steps=(Step(0.0, "pods", {"prefix": "x", "count": 20, "seconds": 12.0, **SOME}), Step(9.0, "calm")),
    # The leader stands still for longer than its lease, with bindings in its hands that it must post once more.
    rules=(Rule("bind", 1, 1, "tell-before", what="freeze 8.0"), Rule("bind", 2, 30, "drop-before")),
)
SHORT: Final = ("forgetful", "binds twice")
"""Those that every run of the tests has."""
CASES: Final[dict[str, tuple[Plan, str]]] = {
    "hasty": (
        replace(
            CALM,
            steps=(Step(0.0, "pods", {"prefix": "x", "count": 6, "seconds": 3.0, **SOME}), Step(2.5, "jump")),
            rules=(Rule("bind", 1, 1, "tell-before", what="blackout drop-after 4.0"),),
        ),
        "node chaos-0-n0 offers 2000 cpu, its pods ask for",
    ),
    "forgetful": (CALM, "node chaos-0-n0 offers 2000 cpu, its pods ask for"),
    "by the wall": (
        replace(
            CALM,
            jumps=(-7200.0,),
            rules=(Rule("bind", 1, 1, "tell-before", what="jump"), Rule("bind", 2, 8, "status", status=409)),
        ),
        "not settled 8 s after everything was healed",
    ),
    "complacent": (
        replace(
            CALM,
            steps=(
                Step(
                    0.0,
                    "job",
                    {"name": "j", "cls": "batch", "completions": 2, "parallelism": 2, "cpu": "1", "seconds": 0.1},
                ),
                Step(3.0, "calm"),
            ),
            rules=(Rule("status", 1, 1000, "status", status=409),),
        ),
        "not settled 8 s after everything was healed: chaos-0/j",
    ),
    "discreet": (CALM, "does not replay"),
    "unfair": (replace(CALM, steps=WAITING), "after a restart"),
    "untracked": (UNWATCHED, "of Job j had succeeded, and got"),
    "careless": (UNWATCHED, "had succeeded and was let go"),
    "unfenced": (FROZEN, "had taken the lease"),
    "binds twice": (CALM, "while its last binding of that pod was unanswered"),
    "binds again": (CALM, "after it was told 201 for"),
    "loses lines": (
        replace(
            CALM,
            warm=True,
            steps=(COME, Step(0.1, "disk", {"says": "full"}), Step(2.0, "disk", {"says": ""}), COME_LATER),
        ),
        "does not replay",
    ),
    "remembers no name": (
        replace(
            CALM,
            warm=True,
            named=True,
            steps=(
                COME,
                Step(0.3, "names", {"found": False}),
                Step(0.31, "cut", {"how": "abrupt", "plural": ""}),
                Step(1.2, "names", {"found": True}),
                COME_LATER,
            ),
        ),
        "not settled 8 s after everything was healed",
    ),
    "hammers": (
        replace(
            CALM,
            nodes=(16, 16),
            warm=True,
            steps=(
                Step(0.0, "crowd", {"most": 1}),
                Step(0.1, "pods", {"prefix": "x", "count": 24, "seconds": 0.3, **SOME}),
                Step(2.5, "crowd", {"most": 0}),
            ),
        ),
        "before the time that it was told to come back at",
    ),
    "by the stamp": (
        replace(
            CALM,
            election=True,
            standby=True,
            warm=True,
            jumps=(7200.0,),
            steps=(COME, Step(1.0, "jump", {"who": "standby"}), COME_LATER, Step(3.0, "calm")),
        ),
        "took the lease",
    ),
    # Its operator is dead when the binding arrives, and the next one has to wait for the lease.
    "takes at once": (
        replace(CALM, election=True, warm=True, rules=(Rule("bind", 1, 1, "late", 1.0, what="kill"),)),
        "took the lease",
    ),
    "trusts what was": (
        replace(
            CALM,
            nodes=(6,),
            warm=True,
            steps=(
                Step(0.0, "backup"),
                Step(0.1, "pods", {"prefix": "x", "count": 4, "seconds": None, **SOME}),
                Step(1.2, "restore"),
                Step(2.5, "pods", {"prefix": "y", "count": 2, "seconds": None, "cls": "gratis", "cpu": "0.1"}),
            ),
        ),
        "an operator that was there before a backup was restored goes on",
    ),
    "moves first": (
        replace(
            CALM,
            models=True,
            warm=True,
            steps=(
                COME,
                Step(2.0, "disk", {"of": "models", "says": "full"}),
                Step(2.1, "pods", {"prefix": "y", "count": 4, "seconds": 0.3, **SOME}),
                Step(4.0, "kill"),
                Step(4.2, "disk", {"of": "models", "says": ""}),
            ),
        ),
        "what was learned of run times was kept, and is there no more",
    ),
    "takes no for done": (
        replace(
            CALM,
            hooked=True,
            warm=True,
            steps=(
                Step(0.0, "webhook", {"says": "refuses"}),
                Step(0.1, "job", JOB),
                Step(2.0, "webhook", {"says": ""}),
            ),
        ),
        "not settled 8 s after everything was healed: chaos-0/j",
    ),
    "gaps are zero": (
        replace(
            CALM,
            policy="qpsm",
            nodes=(4, 4),
            warm=True,
            measured=True,
            steps=(
                Step(0.0, "service", {"name": "own", "replicas": 1, "cpu": "1", "limit": 10}),
                Step(0.1, "measured"),
                Step(0.2, "metrics", {"says": "missing"}),
                Step(0.8, "pods", {"prefix": "x", "count": 8, "seconds": 0.5, **SOME}),
                Step(2.5, "metrics", {"says": ""}),
            ),
        ),
        "whose service takes 100000 requests a second",
    ),
    "knows one version": (
        replace(
            CALM,
            election=True,
            standby=True,
            warm=True,
            skews=("newer", "newer"),
            steps=(COME, Step(1.5, "stop"), COME_LATER),
        ),
        "ended with 70",
    ),
}


@pytest.mark.parametrize(
    "broken", [one if one in SHORT else pytest.param(one, marks=pytest.mark.asked_by("every")) for one in CASES]
)
def test_what_is_broken_is_caught(broken: str, report_of: Callable[[Plan], Report]) -> None:
    plan, caught_by = CASES[broken]
    violations = report_of(replace(plan, broken=broken, liveness_seconds=8.0)).violations
    assert any(caught_by in line for line in violations), violations
    assert report_of(plan).violations == []
