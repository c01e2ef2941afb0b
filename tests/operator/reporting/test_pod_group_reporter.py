"""What a PodGroup of the server's own says of its scheduling: as kube-scheduler has it, and only what changed."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Any

import msgspec
import pytest
from manifests import pod_object

from cotide_core.errors import ClusterError
from cotide_core.instructions import NodeVerdict, WaitReason
from cotide_kube.answers import ApiError
from cotide_operator.cache.decision_store import Decision, DecisionStore
from cotide_operator.cache.object_cache import CustomObject, ObjectCache
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting import pod_group_reporter as module
from cotide_operator.reporting.pod_group_reporter import PodGroupReporter
from cotide_operator.translation.pod_groups import PodGroupIndex

PATH = "/apis/scheduling.k8s.io/v1alpha2/podgroups"
GROUP = {"schedulingGroup": {"podGroupName": "train"}}
NO_ROOM = "gang ns/train: 1 of 2 can start, waits for room for all at once: 0/1 nodes are available"


class Scene:
    """A group of two that must start together, who writes its status, and stand-ins for dispatcher and API server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, served: str = PATH) -> None:
        self.cache, self.decisions, self.metrics = ObjectCache(), DecisionStore(), Metrics()
        self.work: dict[Hashable, Callable[[], Awaitable[None]]] = {}
        self.full, self.now, self.version = False, 60.0, 1
        self.patches: list[tuple[str, Any]] = []
        self.last: list[Any] = []
        """Path and metadata of the last patch."""
        self.refusal: ClusterError | None = None
        if served:
            self.cache.served["gangpodgroups"] = served
        index = PodGroupIndex()
        self.cache.subscribe(lambda kind, key: index.note(key, self.cache.pods.get(key)) if kind == "pods" else None)
        stand_in: Any = self
        self.reporter = PodGroupReporter(
            stand_in,
            stand_in,
            self.cache,
            self.decisions,
            self.metrics,
            members=lambda key: index.concerned("gangpodgroups", key),
            scheduler_names=("cotide",),
        )
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(module.time, "time", lambda: self.now)

    def submit(self, key: Hashable, work: Callable[..., Awaitable[None]], namespace: str, *arguments: object) -> bool:
        assert namespace == "ns"
        if not self.full:
            self.work[key] = partial(work, *arguments)
        return not self.full

    async def patch(self, path: str, patch: Any) -> dict[str, Any]:
        if self.refusal is not None:
            raise self.refusal
        self.patches.append((path, patch))
        return {}

    def group(self, *conditions: Any, policy: Any = None, generation: int = 1) -> None:
        self.version += 1
        metadata = {"name": "train", "namespace": "ns", "uid": "u", "resourceVersion": str(self.version)}
        said = {
            "metadata": {**metadata, "generation": generation},
            "spec": {"schedulingPolicy": policy or {"gang": {"minCount": 2}}},
            "status": {"conditions": list(conditions)} if conditions else {},
        }
        self.cache.apply("gangpodgroups", "MODIFIED", msgspec.convert(said, CustomObject))

    def pod(self, name: str, node: str = "", **parts: Any) -> None:
        spec = {**GROUP, **({"nodeName": node} if node else {}), **parts.pop("spec", {})}
        self.cache.apply("pods", "MODIFIED", pod_object(name, "1", spec=spec, **parts))

    def decide(self, name: str, message: str = "", reason: str = "InsufficientSlack", **parts: Any) -> None:
        said = {"node": None, "decided_seconds": self.now, **parts}
        self.decisions.publish(Decision(f"ns/{name}", f"u-{name}", reason=reason, message=message, **said))

    async def written(self) -> list[dict[str, Any]]:
        """Let a second go by; return the conditions of each patch."""
        self.now += 1.0
        for _ in self.reporter.reconcile_steps():
            pass
        work, self.work = self.work, {}
        for one in work.values():
            await one()
        patches, self.patches = self.patches, []
        self.last = [(path, patch["metadata"]) for path, patch in patches][-1:]
        return [one for _, patch in patches for one in patch["status"]["conditions"]]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def condition(status: str, reason: str, message: str, at: int, generation: int = 1) -> dict[str, Any]:
    """The condition as it became so ``at`` seconds after a test began."""
    return {
        "type": "PodGroupScheduled",
        "status": status,
        "observedGeneration": generation,
        "reason": reason,
        "message": message,
        "lastTransitionTime": f"1970-01-01T00:01:{at:02}Z",
    }


def whole(at: int, **parts: Any) -> dict[str, Any]:
    return condition("True", "Scheduled", "2 pods that must run together have a node", at, **parts)


