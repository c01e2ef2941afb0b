"""Pods whose containers are being created for ever, and no kubelet says why: a missing volume, a pull that hangs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from controllers_world import JOBS, PODS, condition, job, world
from job_builders import Reconciler, pod, spec
from manifests import pod_manifest

from cotide_core.queueing.stepwise import finished
from cotide_kube.objects import PodObject
from cotide_operator.clock import ScaledClock
from cotide_operator.controllers.child_pods import see
from cotide_operator.controllers.job_reconciler import Outcome, Progress
from cotide_operator.controllers.starts.start_times import SLOW_SECONDS
from cotide_operator.controllers.status_builder import ReconcileContext, Starting, job_status_steps

PLAIN = "containers are being created"
PREPARED = f"{PLAIN}, volumes and network are ready"
CREATED: dict[str, Any] = {"node": "n0", "creating": PLAIN}
STUCK: dict[str, Any] = {"node": "n0", "cannot_start": "ErrImagePull"}
MOMENT = ReconcileContext(ScaledClock(), 5000.0, 1)
WAITS = {"waiting": {"reason": "PodInitializing"}}
RUNS = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
ENDED = {"terminated": {"exitCode": 0}}


def seen(
    state: dict[str, Any],
    *init: dict[str, Any],
    phase: str = "Pending",
    ready: str | None = None,
    sidecar: bool = False,
) -> str:
    """What a pod is doing whose one container, and whose init containers, are in these states."""
    names = [f"init-{number}" for number in range(len(init))]
    status: dict[str, Any] = {
        "phase": phase,
        "containerStatuses": [{"name": "c", "state": state}],
        "initContainerStatuses": [{"name": name, "state": one} for name, one in zip(names, init, strict=True)],
        "conditions": [{"type": "PodReadyToStartContainers", "status": ready}] if ready else [],
    }
    body = pod_manifest("p", status=status)
    more = {"restartPolicy": "Always"} if sidecar else {}
    body["spec"]["initContainers"] = [{"name": name, "image": "i", **more} for name in names]
    return see(msgspec.convert(body, PodObject)).creating


def test_the_pods_condition_says_how_far_it_is() -> None:
    waits = {"waiting": {"reason": "ContainerCreating"}}
    assert seen(waits) == PLAIN
    assert seen(waits, ready="False") == PLAIN, "so it says while it pulls, too"
    assert seen(waits, ready="True") == PREPARED


@pytest.mark.parametrize("state", [RUNS, ENDED, {"waiting": {"reason": "CrashLoopBackOff"}}, {}])
def test_a_container_that_started_or_may_start_is_not_being_created(state: dict[str, Any]) -> None:
    assert seen(state) == ""


def test_what_the_kubelet_has_against_a_container_goes_before() -> None:
    refused, waits = ({"waiting": {"reason": reason}} for reason in ("ErrImagePull", "ContainerCreating"))
    statuses = [{"name": name, "state": state} for name, state in (("a", waits), ("b", refused))]
    body = pod_manifest("p", status={"phase": "Pending", "containerStatuses": statuses})
    found = see(msgspec.convert(body, PodObject))
    assert (found.cannot_start, found.creating) == ("ErrImagePull", "")


def test_a_pod_whose_phase_is_running_is_not_being_created() -> None:
    assert seen(WAITS, phase="Running") == ""


def test_a_container_waits_for_an_init_container_that_works_and_nobody_counts_that() -> None:
    assert seen(WAITS, RUNS) == ""
    assert seen(WAITS, ENDED, RUNS) == ""


def test_an_init_container_that_is_being_created_counts_and_so_does_what_comes_after_the_last_one() -> None:
    assert seen(WAITS, WAITS, ready="False") == PLAIN
    assert seen(WAITS, ENDED, WAITS, ready="True") == PREPARED
    assert seen(WAITS, ENDED, ready="True") == PREPARED
    assert seen(WAITS, {"terminated": {"exitCode": 1}}) == ""


def test_a_sidecar_that_runs_keeps_no_container_waiting() -> None:
    assert seen(WAITS, RUNS, ready="True", sidecar=True) == PREPARED


def test_a_pod_is_created_for_so_long_and_then_counts_as_failed_and_goes() -> None:
    reconciler = Reconciler()
    first = reconciler.at(1000.0, pod(0, **CREATED))
    assert (first.recheck_seconds, first.slow) == (1000.0 + SLOW_SECONDS, frozenset())
    slow = reconciler.at(1000.0 + SLOW_SECONDS, pod(0, **CREATED))
    assert (slow.slow, slow.recheck_seconds) == ({"uid-count-0"}, 1300.0)
    assert reconciler.at(1299.0, pod(0, **CREATED)).progress.failures == 0
    late = reconciler.at(1300.0, pod(0, **CREATED))
    assert [one.name for one in late.delete] == ["count-0"]
    assert (late.progress.failures, late.progress.evictions, late.make) == (1, 0, ())
    # It is counted once; the next one waits for its end and for the back-off of 10 s.
    assert reconciler.at(1301.0, pod(0, deleting=True, **CREATED)).progress.failures == 1
    assert reconciler.at(1302.0).recheck_seconds == 1310.0
    assert reconciler.at(1310.0).make == ((0, 1),)


def test_one_such_pod_more_than_the_limit_fails_the_job_and_is_still_named() -> None:
    reconciler = Reconciler(backoff_limit=0)
    reconciler.at(1000.0, pod(0, **CREATED))
    late = reconciler.at(1300.0, pod(0, **CREATED))
    assert (late.progress.outcome, late.slow) == (Outcome.FAILED, {"uid-count-0"})
    assert [one.name for one in late.delete] == ["count-0"]


def test_each_obstacle_has_its_own_time_on_end() -> None:
    reconciler = Reconciler()
    reconciler.at(1000.0, pod(0, **CREATED))
    reconciler.at(1290.0, pod(0, **STUCK))  # the pull has failed: 100 s from now
    assert reconciler.at(1310.0, pod(0, **STUCK)).progress.failures == 0
    reconciler.at(1320.0, pod(0, **CREATED))  # and is tried again: 300 s from now
    assert reconciler.at(1400.0, pod(0, **CREATED)).progress.failures == 0
    assert reconciler.at(1620.0, pod(0, **CREATED)).progress.failures == 1


def test_a_pod_that_nobody_acknowledged_has_no_time() -> None:
    reconciler = Reconciler()
    reconciler.at(1000.0, pod(0, node="n0"))
    plan = reconciler.at(9999.0, pod(0, node="n0"))
    assert (plan.progress.failures, plan.recheck_seconds) == (0, None)


def test_a_pod_that_somebody_deletes_meanwhile_is_waited_for() -> None:
    reconciler = Reconciler()
    reconciler.at(1000.0, pod(0, **CREATED))
    assert reconciler.at(1300.0, pod(0, deleting=True, **CREATED)).progress.failures == 0


def test_a_new_leader_deletes_what_the_last_one_counted() -> None:
    reconciler = Reconciler()
    reconciler.progress = Progress(failures=1, retries={0: 1})
    assert [one.name for one in reconciler.at(1000.0, pod(0, **CREATED)).delete] == ["count-0"]


def condition_of(before: dict[str, Any], slow: set[str], *pods: Any) -> dict[str, Any]:
    status = finished(job_status_steps(spec(), Progress(), pods, {}, before, MOMENT, starts=Starting(slow)))
    found = {one["type"]: one for one in status["conditions"]}.get("PodsStarted", {})
    return {key: found.get(key) for key in ("status", "reason", "message")} | {"conditions": status["conditions"]}


def test_the_status_names_a_slow_pod_until_one_runs() -> None:
    assert condition_of({}, set(), pod(0, **CREATED))["status"] is None
    slow = condition_of({}, {"uid-count-0"}, pod(0, **CREATED), pod(1, **CREATED))
    assert (slow["status"], slow["reason"]) == ("False", "NotStarted")
    assert slow["message"] == f"1 pod not started yet: count-0 on n0: {PLAIN}"
    assert condition_of(slow, set(), pod(0, "Running", node="n0"))["status"] == "True"


def test_a_pod_that_can_not_be_started_is_named_before_a_slow_one() -> None:
    assert condition_of({}, {"uid-count-0"}, pod(0, **CREATED), pod(1, **STUCK))["reason"] == "CannotStart"


async def test_a_job_whose_pod_lacks_its_volume_says_so_and_fails_in_the_end() -> None:
    async with world() as one:
        await one.kill()
        one.start(speed=300.0)  # 60 s in 0.2 s, 1,800 in 6
        await one.client.create(JOBS, job(backoffLimit=0))
        pods = await one.until_pods("count-0")
        assert (await one.client.bind("default", "count-0", pods["count-0"]["metadata"]["uid"], "n0")).ok
        waits = [{"name": "work", "state": {"waiting": {"reason": "ContainerCreating"}}}]
        sandbox = {"type": "PodReadyToStartContainers", "status": "False"}
        await one.set_status("count-0", phase="Pending", containerStatuses=waits, conditions=[sandbox])
        slow = await one.until_status(f"{JOBS}/count", lambda status: condition(status, "PodsStarted"))
        assert slow["phase"] == "Running"
        assert condition(slow, "PodsStarted")["message"].endswith(f"count-0 on n0: {PLAIN}")
        failed = await one.until_status(f"{JOBS}/count", lambda status: status.get("phase") == "Failed")
        assert (failed["failures"], failed["evictions"]) == (1, 0)

        async def deleted() -> bool:  # asked for once the status is written
            return "deletionTimestamp" in (await one.client.get(f"{PODS}/count-0"))["metadata"]

        await one.until(deleted)
