"""Pods of Jobs stay until they are counted, and no longer: the controllers on the embedded API server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from controllers_world import JOBS, PODS, World, job, world

from cotide_kube.answers import ApiError
from cotide_kube.objects import PodObject
from cotide_operator.cache.decision_store import DecisionStore
from cotide_operator.cache.object_cache import CustomObject, ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.controllers import child_pod_writer as child_writer
from cotide_operator.controllers.child_pod_writer import ChildPodWriter
from cotide_operator.controllers.job_controller import JobController, ReconcileOptions
from cotide_operator.controllers.job_finalizers import JobFinalizers
from cotide_sim.apiserver.http.faults import Fault

OURS, KUEUES = "cotide.dev/job-tracking", "kueue.x-k8s.io/managed"
RETRIABLE = "kueue.x-k8s.io/retriable-in-group"


def finalizers(pod: dict[str, Any]) -> list[str]:
    found: list[str] = pod["metadata"].get("finalizers", [])
    return found


async def running(one: World, *names: str, **spec: Any) -> None:
    await one.client.create(JOBS, job(completions=len(names), parallelism=len(names), **spec))
    await one.until_pods(*names)
    for name in names:
        await one.run_pod(name)
    await one.until_status(f"{JOBS}/count", lambda status: status.get("active") == len(names))


async def nothing_at(one: World, path: str) -> bool:
    return not await one.client.list(path)


async def until_let_go(one: World) -> dict[str, dict[str, Any]]:
    async def free() -> bool:
        return not any(OURS in finalizers(pod) for pod in (await one.pods()).values())

    await one.until(free)
    return await one.pods()


async def test_ends_that_nobody_watched_are_counted_though_the_pods_were_deleted() -> None:
    async with world() as one:
        await running(one, "count-0", "count-1")
        await one.kill()
        await one.set_status("count-0", phase="Succeeded")
        ended = {"name": "work", "state": {"terminated": {"exitCode": 1, "finishedAt": "2026-11-20T13:00:09Z"}}}
        await one.set_status("count-1", phase="Failed", containerStatuses=[ended])
        for name in ("count-0", "count-1"):
            await one.client.delete(f"{PODS}/{name}")
        waiting = await one.pods()
        assert [finalizers(pod) for pod in waiting.values()] == [[OURS], [OURS]]
        assert all("deletionTimestamp" in pod["metadata"] for pod in waiting.values())
        one.start(speed=100.0)  # the back-off of 10 s is over after 0.1 s
        await one.until_pods("count-1-r1")  # index 0 is not run again, index 1 under a new name
        status = (await one.client.get(f"{JOBS}/count"))["status"]
        assert (status["completedIndexes"], status["failures"], status["evictions"]) == ("0", 1, 0)
        await one.run_pod("count-1-r1")
        await one.set_status("count-1-r1", phase="Succeeded")
        done = await one.until_status(f"{JOBS}/count", lambda status: status.get("phase") == "Succeeded")
        assert done["completedIndexes"] == "0-1"
        assert set(await until_let_go(one)) == {"count-1-r1"}  # nobody deleted that one


async def test_a_pod_whose_creation_got_no_answer_is_kept_while_that_may_yet_be_carried_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child_writer, "DOUBT_SECONDS", 1e9)
    async with world() as one:
        one.server.faults.add(Fault(status=500, method="POST", path="/pods$"))
        await running(one, "count-0")
        await one.set_status("count-0", phase="Succeeded")
        await one.client.delete(f"{PODS}/count-0")
        await one.until_status(f"{JOBS}/count", lambda status: status.get("phase") == "Succeeded")
        assert one.controllers is not None
        wait = await one.controllers.jobs.reconcile("default/count")
        assert wait is not None
        assert 1e8 < wait <= 1e9
        assert finalizers((await one.pods())["count-0"]) == [OURS]  # a late creation is answered with 409
        await one.client.delete(f"{JOBS}/count")
        await one.until(lambda: nothing_at(one, JOBS))
        assert finalizers((await one.pods())["count-0"]) == [OURS]  # nor may it run for a Job that is gone
        monkeypatch.setattr(child_writer, "DOUBT_SECONDS", 0.0)
        assert await one.controllers.jobs.reconcile("default/count") is None
        await one.until(lambda: nothing_at(one, PODS))


async def test_no_pod_is_let_go_before_its_end_is_written_down() -> None:
    async with world() as one:
        await running(one, "count-0")
        refusing = one.server.faults.add(Fault(status=422, method="PATCH", path="/jobs/count/status$", count=-1))
        await one.set_status("count-0", phase="Succeeded")
        await one.client.delete(f"{PODS}/count-0")

        async def refused() -> bool:
            return refusing.met >= 3

        await one.until(refused)
        assert finalizers((await one.pods())["count-0"]) == [OURS]
        one.server.faults.clear()
        await one.until_status(f"{JOBS}/count", lambda status: status.get("phase") == "Succeeded")
        await one.until(lambda: nothing_at(one, PODS))


async def test_an_end_that_is_written_down_is_not_counted_again_by_the_next_controller() -> None:
    async with world() as one:
        await running(one, "count-0", "count-1")
        held = one.server.faults.add(Fault(status=422, method="PATCH", path="/pods/count-[01]$", count=-1))
        await one.set_status("count-0", phase="Succeeded")
        await one.set_status("count-1", phase="Failed", reason="Evicted")

        async def refused() -> bool:
            status = (await one.client.get(f"{JOBS}/count"))["status"]
            return held.met >= 2 and (status["succeeded"], status["evictions"]) == (1, 1)

        await one.until(refused)
        await one.kill()
        for name in ("count-0", "count-1"):
            await one.client.delete(f"{PODS}/{name}")
        one.server.faults.clear()
        one.start()
        await one.until_pods("count-1-r1")
        status = (await one.client.get(f"{JOBS}/count"))["status"]
        assert (status["completedIndexes"], status["evictions"], status["failures"]) == ("0", 1, 0)


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
async def test_a_job_that_is_deleted_leaves_no_pod_behind_that_waits_for_us(propagation: str, watched: bool) -> None:
    async with world() as one:
        await one.client.create(JOBS, job(completions=3, parallelism=3))
        await one.until_pods("count-0", "count-1", "count-2")
        for name in ("count-0", "count-1"):
            await one.run_pod(name)
        await one.until_status(f"{JOBS}/count", lambda status: status.get("active") == 2)
        if not watched:
            await one.kill()
            await one.set_status("count-1", phase="Succeeded")
        await one.client.delete(f"{JOBS}/count", propagation=propagation)
        if not watched:
            assert {OURS} == {name for pod in (await one.pods()).values() for name in finalizers(pod)}
            one.start()
        left = await until_let_go(one)
        if propagation == "Orphan":
            await one.until(lambda: nothing_at(one, JOBS))
            assert set(left) == {"count-0", "count-1", "count-2"}
            assert not any("deletionTimestamp" in pod["metadata"] for pod in left.values())
            return
        for name in set(left) & {"count-0", "count-1"}:  # their kubelet stops them
            await one.client.delete(f"{PODS}/{name}", grace_seconds=0)
        await one.until(lambda: nothing_at(one, PODS))
        await one.until(lambda: nothing_at(one, JOBS))


async def test_finalizers_of_others_stay() -> None:
    async with world() as one:
        await running(one, "count-0")
        await one.client.patch(f"{PODS}/count-0", {"metadata": {"finalizers": ["a/b", OURS, "c/d"]}})
        await one.set_status("count-0", phase="Succeeded")
        pods = await until_let_go(one)
        assert finalizers(pods["count-0"]) == ["a/b", "c/d"]


async def test_a_job_that_failed_keeps_no_pod_not_even_one_that_still_runs() -> None:
    async with world() as one:
        await running(one, "count-0", "count-1", backoffLimit=0)
        await one.set_status("count-0", phase="Failed")
        await one.until_status(f"{JOBS}/count", lambda status: status.get("phase") == "Failed")
        pods = await until_let_go(one)
        assert "deletionTimestamp" in pods["count-1"]["metadata"]


async def test_a_pod_whose_label_or_owner_somebody_took_away_does_not_wait_for_ever() -> None:
    async with world() as one:
        await running(one, "count-0", "count-1", "count-2")
        await one.client.patch(f"{PODS}/count-0", {"metadata": {"labels": {"cotide.dev/index": None}}})
        await one.client.patch(f"{PODS}/count-1", {"metadata": {"ownerReferences": None}})
        bare: dict[str, Any] = {"labels": None, "ownerReferences": None}
        await one.client.patch(f"{PODS}/count-2", {"metadata": bare})

        async def free() -> bool:
            pods = await one.pods()
            return not any(finalizers(pods[name]) for name in ("count-0", "count-1", "count-2"))

        await one.until(free)


async def test_an_owner_that_the_mirror_does_not_show_is_asked_for_before_its_pods_are_let_go() -> None:
    async with world() as one:
        await running(one, "count-0")
        await one.kill()
        lagging = ObjectCache()
        raw = (await one.pods())["count-0"]
        lagging.apply("pods", "ADDED", msgspec.convert(raw, PodObject))
        tracking = JobFinalizers(one.client, lagging, ChildPodWriter(one.client, lagging))
        assert (await tracking.release_strays("default/count", None)).again_seconds == 1.0
        assert finalizers((await one.pods())["count-0"]) == [OURS]
        await one.client.delete(f"{JOBS}/count", propagation="Orphan")
        await one.until(lambda: nothing_at(one, JOBS))
        assert await tracking.release_strays("default/count", None) == (None, {})
        assert finalizers((await one.pods())["count-0"]) == []


async def test_a_new_leader_whose_watch_of_jobs_lags_behind_asks_what_the_last_one_counted() -> None:
    async with world() as one:
        await running(one, "count-0", "count-1")
        before = await one.client.get(f"{JOBS}/count")
        await one.set_status("count-0", phase="Succeeded")
        await one.client.delete(f"{PODS}/count-0")
        left = await one.until_pods("count-1")
        await one.kill()
        lagging = ObjectCache()
        lagging.apply("jobs", "ADDED", msgspec.convert(before, CustomObject))
        lagging.apply("pods", "ADDED", msgspec.convert(left["count-1"], PodObject))
        next_one = JobController(
            one.client, lagging, DecisionStore(), ScaledClock(), ReconcileOptions(refresh_seconds=0.05)
        )
        await next_one.reconcile("default/count")
        assert set(await one.pods()) == {"count-1"}
        assert (await one.client.get(f"{JOBS}/count"))["status"]["completedIndexes"] == "0"
        await one.client.delete(f"{JOBS}/count", propagation="Orphan")
        next_one.forget("default/count")
        assert await next_one.reconcile("default/count") == 1.0  # gone, which the cache will tell


async def test_what_a_lagging_watch_made_of_a_job_is_forgotten_though_its_status_could_not_be_read_at_first() -> None:
    async with world() as one:
        await running(one, "count-0", backoffLimit=3)
        before = await one.client.get(f"{JOBS}/count")
        held = one.server.faults.add(Fault(status=422, method="PATCH", path="/pods/count-0$", count=-1))
        await one.set_status("count-0", phase="Failed")
        await one.until_status(f"{JOBS}/count", lambda status: status.get("failures") == 1 and held.met)
        await one.kill()
        one.server.faults.clear()
        lagging = ObjectCache()
        lagging.apply("jobs", "ADDED", msgspec.convert(before, CustomObject))
        lagging.apply("pods", "ADDED", msgspec.convert((await one.pods())["count-0"], PodObject))
        next_one = JobController(one.client, lagging, DecisionStore(), ScaledClock(), ReconcileOptions())
        one.server.faults.add(Fault(status=403, method="GET", path="/jobs/count$"))
        with pytest.raises(ApiError):
            await next_one.reconcile("default/count")
        await next_one.reconcile("default/count")
        # Counted long ago, and not now: a new leader knows of no back-off that its pod would have to wait for.
        assert set(await one.pods()) == {"count-0", "count-0-r1"}


async def test_a_job_that_is_made_in_this_term_is_not_asked_for() -> None:
    async with world() as one:
        asked = one.server.faults.add(Fault(method="GET", path="/jobs/count$", count=-1))
        await one.client.create(JOBS, job("first"))
        await one.until_pods("first-0")  # the term has begun
        await one.client.create(JOBS, job())
        await one.until_pods("first-0", "count-0")
        assert asked.met == 0
        await one.kill()
        one.start()
        await one.run_pod("count-0")

        async def status() -> dict[str, Any]:
            found: dict[str, Any] = next(
                item for item in await one.client.list(JOBS) if item["metadata"]["name"] == "count"
            )["status"]
            return found

        async def runs() -> bool:
            return (await status()).get("active") == 1

        async def done() -> bool:
            return (await status()).get("phase") == "Succeeded"

        await one.until(runs)
        assert asked.met == 0
        await one.set_status("count-0", phase="Succeeded")
        await one.until(done)
        assert asked.met == 1  # before it was counted: the term before may have written


async def test_each_finalizer_is_taken_off_by_one_request() -> None:
    async with world() as one:
        counted = one.server.faults.add(Fault(method="PATCH", path="/pods/count-[0-9]$", count=-1))
        await running(one, *(f"count-{index}" for index in range(8)))
        before = counted.met
        for index in range(8):
            await one.set_status(f"count-{index}", phase="Succeeded")
        await until_let_go(one)
        assert counted.met - before == 8


# Kueue keeps a pod of a group that went until another follows it, and the quota of all (pod_controller.go of 0.15.0):
# it is told when none will. Nobody but the operator takes its finalizer off here; the real one is in tests/real/kueue.


async def grouped(one: World, *, queued: bool = True, **spec: Any) -> None:
    """Run a Job of two pods, which carry both finalizers."""
    body = job(completions=2, parallelism=2, **spec)
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"} if queued else {}
    await one.client.create(JOBS, body)
    await one.until_pods("count-0", "count-1")
    for name in ("count-0", "count-1"):
        await one.client.patch(f"{PODS}/{name}", {"metadata": {"finalizers": [KUEUES, OURS]}})
        await one.run_pod(name)
    await one.until_status(f"{JOBS}/count", lambda status: status.get("active") == 2)


async def kept_by(one: World, name: str) -> list[str] | None:
    """Return the finalizers of a pod, None for one that is gone."""
    pods = await one.pods()
    return pods[name]["metadata"].get("finalizers", []) if name in pods else None


async def until_kept_by(one: World, name: str, *finalizers: str) -> None:
    async def so() -> bool:
        return await kept_by(one, name) == list(finalizers)

    await one.until(so)


async def test_a_failed_pod_that_another_follows_stays_kueues() -> None:
    async with world() as one:
        await grouped(one)
        await one.set_status("count-0", phase="Failed")
        await until_kept_by(one, "count-0", KUEUES)
        assert RETRIABLE not in (await one.pods())["count-0"]["metadata"]["annotations"]


async def test_the_pods_of_a_suspended_job_leave_at_once_and_their_names_are_free_again() -> None:
    async with world() as one:
        await grouped(one)
        await one.client.patch(f"{JOBS}/count", {"spec": {"suspend": True}})
        for name in ("count-0", "count-1"):
            await one.until(lambda name=name: deleted(one, name))  # type: ignore[misc]  # the default binds one
            await one.set_status(name, phase="Failed")
            await one.client.delete(f"{PODS}/{name}", grace_seconds=0)

        async def gone() -> bool:
            return not await one.pods()

        await one.until(gone)
        await one.client.patch(f"{JOBS}/count", {"spec": {"suspend": False}})
        await one.until_pods("count-0", "count-1")


async def deleted(one: World, name: str) -> bool:
    return "deletionTimestamp" in (await one.pods())[name]["metadata"]


async def test_a_job_that_failed_says_that_nobody_follows_the_pods_of_its_group() -> None:
    async with world() as one:
        await grouped(one, backoffLimit=0)
        await one.set_status("count-0", phase="Failed")
        await until_kept_by(one, "count-0")
        assert (await one.pods())["count-0"]["metadata"]["annotations"][RETRIABLE] == "false"


async def test_the_pods_of_a_deleted_job_do_not_wait_for_kueue() -> None:
    async with world() as one:
        await grouped(one)
        await one.client.delete(f"{JOBS}/count")
        await until_kept_by(one, "count-0")
        await until_kept_by(one, "count-1")


async def test_without_a_queue_a_finalizer_of_kueues_is_nobodys_business_of_ours() -> None:
    async with world() as one:
        await grouped(one, queued=False, backoffLimit=0)
        await one.set_status("count-0", phase="Failed")
        await until_kept_by(one, "count-0", KUEUES)
        assert RETRIABLE not in (await one.pods())["count-0"]["metadata"]["annotations"]
