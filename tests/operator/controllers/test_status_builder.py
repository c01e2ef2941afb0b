"""Statuses as values: what they say, what never goes back, what is worth a write."""

from __future__ import annotations

from typing import Any

from child_pod_builders import child_pod
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.instructions import Forecast
from cotide_core.queueing.stepwise import finished
from cotide_operator.apis.types import JobSpec
from cotide_operator.cache.decision_store import Decision
from cotide_operator.clock import ScaledClock
from cotide_operator.controllers.child_pods import ChildPod
from cotide_operator.controllers.job_reconciler import Outcome, Progress
from cotide_operator.controllers.status_builder import (
    ReconcileContext,
    difference,
    job_status_steps,
    misconfigured,
    with_condition,
    workload_status,
)
from cotide_operator.usage.service_readings import ServiceReading

NOW = 1_000_000.0


class FixedClock(ScaledClock):
    """Stands still at a wall second; the scale stays."""

    def now(self) -> float:
        return self.from_wall(NOW)


def context(generation: int = 1, *, speed: float = 1.0, wall: float = NOW) -> ReconcileContext:
    return ReconcileContext(FixedClock(NOW, speed), wall, generation)


def spec(completions: int = 1, parallelism: int = 1) -> JobSpec:
    body = {"completions": completions, "parallelism": parallelism}
    return JobSpec.model_validate({**body, "template": {"spec": {"containers": [{"name": "work", "image": "none"}]}}})


def pod(index: int, node: str | None = None, phase: str = "Running", **more: Any) -> ChildPod:
    """A pod that waits, or that is in a phase on a node."""
    return child_pod(index, phase if node else "Pending", **{"uid": f"u{index}", "node": node, **more})


def decision(index: int, **more: Any) -> Decision:
    values: dict[str, Any] = {
        "key": f"default/count-{index}",
        "uid": f"u{index}",
        "decided_seconds": NOW,
        "node": None,
        "reason": "InsufficientSlack",
        "message": "0/3 nodes",
    }
    return Decision(**{**values, **more})


def status_of(
    pods: list[ChildPod], decisions: list[Decision], before: dict[str, Any] | None = None, **more: Any
) -> Any:
    by_name = {one.key.partition("/")[2]: one for one in decisions}
    wanted = more.pop("spec", spec(2, 2))
    progress = more.pop("progress", Progress())
    return finished(
        job_status_steps(wanted, progress, pods, by_name, before or {}, more.pop("context", context()), **more)
    )


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(one for one in status["conditions"] if one["type"] == kind)


def test_the_foremost_waiting_pod_speaks_for_its_job() -> None:
    status = status_of(
        [pod(0), pod(1)],
        [decision(0, queue_position=9), decision(1, queue_position=2, reason="QosAtRisk", message="risky")],
    )
    assert status["queuePosition"] == 2
    assert (condition(status, "Scheduled")["reason"], condition(status, "Scheduled")["message"]) == (
        "QosAtRisk",
        "risky",
    )


def test_a_job_whose_pods_are_gated_says_by_what_until_one_of_them_is_decided_about() -> None:
    pods = [pod(0, gates=("kueue.x-k8s.io/admission",)), pod(1, gates=("kueue.x-k8s.io/admission", "a/b"))]
    status = finished(job_status_steps(spec(2, 2), Progress(), pods, {}, {}, context()))
    condition = status["conditions"][0]
    assert (condition["status"], condition["reason"]) == ("False", "SchedulingGated")
    assert condition["message"] == "2 pods are held back by scheduling gate kueue.x-k8s.io/admission"
    waits = finished(
        job_status_steps(spec(2, 2), Progress(), [pods[0], pod(1)], {"count-1": decision(1)}, {}, context())
    )
    assert waits["conditions"][0]["reason"] == "InsufficientSlack"


