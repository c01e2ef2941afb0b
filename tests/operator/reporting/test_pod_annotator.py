"""What pods say about themselves: only what changed, not too often, and never over somebody else's word."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from engine_objects import running_pod

from cotide_core.errors import ClusterError
from cotide_core.events import PodUpserted
from cotide_kube.answers import ApiError
from cotide_kube.objects import NamespaceObject, PodObject
from cotide_operator.cache.decision_store import Decision, DecisionStore
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting import pod_annotator as annotator_module
from cotide_operator.reporting.decision_reporter import DecisionReporter, Sinks
from cotide_operator.reporting.pod_annotator import PodAnnotator
from cotide_operator.translation.decision_annotation import DECISION_ANNOTATION, decode


class Lane:
    """Keeps work until the test lets it be done."""

    def __init__(self) -> None:
        self.work: dict[Hashable, Callable[[], Awaitable[None]]] = {}
        self.full = False

    def submit(self, key: Hashable, work: Callable[..., Awaitable[None]], namespace: str, *arguments: object) -> bool:
        if self.full:
            return False
        self.work[key] = partial(work, *arguments)
        return True

    def take_back(self, key: Hashable) -> None:
        self.work.pop(key, None)


class Api:
    def __init__(self) -> None:
        self.patches: list[tuple[str, Any, str]] = []
        self.refusal: ClusterError | None = None
        self.refused_path = ""
        self.meanwhile: Callable[[], None] = lambda: None
        self.node = ""

    async def patch(self, path: str, patch: Any, kind: str) -> dict[str, Any]:
        self.meanwhile()
        if self.refusal is not None and path.endswith(self.refused_path):
            raise self.refusal
        self.patches.append((path, patch, kind))
        return {"metadata": {"name": "p"}, "spec": {"nodeName": self.node}}


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lane, self.api, self.mirror, self.board = Lane(), Api(), ObjectCache(), DecisionStore()
        self.telemetry = Metrics()
        self.now = 100.0
        self.decided = "batch"
        monkeypatch.setattr(annotator_module.time, "monotonic", lambda: self.now)
        client: Any = self.api
        lane: Any = self.lane
        self.annotator = PodAnnotator(
            client, lane, self.mirror, self.board, self.telemetry, class_of=lambda key: self.decided
        )

    def pod(self, **parts: Any) -> None:
        uid = parts.pop("uid", "u")
        metadata = {"name": "p", "namespace": "ns", "uid": uid, "labels": parts.pop("labels", {})}
        self.mirror.apply("pods", "MODIFIED", msgspec.convert({"metadata": metadata, **parts}, PodObject))

    def waits(self, message: str, reason: str = "InsufficientSlack") -> None:
        self.board.publish(Decision("ns/p", "u", 1.0, None, reason, message))
        self.annotator.note("ns/p")

    def sweep(self) -> int:
        """Sweep; return how often others had their turn."""
        return sum(1 for _ in self.annotator.sweep_steps())

    async def write(self) -> list[tuple[str, Any]]:
        work, self.lane.work = list(self.lane.work.values()), {}
        self.api.patches = []
        for one in work:
            await one()
        return [(path, patch) for path, patch, _ in self.api.patches]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    scene = Scene(monkeypatch)
    scene.pod()
    return scene


async def test_a_waiting_pod_gets_note_label_and_condition(scene: Scene) -> None:
    scene.waits("0/1 nodes are available")
    (path, metadata), (status_path, status) = await scene.write()
    assert (path, status_path) == ("/api/v1/namespaces/ns/pods/p", "/api/v1/namespaces/ns/pods/p/status")
    for patch in (metadata, status):
        assert patch["metadata"]["uid"] == "u"  # the server refuses it for another pod of that name
    assert metadata["metadata"]["labels"] == {"cotide.dev/class": "batch"}
    note = decode(metadata["metadata"]["annotations"][DECISION_ANNOTATION], "ns/p")
    assert note.decision.message == "0/1 nodes are available"
    (condition,) = status["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "Unschedulable")


async def test_the_same_words_are_not_written_twice(scene: Scene) -> None:
    scene.waits("m")
    await scene.write()
    scene.now += 1000.0
    scene.waits("m")
    assert await scene.write() == []


async def test_new_words_wait_until_the_last_note_is_old_enough_and_only_the_latest_is_written(scene: Scene) -> None:
    scene.waits("first")
    await scene.write()
    for words in ("second", "third"):
        scene.now += 1.0
        scene.waits(words)
    scene.sweep()
    assert await scene.write() == []
    scene.now += 10.0
    scene.sweep()
    (_, metadata), _ = await scene.write()
    assert '"third"' in metadata["metadata"]["annotations"][DECISION_ANNOTATION]


async def test_a_pod_that_waits_for_its_turn_is_not_called_unschedulable(scene: Scene) -> None:
    scene.waits("1 before it", reason="WaitingForTurn")
    assert [path for path, _ in await scene.write()] == ["/api/v1/namespaces/ns/pods/p"]


async def test_a_condition_that_says_so_already_is_left_alone(scene: Scene) -> None:
    known = {"type": "PodScheduled", "status": "False", "message": "m", "reason": "Unschedulable"}
    scene.pod(status={"conditions": [known]})
    scene.waits("m")
    assert [path for path, _ in await scene.write()] == ["/api/v1/namespaces/ns/pods/p"]


async def test_a_class_that_is_there_is_never_overwritten(scene: Scene) -> None:
    scene.decided = "online"
    scene.pod(labels={"cotide.dev/class": "online"})
    scene.annotator.label("ns/p")
    scene.waits("m")
    (_, metadata), _ = await scene.write()
    assert "labels" not in metadata["metadata"]


@pytest.mark.parametrize(("label", "cap"), [("vip", None), ("online", "batch"), ("online", None)])
async def test_a_label_that_names_no_class_or_claims_too_much_is_set_right(
    label: str, cap: str | None, scene: Scene
) -> None:
    labels = {"cotide.dev/max-class": cap} if cap is not None else {}
    namespace = msgspec.convert({"metadata": {"name": "ns", "labels": labels}}, NamespaceObject)
    scene.mirror.apply("namespaces", "ADDED", namespace)
    scene.pod(labels={"cotide.dev/class": label})
    scene.annotator.label("ns/p")
    ((_, patch),) = await scene.write()
    assert patch["metadata"]["labels"] == {"cotide.dev/class": "batch"}


async def test_a_pod_that_was_bound_meanwhile_is_not_called_waiting(scene: Scene) -> None:
    scene.waits("m")
    scene.pod(spec={"nodeName": "n"})
    assert await scene.write() == []


async def test_what_a_full_lane_refuses_is_taken_up_by_the_next_sweep(scene: Scene) -> None:
    scene.lane.full = True
    scene.annotator.label("ns/p")
    scene.waits("m")
    assert await scene.write() == []
    scene.lane.full = False
    scene.sweep()
    assert len(await scene.write()) == 3  # label, note, condition


def test_a_sweep_takes_up_the_oldest_first_and_comes_to_all_in_steps(scene: Scene) -> None:
    scene.lane.full = True
    keys = [f"crowd/p{number}" for number in range(3 * annotator_module.SWEPT)] + ["other/p", "other/q"]
    for key in keys:
        scene.board.publish(Decision(key, "u", 1.0, None, "InsufficientSlack", "m"))
        scene.annotator.note(key)
    assert scene.sweep() == 3  # between which others have their turn
    scene.lane.full = False
    steps = scene.annotator.sweep_steps()
    next(steps)
    assert list(scene.lane.work) == [("note", key) for key in keys[: annotator_module.SWEPT]]
    scene.annotator.bound("other/p")  # meanwhile
    scene.sweep()
    list(steps)  # two at a time would be no harm
    assert [key for _, key in scene.lane.work] == [key for key in keys if key != "other/p"]


@pytest.mark.parametrize(("status", "failed"), [(404, 0.0), (409, 0.0), (403, 1.0)])
async def test_a_pod_that_is_gone_is_no_failure_and_a_refusal_is_counted(
    scene: Scene, status: int, failed: float
) -> None:
    scene.api.refusal = ApiError(status, "Reason", "message")
    scene.waits("m")
    await scene.write()
    assert scene.telemetry.registry.get_sample_value("cotide_notes_failed_total") == failed


async def test_a_pod_that_was_bound_is_not_told_to_wait_any_more(scene: Scene) -> None:
    scene.waits("0/1 nodes are available")
    scene.annotator.bound("ns/p")
    assert [path for path, _ in await scene.write()] == ["/api/v1/namespaces/ns/pods/p"]
    assert scene.api.patches[0][1] == {"metadata": {"uid": "u", "labels": {"cotide.dev/class": "batch"}}}


async def test_a_pod_above_a_limit_of_its_namespace_has_a_condition_that_says_so(scene: Scene) -> None:
    for cap, written in (("", 1), ("cotide.dev/max-batch-cpu", 2)):
        scene.now += 1000.0
        scene.board.publish(Decision("ns/p", "u", 1.0, None, "WaitingForTurn", f"waits {cap}", cap=cap))
        scene.annotator.note("ns/p")
        assert len(await scene.write()) == written, "a note; and a condition where no node would change it"


@pytest.mark.parametrize("status", [0, 401, 429, 500])
async def test_a_note_that_could_not_be_written_is_tried_again_by_a_later_sweep(scene: Scene, status: int) -> None:
    scene.api.refusal = ApiError(status, "Reason", "message") if status else ClusterError("unreachable")
    scene.waits("m")
    assert await scene.write() == []
    scene.api.refusal = None
    scene.now += 1.0
    scene.waits("m")  # the next attempt ends alike
    scene.sweep()
    assert await scene.write() == []  # no two notes within ten seconds, whatever became of the first
    scene.now += 10.0
    scene.sweep()
    assert len(await scene.write()) == 2  # note and condition: by that an autoscaler sees that a node is missing
    scene.now += 10.0
    scene.sweep()
    assert await scene.write() == []


async def test_a_pod_that_can_never_be_written_is_given_up_until_there_are_new_words(scene: Scene) -> None:
    scene.api.refusal = ApiError(500, "InternalError", "failed calling webhook")
    scene.waits("m")
    moments = []
    for _ in range(2000):
        if scene.lane.work:
            moments.append(scene.now)
            await scene.write()
        scene.now += 1.0
        scene.sweep()
    assert moments == [100.0, 110.0, 130.0, 170.0, 250.0, 410.0, 730.0]
    scene.waits("others")
    assert scene.lane.work


async def test_a_condition_that_could_not_be_written_is_tried_again_with_the_note(scene: Scene) -> None:
    scene.api.refused_path = "/status"
    scene.api.refusal = ClusterError("unreachable")
    scene.waits("m")
    assert [path for path, _ in await scene.write()] == ["/api/v1/namespaces/ns/pods/p"]
    scene.api.refusal = None
    scene.now += 10.0
    scene.sweep()
    assert [path for path, _ in await scene.write()][-1] == "/api/v1/namespaces/ns/pods/p/status"


async def test_a_label_that_could_not_be_written_is_tried_again_and_one_that_is_refused_is_not(scene: Scene) -> None:
    scene.api.refusal = ClusterError("unreachable")
    scene.annotator.bound("ns/p")
    await scene.write()
    scene.sweep()
    assert not scene.lane.work
    scene.api.refusal = ApiError(403, "Forbidden", "a policy")
    scene.now += 10.0
    scene.sweep()
    assert list(scene.lane.work) == [("label", "ns/p")]
    await scene.write()
    scene.sweep()
    assert not scene.lane.work


async def test_a_pod_that_is_bound_while_its_note_is_written_is_not_called_unschedulable(scene: Scene) -> None:
    def bind() -> None:
        scene.pod(spec={"nodeName": "n"})

    scene.api.meanwhile = bind
    scene.waits("m")
    assert [path for path, _ in await scene.write()] == ["/api/v1/namespaces/ns/pods/p"]


async def test_a_pod_whose_binding_was_taken_while_its_note_is_written_is_not_called_unschedulable(
    scene: Scene,
) -> None:
    scene.api.meanwhile = lambda: scene.board.publish(Decision("ns/p", "u", 2.0, "n", "Scheduled", "is on n"))
    scene.waits("m")
    assert [path for path, _ in await scene.write()] == ["/api/v1/namespaces/ns/pods/p"]


async def test_a_pod_that_is_replaced_while_its_note_is_written_does_not_get_its_condition(scene: Scene) -> None:
    scene.api.meanwhile = lambda: scene.pod(uid="another")
    scene.waits("m")
    assert [path for path, _ in await scene.write()] == ["/api/v1/namespaces/ns/pods/p"]


@pytest.mark.parametrize("binding_first", [True, False], ids=["binding told first", "note answered first"])
async def test_a_note_that_was_carried_out_after_the_binding_is_replaced_by_what_is_true(
    scene: Scene, *, binding_first: bool
) -> None:
    def bind() -> None:
        scene.board.publish(Decision("ns/p", "u", 2.0, "n", "Scheduled", "is on n"))
        scene.annotator.bound("ns/p")

    scene.waits("m")
    scene.api.node = "n"
    if binding_first:
        scene.api.meanwhile = bind
    assert [path for path, _ in await scene.write()] == ["/api/v1/namespaces/ns/pods/p"]  # and no condition
    scene.api.meanwhile = lambda: None
    if not binding_first:
        bind()
    ((_, patch),) = [(path, patch) for path, patch in await scene.write() if "annotations" in patch["metadata"]]
    assert '"Scheduled"' in patch["metadata"]["annotations"][DECISION_ANNOTATION]


async def test_a_note_that_got_no_answer_while_its_pod_was_bound_is_replaced_by_what_is_true(scene: Scene) -> None:
    scene.waits("m")
    scene.api.meanwhile = lambda: scene.board.publish(Decision("ns/p", "u", 2.0, "n", "Scheduled", "is on n"))
    scene.api.refusal = ClusterError("no answer")
    await scene.write()
    scene.api.refusal = None
    ((_, patch),) = await scene.write()
    assert '"Scheduled"' in patch["metadata"]["annotations"][DECISION_ANNOTATION]


@pytest.mark.parametrize("lane_is_full", [True, False])
async def test_what_is_true_of_a_bound_pod_is_written_later_where_it_could_not_be(
    scene: Scene, *, lane_is_full: bool
) -> None:
    """Nobody else says it again: the pod would say for ever that it waits."""
    scene.board.publish(Decision("ns/p", "u", 2.0, "n", "Scheduled", "is on n"))
    scene.lane.full = lane_is_full
    scene.api.refusal = None if lane_is_full else ApiError(500, "InternalError", "etcd leader changed")
    scene.annotator.annotate("ns/p")
    assert await scene.write() == []
    scene.lane.full, scene.api.refusal = False, None
    scene.now += 10.0
    scene.sweep()
    ((_, patch),) = await scene.write()
    assert '"Scheduled"' in patch["metadata"]["annotations"][DECISION_ANNOTATION]
    scene.sweep()
    assert not scene.lane.work


async def test_a_note_that_was_carried_out_after_the_binding_of_another_replica_is_replaced_by_what_is_true(
    scene: Scene,
) -> None:
    scene.waits("m")
    scene.api.node = "n"
    await scene.write()
    one = running_pod("p", "n", key="ns/p", uid="u")
    calibration: Any = SimpleNamespace(pod_changed=lambda _: None)
    nobody: Any = None
    sinks = Sinks(scene.board, scene.annotator, nobody, calibration, scene.telemetry, nobody, nobody)
    reporter = DecisionReporter(sinks, scene.mirror, {one.key: one}.get, ScaledClock(), "fifo")
    reporter.events([PodUpserted(one)], [])
    ((_, patch),) = await scene.write()
    assert '"Scheduled"' in patch["metadata"]["annotations"][DECISION_ANNOTATION]


async def test_of_a_pod_that_went_while_its_note_was_written_nothing_is_remembered(scene: Scene) -> None:
    def go() -> None:
        scene.mirror.apply("pods", "DELETED", scene.mirror.pods["ns/p"])
        scene.annotator.forget("ns/p")

    scene.waits("m")
    scene.api.meanwhile, scene.api.node = go, "n"
    await scene.write()
    assert not scene.annotator._overtaken
