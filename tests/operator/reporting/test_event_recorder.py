"""Events in kube-scheduler's words: repeated ones are counted, not multiplied, and none ever stops a decision."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Any

import pytest

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting import event_recorder as recorder_module
from cotide_operator.reporting.event_recorder import (
    LONGEST_REPEAT_SECONDS,
    MAX_RETRIES,
    MESSAGE_LIMIT,
    REPEAT_SECONDS,
    EventRecorder,
)


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.work: dict[Hashable, Callable[[], Awaitable[None]]] = {}
        self.full = False
        self.created: list[dict[str, Any]] = []
        self.patched: list[tuple[str, dict[str, Any]]] = []
        self.fault: ClusterError | None = None
        self.expired = False
        self.metrics = Metrics()
        self.now = 100.0
        monkeypatch.setattr(recorder_module.time, "monotonic", lambda: self.now)
        stand_in: Any = self  # for the client and for the dispatcher: the recorder calls create, patch and submit only
        self.recorder = EventRecorder(stand_in, stand_in, self.metrics)

    def submit(self, key: Hashable, work: Callable[..., Awaitable[None]], namespace: str, *arguments: object) -> bool:
        if not self.full:
            self.work[key] = partial(work, *arguments)
        return not self.full

    def take_back(self, key: Hashable) -> None:
        self.work.pop(key, None)

    async def create(self, path: str, body: dict[str, Any]) -> None:
        if self.fault is not None:
            raise self.fault
        self.created.append(body)

    async def patch(self, path: str, body: dict[str, Any]) -> None:
        if self.expired:
            raise ApiError(404, "NotFound", 'events "p" not found')
        self.patched.append((path, body))

    async def flush(self) -> None:
        work, self.work = list(self.work.values()), {}
        for one in work:
            await one()

    async def later(self, seconds: float) -> None:
        """Let time pass, which is the event loop's as well, and write what that brings."""
        self.now += seconds
        for _ in range(3):
            await asyncio.sleep(0)
        await self.flush()

    def dropped(self) -> float | None:
        return self.metrics.registry.get_sample_value("cotide_events_dropped_total")


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


async def test_a_binding_is_told_in_the_words_that_users_know(scene: Scene) -> None:
    scene.recorder.scheduled("ns/p", "u", "n1")
    await scene.flush()
    (event,) = scene.created
    assert (event["type"], event["reason"], event["message"]) == (
        "Normal",
        "Scheduled",
        "Successfully assigned ns/p to n1",
    )
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "p", "uid": "u"}


async def test_the_same_words_again_raise_the_count_and_not_too_often(scene: Scene) -> None:
    scene.recorder.failed("ns/p", "u", "0/1 nodes are available")
    await scene.flush()
    scene.recorder.failed("ns/p", "u", "0/1 nodes are available")
    await scene.flush()
    assert scene.patched == []  # too early
    scene.now += REPEAT_SECONDS
    scene.recorder.failed("ns/p", "u", "0/1 nodes are available")
    await scene.flush()
    ((path, patch),) = scene.patched
    assert path.endswith(scene.created[0]["metadata"]["name"])
    assert patch["count"] == 2
    scene.now += 2 * REPEAT_SECONDS
    scene.recorder.failed("ns/p", "u", "0/2 nodes are available")
    await scene.flush()
    assert (len(scene.created), scene.patched[-1][1]["message"]) == (1, "0/2 nodes are available")
    scene.now += REPEAT_SECONDS
    scene.recorder.failed("ns/p", "u", "0/2 nodes are available: 2 cordoned")
    await scene.flush()
    assert len(scene.created) == 2  # another reason is another event


async def test_repeats_of_a_refusal_are_told_ever_later_and_the_last_of_them_is(scene: Scene) -> None:
    for nodes in range(3600):  # a node comes each second for an hour
        scene.recorder.failed("ns/p", "u", f"0/{nodes} nodes are available")
        await scene.later(1.0)
    assert (len(scene.created), len(scene.patched)) == (1, 13)
    await scene.later(LONGEST_REPEAT_SECONDS)
    assert scene.patched[-1][1]["message"] == "0/3599 nodes are available"


async def test_another_reason_is_told_though_a_repeat_waits_for_longer(scene: Scene) -> None:
    for words in ("0/1 nodes", "0/2 nodes", "0/3 nodes"):
        scene.recorder.failed("ns/p", "u", words)
        await scene.later(REPEAT_SECONDS)
    scene.recorder.failed("ns/p", "u", "0/4 nodes")
    scene.recorder.failed("ns/p", "u", "no node is registered")
    await scene.later(REPEAT_SECONDS)
    assert scene.created[-1]["message"] == "no node is registered"


