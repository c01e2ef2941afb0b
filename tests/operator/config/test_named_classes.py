"""A pod's class by the name of its PriorityClass; the value of a priority gives none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from manifests import pod_object

from cotide_core.classes import WorkloadClass
from cotide_core.events import Pod
from cotide_kube.objects import PriorityClassObject
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.translation.pod_times import PodTimes
from cotide_operator.translation.pods_and_nodes import ownership_of, translate_pod

BATCH_JOB = {"kind": "Job", "apiVersion": "batch/v1", "name": "j", "uid": "j", "controller": True}
SAID_GRATIS = {"labels": {"cotide.dev/class": "gratis"}}


def pod(name: str = "", priority: int = 0, names: tuple[str, ...] = ("cotide",), **metadata: Any) -> Pod:
    """A pod that names a PriorityClass of this value, in a cluster whose configuration calls ``nightly`` batch."""
    cache = ObjectCache()
    cache.class_by_priority_class = {**cache.class_by_priority_class, "nightly": WorkloadClass.BATCH}
    if name:
        known = {"metadata": {"name": name}, "value": priority}
        cache.apply("priorityclasses", "ADDED", msgspec.convert(known, PriorityClassObject))
    found = pod_object("p", spec={"priorityClassName": name, "priority": priority}, uid="u", **metadata)
    return translate_pod(found, ownership_of(found, cache), PodTimes("u", 0.0), names)


CASES = [
    ("a shipped name gives its class", pod("cotide-gratis", -1000), "gratis"),
    ("whatever value an older release gave it", pod("cotide-batch", 9000), "batch"),
    ("a name of the configuration gives its class", pod("nightly", 2500), "batch"),
    ("a low value gives no class", pod("important", 1000), "online"),
    ("nor does a value below that of a pod without a name", pod("late", -5), "online"),
    ("nor does the value of critical pods", pod("system-node-critical", 2_000_001_000), "online"),
    ("a name decides before an owner", pod("cotide-gratis", -1000, ownerReferences=[BATCH_JOB]), "gratis"),
    ("a name without a class leaves it to the owner", pod("important", 9500, ownerReferences=[BATCH_JOB]), "batch"),
    ("the label decides before a name", pod("nightly", 2500, **SAID_GRATIS), "gratis"),
]


@pytest.mark.parametrize(("one", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_name_of_a_priority_class_may_give_a_class_and_its_value_none(one: Pod, expected: str) -> None:
    assert one.workload_class == expected


def test_the_value_orders_pods_within_their_class() -> None:
    assert [pod(name, value).priority for name, value in (("important", 1000), ("cotide-batch", -10))] == [1000, -10]


def test_a_pod_that_names_any_of_our_schedulers_is_ours_to_place() -> None:
    ours = ("default-scheduler", "cotide")
    assert [pod(names=names).ours for names in (ours, ("cotide",), ("default-scheduler",), ("cotide2",))] == [
        True,
        True,
        False,
        False,
    ]
