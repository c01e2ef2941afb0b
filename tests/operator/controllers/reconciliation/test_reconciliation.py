"""The controllers on the embedded API server, over real HTTP; the test plays scheduler and kubelet."""

from __future__ import annotations

import pytest
from controllers_world import (
    JOBS,
    PODS,
    SOON_SECONDS,
    TEMPLATE,
    WORKLOADS,
    condition,
    job,
    workload,
    world,
)

from cotide_operator.cache.decision_store import Decision
from cotide_operator.controllers import reconciliation
from cotide_operator.translation.decision_annotation import DECISION_ANNOTATION, encode
from cotide_sim.apiserver.http.faults import Fault


async def test_a_job_runs_its_pods_to_success() -> None:
    async with world() as one:
        spec = {"class": "gratis", "type": "wordcount", "inputSize": "4Gi", "requestedSeconds": 60}
        made = await one.client.create(JOBS, job(completions=3, parallelism=2, priority=7, **spec))
        pods = await one.until_pods("count-0", "count-1")
        metadata = pods["count-0"]["metadata"]
        assert metadata["labels"] == {
            "team": "data",
            "cotide.dev/class": "gratis",
            "cotide.dev/job": "count",
            "cotide.dev/index": "0",
        }
        assert metadata["annotations"] == {
            "note": "kept",
            "cotide.dev/type": "wordcount",
            "cotide.dev/input-size": "4Gi",
            "cotide.dev/requested-seconds": "60",
            "cotide.dev/job-priority": "7",
            "cotide.dev/retry": "0",
        }
        owner = metadata["ownerReferences"][0]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Job", made["metadata"]["uid"], True)
        assert pods["count-0"]["spec"]["schedulerName"] == "cotide"
        assert pods["count-0"]["spec"]["restartPolicy"] == "Never"
        queued = await one.until_status(f"{JOBS}/count", lambda status: status.get("phase") == "Queued")
        assert condition(queued, "Scheduled")["reason"] == "WaitingForTurn"
        for name in ("count-0", "count-1"):
            await one.run_pod(name)
        running = await one.until_status(f"{JOBS}/count", lambda status: status.get("active") == 2)
        assert (running["phase"], running["nodes"]) == ("Running", ["node-a"])
        assert running["startTime"] == "2026-11-20T13:00:00Z"
        await one.set_status("count-0", phase="Succeeded")
        await one.until_pods("count-0", "count-1", "count-2")
        await one.run_pod("count-2")
        for name in ("count-1", "count-2"):
            await one.set_status(name, phase="Succeeded")
        done = await one.until_status(f"{JOBS}/count", lambda status: status.get("phase") == "Succeeded")
        assert (done["succeeded"], done["completedIndexes"]) == (3, "0-2")
        assert condition(done, "Complete")["status"] == "True"
        assert done["completionTime"]


async def test_decisions_reach_the_status_and_never_go_back() -> None:
    async with world() as one:
        await one.client.create(JOBS, job())
        await one.until_pods("count-0")
        await one.until_status(f"{JOBS}/count", lambda status: status.get("phase") == "Queued")
        await one.decide("count-0")
        status = await one.until_status(f"{JOBS}/count", lambda status: status.get("queuePosition") == 3, SOON_SECONDS)
        assert condition(status, "Scheduled")["reason"] == "QosAtRisk"
        assert "p=0.90" in condition(status, "Scheduled")["message"]
        assert (status["attempts"], status["demotions"]) == (2, 1)
        assert status["predictedSeconds"] == {"p50": 120.0, "p90": 300.0}
        await one.decide("count-0", attempts=1, demotions=0, queue_position=1)
        later = await one.until_status(f"{JOBS}/count", lambda status: status.get("queuePosition") == 1, SOON_SECONDS)
        assert (later["attempts"], later["demotions"]) == (2, 1)


async def test_an_unchanged_job_is_not_written_again() -> None:
    async with world() as one:
        await one.client.create(JOBS, job())
        await one.until_pods("count-0")
        await one.decide("count-0")
        await one.until_status(f"{JOBS}/count", lambda status: status.get("queuePosition") == 3)
        assert one.controllers is not None
        version = (await one.client.get(f"{JOBS}/count"))["metadata"]["resourceVersion"]
        writes = one.controllers.jobs.statuses.writes
        for _ in range(20):
            assert await one.controllers.jobs.reconcile("default/count") is None
        assert one.controllers.jobs.statuses.writes == writes
        assert (await one.client.get(f"{JOBS}/count"))["metadata"]["resourceVersion"] == version


