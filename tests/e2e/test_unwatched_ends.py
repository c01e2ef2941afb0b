"""Ends of a Job's pods that nobody watched: counted once when the operator is back, and never run again."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from operator_world import ALONE, PODS, World, starts_of
from servers import Server

from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.objects import Metadata
from cotide_kube.timestamps import parse_timestamp
from cotide_operator.cache.object_cache import CustomObject
from cotide_operator.cache.preflight import install
from cotide_operator.controllers import job_controller
from cotide_operator.controllers.child_pods import CLOCKS_APART_SECONDS
from cotide_operator.controllers.job_finalizers import JobFinalizers, Released

JOBS = "/apis/cotide.dev/v1alpha1/namespaces/default/jobs"
HASTY = ALONE + (
    "simulatedTime: {originSeconds: 0, speed: 100}\n"  # the back-off of 10 s is over after 0.1 s
    "jobs: {startSeconds: 60000, createSeconds: 180000}\n"  # real kubelets are no faster for that
)
OURS = "cotide.dev/job-tracking"


@pytest.fixture
async def world(server: Server) -> AsyncIterator[World]:
    async with KubeClient(server.credentials) as client:
        await install(client)
        await server.until_accounts(client, "default")
        yield World(server, client)


async def make_job(world: World, completions: int, parallelism: int, **spec: Any) -> None:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container]}}
    wanted = {"completions": completions, "parallelism": parallelism, "template": template, **spec}
    body = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "metadata": {"name": "count"}, "spec": wanted}

    async def made() -> bool:
        return bool(await world.client.create(JOBS, body))

    await world.until("the Job is taken", made)


async def becomes(world: World, name: str, phase: str, **more: Any) -> None:
    """Have a container start or end, or play the kubelet that says so."""
    await world.server.becomes(world.client, f"{PODS}/{name}", phase, **more)


async def status(world: World) -> dict[str, Any]:
    found: dict[str, Any] = (await world.client.get(f"{JOBS}/count")).get("status", {})
    return found


async def pods(world: World) -> dict[str, dict[str, Any]]:
    return {pod["metadata"]["name"]: pod for pod in await world.client.list(PODS)}


async def kept(world: World) -> set[str]:
    return {name for name, pod in (await pods(world)).items() if OURS in pod["metadata"].get("finalizers", ())}


def of_index(pod: Metadata) -> str:
    return pod.labels.get("cotide.dev/index", "")


@pytest.mark.parametrize("crash", [True, False])
async def test_pods_that_end_and_are_deleted_while_nobody_is_there_are_counted_and_not_run_again(
    world: World, crash: bool
) -> None:
    await world.nodes(2)
    async with starts_of(world.client, of_index) as starts:
        async with world.operator(ALONE, crash=crash):
            await make_job(world, completions=5, parallelism=4)
            await world.until_placed(4)
            for index in range(4):
                await becomes(world, f"count-{index}", "Running")
            await world.until("all run", lambda: all_active(world, 4))
        ended = {"name": "c", "state": {"terminated": {"exitCode": 1, "finishedAt": "2026-11-20T13:00:09Z"}}}
        for name in ("count-0", "count-1", "count-2"):
            await becomes(world, name, "Succeeded")
        await becomes(world, "count-3", "Failed", containerStatuses=[{**ended, **_REST}])
        await world.until("index 3 failed long before its deletion", lambda: failed_long_ago(world, "count-3"))
        for index in range(4):
            await world.client.delete(f"{PODS}/count-{index}")
        assert await kept(world) == {f"count-{index}" for index in range(4)}
        async with world.operator(HASTY):
            await world.until("the next index has a node", lambda: on_node(world, "count-4"))
            await becomes(world, "count-4", "Succeeded")
            await world.until("index 3 is tried again, once its back-off is over", lambda: on_node(world, "count-3-r1"))
            await becomes(world, "count-3-r1", "Succeeded")
            await world.until("the Job has succeeded", lambda: has_phase(world, "Succeeded"))
            await world.until("no pod is kept", lambda: nothing_kept(world))
        shown = await status(world)
        assert (shown["completedIndexes"], shown["succeeded"], shown["failures"], shown["evictions"]) == (
            "0-4",
            5,
            1,
            0,
        )
        assert {index: len(uids) for index, uids in starts.items()} == {"0": 1, "1": 1, "2": 1, "3": 2, "4": 1}
        assert set(await pods(world)) == {"count-3-r1", "count-4"}  # those that nobody deleted


_REST = {"image": "x", "imageID": "", "ready": False, "restartCount": 0}


async def failed_long_ago(world: World, name: str) -> bool:
    """Whether the end of a pod is so far away that its deletion can't have been the cause."""
    (container,) = (await pods(world))[name]["status"]["containerStatuses"]
    ended = parse_timestamp(container["state"]["terminated"]["finishedAt"])
    return ended < time.time() - CLOCKS_APART_SECONDS - 1.0  # told in whole seconds


async def all_active(world: World, count: int) -> bool:
    return (await status(world)).get("active") == count


async def has_phase(world: World, phase: str) -> bool:
    return (await status(world)).get("phase") == phase


async def on_node(world: World, name: str) -> bool:
    return name in await world.placed()


async def nothing_kept(world: World) -> bool:
    return not await kept(world)