def unschedulable(at: int, message: str = NO_ROOM, **parts: Any) -> dict[str, Any]:
    return condition("False", "Unschedulable", message, at, **parts)


async def test_a_group_is_scheduled_once_as_many_have_a_node_as_must_run_together(scene: Scene) -> None:
    scene.group()
    scene.pod("a", "n")
    scene.pod("b")
    assert await scene.written() == []
    scene.decide("b", node="n", reason="Scheduled")  # the binding was taken; the watch has not told yet
    assert await scene.written() == [whole(at=2)]
    where = "/apis/scheduling.k8s.io/v1alpha2/namespaces/ns/podgroups/train/status"
    assert scene.last == [(where, {"uid": "u", "resourceVersion": "2"})]
    scene.pod("b", "n")
    assert await scene.written() == [], "the cache does not show it yet"


async def test_one_that_finds_no_room_says_so_and_why_in_the_words_of_the_pod_that_found_it(scene: Scene) -> None:
    scene.group()
    for name in ("a", "b"):
        scene.pod(name)
    scene.decide("a", "gang ns/train: waits until 2 can start at once; see ns/b", "WaitingForGang")
    scene.decide("b", NO_ROOM)
    assert await scene.written() == [unschedulable(at=1)]
    scene.group(unschedulable(at=1))
    scene.pod("a", "n")
    scene.pod("b", "n")
    assert await scene.written() == [whole(at=2)]


@pytest.mark.parametrize("reason", [WaitReason.WAITING_FOR_GANG, WaitReason.WAITING_FOR_TURN])
async def test_one_whose_pods_wait_for_others_a_turn_or_a_gate_stays_pending(scene: Scene, reason: WaitReason) -> None:
    scene.group()
    scene.pod("a")
    scene.decide("a", "waits for the others", reason.value)
    assert await scene.written() == []
    scene.decide("a", "2 of 2 pods of namespace ns run", reason.value, cap="maxPods")  # it may wait for ever
    assert [one["reason"] for one in await scene.written()] == ["Unschedulable"]


async def test_one_that_was_unschedulable_and_now_lacks_a_pod_says_that(scene: Scene) -> None:
    scene.group(unschedulable(at=0))
    scene.pod("a")
    scene.decide("a", "gang ns/train: 1 of 2 are present and can start, waits for the others", "WaitingForGang")
    (said,) = await scene.written()
    assert (said["reason"], said["lastTransitionTime"]) == ("Unschedulable", "1970-01-01T00:01:00Z")
    assert "waits for the others" in said["message"]


async def test_a_pod_that_asks_for_what_is_not_supported_is_an_error_which_no_node_would_help(scene: Scene) -> None:
    scene.group()
    scene.pod("a")
    scene.decide("a", "spec.runtimeClassName is not supported", "Misconfigured")
    assert [one["reason"] for one in await scene.written()] == ["SchedulerError"]


async def test_a_group_that_ran_is_never_said_not_to_be_scheduled(scene: Scene) -> None:
    """As kube-scheduler has it: pods beyond the minimum, and those that come back, find no room some day."""
    for generation, expected in ((1, []), (2, [])):
        scene.group(whole(at=0), generation=generation)
        scene.pod("a")
        scene.decide("a", NO_ROOM)
        assert await scene.written() == expected
    for name in ("a", "b"):
        scene.pod(name, "n")
    assert await scene.written() == [whole(at=0, generation=2)], "seen at its new generation, and no transition"


async def test_of_a_basic_group_one_pod_with_a_node_is_enough(scene: Scene) -> None:
    scene.group(policy={"basic": {}})
    scene.pod("a", "n")
    assert [one["message"] for one in await scene.written()] == ["one of its pods has a node"]


async def test_a_group_whose_size_can_not_be_read_is_never_scheduled(scene: Scene) -> None:
    scene.group(policy={"another": {}})
    scene.pod("a", "n")
    assert await scene.written() == []


@pytest.mark.parametrize(
    ("parts", "scheduled"),
    [
        ({"status": {"phase": "Succeeded"}}, True),
        ({"status": {"phase": "Failed"}}, False),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, False),
        ({"spec": {"schedulerName": "default-scheduler"}}, False),
    ],
)
async def test_pods_count_that_run_or_ran_to_their_end_and_none_of_another_scheduler(
    scene: Scene, parts: Any, *, scheduled: bool
) -> None:
    scene.group()
    scene.pod("a", "n")
    scene.pod("b", "n", **parts)
    assert bool(await scene.written()) == scheduled


async def test_conditions_of_others_stay(scene: Scene) -> None:
    target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    scene.group(target, unschedulable(at=0))
    for name in ("a", "b"):
        scene.pod(name, "n")
    assert await scene.written() == [target, whole(at=1)]


