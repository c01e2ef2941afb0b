"""Whatever breaks, in whatever order: nothing beyond capacity, nothing twice, nothing lost.

More of them: ``make test-chaos``, or with ``--chaos-runs N --chaos-seed S``; see docs/chaos.md.
"""

from __future__ import annotations

from collections.abc import Callable

from account import Account
from chaos_plan import Plan, plan_of


def test_a_seeded_run_is_clean(seed: int, run_plan: Callable[[Plan], Account]) -> None:
    account = run_plan(plan_of(seed))
    assert account.bound > 0
    assert account.starts >= 1
