"""The operator is killed at each await point of a path in turn, and the next one brings everything to an end."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Final

import pytest
from chaos_plan import kill_plan
from chaos_steps import Plan
from kill_points import PATHS
from report import Report

RENEWALS: Final = 40
"""A lease is renewed for ever: so many points are looked at. Chosen; taking it is less than half of them."""


ONE: Final = 9
"""A point of the path "bind" where the request is under way; chosen, for runs that walk no path."""


def test_killed_with_a_binding_under_way(run_plan: Callable[[Plan], Report]) -> None:
    report = run_plan(kill_plan("bind", ONE))
    assert report.ends[0] == -signal.SIGKILL


@pytest.mark.asked_by("every")
@pytest.mark.parametrize("path", PATHS)
def test_killed_at_every_await_point_of_a_path(path: str, every: int, run_plan: Callable[[Plan], Report]) -> None:
    at, killed = 1, 0
    while path != "lease" or at <= RENEWALS:
        report = run_plan(kill_plan(path, at))
        if report.ends[0] != -signal.SIGKILL:
            break  # it came to the end of the path before
        killed += 1
        at += every
    print(f"path {path}: killed at {killed} points, every {every} from 1 to {at}, each run clean")
    assert killed >= 1
