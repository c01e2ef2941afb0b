"""Whatever breaks, in whatever order: nothing beyond capacity, nothing twice, nothing lost.

More of them: ``make test-chaos``, or with ``--chaos-runs N --chaos-seed S``; see docs/design/testing.md.
"""

from __future__ import annotations

from collections.abc import Callable

from chaos_plan import plan_of
from chaos_steps import Plan
from report import Report


def test_a_seeded_run_is_clean(seed: int, run_plan: Callable[[Plan], Report]) -> None:
    report = run_plan(plan_of(seed))
    assert report.bound > 0
    assert report.starts >= 1
