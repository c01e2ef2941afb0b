"""How a gang stands when its pods are to move: what holds a node now, what succeeded, and what it must have."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from manifests import job_manifest, pod_manifest

from cotide_kube.objects import PodObject
from cotide_operator.cache.object_cache import CustomObject, ObjectCache
from cotide_operator.consolidation import gang_now as gang_now_module
from cotide_operator.consolidation.gang_now import GangNow, gang_now
from cotide_operator.translation.gangs import GANG_ANNOTATION, MIN_MEMBER_ANNOTATION, gang_of
from cotide_operator.translation.pod_groups import POD_GROUP_LABEL

TRAIN = {GANG_ANNOTATION: "train", MIN_MEMBER_ANNOTATION: "2"}


def cache(*pods: dict[str, Any]) -> ObjectCache:
    found = ObjectCache()
    for body in pods:
        found.apply("pods", "ADDED", msgspec.convert(body, PodObject))
    return found


def member(name: str, node: str = "n", phase: str = "Running", **more: Any) -> dict[str, Any]:
    """A pod of the gang ``train``, which must have two."""
    body = pod_manifest(name, namespace="d", status={"phase": phase})
    body["metadata"] |= {"annotations": TRAIN, **more}
    if node:
        body["spec"]["nodeName"] = node
    return body


def test_pods_that_hold_a_node_and_stay_count() -> None:
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}
    pods = [member("a"), member("b"), member("waits", node=""), member("failed", phase="Failed")]
    found = cache(*pods, member("leaves", **leaving), member("c"))
    assert gang_now(found, "d/a") == GangNow("d/train", 2, 3)


def test_those_that_succeeded_count_as_there() -> None:
    stands = gang_now(cache(member("a"), member("b", phase="Succeeded")), "d/a")
    assert stands is not None
    assert (stands.holding, stands.succeeded, stands.spare) == (1, 1, 0)


def test_so_do_those_that_only_the_job_still_counts() -> None:
    owner = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "name": "train", "uid": "j", "controller": True}
    found = cache(member("a", ownerReferences=[owner], labels={"cotide.dev/job": "train"}))
    body = job_manifest("train", namespace="d", gang={"minMember": 2})
    body["metadata"]["uid"] = "j"
    found.apply("jobs", "ADDED", msgspec.convert({**body, "status": {"succeeded": 4}}, CustomObject))
    stands = gang_now(found, "d/a")
    assert stands is not None
    assert (stands.succeeded, stands.spare) == (4, 3)


def test_a_group_that_others_define_has_its_minimum() -> None:
    pods = [member(name, annotations={}, labels={POD_GROUP_LABEL: "group"}) for name in ("a", "b", "c")]
    found = cache(*pods)
    body = {"metadata": {"name": "group", "namespace": "d"}, "spec": {"minMember": 3}}
    found.apply("podgroups", "ADDED", msgspec.convert(body, CustomObject))
    assert gang_now(found, "d/a") == GangNow("d/group", 3, 3)


def test_so_has_a_group_of_the_servers_own() -> None:
    pods = [member(name, annotations={}) for name in ("a", "b")]
    for pod in pods:
        pod["spec"]["schedulingGroup"] = {"podGroupName": "group"}
    found = cache(*pods)
    body = {"metadata": {"name": "group", "namespace": "d"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    found.apply("gangpodgroups", "ADDED", msgspec.convert(body, CustomObject))
    assert gang_now(found, "d/a") == GangNow("d/group", 2, 2)


def test_a_gang_of_the_same_name_in_another_namespace_is_another() -> None:
    other = member("x")
    other["metadata"]["namespace"] = "e"
    assert gang_now(cache(member("a"), other), "d/a") == GangNow("d/train", 2, 1)


def test_a_pod_of_no_gang_or_that_is_gone_has_none() -> None:
    assert gang_now(cache(member("a", annotations={})), "d/a") is None
    assert gang_now(cache(), "d/a") is None


def test_pods_of_other_gangs_are_told_by_their_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who owns each of 50,000 was looked up before each eviction: 0.2 s of the deciding loop."""
    read: list[str] = []

    def noted(namespace: str, labels: Any, annotations: Any, *rest: Any) -> Any:
        read.append(annotations[GANG_ANNOTATION])
        return gang_of(namespace, labels, annotations, *rest)

    monkeypatch.setattr(gang_now_module, "gang_of", noted)
    others = [member(f"x{number}", annotations={**TRAIN, GANG_ANNOTATION: f"g{number}"}) for number in range(9)]
    assert gang_now(cache(member("a"), *others), "d/a") == GangNow("d/train", 2, 1)
    assert set(read) == {"train"}
