"""Pods that hold a node and do not start, as metrics and as events of their Job or Workload."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from hand_clock import HandClock
from job_builders import pod as child_pod
from manifests import pod_manifest

from cotide_kube.objects import PodObject
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.controllers.starts.start_reporter import StartReporter
from cotide_operator.controllers.starts.start_times import SLOW_SECONDS
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting.event_recorder import EventRecorder


class Recorder:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def of_ours(self, *said: Any, topic: str = "") -> None:
        self.said.append((*said, topic))


class Scene:
    def __init__(self) -> None:
        self.cache, self.recorder, self.metrics = ObjectCache(), Recorder(), Metrics()
        self.clock = HandClock(100.0)
        self.reporter = StartReporter(self.cache, cast("EventRecorder", self.recorder), self.metrics, self.clock)

    def pod(self, name: str, waits: str, change: str = "ADDED", **labels: str) -> None:
        """A pod on a node that waits for a reason, or runs."""
        state = {"waiting": {"reason": waits, "message": "absent"}} if waits else {"running": {}}
        phase = "Pending" if waits else "Running"
        body = pod_manifest(name, status={"phase": phase, "containerStatuses": [{"name": "c", "state": state}]})
        body["metadata"]["labels"] = {"cotide.dev/class": "batch", **labels}
        body["spec"]["nodeName"] = "n0"
        self.cache.apply("pods", change, msgspec.convert(body, PodObject))

    def shown(self, reason: str, of: str = "batch") -> float | None:
        return self.metrics.registry.get_sample_value("cotide_pods_not_starting", {"class": of, "reason": reason})


def test_pods_are_shown_by_class_and_reason_until_they_run_or_go() -> None:
    scene = Scene()
    scene.pod("a", "ErrImagePull")
    scene.pod("b", "ErrImagePull")
    scene.pod("c", "ErrImagePull", **{"cotide.dev/class": "online"})
    assert (scene.shown("ErrImagePull"), scene.shown("ErrImagePull", "online")) == (2, 1)
    scene.pod("a", "ImagePullBackOff", "MODIFIED")
    assert (scene.shown("ErrImagePull"), scene.shown("ImagePullBackOff")) == (1, 1)
    scene.pod("a", "", "MODIFIED")
    scene.pod("b", "ErrImagePull", "DELETED")
    assert (scene.shown("ErrImagePull"), scene.shown("ImagePullBackOff")) == (0, 0)


def test_containers_that_are_being_created_are_shown_after_a_minute() -> None:
    scene = Scene()
    scene.pod("a", "ContainerCreating")
    assert scene.shown("Creating") == 0
    scene.clock.wall += SLOW_SECONDS
    scene.pod("a", "ContainerCreating", "MODIFIED")  # nothing new
    assert scene.shown("Creating") == 1


def test_a_pod_is_counted_by_its_latest_reason_alone() -> None:
    scene = Scene()
    for name in ("a", "b"):
        scene.pod(name, "ContainerCreating")
        scene.clock.wall += SLOW_SECONDS
    assert scene.shown("Creating") == 2
    scene.pod("a", "ErrImagePull", "MODIFIED")
    assert (scene.shown("Creating"), scene.shown("ErrImagePull")) == (1, 1)
    scene.pod("a", "ContainerCreating", "MODIFIED")  # from now on, and behind the other
    assert (scene.shown("Creating"), scene.shown("ErrImagePull")) == (1, 0)


def test_what_a_tenant_writes_makes_no_series() -> None:
    scene = Scene()
    scene.pod("a", "ErrImagePull", **{"cotide.dev/class": "made-up"})
    scene.pod("b", "MadeUp")
    names = {str(sample.labels) for family in scene.metrics.registry.collect() for sample in family.samples}
    assert not any("made-up" in name or "MadeUp" in name for name in names)


def started(status: str, reason: str, message: str = "m") -> list[dict[str, str]]:
    return [{"type": "PodsStarted", "status": status, "reason": reason, "message": message}, {"type": "Ready"}]


def test_a_condition_that_turns_is_an_event_and_one_that_only_has_other_words_is_none() -> None:
    scene = Scene()
    report = scene.reporter.changed
    report("Workload", "d/web", "u", [], started("False", "CannotStart", "why"))
    report("Workload", "d/web", "u", started("False", "CannotStart"), started("False", "CannotStart", "other"))
    report("Workload", "d/web", "u", started("False", "CannotStart"), started("True", "Started", "pods are started"))
    report("Workload", "d/web", "u", [], [])
    assert scene.recorder.said == [
        ("Workload", "d/web", "u", "Warning", "PodsCannotStart", "why", ""),
        ("Workload", "d/web", "u", "Normal", "PodsStarted", "pods are started", ""),
    ]


def test_a_pod_that_is_given_up_is_an_event_and_counts_by_its_reason() -> None:
    scene = Scene()
    scene.reporter.gave_up("d/count", "u", child_pod(0, node="n0", cannot_start="ErrImagePull: absent"), "gratis")
    ((kind, key, _, level, reason, message, topic),) = scene.recorder.said
    assert (kind, key, level, reason, topic) == ("Job", "d/count", "Warning", "PodGivenUp", "count-0")
    assert message == "pod count-0 on n0 was not started in time and is deleted: ErrImagePull: absent"
    labels = {"class": "gratis", "reason": "ErrImagePull"}
    assert scene.metrics.registry.get_sample_value("cotide_pod_starts_given_up_total", labels) == 1


def test_a_spec_that_no_pod_can_be_made_of_is_said_once_and_again_when_the_fault_is_another() -> None:
    scene = Scene()
    waits = [{"type": "Scheduled", "status": "False", "reason": "WaitingForTurn", "message": "about to be made"}]
    one, other = ([{**waits[0], "reason": "Misconfigured", "message": fault}] for fault in ("10GiB", "5GiB"))
    for before, after in ((waits, one), (one, one), (one, other), (other, waits)):
        scene.reporter.changed("Job", "ns/j", "u", before, after)
    assert scene.recorder.said == [
        ("Job", "ns/j", "u", "Warning", "Misconfigured", fault, "") for fault in ("10GiB", "5GiB")
    ]
