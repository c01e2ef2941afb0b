"""Phases as a Job states them: lengths by seconds or shares, and nothing that can't be read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from manifests import pod_object

from cotide_core.phases.progress import StatedPhase
from cotide_kube.objects import PodObject
from cotide_operator.cache.object_cache import CustomObject
from cotide_operator.translation.pod_phases import MAX_GROWTH, growth_of, learned_for, phases_for, phases_of


def phased(asks: str, set_: str | None = None, **notes: str) -> PodObject:
    """A running pod that asks for so much cpu, with annotations of phases."""
    annotations = {f"cotide.dev/{name.replace('_', '-')}": text for name, text in notes.items()}
    held = {"name": "c", "resources": {"requests": {"cpu": set_ or asks}}}
    return pod_object(
        spec={"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": asks}}}]},
        status={"phase": "Running", "containerStatuses": [held]},
        annotations=annotations,
    )


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


def test_a_pod_grows_by_the_mean_of_the_phases_that_it_has_left() -> None:
    phases = stated(phase("a", "200m"), phase("b", "800m"), phase("c", "500m"))
    assert growth_of(phased("200m"), phases) == 300
    assert growth_of(phased("200m", granted_phase="a"), phases) == 300
    assert growth_of(phased("10m", phase="b", granted_phase="a"), phases) == 640  # it waits
    assert growth_of(phased("800m", granted_phase="b"), phases) == -150
    assert growth_of(phased("500m", "800m", granted_phase="c"), phases) == -300  # not given back yet
    # 30 of 40 seconds at 200, and 10 at 800.
    timed = stated(phase("a", "200m", seconds=30), phase("b", "800m", seconds=10))
    assert growth_of(phased("200m"), timed) == 150


def test_no_phases_make_a_pod_grow_beyond_every_node_or_take_no_time_at_all() -> None:
    assert growth_of(phased("200m"), (StatedPhase("a", 2**53, 0, None),)) == MAX_GROWTH
    nothing = (StatedPhase("a", 200, 0, 0.0), StatedPhase("b", 800, 0, 0.0))  # a share of next to nothing
    assert growth_of(phased("200m"), nothing) == 300  # (200 + 800) / 2 - 200


def test_phases_of_a_pod_are_those_of_its_job_else_learned_ones_and_none_once_it_has_ended() -> None:
    job = msgspec.convert({"metadata": {}, "spec": {"phases": [phase("a")]}}, CustomObject)
    plain = msgspec.convert({"metadata": {}, "spec": {}}, CustomObject)
    learned = '[{"name": "x", "millicores": 5, "memoryBytes": 0, "seconds": null}]'
    running = phased("1", learned_phases=learned)
    assert phases_for(running, job) == phases_of(job)
    assert phases_for(running, plain) == learned_for(running) != ()
    assert phases_for(running, None) == ()
    ended = msgspec.structs.replace(running, status=msgspec.structs.replace(running.status, phase="Succeeded"))
    assert phases_for(ended, job) == ()


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
