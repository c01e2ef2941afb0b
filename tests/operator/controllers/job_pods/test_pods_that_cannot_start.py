"""Pods that a kubelet can't start: said in the status, and after a while failures that keep no node any more."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from job_builders import LIMITS, Reconciler, plan_job, pod, spec
from manifests import pod_manifest

from cotide_core.queueing.stepwise import finished
from cotide_kube.objects import PodObject
from cotide_operator.clock import ScaledClock
from cotide_operator.config.settings import JobSettings
from cotide_operator.controllers.child_pods import MESSAGE_CHARACTERS, see
from cotide_operator.controllers.job_reconciler import Outcome, Progress
from cotide_operator.controllers.starts.start_times import CREATE_SECONDS, SLOW_SECONDS, START_SECONDS
from cotide_operator.controllers.status_builder import ReconcileContext, job_status_steps

STUCK: dict[str, Any] = {"node": "n0", "cannot_start": "ImagePullBackOff: Back-off pulling image"}
MOMENT = ReconcileContext(ScaledClock(), 5000.0, 1)


def seen(phase: str = "Pending", reason: str = "ErrImagePull", message: str = "absent", *, init: bool = False) -> str:
    waits = {"name": "c", "state": {"waiting": {"reason": reason, "message": message}}}
    body = pod_manifest("p", status={"phase": phase, "initContainerStatuses" if init else "containerStatuses": [waits]})
    return see(msgspec.convert(body, PodObject)).cannot_start


def test_a_kubelets_reason_is_seen_of_any_container_and_kept_short() -> None:
    assert seen() == "ErrImagePull: absent"
    assert seen(init=True) == "ErrImagePull: absent"
    assert seen(message="") == "ErrImagePull"
    assert len(seen(message="x" * 9999)) == MESSAGE_CHARACTERS


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing", "CrashLoopBackOff", ""])
def test_a_container_that_is_being_started_or_has_run_is_not_stuck(reason: str) -> None:
    assert seen(reason=reason) == ""


def test_a_container_that_comes_late_to_a_running_pod_stops_nothing() -> None:
    assert seen("Running") == ""


def test_a_pod_keeps_its_node_for_so_long_and_then_counts_as_failed_and_goes() -> None:
    reconciler = Reconciler()
    assert reconciler.at(1000.0, pod(0, **STUCK)).recheck_seconds == 1000.0 + SLOW_SECONDS  # others may have to go then
    assert reconciler.at(1000.0 + SLOW_SECONDS, pod(0, **STUCK)).recheck_seconds == 1100.0
    early = reconciler.at(1099.0, pod(0, **STUCK))
    assert (early.delete, early.progress.failures) == ((), 0)
    late = reconciler.at(1100.0, pod(0, **STUCK))
    assert [one.name for one in late.delete] == ["count-0"]
    assert (late.progress.failures, late.progress.evictions, late.make) == (1, 0, ())
    # It is counted once, and its index waits for its end and for the back-off.
    going = reconciler.at(1105.0, pod(0, deleting=True, **STUCK))
    assert (going.delete, going.make, going.progress.failures) == ((), (), 1)
    ended = reconciler.at(1106.0, pod(0, "Failed", deleting=True, tracked=True))
    assert [one.name for one in ended.release] == ["count-0"]
    assert reconciler.at(1107.0).recheck_seconds == 1110.0
    assert reconciler.at(1110.0).make == ((0, 1),)


def test_a_pod_that_starts_after_all_has_its_time_anew() -> None:
    reconciler = Reconciler()
    reconciler.at(1000.0, pod(0, **STUCK))
    reconciler.at(1050.0, pod(0, node="n0"))
    assert reconciler.at(1120.0, pod(0, **STUCK)).progress.failures == 0
    assert reconciler.at(1220.0, pod(0, **STUCK)).progress.failures == 1


def test_one_such_pod_more_than_the_limit_fails_the_job() -> None:
    reconciler = Reconciler(backoff_limit=0)
    reconciler.at(1000.0, pod(0, **STUCK))
    late = reconciler.at(1100.0, pod(0, **STUCK))
    assert late.progress.outcome is Outcome.FAILED
    assert [one.name for one in late.delete] == ["count-0"]


def test_while_it_goes_no_more_pods_run_than_are_allowed() -> None:
    reconciler = Reconciler(completions=2)
    two = spec(2, 1)
    reconciler.at(1000.0, pod(0, **STUCK))
    late = plan_job(two, reconciler.progress, [pod(0, **STUCK)], reconciler.memory, 1100.0, LIMITS)
    assert late.make == ()
    gone = plan_job(two, late.progress, [], reconciler.memory, 1101.0, LIMITS)
    assert gone.make == ((1, 0),)


def test_a_new_leader_deletes_what_the_last_one_counted() -> None:
    reconciler = Reconciler()
    reconciler.progress = Progress(failures=1, retries={0: 1})
    assert [one.name for one in reconciler.at(1000.0, pod(0, **STUCK)).delete] == ["count-0"]
    # One that only looks alive, since the watch is behind, is left alone: its log may be wanted.
    assert reconciler.at(1000.0, pod(0, "Running", node="n0")).delete == ()


def started(before: dict[str, Any], *pods: Any) -> dict[str, Any]:
    status = finished(job_status_steps(spec(), Progress(), pods, {}, before, MOMENT))
    found = {one["type"]: one for one in status["conditions"]}.get("PodsStarted", {})
    return {key: found.get(key) for key in ("status", "reason", "message")} | {"conditions": status["conditions"]}


def test_the_status_says_why_a_pod_does_not_start_until_one_runs() -> None:
    assert started({}, pod(0, "Running", node="n0"))["status"] is None
    stuck = started({}, pod(0, **STUCK), pod(1, node="n1"))
    assert (stuck["status"], stuck["reason"]) == ("False", "CannotStart")
    assert stuck["message"] == "1 pod can't be started: count-0 on n0: ImagePullBackOff: Back-off pulling image"
    assert started(stuck)["status"] == "False"
    assert started(stuck, pod(0, "Running", node="n0", retry=1))["status"] == "True"


def test_the_default_times_are_the_settings() -> None:
    assert JobSettings().start_seconds == START_SECONDS
    assert JobSettings().create_seconds == CREATE_SECONDS