async def nothing_left(world: World) -> bool:
    for name, pod in (await pods(world)).items():
        metadata = pod["metadata"]
        if pod["spec"].get("nodeName") and "deletionTimestamp" in metadata:  # its kubelet has stopped it
            with contextlib.suppress(ApiError):  # gone since
                await world.client.delete(f"{PODS}/{name}", grace_seconds=0, uid=metadata["uid"])
    return not await world.client.list(PODS) and not await world.client.list(JOBS)


@pytest.mark.parametrize(
    ("propagation", "watched"), [("Background", True), ("Foreground", True), ("Background", False)]
)
async def test_a_job_that_is_deleted_leaves_nothing(world: World, propagation: str, watched: bool) -> None:
    await world.nodes(1, cpu="2")
    async with contextlib.AsyncExitStack() as stack:
        async with contextlib.AsyncExitStack() as first:
            await first.enter_async_context(world.operator(ALONE, crash=True))
            await make_job(world, completions=4, parallelism=3)  # one runs, one has ended, one waits
            await world.until_placed(2)
            await becomes(world, sorted(await world.placed())[0], "Running")
            await world.until("the third waits", lambda: count_is(world, 3))
            if watched:
                stack.push_async_exit(first.pop_all())
            else:
                await first.aclose()
                await becomes(world, sorted(await world.placed())[1], "Succeeded")
            await world.client.delete(f"{JOBS}/count", propagation=propagation)
        if not watched:

            async def all_leave() -> bool:
                return all("deletionTimestamp" in pod["metadata"] for pod in (await pods(world)).values())

            await world.until("the collector of garbage has deleted them", all_leave)
            assert len(await kept(world)) == 3
            await stack.enter_async_context(world.operator(ALONE))
        await world.until("nothing is left", lambda: nothing_left(world))


async def count_is(world: World, count: int) -> bool:
    return len(await pods(world)) == count


async def test_orphaned_pods_go_on_and_are_not_kept(world: World) -> None:
    await world.nodes(1)
    async with world.operator(ALONE):
        await make_job(world, completions=2, parallelism=2)
        await world.until_placed(2)
        await world.client.delete(f"{JOBS}/count", propagation="Orphan")
        await world.until("no pod is kept", lambda: nothing_kept(world))

        async def owned() -> bool:
            left = (await pods(world)).values()
            return any(pod["metadata"].get("ownerReferences") for pod in left) or bool(await world.client.list(JOBS))

        async def free() -> bool:
            return not await owned()

        await world.until("they have no owner, and the Job is gone", free)
        left = await pods(world)
        assert set(left) == {"count-0", "count-1"}
        assert not any("deletionTimestamp" in pod["metadata"] for pod in left.values())


async def test_a_pod_that_ended_holds_no_place_on_its_node_though_its_finalizer_is_still_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What was refused is looked at again after half a minute: as long as this test waits for anything.
    monkeypatch.setattr(job_controller, "TROUBLE_SECONDS", 1.0)
    await world.nodes(1, cpu="1")
    async with world.operator(ALONE):
        await make_job(world, completions=2, parallelism=1)
        await world.until_placed(1)
        await becomes(world, "count-0", "Running")
        held = world.server.strike(status=422, method="PATCH", path="/pods/count-0$", count=-1)
        await becomes(world, "count-0", "Succeeded")
        await world.client.delete(f"{PODS}/count-0")
        await world.until("the next one has the place", lambda: on_node(world, "count-1"))
        assert await kept(world) == {"count-0", "count-1"}
        assert held.met >= 1
        world.server.faults.clear()
        await world.until("the first is gone", lambda: count_is(world, 1))


async def test_pods_of_a_job_that_cannot_be_read_after_a_restart_are_kept_and_counted_once_it_can(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither orphaned, nor made again, nor let go, although the cache does not hold their Job."""
    await world.nodes(1)
    async with world.operator():
        await make_job(world, completions=3, parallelism=2)
        await world.until_placed(2)
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    deep = json.dumps({"spec": {"template": {"spec": {"containers": [{**container, "deep": 0}]}}}})
    merge = "application/merge-patch+json"
    nested = deep.replace('"deep": 0', '"deep": ' + '{"a":' * 2000 + "1" + "}" * 2000)
    await world.client.request("PATCH", f"{JOBS}/count", nested.encode(), content_type=merge)
    async with world.operator() as operator:
        await world.until("the Job is quarantined", lambda: operator.cache.quarantine.get("jobs", "default/count"))
        released: list[Released] = []
        original = JobFinalizers.release_strays

        async def release_strays(self: JobFinalizers, key: str, job: CustomObject | None) -> Released:
            released.append(await original(self, key, job))
            return released[-1]

        monkeypatch.setattr(JobFinalizers, "release_strays", release_strays)
        await becomes(world, "count-0", "Succeeded")
        await world.until("its pods were looked at", lambda: len(released) > 1)
        there = await pods(world)
        assert sorted(there) == ["count-0", "count-1"]
        assert all(OURS in pod["metadata"]["finalizers"] for pod in there.values())
        assert all(pod["metadata"]["ownerReferences"][0]["name"] == "count" for pod in there.values())
        assert operator.cache.quarantine.get("jobs", "default/count").part == "decoding"
        mended = deep.replace(', "deep": 0', "")
        await world.client.request("PATCH", f"{JOBS}/count", mended.encode(), content_type=merge)
        await world.until_placed(3)
        for name in ("count-1", "count-2"):
            await becomes(world, name, "Succeeded")
        await world.until("the Job has succeeded", lambda: has_phase(world, "Succeeded"))
    assert sorted(await pods(world)) == ["count-0", "count-1", "count-2"]