async def test_numbers_that_only_move_wait_for_their_time_and_a_reason_does_not() -> None:
    async with world(refresh_seconds=3600.0) as one:
        await one.client.create(JOBS, job())
        await one.until_pods("count-0")
        await one.decide("count-0")
        await one.until_status(f"{JOBS}/count", lambda status: status.get("queuePosition") == 3, SOON_SECONDS)
        assert one.controllers is not None
        await one.decide("count-0", queue_position=2)
        later = await one.controllers.jobs.reconcile("default/count")
        assert later is not None
        assert later > 3000.0
        assert (await one.client.get(f"{JOBS}/count"))["status"]["queuePosition"] == 3
        await one.decide("count-0", queue_position=2, reason="InsufficientSlack")
        await one.until_status(f"{JOBS}/count", lambda status: status.get("queuePosition") == 2, SOON_SECONDS)


async def test_attempts_of_a_pod_that_was_done_before_anybody_looked_are_counted() -> None:
    """The latest attempts are no reason to write by themselves, and then the pod is done."""
    async with world(refresh_seconds=3600.0) as one:
        await one.client.create(JOBS, job())
        await one.until_pods("count-0")
        await one.decide("count-0", attempts=1, demotions=0)
        await one.until_status(f"{JOBS}/count", lambda status: status.get("attempts") == 1, SOON_SECONDS)
        await one.decide("count-0", attempts=5, demotions=1)
        await one.set_status("count-0", phase="Succeeded")
        done = await one.until_status(f"{JOBS}/count", lambda status: status.get("phase") == "Succeeded")
        assert (done["attempts"], done["demotions"]) == (5, 1)


async def test_a_restart_neither_doubles_pods_nor_forgets_counts() -> None:
    async with world() as one:
        await one.client.create(JOBS, job(completions=3, parallelism=3, backoffLimit=5))
        await one.until_pods("count-0", "count-1", "count-2")
        for name in ("count-0", "count-1", "count-2"):
            await one.run_pod(name)
        await one.set_status("count-0", phase="Succeeded")
        await one.set_status("count-1", phase="Failed", reason="Evicted")
        await one.until_pods("count-0", "count-1", "count-2", "count-1-r1")
        await one.decide("count-1-r1", attempts=4, demotions=2)
        before = await one.until_status(f"{JOBS}/count", lambda status: status.get("attempts") == 4)
        assert (before["evictions"], before["completedIndexes"], before["retriedIndexes"]) == (1, "0", "1:1")
        await one.kill()
        await one.client.delete(f"{PODS}/count-0", grace_seconds=0)  # finished work stays finished without its pod
        one.start()
        await one.run_pod("count-1-r1")
        await one.set_status("count-1-r1", phase="Succeeded")
        await one.set_status("count-2", phase="Succeeded")
        after = await one.until_status(f"{JOBS}/count", lambda status: status.get("phase") == "Succeeded")
        assert (after["attempts"], after["demotions"], after["evictions"], after["failures"]) == (4, 2, 1, 0)
        assert set(await one.pods()) == {"count-1", "count-1-r1", "count-2"}


async def test_after_a_restart_the_note_on_a_pod_stands_for_the_board() -> None:
    async with world() as one:
        await one.client.create(JOBS, job())
        pods = await one.until_pods("count-0")
        uid = pods["count-0"]["metadata"]["uid"]
        note = Decision("default/count-0", uid, 1000.0, None, "InsufficientSlack", "0/9 nodes", queue_position=5)
        await one.client.patch(f"{PODS}/count-0", {"metadata": {"annotations": {DECISION_ANNOTATION: encode(note)}}})
        status = await one.until_status(f"{JOBS}/count", lambda status: status.get("queuePosition") == 5)
        assert condition(status, "Scheduled")["reason"] == "InsufficientSlack"


async def test_a_pod_that_is_taken_away_is_replaced_and_counted() -> None:
    async with world(refresh_seconds=3600.0) as one:
        await one.client.create(JOBS, job(backoffLimit=0))
        await one.until_pods("count-0")
        await one.run_pod("count-0")
        await one.until_status(f"{JOBS}/count", lambda status: status.get("active") == 1)

        async def quiet() -> bool:  # so that nothing but the deletion leads to the next look
            assert one.controllers is not None
            return one.cache.jobs["default/count"].status.get("active") == 1 and not len(one.controllers.queue)

        await one.until(quiet)
        await one.client.delete(f"{PODS}/count-0", grace_seconds=0)
        await one.until_status(f"{JOBS}/count", lambda status: status.get("evictions") == 1, SOON_SECONDS)
        await one.until_pods("count-0-r1")
        status = await one.until_status(f"{JOBS}/count", lambda status: status.get("evictions") == 1)
        assert (status["failures"], status["phase"]) == (0, "Queued")