def test_a_job_finishes_when_its_slowest_pod_does() -> None:
    running = pod(0, "a", started_seconds=NOW - 30)
    forecast = Forecast(seconds_p50=100.0, seconds_p90=150.0)
    waiting = decision(1, forecast=Forecast(seconds_p50=40.0), predicted_start_seconds=NOW + 20)
    status = status_of([running, pod(1)], [decision(0, node="a", forecast=forecast), waiting])
    # The running one is done at -30 + 100 = +70, the waiting one at +20 + 40 = +60.
    assert status["predictedFinish"] == "1970-01-12T13:47:50Z"  # 1,000,000 s is 13:46:40 on that day
    assert status["predictedStart"] == "1970-01-12T13:47:00Z"
    assert status["predictedSeconds"] == {"p50": 100.0, "p90": 150.0}


def test_a_waiting_pod_is_done_at_its_planned_finish_where_there_is_a_plan() -> None:
    planned = decision(0, predicted_start_seconds=NOW + 20, predicted_finish_seconds=NOW + 140)
    status = status_of([pod(0)], [planned], spec=spec(2, 1))
    # +140 for this one, and a second wave as long as what is planned: 140 - 20 = 120 s.
    assert status["predictedStart"] == "1970-01-12T13:47:00Z"
    assert status["predictedFinish"] == "1970-01-12T13:51:00Z"


def test_indexes_without_a_pod_follow_in_waves() -> None:
    running = [pod(index, "a", started_seconds=NOW) for index in range(2)]
    decisions = [decision(index, node="a", forecast=Forecast(seconds_p50=60.0)) for index in range(2)]
    status = status_of(running, decisions, spec=spec(5, 2))
    # Two run (60 s), three remain: two more waves of 60 s; in all 180 s.
    assert status["predictedFinish"] == "1970-01-12T13:49:40Z"


def test_half_a_prediction_is_none() -> None:
    known = decision(0, node="a", forecast=Forecast(seconds_p50=60.0))
    assert status_of([pod(0, "a"), pod(1)], [known, decision(1)])["predictedFinish"] is None


def test_simulated_seconds_become_wall_seconds() -> None:
    decided = decision(0, predicted_start_seconds=NOW + 100.0, forecast=Forecast(seconds_p50=100.0))
    status = status_of([pod(0)], [decided], spec=spec(), context=context(speed=10.0))
    assert status["predictedStart"] == "1970-01-12T13:46:50Z"  # 100 s at ten times the speed are 10 s
    assert status["predictedFinish"] == "1970-01-12T13:47:00Z"


def test_a_binding_under_way_counts_as_placed() -> None:
    status = status_of([pod(0)], [decision(0, node="a", reason="Scheduled")])
    assert status["phase"] == "Running"
    assert condition(status, "Scheduled")["status"] == "True"


def test_a_finished_job_keeps_what_it_knew_and_drops_what_it_expected() -> None:
    before = status_of([pod(0)], [decision(0, predicted_start_seconds=NOW + 5, attempts=3)])
    progress = Progress(frozenset({0, 1}), outcome=Outcome.SUCCEEDED)
    done = pod(0, "a", "Succeeded", started_seconds=NOW + 1, finished_seconds=NOW + 9)
    after = status_of([done], [], before, progress=progress)
    assert (after["phase"], after["attempts"], after["nodes"]) == ("Succeeded", 3, ["a"])
    assert (after["predictedStart"], after["queuePosition"]) == (None, None)
    assert after["completionTime"] == "1970-01-12T13:46:49Z"
    assert condition(after, "Complete")["status"] == "True"
    # Pods and nodes go, the record stays.
    later = status_of([], [], after, progress=progress)
    assert (later["nodes"], later["completionTime"]) == (["a"], after["completionTime"])
    assert difference(after, later) is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8))
def test_counters_never_go_back(history: list[tuple[int, int, int]]) -> None:
    status: dict[str, Any] = {}
    for attempts, demotions, evictions in history:
        before = status
        decided = decision(0, attempts=attempts, demotions=demotions)
        status = status_of([pod(0)], [decided], before, progress=Progress(evictions=evictions))
        for counter in ("attempts", "demotions", "evictions"):
            assert status[counter] >= before.get(counter, 0)


