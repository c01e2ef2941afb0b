"""Ten thousand pods at once, the operator killed and cut off on the way; only where ``--chaos-burst N`` asks for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from chaos_plan import burst_plan
from chaos_steps import Plan
from report import Report

PODS_A_NODE = 160
"""More than a node takes (110), so that some wait."""


@pytest.mark.asked_by("burst")
def test_a_burst_comes_to_an_end(burst: int, run_plan: Callable[[Plan], Report]) -> None:
    report = run_plan(burst_plan(burst, max(2, burst // PODS_A_NODE)))
    print(f"{report.bound} pods in {report.seconds:.0f} s, {report.starts} operators")
    assert report.bound >= burst // 10 * 10