async def test_no_successor_is_made_before_the_end_is_written_down() -> None:
    async with world() as one:
        await one.client.create(JOBS, job())
        await one.until_pods("count-0")
        await one.run_pod("count-0")
        await one.until_status(f"{JOBS}/count", lambda status: status.get("active") == 1)
        refusing = one.server.faults.add(Fault(status=422, method="PATCH", path="/jobs/count/status$", count=-1))
        await one.set_status("count-0", phase="Failed", reason="Evicted")

        async def refused() -> bool:
            return refusing.met >= 3

        await one.until(refused)
        assert set(await one.pods()) == {"count-0"}
        one.server.faults.clear()
        await one.until_pods("count-0", "count-0-r1")
        status = await one.until_status(f"{JOBS}/count", lambda status: status.get("evictions"))
        assert status["evictions"] == 1


async def test_failures_beyond_the_limit_end_the_job_and_its_pods() -> None:
    async with world() as one:
        await one.client.create(JOBS, job(completions=2, parallelism=2, backoffLimit=0))
        await one.until_pods("count-0", "count-1")
        for name in ("count-0", "count-1"):
            await one.run_pod(name)
        await one.until_status(f"{JOBS}/count", lambda status: status.get("active") == 2)
        await one.set_status("count-0", phase="Failed")
        status = await one.until_status(f"{JOBS}/count", lambda status: status.get("phase") == "Failed")
        assert condition(status, "Failed")["reason"] == "BackoffLimitExceeded"

        async def other_is_going() -> bool:
            pod = (await one.pods()).get("count-1")
            return pod is None or "deletionTimestamp" in pod["metadata"]

        await one.until(other_is_going)


async def test_a_job_that_is_deleted_takes_its_pods_with_it_and_a_new_one_begins_anew() -> None:
    async with world() as one:
        await one.client.create(JOBS, job())
        old = (await one.until_pods("count-0"))["count-0"]["metadata"]["uid"]
        await one.client.delete(f"{JOBS}/count")

        async def gone() -> bool:
            return not await one.pods()

        await one.until(gone)
        await one.client.create(JOBS, job())
        new = (await one.until_pods("count-0"))["count-0"]["metadata"]["uid"]
        assert new != old
        status = await one.until_status(f"{JOBS}/count", lambda status: status.get("phase") == "Queued")
        assert status["evictions"] == 0


async def test_a_foreign_pod_in_the_way_is_named_and_left_alone() -> None:
    async with world() as one:
        foreign = {"metadata": {"name": "count-0"}, "spec": TEMPLATE["spec"]}
        await one.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **foreign})
        await one.client.create(JOBS, job())
        status = await one.until_status(
            f"{JOBS}/count", lambda status: condition(status, "Scheduled").get("reason") == "Misconfigured"
        )
        assert "a pod count-0 of another owner is in the way" in condition(status, "Scheduled")["message"]


async def test_rules_that_a_server_lets_pass_end_as_a_condition() -> None:
    async with world(refusing=False) as one:
        await one.client.create(WORKLOADS, workload(selector={"matchLabels": {"app": "web"}}, replicas=2))
        status = await one.until_status(f"{WORKLOADS}/web", lambda status: condition(status, "Scheduled"))
        scheduled = condition(status, "Scheduled")
        assert (scheduled["status"], scheduled["reason"]) == ("False", "Misconfigured")
        assert "spec.replicas needs spec.template" in scheduled["message"]
        await one.client.patch(f"{WORKLOADS}/web", {"spec": {"replicas": None}})
        repaired = await one.until_status(
            f"{WORKLOADS}/web", lambda status: condition(status, "Scheduled").get("reason") == "Scheduled"
        )
        assert condition(repaired, "Scheduled")["observedGeneration"] == 2


async def test_refused_and_failing_writes_are_repeated_without_doubling_anything() -> None:
    async with world() as one:
        faults = [
            Fault(status=500, method="POST", path="/pods$", count=3),
            Fault(status=503, method="PATCH", path="/jobs/count/status$", count=7),  # more than the client's own tries
            Fault(status=429, method="PATCH", path="/jobs/count/status$", count=1, retry_after_seconds=0),
        ]
        for fault in faults:
            one.server.faults.add(fault)
        await one.client.create(JOBS, job(completions=2, parallelism=2))
        await one.until_pods("count-0", "count-1")
        for name in ("count-0", "count-1"):
            await one.run_pod(name)
            await one.set_status(name, phase="Succeeded")
        status = await one.until_status(f"{JOBS}/count", lambda status: status.get("phase") == "Succeeded")
        assert (status["succeeded"], status["evictions"], status["failures"]) == (2, 0, 0)
        assert all(fault.count == 0 for fault in faults), "the test did not meet what it is about"


