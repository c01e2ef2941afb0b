"""Groups of Kueue's: it keeps a pod that went until another follows, and the quota of all; it is told when none will.

Its own part is played by its finalizer, which only the operator takes off here. Beside the real one: tests/real/kueue.
"""

from __future__ import annotations

from typing import Any

from controllers_world import JOBS, PODS, World, job, world

OURS, KUEUES = "cotide.dev/job-tracking", "kueue.x-k8s.io/managed"
RETRIABLE = "kueue.x-k8s.io/retriable-in-group"


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
