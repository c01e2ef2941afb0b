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


class StubDispatcher:
    """Keeps work until the test lets it be done."""

    def __init__(self) -> None:
        self.work: dict[Hashable, Callable[[], Awaitable[None]]] = {}
        self.full = False
        self.urgent: set[Hashable] = set()

    def submit(self, key: Hashable, work: Callable[..., Any], _: str, *arguments: object, urgent: bool = False) -> bool:
        if not self.full:
            self.work[key] = partial(work, *arguments)
            self.urgent |= {key} if urgent else set()
        return not self.full

    def take_back(self, key: Hashable) -> None:
        self.work.pop(key, None)


class Api:
    def __init__(self) -> None:
        self.patches: list[tuple[str, Any, str]] = []
        self.refusal: ClusterError | None = None
        self.meanwhile: Callable[[], None] = lambda: None

    async def patch_blindly(self, path: str, patch: Any, kind: str) -> None:
        self.meanwhile()
        if self.refusal is not None:
            raise self.refusal
        self.patches.append((path, patch, kind))


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dispatcher, self.api, self.cache, self.decisions = StubDispatcher(), Api(), ObjectCache(), DecisionStore()
        self.metrics = Metrics()
        self.now = 100.0
        self.decided = "batch"
        monkeypatch.setattr(annotator_module.time, "monotonic", lambda: self.now)
        fakes: Any = (self.api, self.dispatcher)
        self.annotator = PodAnnotator(
            *fakes, self.cache, self.decisions, self.metrics, class_of=lambda key: self.decided
        )

    def pod(self, **parts: Any) -> None:
        metadata = {"name": "p", "namespace": "ns", "uid": parts.pop("uid", "u"), "resourceVersion": "7"}
        for part in ("labels", "annotations"):
            metadata[part] = parts.pop(part, {})
        self.cache.apply("pods", "MODIFIED", msgspec.convert({"metadata": metadata, **parts}, PodObject))

    def waits(self, message: str, reason: str = "InsufficientSlack") -> None:
        self.decisions.publish(Decision("ns/p", "u", 1.0, None, reason, message))
        self.annotator.note("ns/p")

    def sweep(self) -> int:
        """Sweep; return how often others had their turn."""
        return sum(1 for _ in self.annotator.sweep_steps())

    async def write(self) -> list[tuple[str, Any]]:
        work, self.dispatcher.work = list(self.dispatcher.work.values()), {}
        self.api.patches = []
        for one in work:
            await one()
        return [(path, patch) for path, patch, _ in self.api.patches]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    scene = Scene(monkeypatch)
    scene.pod()
    return scene