def test_a_condition_keeps_its_transition_time_while_its_status_stays() -> None:
    first = with_condition([], {"type": "Scheduled", "status": "False", "reason": "A", "message": "a"}, context())
    same = with_condition(
        first, {"type": "Scheduled", "status": "False", "reason": "B", "message": "b"}, context(2, wall=NOW + 60)
    )
    turned = with_condition(
        same, {"type": "Scheduled", "status": "True", "reason": "C", "message": "c"}, context(2, wall=NOW + 90)
    )
    assert same[0]["lastTransitionTime"] == first[0]["lastTransitionTime"]
    assert (same[0]["reason"], same[0]["observedGeneration"]) == ("B", 2)
    assert turned[0]["lastTransitionTime"] == "1970-01-12T13:48:10Z"


def test_only_what_changed_is_written_and_numbers_can_wait() -> None:
    before = status_of([pod(0)], [decision(0, queue_position=4)])
    moved = status_of([pod(0)], [decision(0, queue_position=3)], before)
    change = difference(before, moved)
    assert change is not None
    assert (change.patch, change.urgent) == ({"queuePosition": 3}, False)
    placed = difference(before, status_of([pod(0, "a")], [], before))
    assert placed is not None
    assert placed.urgent
    assert placed.patch["queuePosition"] is None  # null removes the field
    assert difference(before, dict(before)) is None


def test_a_sentence_that_changes_can_wait_and_a_reason_can_not() -> None:
    before = status_of([pod(0)], [decision(0, message="0/3 nodes: 2 full")])
    reworded = difference(before, status_of([pod(0)], [decision(0, message="0/3 nodes: 3 full")], before))
    assert reworded is not None
    assert not reworded.urgent
    other = difference(before, status_of([pod(0)], [decision(0, reason="QosAtRisk")], before))
    assert other is not None
    assert other.urgent


def test_a_predicted_time_that_hardly_moves_stays() -> None:
    before = status_of([pod(0)], [decision(0, predicted_start_seconds=NOW + 100)])
    near = status_of([pod(0)], [decision(0, predicted_start_seconds=NOW + 105)], before)
    far = status_of([pod(0)], [decision(0, predicted_start_seconds=NOW + 130)], before)
    assert near["predictedStart"] == before["predictedStart"]
    assert far["predictedStart"] == "1970-01-12T13:48:50Z"


def test_a_fault_keeps_the_rest_of_the_status() -> None:
    before = status_of([pod(0, "a")], [])
    after = misconfigured(before, "spec.class: wrong", context(3), phase="Queued")
    assert (after["phase"], after["nodes"]) == ("Running", ["a"])
    assert condition(after, "Scheduled")["reason"] == "Misconfigured"
    assert misconfigured({}, "x", context(), phase="Queued")["phase"] == "Queued"


def test_a_workload_says_how_many_pods_are_ready_and_never_takes_unknown_for_zero() -> None:
    pods = [pod(0, "a", ready=True), pod(1, "b", ready=True, deleting=True), pod(2)]
    status = workload_status(3, pods, {}, None, {}, context())
    assert (status["ready"], status["rps"], status["latencyP95Milliseconds"]) == ("1/3", None, None)
    assert condition(status, "Ready")["status"] == "False"
    measured = workload_status(1, pods[:1], {}, ServiceReading(10.04, float("nan")), {}, context(), violations=2)
    assert (measured["rps"], measured["latencyP95Milliseconds"], measured["violations"]) == (10.0, None, 2)
    assert condition(measured, "Ready")["status"] == "True"


def test_a_workload_without_pods_is_not_ready_unless_none_are_wanted() -> None:
    assert condition(workload_status(2, [], {}, None, {}, context()), "Ready")["reason"] == "NoPods"
    assert condition(workload_status(0, [], {}, None, {}, context()), "Ready")["status"] == "True"
