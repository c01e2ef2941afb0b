"""Phases as a Job states them: lengths by seconds or shares, and nothing that can't be read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotide_core.phases.progress import StatedPhase
from cotide_operator.cache.object_cache import CustomObject
from cotide_operator.translation.pod_phases import phases_of


def stated(*phases: Any, status: Any = None, **spec: Any) -> tuple[StatedPhase, ...]:
    """What is read of a Job."""
    body = {"metadata": {"namespace": "d", "name": "j"}, "spec": {"phases": list(phases), **spec}}
    return phases_of(msgspec.convert({**body, "status": status or {}}, CustomObject))


def phase(name: str, cpu: Any = "1", **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"cpu": cpu}, **more}


def test_seconds_are_the_length_of_a_phase() -> None:
    given = {"name": "b", "resources": {"cpu": 2, "memory": "1Ki"}}
    assert stated(phase("a", "250m", seconds=90), given) == (
        StatedPhase("a", 250, 0, 90.0),
        StatedPhase("b", 2000, 1024, None),
    )


def test_shares_are_parts_of_the_predicted_run_time_else_of_the_requested_one() -> None:
    # 3 of 4 parts and 1 of 4.
    shares = (phase("a", share=3), phase("b", share=1))
    assert [one.seconds for one in stated(*shares, requestedSeconds=400)] == [300.0, 100.0]
    predicted = {"predictedSeconds": {"p50": 200.0, "p90": None}}
    assert [one.seconds for one in stated(*shares, status=predicted, requestedSeconds=400)] == [150.0, 50.0]
    assert [one.seconds for one in stated(*shares)] == [None, None]


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), "60", True, 1e30, None])
def test_a_length_that_makes_no_sense_is_not_known(seconds: Any) -> None:
    assert [one.seconds for one in stated(phase("a", seconds=seconds))] == [None]


@pytest.mark.parametrize(
    "phases",
    [
        [],
        ["a"],
        [{"name": "a"}],
        [phase("a", "many")],
        [{"name": "a", "resources": None}],
        [phase("a"), phase("a")],
        [phase(str(number)) for number in range(17)],
    ],
)
def test_phases_that_can_not_be_read_are_none(phases: list[Any]) -> None:
    assert stated(*phases) == ()