async def test_a_waiting_pod_gets_note_label_and_condition_in_one_patch_of_the_version_that_was_read(
    scene: Scene,
) -> None:
    scene.waits("0/1 nodes are available")
    ((path, patch),) = await scene.write()
    assert (path, scene.api.patches[0][2]) == ("/api/v1/namespaces/ns/pods/p/status", "strategic")
    metadata = patch["metadata"]
    assert (metadata["uid"], metadata["resourceVersion"]) == (
        "u",
        "7",
    )  # of another pod, or one that is bound, it is refused
    assert metadata["labels"] == {"cotide.dev/class": "batch"}
    note = decode(metadata["annotations"][DECISION_ANNOTATION], "ns/p")
    assert note.decision.message == "0/1 nodes are available"
    (condition,) = patch["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "Unschedulable")


async def test_a_pod_that_is_looked_at_again_and_again_is_written_once_an_interval(scene: Scene) -> None:
    """A node that comes each second changes the counts, and nothing else."""
    written = []
    for nodes in range(240):
        scene.waits(f"0/{nodes} nodes are available: {nodes} Insufficient cpu")
        scene.sweep()
        written += await scene.write()
        scene.now += 1.0
    assert len(written) == 240 / annotator_module.COUNTS_SECONDS
    scene.now += annotator_module.COUNTS_SECONDS
    scene.sweep()
    ((_, last),) = await scene.write()
    assert last["status"]["conditions"][0]["message"] == "0/239 nodes are available: 239 Insufficient cpu"


async def test_another_reason_waits_less_long_than_other_counts(scene: Scene) -> None:
    for words in ("0/1 nodes are available: 1 Insufficient cpu", "0/1 nodes are available: 1 cordoned"):
        scene.waits(words)
        scene.now += annotator_module.NOTE_SECONDS
        scene.sweep()
        ((_, patch),) = await scene.write()
        assert patch["status"]["conditions"][0]["message"] == words


async def test_only_the_first_refusal_of_a_pod_is_urgent(scene: Scene) -> None:
    scene.waits("1 before it", reason="WaitingForTurn")
    assert not scene.dispatcher.urgent, "its turn comes"
    scene.waits("0/1 nodes are available")
    assert scene.dispatcher.urgent == {("note", "ns/p")}
    await scene.write()
    scene.dispatcher.urgent.clear()
    known = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available", "reason": "Unschedulable"}
    scene.pod(status={"conditions": [known]})
    scene.now += 1000.0
    scene.waits("0/2 nodes are available")
    assert (not scene.dispatcher.urgent, list(scene.dispatcher.work)) == (True, [("note", "ns/p")])


async def test_what_an_earlier_run_wrote_is_not_written_again(scene: Scene) -> None:
    scene.waits("0/1 nodes are available")
    ((_, patch),) = await scene.write()
    for conditions in (patch["status"]["conditions"], []):
        scene.pod(
            labels=patch["metadata"]["labels"],
            annotations=patch["metadata"]["annotations"],
            status={"conditions": conditions},
        )
        scene.annotator.forget("ns/p")  # as a run that begins
        scene.waits("0/1 nodes are available")
        again = await scene.write()
        assert [list(one["metadata"]) for _, one in again] == ([] if conditions else [["uid", "resourceVersion"]])


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
    ((_, metadata),) = await scene.write()
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
    ((_, metadata),) = await scene.write()
    assert "labels" not in metadata["metadata"]


@pytest.mark.parametrize(("label", "cap"), [("vip", None), ("online", "batch"), ("online", None)])
async def test_a_label_that_names_no_class_or_claims_too_much_is_set_right(
    label: str, cap: str | None, scene: Scene
) -> None:
    labels = {"cotide.dev/max-class": cap} if cap is not None else {}
    namespace = msgspec.convert({"metadata": {"name": "ns", "labels": labels}}, NamespaceObject)
    scene.cache.apply("namespaces", "ADDED", namespace)
    scene.pod(labels={"cotide.dev/class": label})
    scene.annotator.label("ns/p")
    ((_, patch),) = await scene.write()
    assert patch["metadata"]["labels"] == {"cotide.dev/class": "batch"}


async def test_a_pod_that_was_bound_meanwhile_is_not_called_waiting(scene: Scene) -> None:
    scene.waits("m")
    scene.pod(spec={"nodeName": "n"})
    assert await scene.write() == []


async def test_what_a_full_lane_refuses_is_taken_up_by_the_next_sweep(scene: Scene) -> None:
    scene.dispatcher.full = True
    scene.annotator.label("ns/p")
    scene.waits("m")
    assert await scene.write() == []
    scene.dispatcher.full = False
    scene.sweep()
    assert len(await scene.write()) == 2  # label, and note with condition


def test_a_sweep_takes_up_the_oldest_first_and_comes_to_all_in_steps(scene: Scene) -> None:
    scene.dispatcher.full = True
    keys = [f"crowd/p{number}" for number in range(3 * annotator_module.SWEPT)] + ["other/p", "other/q"]
    for key in keys:
        scene.decisions.publish(Decision(key, "u", 1.0, None, "InsufficientSlack", "m"))
        scene.annotator.note(key)
    assert scene.sweep() == 3  # between which others have their turn
    scene.dispatcher.full = False
    steps = scene.annotator.sweep_steps()
    next(steps)
    assert list(scene.dispatcher.work) == [("note", key) for key in keys[: annotator_module.SWEPT]]
    scene.annotator.bound("other/p")  # meanwhile
    scene.sweep()
    list(steps)  # two at a time would be no harm
    assert [key for _, key in scene.dispatcher.work] == [key for key in keys if key != "other/p"]


@pytest.mark.parametrize(("status", "failed"), [(404, 0.0), (409, 0.0), (403, 1.0)])
async def test_a_pod_that_is_gone_is_no_failure_and_a_refusal_is_counted(
    scene: Scene, status: int, failed: float
) -> None:
    scene.api.refusal = ApiError(status, "Reason", "message")
    scene.waits("m")
    await scene.write()
    assert scene.metrics.registry.get_sample_value("cotide_notes_failed_total") == failed


async def test_a_pod_that_was_bound_is_not_told_to_wait_any_more(scene: Scene) -> None:
    scene.waits("0/1 nodes are available")
    scene.annotator.bound("ns/p")
    assert await scene.write() == []


@pytest.mark.parametrize("taken", [True, False])
async def test_a_label_that_the_server_takes_with_the_binding_is_not_written_by_itself(
    scene: Scene, *, taken: bool
) -> None:
    labels = scene.annotator.labels_for("ns/p")
    assert labels == {"cotide.dev/class": "batch"}
    scene.annotator.bound("ns/p")
    scene.sweep()
    assert await scene.write() == [], "the watch shows it in a moment"
    scene.pod(labels=labels if taken else {}, spec={"nodeName": "n"})
    scene.now += annotator_module.LABEL_SECONDS
    scene.sweep()
    patches = [] if taken else [("/api/v1/namespaces/ns/pods/p", {"metadata": {"uid": "u", "labels": labels}})]
    assert await scene.write() == patches


async def test_a_pod_above_a_limit_of_its_namespace_has_a_condition_that_says_so(scene: Scene) -> None:
    for cap in ("", "cotide.dev/max-batch-cpu"):
        scene.now += 1000.0
        scene.decisions.publish(Decision("ns/p", "u", 1.0, None, "WaitingForTurn", f"waits {cap}", cap=cap))
        scene.annotator.note("ns/p")
        ((_, patch),) = await scene.write()
        assert ("status" in patch) == bool(cap), "a note; and a condition where no node would change it"


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
    ((_, patch),) = await scene.write()
    assert patch["status"]["conditions"]  # by that an autoscaler sees that a node is missing
    scene.now += 10.0
    scene.sweep()
    assert await scene.write() == []


async def test_a_pod_that_can_never_be_written_is_given_up_until_there_are_new_words(scene: Scene) -> None:
    scene.api.refusal = ApiError(500, "InternalError", "failed calling webhook")
    scene.waits("m")
    moments = []
    for _ in range(2000):
        if scene.dispatcher.work:
            moments.append(scene.now)
            await scene.write()
        scene.now += 1.0
        scene.sweep()
    assert moments == [100.0, 110.0, 130.0, 170.0, 250.0, 410.0, 730.0]
    scene.waits("others")
    assert scene.dispatcher.work


async def test_a_note_on_a_pod_that_changed_meanwhile_is_written_as_soon_as_the_watch_shows_that(scene: Scene) -> None:
    scene.api.refusal = ApiError(409, "Conflict", "the object has been modified")
    scene.waits("m")
    assert await scene.write() == []
    scene.api.refusal = None
    scene.now += annotator_module.CONFLICT_SECONDS
    scene.sweep()
    ((_, patch),) = await scene.write()
    assert patch["status"]["conditions"][0]["message"] == "m"


async def test_a_note_on_a_pod_that_was_bound_meanwhile_is_given_up(scene: Scene) -> None:
    scene.api.refusal = ApiError(409, "Conflict", "the object has been modified")
    scene.waits("m")
    assert await scene.write() == []
    scene.decisions.publish(Decision("ns/p", "u", 2.0, "n", "Scheduled", "is on n"))
    scene.annotator.confirmed("ns/p")
    scene.api.refusal = None
    scene.now += 1000.0
    scene.sweep()
    assert await scene.write() == []


async def test_a_label_that_could_not_be_written_is_tried_again_and_one_that_is_refused_is_not(scene: Scene) -> None:
    scene.api.refusal = ClusterError("unreachable")
    scene.annotator.label("ns/p")
    await scene.write()
    scene.sweep()
    assert not scene.dispatcher.work
    scene.api.refusal = ApiError(403, "Forbidden", "a policy")
    scene.now += 10.0
    scene.sweep()
    assert list(scene.dispatcher.work) == [("label", "ns/p")]
    await scene.write()
    scene.sweep()
    assert not scene.dispatcher.work


@pytest.mark.parametrize("lane_is_full", [True, False])
async def test_what_is_true_of_a_bound_pod_is_written_later_where_it_could_not_be(
    scene: Scene, *, lane_is_full: bool
) -> None:
    """Nobody else says it again: the pod would say for ever that it waits."""
    scene.decisions.publish(Decision("ns/p", "u", 2.0, "n", "Scheduled", "is on n"))
    scene.dispatcher.full = lane_is_full
    scene.api.refusal = None if lane_is_full else ApiError(500, "InternalError", "etcd leader changed")
    scene.annotator.annotate("ns/p")
    assert await scene.write() == []
    scene.dispatcher.full, scene.api.refusal = False, None
    scene.now += 10.0
    scene.sweep()
    ((_, patch),) = await scene.write()
    assert '"Scheduled"' in patch["metadata"]["annotations"][DECISION_ANNOTATION]
    scene.sweep()
    assert not scene.dispatcher.work


async def test_what_waits_to_be_written_of_a_pod_that_another_replica_bound_is_dropped(scene: Scene) -> None:
    scene.waits("m")
    one = running_pod("p", "n", key="ns/p", uid="u")
    forecast_scores: Any = SimpleNamespace(pod_changed=lambda _: None)
    nobody: Any = None
    sinks = Sinks(scene.decisions, scene.annotator, nobody, forecast_scores, scene.metrics, nobody, nobody)
    reporter = DecisionReporter(sinks, scene.cache, {one.key: one}.get, ScaledClock(), "fifo")
    reporter.events([PodUpserted(one)], [])
    assert not scene.dispatcher.work