async def test_a_refusal_that_is_over_before_it_is_written_is_left_out(scene: Scene) -> None:
    scene.recorder.failed("ns/p", "u", "0/1 nodes are available")
    scene.recorder.scheduled("ns/p", "u", "n1")
    await scene.flush()
    assert [event["reason"] for event in scene.created] == ["Scheduled"]


async def test_of_what_waits_in_the_lane_only_the_latest_is_written(scene: Scene) -> None:
    for words in ("first", "second"):
        scene.recorder.failed("ns/p", "u", words)
    await scene.flush()
    assert [event["message"] for event in scene.created] == ["second"]


async def test_the_latest_of_what_came_too_soon_is_written_as_soon_as_it_may_be(scene: Scene) -> None:
    for second, fault in enumerate(("no image", "no class", "no such class")):  # its owner corrects it again and again
        scene.now = 100.0 + second
        scene.recorder.misconfigured("Job", "ns/j", "u-j", fault, "cotide.dev/v1alpha1")
        await scene.flush()
    assert [event["message"] for event in scene.created] == ["no image"]
    await scene.later(REPEAT_SECONDS - 2.0)
    assert [event["message"] for event in scene.created] == ["no image", "no such class"]
    await scene.later(2 * REPEAT_SECONDS)
    assert len(scene.created) == 2


async def test_what_is_again_as_it_was_written_is_not_followed_by_what_was_between(scene: Scene) -> None:
    for words in ("0/2 nodes are available", "0/1 nodes are available", "0/2 nodes are available"):
        scene.recorder.failed("ns/p", "u", words)
        await scene.flush()
    await scene.later(REPEAT_SECONDS)
    assert [event["message"] for event in scene.created] == ["0/2 nodes are available"]


async def test_a_pod_that_is_bound_meanwhile_is_not_told_why_it_waits(scene: Scene) -> None:
    for words in ("0/2 nodes are available", "0/1 nodes are available"):
        scene.recorder.failed("ns/p", "u", words)
        await scene.flush()
    scene.recorder.scheduled("ns/p", "u", "n1")
    await scene.later(REPEAT_SECONDS)
    assert [event["reason"] for event in scene.created] == ["FailedScheduling", "Scheduled"]


async def test_an_event_that_the_server_has_forgotten_is_written_anew(scene: Scene) -> None:
    say = partial(scene.recorder.node, "n1", "u", "Normal", "Freed", "free and cordoned: it was empty")
    say()
    await scene.flush()
    scene.now += 7200.0
    scene.expired = True
    say()
    await scene.flush()
    assert (len(scene.created), scene.dropped()) == (2, 0.0)


async def test_of_kueues_workload_the_last_pod_is_told_and_no_start_after_the_end(scene: Scene) -> None:
    reasons = "PredictedStart", "PredictedFinish"
    for reason, words in (
        ("PredictedStart", "2 of 2 pods waiting"),
        ("PredictedFinish", "1 pod on nodes"),
        ("PredictedStart", "1 of 2 pods waiting"),
        ("PredictedFinish", "2 pods on nodes"),
    ):
        other = reasons[reason == "PredictedStart"]
        scene.recorder.kueue_workload("ns/wl", "u", reason, words, "kueue.x-k8s.io/v1beta2", instead_of=other)
        await scene.flush()
    await scene.later(REPEAT_SECONDS)
    assert [one["message"] for one in scene.created] == ["2 of 2 pods waiting", "1 pod on nodes", "2 pods on nodes"]


async def test_a_long_sentence_is_cut_to_what_the_api_takes(scene: Scene) -> None:
    scene.recorder.failed("ns/p", "u", "x" * 2000)
    await scene.flush()
    message = scene.created[0]["message"]
    assert (len(message), message[-3:]) == (MESSAGE_LIMIT, "...")


@pytest.mark.parametrize("owners", ["日本", "\ud800\udfff"], ids=["kanji", "half letters"])
async def test_a_sentence_in_any_script_is_cut_by_its_bytes_as_the_api_counts_them(scene: Scene, owners: str) -> None:
    scene.recorder.misconfigured("Job", "ns/j", "u", f"no class: {owners * 600}", "cotide.dev/v1alpha1")
    await scene.flush()
    message = scene.created[0]["message"]
    assert message.startswith("no class: ")
    assert MESSAGE_LIMIT - 3 <= len(message.encode()) <= MESSAGE_LIMIT


@pytest.mark.parametrize("cut_at", ["-", ".", "-.-"])
async def test_the_event_of_an_object_with_a_long_name_has_a_name_that_the_api_takes(scene: Scene, cut_at: str) -> None:
    scene.recorder.failed(f"ns/{'a' * (230 - len(cut_at))}{cut_at}{'b' * 20}", "u", "0/1 nodes are available")
    await scene.flush()
    name = scene.created[0]["metadata"]["name"]
    assert len(name) <= 253
    assert all(part and part[0] != "-" != part[-1] for part in name.split("."))