async def test_nothing_is_written_twice_before_the_mirror_shows_it_nor_a_sentence_before_ten_seconds_are_over(
    scene: Scene,
) -> None:
    scene.group()
    scene.pod("a")
    scene.decide("a", NO_ROOM)
    assert await scene.written() == [unschedulable(at=1)]
    scene.decide("a", "another sentence")
    assert await scene.written() == [], "the cache lags behind"
    scene.group(unschedulable(at=1))
    for _ in range(8):
        assert await scene.written() == []
    assert await scene.written() == [unschedulable(at=1, message="another sentence")]


async def test_who_names_services_of_other_namespaces_is_told_their_uid_at_most(scene: Scene) -> None:
    scene.group()
    scene.pod("a")
    words = "1 would break the latency limit of shop/web"
    verdict = NodeVerdict(1, words, WaitReason.QOS_AT_RISK, service="shop/web")
    scene.decide("a", f"0/1 nodes are available: {words}.", refused=(verdict,))
    (said,) = await scene.written()
    assert "shop" not in said["message"]
    assert "of another namespace" in said["message"]


@pytest.mark.parametrize(
    "refusal",
    [
        ApiError(403, "Forbidden", "may not patch podgroups/status"),
        ApiError(404, "NotFound", "not served"),
        ApiError(409, "Conflict", "the object has been modified"),
        ClusterError("no answer"),
    ],
)
async def test_what_can_not_be_written_is_tried_again_ever_later(
    scene: Scene, refusal: ClusterError, caplog: pytest.LogCaptureFixture
) -> None:
    scene.refusal = refusal
    scene.group()
    for name in ("a", "b"):
        scene.pod(name, "n")
    tried: list[float] = []
    for _ in range(3000):
        scene.now += 1.0
        for _ in scene.reporter.reconcile_steps():
            pass
        while scene.work:
            tried.append(scene.now - 60.0)
            await scene.work.popitem()[1]()
    gaps = [after - before for before, after in itertools.pairwise(tried)]
    assert gaps == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 640.0, 640.0]
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warned) == (1 if isinstance(refusal, ApiError) and refusal.status == 403 else 0)
    scene.refusal = None
    scene.now += 640.0
    assert [one["status"] for one in await scene.written()] == ["True"]


async def test_a_full_lane_is_offered_it_again(scene: Scene) -> None:
    scene.group()
    for name in ("a", "b"):
        scene.pod(name, "n")
    scene.full = True
    assert await scene.written() == []
    scene.full = False
    assert await scene.written() == [whole(at=2)]


@pytest.mark.parametrize("served", ["", "/apis/scheduling.k8s.io/v2/podgroups"])
async def test_nothing_is_written_where_no_version_that_is_known_is_served(
    monkeypatch: pytest.MonkeyPatch, served: str
) -> None:
    scene = Scene(monkeypatch, served)
    scene.group()
    for name in ("a", "b"):
        scene.pod(name, "n")
    assert await scene.written() == []


async def test_a_group_that_is_gone_is_forgotten_and_pods_without_one_are_none_of_its_business(scene: Scene) -> None:
    scene.pod("a", "n")
    assert not scene.reporter.queued
    scene.group()
    assert list(scene.reporter.queued) == ["ns/train"]
    gone = scene.cache.gangpodgroups["ns/train"]
    scene.cache.apply("gangpodgroups", "DELETED", gone)
    scene.pod("b", "n")
    assert not scene.reporter.queued


async def test_a_group_may_go_between_two_steps_of_a_look(scene: Scene) -> None:
    scene.group()
    other = msgspec.convert({"metadata": {"name": "another", "namespace": "ns"}}, CustomObject)
    scene.cache.apply("gangpodgroups", "ADDED", other)
    for _ in scene.reporter.reconcile_steps():
        scene.cache.apply("gangpodgroups", "DELETED", other)
    assert not scene.reporter.queued


async def test_a_status_that_trips_us_stops_no_other(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.group()
    scene.pod("a", "n")
    monkeypatch.setattr(module, "standing", lambda *_: 1 / 0)
    assert await scene.written() == []
    assert scene.cache.quarantine.get("gangpodgroups", "ns/train") is not None


@pytest.mark.parametrize("listed", ["x", [7, {"type": "PodGroupScheduled", "status": 7}], None])
async def test_conditions_that_are_none_are_no_obstacle(scene: Scene, listed: Any) -> None:
    scene.group()
    group = scene.cache.gangpodgroups["ns/train"]
    scene.cache.apply("gangpodgroups", "MODIFIED", msgspec.structs.replace(group, status={"conditions": listed}))
    for name in ("a", "b"):
        scene.pod(name, "n")
    assert (await scene.written())[-1] == whole(at=1)
