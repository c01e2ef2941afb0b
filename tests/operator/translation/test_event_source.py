"""What the engine is told, and what it is spared; and when things happened to a pod."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from event_scene import Scene

from cotide_core.classes import WorkloadClass
from cotide_core.events import NodeDeleted, NodeUpserted, PodDeleted, PodPhase, PodUpserted, WorkloadUpserted
from cotide_kube.objects import NamespaceObject, PodObject
from cotide_kube.timestamps import format_timestamp
from cotide_operator.cache.object_cache import CustomObject
from cotide_operator.translation import event_source as event_source_module
from cotide_operator.translation.event_source import EventSource
from cotide_operator.translation.pod_times import PodObservations, PodTimes

BY_JOB = [{"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "name": "j", "uid": "o", "controller": True}]


@pytest.fixture
def scene() -> Scene:
    return Scene()


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def test_nodes_and_workloads_are_told_before_pods(scene: Scene) -> None:
    scene.pod()
    body = {"metadata": {"name": "w", "namespace": "ns"}}
    scene.cache.apply("workloads", "ADDED", msgspec.convert(body, CustomObject))
    scene.node()
    kinds = [type(event) for event in scene.event_source.collect()]
    assert kinds == [NodeUpserted, WorkloadUpserted, PodUpserted]


def test_cache_and_engine_name_a_pod_by_one_string(scene: Scene) -> None:
    scene.pod()
    (event,) = scene.event_source.collect()
    assert isinstance(event, PodUpserted)
    assert event.pod.key is next(iter(scene.cache.pods))


def test_what_does_not_matter_is_not_told(scene: Scene) -> None:
    scene.node()
    scene.pod()
    scene.event_source.collect()
    scene.node("MODIFIED", heartbeat="2")
    scene.pod("MODIFIED", labels={"somebody": "else"}, resourceVersion="9")
    assert scene.event_source.waiting
    assert scene.event_source.collect() == []


def test_changed_labels_are_told_once_a_pod_selects_by_label(scene: Scene) -> None:
    scene.pod()
    scene.event_source.collect()
    scene.pod("MODIFIED", labels={"app": "web"})
    assert scene.event_source.collect() == []
    apart = {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}]}}
    scene.pod(name="q", uid="u2", affinity=apart)
    events = [event.pod for event in scene.event_source.collect() if isinstance(event, PodUpserted)]
    assert {pod.key: pod.labels for pod in events} == {"ns/q": (), "ns/p": (("app", "web"),)}


def test_a_pod_is_told_until_it_changes_and_when_the_change_was_collected(scene: Scene) -> None:
    scene.pod()
    assert not scene.event_source.is_current("ns/p")
    scene.event_source.collect()
    assert scene.event_source.is_current("ns/p")
    scene.pod("MODIFIED", labels={"cotide.dev/class": "gratis"})
    assert not scene.event_source.is_current("ns/p")


def test_several_changes_are_one_event_with_the_latest_state(scene: Scene) -> None:
    scene.pod()
    scene.pod("MODIFIED", nodeName="n")
    scene.pod("MODIFIED", nodeName="n", phase="Running")
    (event,) = scene.event_source.collect()
    assert isinstance(event, PodUpserted)
    assert (event.pod.node, event.pod.phase) == ("n", PodPhase.RUNNING)


def test_a_pod_that_was_replaced_is_told_as_gone_first(scene: Scene) -> None:
    scene.pod()
    scene.event_source.collect()
    scene.pod("DELETED")
    scene.pod("ADDED", uid="u2")
    gone, come = scene.event_source.collect()
    assert gone == PodDeleted("ns/p", "u1")
    assert isinstance(come, PodUpserted)
    assert come.pod.uid == "u2"


def test_what_came_and_went_between_two_cycles_is_never_told(scene: Scene) -> None:
    scene.pod()
    scene.pod("DELETED")
    scene.node()
    scene.node("DELETED")
    assert scene.event_source.collect() == []
    scene.node()
    scene.event_source.collect()
    scene.node("DELETED")
    assert scene.event_source.collect() == [NodeDeleted("n")]


def test_a_pod_that_ended_before_we_watched_is_not_told_but_one_that_ends_now_is(scene: Scene) -> None:
    scene.pod(phase="Succeeded")
    assert scene.event_source.collect() == []
    scene.pod("DELETED")
    scene.pod(uid="u2", nodeName="n", phase="Running")
    scene.event_source.collect()
    scene.pod("MODIFIED", uid="u2", nodeName="n", phase="Succeeded")
    assert [type(event) for event in scene.event_source.collect()] == [PodUpserted]


def test_arrivals_are_pods_of_ours_that_wait(scene: Scene) -> None:
    scene.pod()
    scene.event_source.collect()
    assert [pod.key for pod in scene.event_source.take_arrivals()] == ["ns/p"]


def test_a_job_that_changes_class_takes_its_pods_along_and_its_status_does_not(scene: Scene) -> None:
    scene.job("batch")
    scene.pod(ownerReferences=BY_JOB)
    scene.event_source.collect()
    scene.job("batch", phase="Running")
    assert not scene.event_source.waiting
    scene.job("gratis")
    (event,) = scene.event_source.collect()
    assert isinstance(event, PodUpserted)
    assert event.pod.workload_class is WorkloadClass.GRATIS


def test_a_namespace_cap_reaches_the_pods_that_are_there(scene: Scene) -> None:
    scene.pod()
    scene.event_source.collect()
    body = {"metadata": {"name": "ns", "labels": {"cotide.dev/max-class": "gratis"}}}
    scene.cache.apply("namespaces", "MODIFIED", msgspec.convert(body, NamespaceObject))
    (event,) = scene.event_source.collect()
    assert isinstance(event, PodUpserted)
    assert event.pod.workload_class is WorkloadClass.GRATIS


def test_a_pod_is_observed_once_for_each_change(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.event_source.collect()  # from here on changes are live
    seen: list[str] = []
    observe = PodObservations.observe

    def counted(self: PodObservations, pod: PodObject, **how: Any) -> PodTimes:
        seen.append(pod.metadata.name)
        return observe(self, pod, **how)

    monkeypatch.setattr(PodObservations, "observe", counted)
    scene.pod()
    scene.event_source.collect()
    scene.pod("MODIFIED", nodeName="n", phase="Running")
    scene.pod("MODIFIED", nodeName="n", phase="Succeeded")
    scene.event_source.collect()
    assert len(seen) == 3


def test_what_others_see_of_pods_they_can_not_change(scene: Scene) -> None:
    scene.pod()
    scene.event_source.collect()
    for pods in (scene.event_source.pods, scene.cache.pods, scene.cache.objects("pods")):
        with pytest.raises(TypeError):
            pods["ns/p"] = None  # type: ignore[index]  # what is to be refused
    assert list(scene.cache.pods) == ["ns/p"]


def events(scene: Scene) -> Any:
    scene.event_source.collect()
    return scene.event_source.pods["ns/p"]


def test_under_a_fast_clock_what_is_seen_live_is_timed_by_the_clock() -> None:
    scene = Scene(speed=20.0)
    scene.event_source.collect()  # from here on changes are live
    scene.clock.wall = 1010.4
    scene.pod(created=1010.0)
    # 10.4 s after the origin at 20 times the speed: 1000 + 208, where the timestamp would say 1000 + 200.
    assert events(scene).created_seconds == pytest.approx(1208.0)
    scene.clock.wall = 1011.0
    scene.pod("MODIFIED", created=1010.0, nodeName="n", phase="Running")
    scene.clock.wall = 1013.5
    scene.pod("MODIFIED", created=1010.0, nodeName="n", phase="Succeeded")
    pod = events(scene)
    assert (pod.started_seconds, pod.finished_seconds) == (pytest.approx(1220.0), pytest.approx(1270.0))


def test_of_a_list_who_was_made_first_is_told_first_and_within_a_second_by_name(scene: Scene) -> None:
    scene.clock.wall = 1060.0
    for name, created in (("a", 1030.0), ("b", 1010.0), ("c", 1030.0), ("d", 1020.0)):
        scene.pod(name=name, uid=name, created=created)
    listed = [event.pod.uid for event in scene.event_source.collect() if isinstance(event, PodUpserted)]
    assert listed == ["b", "d", "a", "c"]


def test_what_happened_before_we_watched_is_timed_by_timestamps() -> None:
    scene = Scene(speed=20.0)
    scene.clock.wall = 1060.0
    running = {"state": {"running": {"startedAt": format_timestamp(1030.0)}}}
    scene.pod(created=1010.0, nodeName="n", phase="Running", status={"containerStatuses": [running]})
    pod = events(scene)
    assert (pod.created_seconds, pod.started_seconds) == (1200.0, 1600.0)


def test_a_sighting_never_changes_once_it_is_known(scene: Scene) -> None:
    scene.event_source.collect()
    scene.pod()
    first = events(scene).created_seconds
    scene.clock.wall += 100
    scene.pod("MODIFIED", nodeName="n")
    assert events(scene).created_seconds == first


def test_attempts_of_an_earlier_run_come_from_the_note_or_the_job() -> None:
    scene = Scene()
    scene.job("batch", attempts=4, demotions=2)
    scene.pod(ownerReferences=BY_JOB)
    assert (events(scene).attempts, events(scene).demotions) == (4, 2)

    scene = Scene()
    note = '{"v":1,"uid":"u1","at":1.0,"reason":"InsufficientSlack","message":"m","attempts":7,"demotions":3}'
    scene.pod(annotations={"cotide.dev/decision": note})
    assert (events(scene).attempts, events(scene).demotions) == (7, 3)

    scene = Scene()
    scene.pod(uid="copy", annotations={"cotide.dev/decision": note})  # the note is about another pod
    assert events(scene).attempts == 0

    scene = Scene()
    scene.pod(annotations={"cotide.dev/decision": "{nonsense"})
    assert events(scene).attempts == 0


def test_a_job_that_is_tried_now_does_not_count_its_attempts_twice(scene: Scene) -> None:
    scene.event_source.collect()
    scene.job("batch", attempts=4)
    scene.pod(ownerReferences=BY_JOB)
    assert events(scene).attempts == 0


def test_an_annotation_that_can_not_be_read_is_said_once_a_pod(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    wrong = {"controller.kubernetes.io/pod-deletion-cost": "high"}
    for turn in range(3):
        scene.pod(annotations=wrong, labels={"turn": str(turn)}, phase="Pending" if turn < 2 else "Running")
        scene.event_source.collect()
    (said,) = caplog.messages
    assert said.startswith("pod ns/p: annotation controller.kubernetes.io/pod-deletion-cost: 'high' is no whole number")
    scene.pod("MODIFIED", uid="u2", annotations=wrong)
    scene.event_source.collect()
    assert len(caplog.messages) == 2, "another pod of the same name"


def test_an_intake_that_comes_after_the_lists_tells_what_they_brought() -> None:
    early, late = Scene(), Scene()
    for scene in (early, late):
        scene.node()
        scene.job("gratis")
        scene.pod(name="a", ownerReferences=BY_JOB)
        scene.pod(name="b", created=990.0)
    late.event_source = EventSource(late.cache, late.clock, ("cotide",))
    assert late.event_source.collect() == early.event_source.collect()
    assert [pod.key for pod in late.event_source.take_arrivals()] == ["ns/b", "ns/a"]


def test_what_surrounds_a_pod_may_come_after_it_in_the_first_lists(scene: Scene) -> None:
    scene.pod(ownerReferences=BY_JOB)
    scene.job("gratis")
    body = {"metadata": {"name": "ns", "labels": {"cotide.dev/max-class": "batch"}}}
    scene.pod(name="q")
    scene.cache.apply("namespaces", "ADDED", msgspec.convert(body, NamespaceObject))
    events = {
        event.pod.key: event.pod.workload_class for event in scene.event_source.collect() if hasattr(event, "pod")
    }
    assert events == {"ns/p": WorkloadClass.GRATIS, "ns/q": WorkloadClass.BATCH}
    scene.job("batch")
    assert [event.pod.workload_class for event in scene.event_source.collect()] == [WorkloadClass.BATCH]


def test_a_cycle_takes_no_more_changes_than_it_can_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    for number in range(5):
        scene.pod(name=f"listed{number}", uid=f"l{number}")
    monkeypatch.setattr(event_source_module, "CHANGES_AT_ONCE", 2)
    assert len(scene.event_source.collect()) == 5, "what was there at the start is known before anything is decided"
    for number in range(5):
        scene.pod(name=f"p{number}", uid=f"u{number}")
    events = []
    while scene.event_source.waiting:
        events.append([event.pod.key for event in scene.event_source.collect() if isinstance(event, PodUpserted)])
    assert events == [["ns/p0", "ns/p1"], ["ns/p2", "ns/p3"], ["ns/p4"]]


def test_a_cycle_takes_what_its_time_allows_and_at_least_one_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.event_source.collect()
    monkeypatch.setattr(event_source_module, "COLLECT_SECONDS", 0.0)
    scene.node()
    for number in range(3):
        scene.pod(name=f"p{number}", uid=f"u{number}")
    events = []
    while scene.event_source.waiting:
        events.append([type(event).__name__ for event in scene.event_source.collect()])
    assert events == [["NodeUpserted", "PodUpserted"], ["PodUpserted"], ["PodUpserted"]]


def test_what_is_there_at_the_start_is_told_in_parts_that_say_that_more_is_to_come(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_source_module, "CHANGES_AT_ONCE", 2)
    for number in range(3):
        scene.node(name=f"n{number}")
        scene.pod(name=f"p{number}", uid=f"u{number}", created=1000.0 - number)
    events = []
    for _ in range(2):  # the second time to a new engine, which knows nothing
        found = [(scene.event_source.collect_part(), scene.event_source.is_partial)]
        while scene.event_source.is_partial:
            found.append((scene.event_source.collect_part(), scene.event_source.is_partial))
        events.append(
            [([getattr(one, "node", getattr(one, "pod", None)) for one in part], more) for part, more in found]
        )
        scene.event_source.restart()
    names = [([getattr(one, "key", getattr(one, "name", "")) for one in part], more) for part, more in events[0]]
    assert names == [(["n0", "n1"], True), (["n2", "ns/p2", "ns/p1"], True), (["ns/p0"], False)]
    assert events[1] == events[0]


def test_what_comes_while_parts_are_told_does_not_hold_up_the_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_source_module, "CHANGES_AT_ONCE", 1)
    for number in range(2):
        scene.pod(name=f"p{number}", uid=f"u{number}")
    scene.event_source.collect_part()
    scene.pod(name="late", uid="l")
    scene.event_source.collect_part()
    assert (scene.event_source.is_partial, scene.event_source.waiting) == (False, True)


def test_a_job_that_changes_class_while_parts_are_told_takes_along_the_pods_that_were_told(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_source_module, "CHANGES_AT_ONCE", 1)
    scene.job("batch")
    for number in range(2):
        scene.pod(name=f"p{number}", uid=f"u{number}", ownerReferences=BY_JOB)
    scene.event_source.collect_part()
    scene.job("gratis")
    while scene.event_source.waiting:
        scene.event_source.collect_part()
    assert {pod.workload_class for pod in scene.event_source.pods.values()} == {WorkloadClass.GRATIS}
