"""What is kept of pods says the same as what came, and equal parts are one object."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from manifests import container, pod_object
from msgspec.structs import replace

from cotide_kube.objects import NodeObject, PodObject
from cotide_operator.cache import pod_interning as pod_keeping
from cotide_operator.cache.pod_interning import NodeKeeping, PodKeeping


def pod(name: str = "p", node: str = "", volume: str = "", **metadata: Any) -> PodObject:
    """A pod that runs, with the parts that pods share."""
    spec: dict[str, Any] = {
        "containers": [container("1", name="main", image="nginx")],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "nodeName": node,
        "volumes": [{"name": volume}] if volume else [],
    }
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-20T13:00:00Z"}
    status = {"phase": "Running", "podIP": "10.0.0.1", "conditions": [ready]}
    return pod_object(name, spec=spec, status=status, **{"namespace": "shop", "labels": {"app": "web"}, **metadata})


def test_pods_of_one_template_share_what_is_equal() -> None:
    keep = PodKeeping()
    one, other, third = (
        keep(pod("a", "n1", "api-x7k2p")),
        keep(pod("b", "n2", "api-9qz4m")),
        keep(pod("c", "", "api-0")),
    )
    assert one.spec.containers is other.spec.containers is third.spec.containers
    assert one.spec.tolerations is other.spec.tolerations
    assert one.metadata.labels is other.metadata.labels
    assert one.status.conditions is other.status.conditions
    assert [kept.spec.node_name for kept in (one, other, third)] == ["n1", "n2", ""]
    assert [kept.metadata.uid for kept in (one, other, third)] == ["u-a", "u-b", "u-c"]


def test_what_is_empty_takes_no_memory_of_its_own() -> None:
    keep = PodKeeping()
    kept = [keep(pod(name, labels={}, annotations={})) for name in ("a", "b")]
    empty = [part for one in kept for part in (one.metadata.labels, one.metadata.annotations)]
    assert len({id(part) for part in (*empty, *(one.status.allocated_resources for one in kept))}) == 1


def test_nothing_that_is_read_changes() -> None:
    came = pod("a", "n1", annotations={"x": "y"}, creationTimestamp="2026-11-20T13:00:00Z")
    assert PodKeeping()(came) == replace(came, status=replace(came.status, pod_ip=""))


def test_volumes_that_tie_a_pod_stay_in_their_places_with_their_claims() -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    came = msgspec.convert({"metadata": {"name": "a"}, "spec": {"volumes": [{"name": "x"}, claim]}}, PodObject)
    kept = PodKeeping()(came).spec.volumes
    assert [one.persistent_volume_claim is not None for one in kept] == [False, True]
    assert kept[1].persistent_volume_claim == came.spec.volumes[1].persistent_volume_claim


@pytest.mark.parametrize("most", [1, 3])
def test_sharing_that_begins_anew_loses_nothing(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(pod_keeping, "MOST", most)
    keep = PodKeeping()
    for number in range(8):
        came = pod(f"p{number}", f"n{number % 2}", labels={"app": f"a{number % 3}"})
        assert keep(came) == replace(came, status=replace(came.status, pod_ip=""))


def test_nodes_share_their_images_and_keep_all_else() -> None:
    image = {"names": ["web:1", "web@sha256:1"], "sizeBytes": 100}
    came = [
        msgspec.convert({"metadata": {"name": name}, "status": {"images": [image]}}, NodeObject) for name in ("a", "b")
    ]
    keep = NodeKeeping()
    one, other = map(keep, came)
    assert [one, other] == came
    assert one.status.images[0] is other.status.images[0]
