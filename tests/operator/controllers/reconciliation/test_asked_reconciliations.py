"""Looks that somebody asks for: at what the cache shows late, at the end of a term, and when they fail."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from cotide_core.errors import ClusterError
from cotide_kube.objects import PodObject
from cotide_operator.cache.decision_store import DecisionStore
from cotide_operator.cache.object_cache import KINDS, CustomObject, ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.controllers import reconciliation
from cotide_operator.controllers.reconciliation import Controllers

JOB = "ns/count"


class Scene:
    """Controllers without a server; of a look it is noted what the cache showed."""

    def __init__(self) -> None:
        self.cache = ObjectCache()
        for kind in KINDS:
            self.cache.mark_synced(kind)
        client: Any = None
        self.controllers = Controllers(client, self.cache, DecisionStore(), ScaledClock())
        self.seen: list[str | None] = []
        self.failure: Exception | None = None
        self.controllers.jobs.reconcile = self._reconcile  # type: ignore[method-assign]
        self.stop = asyncio.Event()

    async def _reconcile(self, key: str) -> float | None:
        job = self.cache.jobs.get(key)
        self.seen.append(job.metadata.resource_version if job is not None else None)
        if self.failure is not None:
            raise self.failure
        return None

    def job(self, version: str, change: str = "MODIFIED") -> None:
        metadata = {"name": "count", "namespace": "ns", "uid": "u", "resourceVersion": version}
        self.cache.apply("jobs", change, msgspec.convert({"metadata": metadata}, CustomObject))

    def pods(self, number: int) -> None:
        owner = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "name": "count", "uid": "u", "controller": True}
        for index in range(number):
            metadata = {"name": f"count-{index}", "namespace": "ns", "uid": str(index), "ownerReferences": [owner]}
            self.cache.apply("pods", "ADDED", msgspec.convert({"metadata": metadata}, PodObject))


async def turns(until: Callable[[], bool], most: int = 50) -> bool:
    """Let the loop turn until something holds; return whether it does."""
    for _ in range(most):
        if until():
            return True
        await asyncio.sleep(0)
    return until()


@asynccontextmanager
async def running(scene: Scene) -> AsyncIterator[Scene]:
    task = asyncio.create_task(scene.controllers.run(scene.stop))
    await asyncio.sleep(0)
    try:
        yield scene
    finally:
        scene.stop.set()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_the_cache_shows_later_than_a_look_waits_for_is_looked_at_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciliation, "SHOWN_SECONDS", 0.0)
    async with running(Scene()) as scene:
        await scene.controllers.reconcile("jobs", JOB, "7")
        assert scene.seen == [None]
        scene.job("6", "ADDED")
        assert await turns(lambda: scene.seen == [None, "6"])
        scene.job("7")
        assert await turns(lambda: scene.seen == [None, "6", "7"]), "kopf was told that this version is handled"
        scene.job("8")  # of which kopf tells in its turn
        assert not await turns(lambda: len(scene.seen) > 3)


async def test_what_the_cache_never_shows_is_forgotten_when_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciliation, "SHOWN_SECONDS", 0.0)
    async with running(Scene()) as scene:
        for number in range(3):  # objects that can't be read, say
            await scene.controllers.reconcile("jobs", f"ns/{number}", "7")
            await scene.controllers.reconcile("jobs", f"ns/{number}", "8", deleted=True)
        kept = vars(scene.controllers)
        assert not any(kept[name] for name in kept if name in ("_unshown", "_late"))


async def test_who_waits_for_the_cache_when_a_term_ends_is_told_nothing_of_a_failure() -> None:
    async with running(Scene()) as scene:
        asking = asyncio.create_task(scene.controllers.reconcile("jobs", JOB, "7"))
        await asyncio.sleep(0)
        scene.stop.set()
        await asyncio.sleep(0)
        scene.job("7", "ADDED")
        async with asyncio.timeout(5.0):
            await asking
        assert scene.seen == []


@pytest.mark.parametrize("asked", [True, False])
async def test_an_object_of_many_pods_rests_after_a_look_that_failed_as_well(
    asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciliation, "WITHOUT_REST", 1)
    monkeypatch.setattr(reconciliation, "REST_SECONDS_A_POD", 30.0)
    async with running(Scene()) as scene:
        scene.failure = ClusterError("the API server is unreachable")
        scene.job("7", "ADDED")
        scene.pods(2)
        if asked:
            with pytest.raises(ClusterError):
                await scene.controllers.reconcile("jobs", JOB, "7")
        assert await turns(lambda: len(scene.seen) == 1)
        scene.pods(2)  # each change of a pod asks for a look
        assert not await turns(lambda: len(scene.seen) > 1), scene.seen


async def test_a_workload_that_goes_unseen_by_kopf_is_forgotten() -> None:
    async with running(Scene()) as scene:
        metadata = {"name": "web", "namespace": "ns", "uid": "u", "resourceVersion": "7"}
        workload = msgspec.convert({"metadata": metadata}, CustomObject)
        scene.cache.apply("workloads", "ADDED", workload)
        with contextlib.suppress(AttributeError):  # there is no server that could be told what is wrong with its spec
            await scene.controllers.reconcile("workloads", "ns/web", "7")
        known = scene.controllers.workloads._known
        assert list(known) == ["ns/web"]
        scene.cache.apply("workloads", "DELETED", workload)
        assert await turns(lambda: not known)
