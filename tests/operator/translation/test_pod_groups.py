"""Gangs whose size others say: PodGroups of coscheduling, and Workloads and PodGroups of the server's own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from manifests import pod_object

from cotide_core.events import Gang, Pod, PodUpserted
from cotide_operator.cache.object_cache import KINDS, OPTIONAL_KINDS, CustomObject, Kind, ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.translation.event_source import EventSource

LABEL = "scheduling.x-k8s.io/pod-group"


class Scene:
    """A cache and who translates from it."""

    def __init__(self) -> None:
        self.cache = ObjectCache()
        for kind in KINDS:
            self.cache.mark_synced(kind)
        self.events = EventSource(self.cache, ScaledClock(0.0, 1.0), ("cotide",))
        self.events.collect()

    def says(self, kind: Kind, name: str, spec: dict[str, Any], change: str = "ADDED") -> None:
        one = msgspec.convert({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}, CustomObject)
        self.cache.apply(kind, change, one)

    def pod(self, name: str = "p", *, change: str = "ADDED", **parts: Any) -> None:
        self.cache.apply("pods", change, pod_object(name, "1", **parts))

    def told(self) -> dict[str, Pod]:
        return {one.pod.key: one.pod for one in self.events.collect() if isinstance(one, PodUpserted)}


def gang_policy(size: Any) -> dict[str, Any]:
    """What a PodGroup of the server's own says (Kubernetes 1.36 and newer)."""
    return {"schedulingPolicy": {"gang": {"minCount": size}}}


def in_group(name: str) -> dict[str, Any]:
    return {"schedulingGroup": {"podGroupName": name}}


def test_a_pod_group_says_how_large_the_gang_of_its_label_is_and_for_how_long_it_may_be_partial() -> None:
    scene = Scene()
    scene.says("podgroups", "mpi", {"minMember": 3, "scheduleTimeoutSeconds": 20})
    scene.pod(labels={LABEL: "mpi"})
    pod = scene.told()["ns/p"]
    assert (pod.gang, pod.unsupported) == (Gang("ns/mpi", 3, 20.0), ())


@pytest.mark.parametrize(
    ("kind", "said", "other"),
    [
        ("podgroups", {"minMember": 3}, {"minMember": 4}),
        (
            "gangworkloads",
            {"podGroups": [{"name": "w", "policy": {"gang": {"minCount": 3}}}]},
            {"podGroups": [{"name": "w", "policy": {"gang": {"minCount": 4}}}]},
        ),
        ("gangpodgroups", gang_policy(3), gang_policy(4)),
    ],
)
def test_an_update_that_says_nothing_new_has_no_pod_looked_at(kind: Kind, said: Any, other: Any) -> None:
    """Ten thousand pods may name it, and whoever writes it may do so a hundred times a second."""
    scene = Scene()
    scene.says(kind, "mpi", said)
    names: dict[str, Any] = {
        "podgroups": {"labels": {LABEL: "mpi"}},
        "gangworkloads": {"spec": {"workloadRef": {"name": "mpi", "podGroup": "w"}}},
        "gangpodgroups": {"spec": in_group("mpi")},
    }
    scene.pod(**names[kind])
    scene.events.collect()
    scene.says(kind, "mpi", {**said, "more": "x"}, "MODIFIED")
    assert not scene.events.waiting
    scene.says(kind, "mpi", other, "MODIFIED")
    assert scene.events.waiting
    assert [pod.gang.minimum for pod in scene.told().values() if pod.gang is not None] == [4]


def test_a_pod_waits_until_its_group_is_there_and_follows_its_changes() -> None:
    scene = Scene()
    scene.pod(labels={LABEL: "mpi"})
    scene.pod("other", labels={LABEL: "else"})
    lacks = scene.told()["ns/p"]
    assert lacks.gang is None
    assert "or in a PodGroup mpi" in lacks.unsupported[0]
    scene.says("podgroups", "mpi", {"minMember": 3})
    assert {key: pod.gang for key, pod in scene.told().items()} == {"ns/p": Gang("ns/mpi", 3, 300.0)}
    scene.says("podgroups", "mpi", {"minMember": 4}, "MODIFIED")
    assert scene.told()["ns/p"].gang == Gang("ns/mpi", 4, 300.0)
    scene.says("podgroups", "mpi", {"minMember": 4}, "DELETED")
    assert scene.told()["ns/p"].unsupported


