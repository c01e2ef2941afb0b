"""A size that is being asked for counts before the watch shows it, and no longer than until then."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from event_scene import Scene
from manifests import container

from cotide_core.events import Event, PodUpserted
from cotide_core.phases.growth import Amounts
from cotide_operator.cache.object_cache import CustomObject

WISH = Amounts(3000, 2**30)


@pytest.fixture
def scene() -> Scene:
    found = Scene()
    see(found, "1", "ADDED")
    found.event_source.collect()
    return found


def see(scene: Scene, cpu: str, change: str = "MODIFIED", uid: str = "u1", phase: str = "Running", **more: Any) -> None:
    asks = container(resources={"requests": {"cpu": cpu, "memory": "1Gi"}})
    beside = container(name="beside", resources={"requests": {"cpu": "500m"}})
    scene.pod(change, uid, phase=phase, nodeName="n", containers=[asks, beside], **more)


def millicores(events: list[Event]) -> list[int]:
    return [dict(event.pod.requests)["cpu"] for event in events if isinstance(event, PodUpserted)]


def test_a_size_counts_as_soon_as_it_is_asked_for_and_once(scene: Scene) -> None:
    scene.event_source.expect_size("ns/p", "u1", WISH)
    assert millicores(scene.event_source.take_asked_sizes()) == [3500]
    assert scene.event_source.take_asked_sizes() == []
    assert dict(scene.event_source.pods["ns/p"].requests) == {"cpu": 3500, "memory": 2**30}


def test_what_the_watch_tells_meanwhile_does_not_take_it_back(scene: Scene) -> None:
    scene.event_source.expect_size("ns/p", "u1", WISH)
    scene.event_source.take_asked_sizes()
    see(scene, "1", labels={"a": "b"})
    assert millicores(scene.event_source.collect()) == []
    assert dict(scene.event_source.pods["ns/p"].requests)["cpu"] == 3500


def test_it_counts_as_shown_once_it_is_shown(scene: Scene) -> None:
    scene.event_source.expect_size("ns/p", "u1", WISH)
    scene.event_source.take_asked_sizes()
    see(scene, "3")
    assert scene.event_source.collect() == []
    see(scene, "2")
    assert millicores(scene.event_source.collect()) == [2500]


def test_a_wish_that_was_refused_is_taken_back(scene: Scene) -> None:
    scene.event_source.expect_size("ns/p", "u1", WISH)
    scene.event_source.take_asked_sizes()
    scene.event_source.expect_size("ns/p", "u1", None)
    assert millicores(scene.event_source.collect()) == [1500]
    scene.event_source.expect_size("ns/p", "u1", None)
    assert not scene.event_source.waiting


def test_a_smaller_size_does_not_count_before_it_is_shown(scene: Scene) -> None:
    scene.event_source.expect_size("ns/p", "u1", Amounts(200, 2**20))
    assert scene.event_source.take_asked_sizes() == []


def test_a_pod_that_is_gone_is_not_told_again(scene: Scene) -> None:
    scene.event_source.expect_size("ns/p", "u1", WISH)
    see(scene, "1", "DELETED")
    scene.event_source.collect()
    assert scene.event_source.take_asked_sizes() == []
    assert scene.event_source._asked_sizes == {}


def test_another_pod_of_its_name_does_not_inherit_it(scene: Scene) -> None:
    scene.event_source.expect_size("ns/p", "u1", WISH)
    see(scene, "1", uid="u2")
    assert millicores(scene.event_source.collect()) == [1500]
    assert scene.event_source.take_asked_sizes() == []


def test_a_pod_that_ended_is_not_told_again(scene: Scene) -> None:
    scene.event_source.expect_size("ns/p", "u1", WISH)
    see(scene, "1", phase="Succeeded")
    scene.event_source.collect()
    assert scene.event_source.take_asked_sizes() == []


def test_what_is_asked_for_already_is_no_growth_any_more() -> None:
    body = {"metadata": {"namespace": "ns", "name": "j", "uid": "uj"}}
    phases = [{"name": "read", "resources": {"cpu": "1"}}, {"name": "count", "resources": {"cpu": "3"}}]
    found = Scene()
    found.cache.apply("jobs", "ADDED", msgspec.convert({**body, "spec": {"phases": phases}}, CustomObject))
    owner = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "name": "j", "uid": "uj", "controller": True}
    see(found, "1", "ADDED", ownerReferences=[owner])
    (event,) = [one for one in found.event_source.collect() if isinstance(one, PodUpserted)]
    assert event.pod.growth_millicores == 1000  # the mean of both is 2 cores
    found.event_source.expect_size("ns/p", "u1", WISH)
    (event,) = [size for size in found.event_source.take_asked_sizes() if isinstance(size, PodUpserted)]
    assert event.pod.growth_millicores == -1000
