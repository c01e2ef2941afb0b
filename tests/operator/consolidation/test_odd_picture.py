"""An object that can't be translated is left out of a plan, and no other with it but the node that it is on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from manifests import node_object, pod_object

from cotide_operator.cache.object_cache import CustomObject, ObjectCache
from cotide_operator.cache.pod_interning import PodKeeping
from cotide_operator.consolidation import picture
from cotide_operator.consolidation.picture import picture_of

NOW = 1_790_000_000.0
JOB = {"metadata": {"name": "j", "namespace": "ns", "uid": "u-j"}, "spec": {"class": "batch"}}
OWNER = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "name": "j", "uid": "u-j", "controller": True}


def cluster(**spec: Any) -> ObjectCache:
    """Return two nodes, each with a pod; what is given is in the spec of the first."""
    cache = ObjectCache()
    for number in (1, 2):
        cache.apply("nodes", "ADDED", node_object(f"n{number}", "8"))
        more = spec if number == 1 else {}
        cache.apply("pods", "ADDED", pod_object(f"p{number}", "1", spec={"nodeName": f"n{number}", **more}))
    return cache


def test_a_pod_that_can_not_be_read_takes_its_node_out_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    translate = picture.translate_pod

    def trips(pod: Any, *rest: Any) -> Any:
        if pod.metadata.name == "p1":
            raise OverflowError("too large")
        return translate(pod, *rest)

    monkeypatch.setattr(picture, "translate_pod", trips)
    found = picture_of(cluster(), NOW)
    assert [node.name for node in found.state.columns.nodes if node is not None] == ["n2"]
    assert list(found.facts) == ["ns/p2"]
    assert found.warnings == (
        "pod ns/p1 is left out: OverflowError: too large",
        "node n1 is left out: pod ns/p1 on it can't be read",
    )


SAFE_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"


@pytest.mark.parametrize(
    ("volumes", "annotation", "stays"),
    [
        ([{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}], None, False),
        ([{"name": "tmp", "emptyDir": {}}], None, True),
        ([{"name": "tmp", "emptyDir": {"medium": "HugePages"}}], None, True),
        ([{"name": "host", "hostPath": {"path": "/var"}}], None, True),
        ([{"name": "tmp", "emptyDir": {}}, {"name": "cache", "hostPath": {"path": "/c"}}], "tmp,cache", False),
        ([{"name": "tmp", "emptyDir": {}}, {"name": "cache", "emptyDir": {}}], "tmp", True),
        ([{"name": "tmp", "emptyDir": {}}], "other", True),
        ([{"name": "tmp", "emptyDir": {}}], "", True),
    ],
)
def test_local_storage_holds_a_pod_as_in_cluster_autoscaler(volumes: Any, annotation: str | None, stays: bool) -> None:
    """A volume in memory is none, nor is one that the owner names. The pod comes as the cache keeps it."""
    cache = cluster()
    annotations = {} if annotation is None else {SAFE_VOLUMES: annotation}
    pod = pod_object("p3", "1", annotations=annotations, spec={"nodeName": "n2", "volumes": volumes})
    cache.apply("pods", "ADDED", PodKeeping()(pod))
    assert picture_of(cache, NOW).facts["ns/p3"].local_storage is stays


@pytest.mark.parametrize(
    "seconds", [10**400, -(10**400), "5", None, [5], 1e300], ids=["huge", "below", "text", "null", "list", "float"]
)
def test_a_forecast_that_is_no_time_is_none(seconds: Any) -> None:
    cache = cluster()
    status = {"predictedSeconds": {"p50": seconds, "p90": seconds}}
    cache.apply("jobs", "ADDED", msgspec.convert({**JOB, "status": status}, CustomObject))
    cache.apply("pods", "ADDED", pod_object("p3", "1", ownerReferences=[OWNER], spec={"nodeName": "n2"}))
    found = picture_of(cache, NOW)
    assert found.facts["ns/p3"].remaining_p50 == float("inf")
    assert found.warnings == ()