def test_annotations_come_before_what_a_group_says() -> None:
    scene = Scene()
    scene.says("podgroups", "mpi", {"minMember": 3, "scheduleTimeoutSeconds": 20})
    own = {"cotide.dev/gang-min-member": "5", "cotide.dev/gang-timeout-seconds": "60"}
    scene.pod(labels={LABEL: "mpi"}, annotations=own)
    assert scene.told()["ns/p"].gang == Gang("ns/mpi", 5, 60.0)


@pytest.mark.parametrize("size", [None, 0, -1, 1025, "3", True, 1.5, [3]])
def test_a_size_that_is_none_lets_nobody_start_alone(size: Any) -> None:
    scene = Scene()
    scene.says("podgroups", "mpi", {"minMember": size})
    scene.pod(labels={LABEL: "mpi"})
    pod = scene.told()["ns/p"]
    assert pod.gang is None
    assert pod.unsupported


def referring(group: str, replica: str = "") -> dict[str, Any]:
    reference = {"name": "train", "podGroup": group, "podGroupReplicaKey": replica}
    return {"workloadRef": {key: value for key, value in reference.items() if value}}


GROUPS = {
    "podGroups": [{"name": "workers", "policy": {"gang": {"minCount": 4}}}, {"name": "ui", "policy": {"basic": {}}}]
}


def test_a_workload_of_the_server_makes_a_gang_of_each_replica_of_a_group_with_that_policy() -> None:
    scene = Scene()
    scene.says("gangworkloads", "train", GROUPS)
    scene.pod("a", spec=referring("workers"))
    scene.pod("b", spec=referring("workers", "two"))
    scene.pod("c", spec=referring("ui"))
    translated = scene.told()
    assert {key: pod.gang for key, pod in translated.items()} == {
        "ns/a": Gang("ns/train/workers", 4, 300.0),
        "ns/b": Gang("ns/train/workers/two", 4, 300.0),
        "ns/c": None,
    }
    assert not any(pod.unsupported for pod in translated.values())


@pytest.mark.parametrize("spec", [{}, {"podGroups": "x"}, {"podGroups": [7, {"name": "workers"}]}, {"podGroups": []}])
def test_a_reference_that_leads_nowhere_keeps_its_pod_waiting(spec: dict[str, Any]) -> None:
    scene = Scene()
    scene.says("gangworkloads", "train", spec)
    scene.pod(spec=referring("workers"))
    pod = scene.told()["ns/p"]
    assert pod.gang is None
    assert "spec.workloadRef train/workers" in pod.unsupported[0]


def test_a_pod_group_of_the_server_says_how_large_the_gang_of_the_pods_that_name_it_is() -> None:
    scene = Scene()
    scene.says("gangpodgroups", "train", gang_policy(4))
    scene.says("gangpodgroups", "ui", {"schedulingPolicy": {"basic": {}}})
    scene.pod("a", spec=in_group("train"))
    scene.pod("b", spec=in_group("ui"))
    translated = scene.told()
    assert {key: pod.gang for key, pod in translated.items()} == {"ns/a": Gang("ns/train", 4, 300.0), "ns/b": None}
    assert not any(pod.unsupported for pod in translated.values())


@pytest.mark.parametrize("spec", [None, {}, {"schedulingPolicy": "x"}, {"schedulingPolicy": {}}, gang_policy("3")])
def test_a_pod_whose_group_of_the_server_says_no_size_waits_for_one_that_does(spec: dict[str, Any] | None) -> None:
    """Before, nothing read the field: each of its pods started alone."""
    scene = Scene()
    if spec is not None:
        scene.says("gangpodgroups", "train", spec)
    scene.pod(spec=in_group("train"))
    pod = scene.told()["ns/p"]
    assert pod.gang is None
    assert pod.unsupported[0].startswith("spec.schedulingGroup train without a number")
    scene.says("gangpodgroups", "train", gang_policy(2), "MODIFIED" if spec is not None else "ADDED")
    assert scene.told()["ns/p"].gang == Gang("ns/train", 2, 300.0)


@pytest.mark.parametrize("spec", [{"schedulingGroup": {}}, {"workloadRef": {}}])
def test_a_reference_without_a_name_lets_nobody_start_alone(spec: dict[str, Any]) -> None:
    scene = Scene()
    scene.pod(spec=spec)
    pod = scene.told()["ns/p"]
    assert (pod.gang, len(pod.unsupported)) == (None, 1)


def test_nothing_waits_for_kinds_that_a_server_need_not_serve() -> None:
    cache = ObjectCache()
    for kind in KINDS:
        assert not cache.synced
        cache.mark_synced(kind)
    assert cache.synced
    cache.mark_synced(OPTIONAL_KINDS[0])
    assert cache.synced
