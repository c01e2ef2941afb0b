"""What a kubelet says against a pod becomes an event about its node, unless it says something of the pod alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from event_scene import Scene

from cotide_core.events import PodDeleted, PodPhase, PodRefused, PodUpserted
from cotide_kube.objects import Condition, NodeObject, PodObject, PodStatus
from cotide_operator.controllers.child_pods import see
from cotide_operator.translation.kubelet_refusals import pressures, refusal_of
from cotide_operator.translation.pods_and_nodes import translate_node

LOW_MEMORY = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 12Mi. Container c used 1Gi"
OWN_VOLUME = 'Usage of EmptyDir volume "scratch" exceeds the limit "1Mi". '
OWN_LIMIT = "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "


@pytest.mark.parametrize(
    ("reason", "message", "found"),
    [
        ("OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu", "OutOfcpu"),
        ("OutOfcotide.dev/reclaimed-cpu", "", "OutOfcotide.dev/reclaimed-cpu"),
        ("NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed", "NodeAffinity"),
        ("Evicted", LOW_MEMORY, "MemoryPressure"),
        ("Evicted", "The node was low on resource: ephemeral-storage. ", "DiskPressure"),
        ("Evicted", "The node was low on resource: inodes. ", "DiskPressure"),
        ("Evicted", "Pod was rejected: The node had condition: [MemoryPressure]. ", "MemoryPressure"),
        ("Evicted", "Pod was rejected: The node had condition: [Odd PIDPressure]. ", "PIDPressure"),
        ("Evicted", OWN_VOLUME, None),
        ("Evicted", OWN_LIMIT, None),
        ("Evicted", "The node was low on resource: " + "x" * 1_000_000, None),
        ("SysctlForbidden", "", None),
        ("OutOf" + "x" * 1_000_000, "", None),
        ("", "", None),
        ("DeadlineExceeded", LOW_MEMORY, None),
    ],
)
def test_a_refusal_is_told_by_what_it_says_of_the_node(reason: str, message: str, found: str | None) -> None:
    assert refusal_of(PodStatus(phase="Failed", reason=reason, message=message)) == found
    assert refusal_of(PodStatus(phase="Running", reason=reason, message=message)) is None


@pytest.mark.parametrize(("message", "own"), [(OWN_VOLUME, True), (OWN_LIMIT, True), (LOW_MEMORY, False)])
def test_an_eviction_for_the_pod_s_own_limit_is_a_failure_of_its_own(message: str, own: bool) -> None:
    status = {"phase": "Failed", "reason": "Evicted", "message": message}
    seen = see(msgspec.convert({"metadata": {"name": "p"}, "status": status}, PodObject))
    assert seen.lost_its_node is not own


def failed(scene: Scene, reason: str = "OutOfcpu", **more: Any) -> None:
    scene.pod("MODIFIED", nodeName="n", phase="Failed", status={"reason": reason, **more})


def test_the_refusal_of_a_bound_pod_is_told_once_and_before_its_end() -> None:
    scene = Scene()
    scene.node()
    scene.pod()
    scene.event_source.collect()
    scene.pod("MODIFIED", nodeName="n")
    scene.event_source.collect()
    scene.clock.wall = 1007.0
    failed(scene)
    refused, ended = scene.event_source.collect()
    assert refused == PodRefused("ns/p", "u1", "n", "OutOfcpu", 1007.0)
    assert isinstance(ended, PodUpserted)
    assert ended.pod.phase is PodPhase.FAILED
    scene.pod("MODIFIED", nodeName="n", phase="Failed", status={"reason": "OutOfcpu"}, resourceVersion="9")
    assert scene.event_source.collect() == []


def test_a_binding_and_its_refusal_in_one_cycle_are_told_too() -> None:
    scene = Scene()
    scene.pod()
    scene.event_source.collect()
    failed(scene)
    assert [type(event) for event in scene.event_source.collect()] == [PodRefused, PodUpserted]


@pytest.mark.parametrize("before", ["never seen", "another uid"])
def test_a_refusal_of_a_pod_that_was_not_known_is_not_told(before: str) -> None:
    scene = Scene()
    if before == "another uid":
        scene.pod(uid="u0")
    scene.event_source.collect()
    failed(scene)
    assert all(isinstance(event, PodDeleted) for event in scene.event_source.collect())


def test_a_pod_that_failed_by_itself_says_nothing_of_its_node() -> None:
    scene = Scene()
    scene.pod(nodeName="n", phase="Running")
    scene.event_source.collect()
    failed(scene, "Error")
    assert [type(event) for event in scene.event_source.collect()] == [PodUpserted]


def test_conditions_of_a_node_that_keep_pods_away_are_told() -> None:
    holding = ("Ready", "DiskPressure", "NetworkUnavailable")
    found = (*(Condition(type=kind, status="True") for kind in holding), Condition("MemoryPressure", "Unknown"))
    assert pressures(found) == ("DiskPressure", "NetworkUnavailable")
    body = {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "PIDPressure", "status": "True"}]}}
    assert translate_node(msgspec.convert(body, NodeObject)).pressures == ("PIDPressure",)
