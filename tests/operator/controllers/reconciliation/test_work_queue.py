"""The work queue: each key once, one worker a key, delays and ever slower retries."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import chain, repeat
from typing import Any, cast

import pytest

from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_operator.cache.object_cache import ObjectCache, namespace_of_key
from cotide_operator.controllers.child_pod_writer import ChildPodWriter
from cotide_operator.controllers.work_queue import RETRY_BASE_SECONDS, RETRY_MAX_SECONDS, WorkQueue


async def drained(queue: WorkQueue[str], seconds: float = 0.02) -> list[str]:
    found = []
    while True:
        try:
            async with asyncio.timeout(seconds):
                found.append(await queue.get())
        except TimeoutError:
            return found


def queue_of(most_each: int = 8) -> WorkQueue[str]:
    """Of keys ``namespace/name``, or names."""
    return WorkQueue(namespace_of_key, slots=64, slots_each=most_each)


async def test_a_key_waits_once_however_often_it_is_added() -> None:
    queue = queue_of()
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert len(queue) == 2
    assert await drained(queue) == ["a", "b"]


async def test_a_key_that_is_added_while_it_is_looked_at_is_looked_at_once_more() -> None:
    queue = queue_of()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert await drained(queue) == []  # one worker a key
    queue.done("a")
    assert await drained(queue) == ["a"]
    queue.done("a")
    assert await drained(queue) == []


async def test_namespaces_take_turns() -> None:
    queue = queue_of()
    for key in ("a/0", "a/1", "a/2", "b/0", "c/0", "b/1"):
        queue.add(key)
    assert await drained(queue) == ["a/0", "b/0", "c/0", "a/1", "b/1", "a/2"]


async def test_a_namespace_whose_looks_last_leaves_room_for_others() -> None:
    queue = queue_of(most_each=2)
    for key in ("a/0", "a/1", "a/2", "b/0"):
        queue.add(key)
    assert await drained(queue) == ["a/0", "b/0", "a/1"]
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.done("a/1")
    async with asyncio.timeout(1.0):
        assert await waiting == "a/2"


async def test_a_key_rests_after_a_look_that_was_long_however_often_it_is_added() -> None:
    queue = queue_of()
    queue.add("large")
    queue.add("small")
    assert await drained(queue) == ["large", "small"]
    queue.add("large")  # while it is looked at
    queue.done("large", rest_seconds=30.0)
    queue.add("large")  # and after
    queue.add_after("large", 0.001)
    queue.done("small")
    queue.add("small")
    assert await drained(queue) == ["small"]


async def test_a_key_that_rests_is_looked_at_once_its_rest_is_over() -> None:
    queue = queue_of()
    queue.add("large")
    await queue.get()
    queue.done("large", rest_seconds=0.03)
    queue.add("large")
    assert queue.take() is None
    async with asyncio.timeout(5.0):
        assert await queue.get() == "large"
    queue.done("large")
    queue.add("large")
    assert queue.take() == "large"  # the next look was short


async def test_the_earlier_of_two_delays_counts() -> None:
    queue = queue_of()
    queue.add_after("a", 30.0)
    queue.add_after("a", 0.01)
    queue.add_after("a", 60.0)
    assert await drained(queue, 0.2) == ["a"]
    assert await drained(queue) == []


async def test_a_waiting_worker_wakes_for_a_delay_that_is_due_sooner() -> None:
    queue = queue_of()
    queue.add_after("late", 30.0)
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add_after("soon", 0.01)
    async with asyncio.timeout(5.0):
        assert await worker == "soon"


async def test_a_key_that_falls_due_while_the_queue_is_asked_is_not_slept_over(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = queue_of()
    loop = asyncio.get_running_loop()
    queue.add_after("a", 30.0)
    due = loop.time() + 30.0

    async def work() -> str:
        clock = chain([due - 1.0], repeat(due + 1.0))  # due from the second reading on
        monkeypatch.setattr(loop, "time", lambda: next(clock))
        return await queue.get()

    worker = asyncio.create_task(work())
    await asyncio.sleep(0)
    queue.add("a")  # a resync, which must not find it ready with nobody awake
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    monkeypatch.undo()
    taken = worker.done()
    worker.cancel()
    assert taken


async def test_failures_double_the_wait_and_success_forgets_them() -> None:
    queue = queue_of()
    waits = []
    for _ in range(3):
        queue.add("a")
        await queue.get()
        waits.append(queue.failed("a"))
    assert waits == [RETRY_BASE_SECONDS, RETRY_BASE_SECONDS * 2, RETRY_BASE_SECONDS * 4]
    for _ in range(12):
        queue.add("a")
        await queue.get()
        waits.append(queue.failed("a"))
    assert waits[-1] == RETRY_MAX_SECONDS
    queue.add("a")
    await queue.get()
    queue.done("a")
    queue.add("a")
    await queue.get()
    assert queue.failed("a") == RETRY_BASE_SECONDS


async def test_a_manifest_is_made_when_its_turn_comes_and_none_after_a_refusal() -> None:
    made: list[int] = []

    class Quota:
        async def create(self, path: str, body: dict[str, Any]) -> None:
            raise ApiError(403, "Forbidden", "exceeded quota")

    def manifest(number: int) -> dict[str, Any]:
        made.append(number)
        return {"metadata": {"name": f"p{number}", "namespace": "ns"}}

    writer = ChildPodWriter(cast(KubeClient, Quota()), ObjectCache())
    outcome = await writer.make([partial(manifest, number) for number in range(10_000)])
    assert outcome.trouble is not None
    assert made == [0]
