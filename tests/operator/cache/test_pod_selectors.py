"""Which pods are spread together, and what scores count for containers without a request, as the engine hears of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from event_scene import Scene

from cotide_core.events import PodSelector, PodUpserted, Requirement, SelectorDeleted, SelectorUpserted
from cotide_kube.objects import PodSpec, ReplicaSetObject, ServiceObject
from cotide_operator.cache.object_cache import TYPES, Kind
from cotide_operator.cache.pod_interning import keep_selector
from cotide_operator.translation.pod_requests import effective_requests

MIB = 1 << 20


@pytest.fixture
def scene() -> Scene:
    return Scene()


def put(scene: Scene, kind: Kind, name: str, selector: Any, change: str = "ADDED", **more: Any) -> None:
    body = {"metadata": {"name": name, "namespace": "ns"}, "spec": {"selector": selector}, **more}
    scene.cache.apply(kind, change, msgspec.convert(body, TYPES[kind]))


def test_services_and_controllers_are_told_as_selectors_before_the_pods(scene: Scene) -> None:
    scene.pod()
    put(scene, "services", "web", {"app": "web"})
    put(scene, "replicationcontrollers", "old", {"app": "old"})
    expressions = [{"key": "tier", "operator": "Exists"}]
    put(scene, "replicasets", "web-1", {"matchLabels": {"app": "web"}, "matchExpressions": expressions})
    put(scene, "statefulsets", "db", {"matchLabels": {"app": "db"}})
    *selectors, pod = scene.event_source.collect()
    assert isinstance(pod, PodUpserted)
    web = Requirement("app", "In", ("web",))
    assert selectors == [
        SelectorUpserted(PodSelector("Service", "ns/web", (web,))),
        SelectorUpserted(PodSelector("ReplicaSet", "ns/web-1", (web, Requirement("tier", "Exists")))),
        SelectorUpserted(PodSelector("StatefulSet", "ns/db", (Requirement("app", "In", ("db",)),))),
        SelectorUpserted(PodSelector("ReplicationController", "ns/old", (Requirement("app", "In", ("old",)),))),
    ]


def test_a_status_wakes_nobody_and_a_service_without_a_selector_selects_nobody(scene: Scene) -> None:
    put(scene, "services", "web", {"app": "web"})
    put(scene, "services", "external", {})
    assert len(scene.event_source.collect()) == 1
    put(scene, "services", "web", {"app": "web"}, "MODIFIED", status={"loadBalancer": {}})
    assert not scene.event_source.waiting
    put(scene, "services", "web", {}, "MODIFIED")
    assert scene.event_source.collect() == [SelectorDeleted("Service", "ns/web")]
    put(scene, "services", "web", {"app": "web"}, "MODIFIED")
    put(scene, "services", "web", {"app": "web"}, "DELETED")
    assert scene.event_source.collect() == []


def test_an_engine_that_starts_again_hears_of_every_selector(scene: Scene) -> None:
    put(scene, "services", "web", {"app": "web"})
    first = scene.event_source.collect()
    scene.event_source.restart()
    assert scene.event_source.collect() == first


def test_labels_of_pods_are_told_once_there_is_a_selector(scene: Scene) -> None:
    put(scene, "services", "web", {"app": "web"})
    scene.pod()
    scene.event_source.collect()
    scene.pod("MODIFIED", labels={"app": "web"})
    (event,) = scene.event_source.collect()
    assert isinstance(event, PodUpserted)
    assert event.pod.labels == (("app", "web"),)


def owned(scene: Scene, kind: str, api_version: str) -> str:
    owner = {"apiVersion": api_version, "kind": kind, "name": "web-1", "uid": "o", "controller": True}
    scene.pod("MODIFIED", ownerReferences=[owner])
    events = scene.event_source.collect()
    return events[-1].pod.controller if events and isinstance(events[-1], PodUpserted) else ""


def test_a_waiting_pod_names_the_controller_whose_selector_counts(scene: Scene) -> None:
    scene.pod()
    scene.event_source.collect()
    assert owned(scene, "ReplicaSet", "apps/v1") == "ReplicaSet/web-1"
    assert owned(scene, "ReplicaSet", "other.dev/v1") == ""
    assert owned(scene, "ReplicationController", "v1") == "ReplicationController/web-1"
    assert owned(scene, "Job", "batch/v1") == ""


def test_of_a_service_its_name_and_its_selector_are_kept() -> None:
    metadata = {"name": "w", "namespace": "ns", "uid": "u", "resourceVersion": "3", "annotations": {"a": "b" * 99}}
    body = {"metadata": {**metadata, "labels": {"c": "d"}}, "spec": {"selector": {"app": "web"}}}
    kept = keep_selector(msgspec.convert(body, ServiceObject))
    assert kept.spec.selector == {"app": "web"}
    assert (kept.metadata.name, kept.metadata.uid, kept.metadata.resource_version) == ("w", "u", "3")
    assert not kept.metadata.annotations
    assert not kept.metadata.labels
    assert keep_selector(ReplicaSetObject(metadata=kept.metadata)).spec.selector is None


def spec(*containers: dict[str, str] | None, init: dict[str, str] | None = None, **more: Any) -> PodSpec:
    def made(requests: dict[str, str] | None) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": requests or {}}}

    body: dict[str, Any] = {"containers": [made(container) for container in containers], **more}
    if init is not None:
        body["initContainers"] = [made(init)]
    return msgspec.convert(body, PodSpec)


def test_each_container_without_a_request_counts_with_the_defaults_of_kube_scheduler() -> None:
    for asked, expected in (
        (spec(None), (100, 200 * MIB)),
        (spec(None, {"cpu": "1"}), (100, 400 * MIB)),
        (spec({"cpu": "1", "memory": "1Gi"}), (0, 0)),
        (spec({"cpu": "0", "memory": "0"}), (0, 0)),
        (spec(None, init={"cpu": "50m"}), (50, 200 * MIB)),  # 100m in all, and 50m are asked for
        (spec(None, init={"cpu": "1", "memory": "1Gi"}), (0, 0)),  # the larger of both is asked for
        (spec(None, resources={"requests": {"cpu": "1"}}), (0, 200 * MIB)),
        (spec({"cotide.dev/reclaimed-cpu": "500"}), (0, 0)),
    ):
        assert effective_requests(asked).unrequested == expected