async def test_what_is_true_of_kueues_workload_is_written_last_though_all_waited_in_the_lane(scene: Scene) -> None:
    for reason, other, words in (
        ("PredictedFinish", "PredictedStart", "1 pod on nodes"),
        ("PredictedStart", "PredictedFinish", "1 of 2 pods waiting"),
        ("PredictedFinish", "PredictedStart", "2 pods on nodes"),
    ):
        scene.recorder.kueue_workload("ns/wl", "u", reason, words, "kueue.x-k8s.io/v1beta2", instead_of=other)
    await scene.flush()
    assert [one["message"] for one in scene.created] == ["2 pods on nodes"]


async def test_what_cannot_be_written_is_counted_and_nothing_else(scene: Scene) -> None:
    scene.fault = ApiError(403, "Forbidden", "namespace is going")
    scene.recorder.evicted("ns/p", "u", "overload")
    await scene.flush()
    scene.full = True
    scene.recorder.preempted("ns/p", "u", "room for another")
    assert scene.dropped() == 2.0


@pytest.mark.parametrize("fault", [ClusterError("no answer"), ApiError(503, "Down", "down")], ids=str)
async def test_what_the_server_may_take_later_is_written_later_as_it_happened(
    scene: Scene, fault: ClusterError
) -> None:
    scene.fault = fault
    scene.recorder.node("n1", "u", "Warning", "StopFailed", "it stays cordoned")
    await scene.flush()
    await scene.later(REPEAT_SECONDS)
    scene.fault = None
    assert scene.created == []
    await scene.later(2 * REPEAT_SECONDS)
    assert ([event["message"] for event in scene.created], scene.dropped()) == (["it stays cordoned"], 0.0)


async def test_what_could_not_be_written_is_not_said_after_what_is_true_by_then(scene: Scene) -> None:
    scene.fault = ClusterError("no answer")
    scene.recorder.node("n1", "u", "Normal", "Freeing", "2 pods to move")
    first, scene.work = list(scene.work.values()), {}
    scene.recorder.node("n1", "u", "Normal", "Freeing", "1 pod to move")  # while the first is on its way
    for work in first:
        await work()
    scene.fault = None
    await scene.flush()
    await scene.later(9 * REPEAT_SECONDS)
    assert [event["message"] for event in scene.created] == ["1 pod to move"]


async def test_what_can_never_be_written_is_tried_a_few_times_and_counted(scene: Scene) -> None:
    scene.fault = ClusterError("no answer")
    scene.recorder.evicted("ns/p", "u", "overload")
    tries = 0
    for _ in range(20):
        tries += len(scene.work)
        await scene.flush()
        await asyncio.sleep(0)
        scene.now += 9 * REPEAT_SECONDS
        await asyncio.sleep(0)
    assert (tries, scene.dropped()) == (1 + MAX_RETRIES, 1.0)


async def test_a_change_of_trust_is_an_event_of_the_node_where_describe_finds_it(scene: Scene) -> None:
    scene.recorder.forecast_trust("n1", "u", trusted=False, message="no usage for 90 s")
    scene.recorder.forecast_trust("n1", "u", trusted=True, message="covers 99 %")
    await scene.flush()
    assert [(event["type"], event["reason"], event["message"]) for event in scene.created] == [
        ("Warning", "FellBackToRequests", "no usage for 90 s"),
        ("Normal", "ForecastTrustedAgain", "covers 99 %"),
    ]
    event = scene.created[0]
    about = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u"}  # describe asks for an empty namespace
    assert (event["involvedObject"], event["metadata"]["namespace"]) == (about, "default")


async def test_a_job_hears_of_each_of_its_pods_and_of_none_twice(scene: Scene) -> None:
    for pod in ("j-0", "j-1", "j-0"):
        scene.recorder.job("ns/j", "u-j", "Preempted", pod, "made room")
        await scene.flush()
    assert [event["message"] for event in scene.created] == ["pod j-0: made room", "pod j-1: made room"]
    about = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "namespace": "ns", "name": "j", "uid": "u-j"}
    assert [event["involvedObject"] for event in scene.created] == [about, about]


async def test_an_event_carries_the_time_at_which_it_happened_however_late_it_is_written(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall = 1_700_000_000.25  # 2023-11-14T22:13:20.25Z
    monkeypatch.setattr(recorder_module.time, "time", lambda: wall)
    scene.recorder.scheduled("ns/p", "u", "n1")
    wall += 30.0
    await scene.flush()
    (event,) = scene.created
    assert (event["firstTimestamp"], event["eventTime"]) == ("2023-11-14T22:13:20Z", "2023-11-14T22:13:20.250000Z")
