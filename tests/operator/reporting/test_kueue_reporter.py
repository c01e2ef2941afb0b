"""What Kueue's users read on their Workloads: when pods should start and be done, and nothing where Kueue is not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Any

import pytest
from manifests import pod_object

from cotide_core.errors import ClusterError
from cotide_core.instructions import Forecast
from cotide_kube.answers import ApiError
from cotide_operator.cache.decision_store import Decision, DecisionStore
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.reporting import kueue_reporter
from cotide_operator.reporting.kueue_reporter import MAX_RETRIES, KueueReporter

QUEUE, GROUP = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/pod-group-name"
NEWER, OLDER = "kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1"


class Scene:
    """Stands in for client, dispatcher and recorder; the operator's clock is the wall's, from 1970 on."""

    def __init__(self, serves: str = NEWER) -> None:
        self.work: dict[Hashable, Callable[[], Awaitable[None]]] = {}
        self.serves = serves
        self.full = False
        self.error: ClusterError | None = None
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.events: list[tuple[str, ...]] = []
        self.cache, self.decisions = ObjectCache(), DecisionStore()
        stand_in: Any = self
        clock = ScaledClock(origin_seconds=0.0, speed=1.0)
        clock.to_wall = lambda seconds: seconds  # type: ignore[method-assign]  # times in messages are then the test's
        self.reporter = KueueReporter(stand_in, stand_in, stand_in, self.cache, self.decisions, clock)

    def submit(self, key: Hashable, work: Callable[..., Awaitable[None]], namespace: str, *arguments: object) -> bool:
        if not self.full:
            self.work[key] = partial(work, *arguments)
        return not self.full

    async def list(self, path: str, query: dict[str, str]) -> list[dict[str, Any]]:
        self.asked.append((path, query))
        if self.error is not None:
            raise self.error
        if self.serves not in path:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        return [{"metadata": {"name": "wl", "uid": "u-wl"}}]

    def kueue_workload(self, *said: str, instead_of: str) -> None:
        assert {said[2], instead_of} == {"PredictedStart", "PredictedFinish"}
        self.events.append(said)

    def pod(self, name: str, **parts: Any) -> None:
        self.cache.apply("pods", "ADDED", pod_object(name, "1", **parts))

    def decide(self, name: str, node: str | None = None, start: float | None = None, seconds: float = 60.0) -> None:
        forecast = Forecast(seconds_p50=seconds)
        self.decisions.publish(
            Decision(f"ns/{name}", f"u-{name}", 100.0, node, "", "", forecast=forecast, predicted_start_seconds=start)
        )

    async def written(self) -> list[tuple[str, ...]]:
        for work in self.work.values():
            await work()
        self.work.clear()
        events, self.events = self.events, []
        return events


async def test_a_pod_that_waits_and_then_runs_is_told_of_on_its_own_workload() -> None:
    scene = Scene()
    scene.pod("p", labels={QUEUE: "team"})
    scene.decide("p", start=160.0)
    words = (
        "1 of 1 pod waiting for a node, expected to start about 1970-01-01T00:02:40Z, done about 1970-01-01T00:03:40Z"
    )
    assert await scene.written() == [("ns/wl", "u-wl", "PredictedStart", words, NEWER)]
    assert scene.asked == [(f"/apis/{NEWER}/namespaces/ns/workloads", {"labelSelector": "kueue.x-k8s.io/job-uid=u-p"})]
    scene.decide("p", node="n")
    words = "1 pod on nodes, expected to be done about 1970-01-01T00:02:40Z"  # decided at 100 s, 60 s long
    assert await scene.written() == [("ns/wl", "u-wl", "PredictedFinish", words, NEWER)]
    assert len(scene.asked) == 1


async def test_a_group_is_told_of_by_its_last_pod() -> None:
    scene = Scene()
    for name, start in (("a", 160.0), ("b", 220.0)):
        scene.pod(name, labels={QUEUE: "team", GROUP: "train"})
        scene.decide(name, start=start)
    ((key, _, _, words, _),) = await scene.written()
    assert (key, scene.asked[0][1]) == ("ns/wl", {"fieldSelector": "metadata.name=train"})
    assert words.startswith("2 of 2 pods waiting for a node, expected to start about 1970-01-01T00:03:40Z, done about")
    scene.decide("a", node="n")
    ((_, _, _, words, _),) = await scene.written()
    assert words.startswith("1 of 2 pods waiting")


async def test_an_older_kueue_is_asked_in_its_own_version() -> None:
    scene = Scene(serves=OLDER)
    scene.pod("p", labels={QUEUE: "team"})
    scene.decide("p", node="n")
    assert [said[-1] for said in await scene.written()] == [OLDER]


async def test_nothing_is_asked_for_pods_of_no_queue_or_behind_its_gate() -> None:
    scene = Scene()
    scene.pod("plain")
    scene.pod("gated", labels={QUEUE: "team"}, spec={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]})
    for name in ("plain", "gated"):
        scene.decide(name, start=160.0)
    assert await scene.written() == []
    assert scene.asked == []


async def test_without_the_right_to_read_workloads_it_asks_once() -> None:
    scene = Scene()
    scene.error = ApiError(403, "Forbidden", "workloads is forbidden")
    for name in ("a", "b"):
        scene.pod(name, labels={QUEUE: "team"})
    scene.decide("a", node="n")
    assert await scene.written() == []
    scene.decide("b", node="n")
    assert (await scene.written(), len(scene.asked)) == ([], 1)


@pytest.mark.parametrize("fault", [ClusterError("no answer"), ApiError(503, "Down", "etcd"), None], ids=str)
async def test_the_last_word_is_said_later_where_nobody_answered_or_the_lane_was_full(
    monkeypatch: pytest.MonkeyPatch, fault: ClusterError | None
) -> None:
    monkeypatch.setattr(kueue_reporter, "AGAIN_SECONDS", 0.0)
    scene = Scene()
    scene.error, scene.full = fault, fault is None
    scene.pod("p", labels={QUEUE: "team"})
    scene.decide("p", node="n")
    assert await scene.written() == []
    scene.error, scene.full = None, False
    for _ in range(3):
        await asyncio.sleep(0)
    assert [said[2] for said in await scene.written()] == ["PredictedFinish"]


@pytest.mark.parametrize(("goes", "times"), [(False, 1 + MAX_RETRIES), (True, 1)])
async def test_it_is_asked_only_so_often_and_not_for_pods_that_are_gone(
    monkeypatch: pytest.MonkeyPatch, *, goes: bool, times: int
) -> None:
    monkeypatch.setattr(kueue_reporter, "AGAIN_SECONDS", 0.0)
    scene = Scene()
    scene.error = ClusterError("no answer")
    scene.pod("p", labels={QUEUE: "team"})
    scene.decide("p", node="n")
    await scene.written()
    if goes:
        scene.cache.apply("pods", "DELETED", scene.cache.pods["ns/p"])
    for _ in range(6 * MAX_RETRIES):
        await asyncio.sleep(0)
        await scene.written()
    assert len(scene.asked) == times