@pytest.mark.parametrize(("phase", "counted"), [("Succeeded", (1, 0, 0)), ("Failed", (0, 1, 0))])
async def test_a_pod_of_an_earlier_version_that_ends_and_is_deleted_while_its_end_can_not_be_written_counts(
    phase: str, counted: tuple[int, int, int]
) -> None:
    async with world() as one:
        await one.client.create(JOBS, job(completions=2, parallelism=2))
        await one.until_pods("count-0", "count-1")
        await one.client.patch(f"{PODS}/count-0", {"metadata": {"finalizers": None}})
        await one.run_pod("count-0")
        await one.until_status(f"{JOBS}/count", lambda status: status.get("phase") == "Running")
        refusing = Fault(status=503, method="PATCH", path="/jobs/count/status$", count=1_000_000)
        one.server.faults.add(refusing)
        await one.set_status("count-0", phase=phase)
        await one.client.delete(f"{PODS}/count-0", grace_seconds=0)

        async def known_to_be_gone() -> bool:
            return "default/count-0" not in one.cache.pods

        await one.until(known_to_be_gone)
        refusing.count = 0
        status = await one.until_status(
            f"{JOBS}/count", lambda status: status.get("succeeded") or status.get("failures") or status.get("evictions")
        )
        assert (status.get("succeeded", 0), status.get("failures", 0), status.get("evictions", 0)) == counted


async def test_the_controllers_survive_watches_that_are_cut() -> None:
    async with world() as one:
        one.server.drop_watches(abruptly=True)
        await one.client.create(JOBS, job(completions=2, parallelism=2))
        one.server.drop_watches(abruptly=True)
        await one.until_pods("count-0", "count-1")


async def test_pods_of_jobs_ask_for_reclaimed_capacity_from_the_moment_that_it_is_wanted() -> None:
    async with world() as one:
        await one.client.create(JOBS, {"metadata": {"name": "early"}, "spec": {"template": TEMPLATE}})
        before = (await one.until_pods("early-0"))["early-0"]["spec"]["containers"][0]["resources"]
        await one.kill()
        one.start(reclaim=True)
        await one.client.create(JOBS, {"metadata": {"name": "late"}, "spec": {"template": TEMPLATE}})
        pods = await one.until_pods("early-0", "late-0")
        resources = {name: pod["spec"]["containers"][0]["resources"] for name, pod in pods.items()}
        assert resources["late-0"] == {key: {"cotide.dev/reclaimed-cpu": "1000"} for key in ("limits", "requests")}
        assert resources["early-0"] == before == {"requests": {"cpu": "1"}}, "what is there is not written anew"


async def test_an_amount_that_can_not_be_reclaimed_is_told_on_the_job_and_its_template_can_be_mended() -> None:
    async with world() as one:
        await one.kill()
        one.start(reclaim=True)
        container = {"name": "work", "image": "none", "resources": {"requests": {"memory": "16Pi"}}}
        spec = {"template": {"spec": {"containers": [container]}}}
        await one.client.create(JOBS, {"metadata": {"name": "count"}, "spec": spec})
        status = await one.until_status(
            f"{JOBS}/count", lambda status: condition(status, "Scheduled").get("reason") == "Misconfigured"
        )
        message = condition(status, "Scheduled")["message"]
        assert message.startswith(
            "spec.template.spec.containers[0].resources.requests.memory: '16Pi' is not an amount that a node"
        )
        container["resources"] = {"requests": {"memory": "1Ki"}}
        await one.client.patch(f"{JOBS}/count", {"spec": spec})
        await one.until_pods("count-0")


async def test_an_object_of_many_pods_rests_after_each_look_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciliation, "WITHOUT_REST", 1)
    async with world() as one:
        rests: set[float] = set()
        assert one.controllers is not None
        queue = one.controllers.queue
        done = queue.done

        def spied(key: reconciliation.WorkKey, rest_seconds: float = 0.0) -> None:
            rests.add(round(rest_seconds, 6))
            done(key, rest_seconds)

        monkeypatch.setattr(queue, "done", spied)
        await one.client.create(JOBS, job(completions=4, parallelism=4))
        await one.until_pods("count-0", "count-1", "count-2", "count-3")
        await one.until_status(f"{JOBS}/count", lambda _: 0.0003 in rests)  # 3 pods beyond the first, 100 us each
        assert rests <= {0.0, 0.0001, 0.0002, 0.0003}
