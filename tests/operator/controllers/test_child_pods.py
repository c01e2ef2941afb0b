"""Child pods as the controllers see them."""

from __future__ import annotations

from typing import Any

import manifests
import pytest
from manifests import pod_object

from cotide_core.classes import WorkloadClass
from cotide_kube.objects import Metadata, PodObject
from cotide_operator.apis.types import read_job
from cotide_operator.controllers.child_pods import (
    ChildPod,
    by_index,
    job_pod,
    job_pod_name,
    see,
    see_child,
    template_hash,
)


def seen_children(pods: list[PodObject], owner: str) -> list[ChildPod]:
    return by_index(see_child(pod, owner) for pod in pods)


def pod(name: str, owner: str, index: str | None = "0", **more: Any) -> PodObject:
    """A pod of the index of a Job ``count`` with this uid."""
    metadata = {"namespace": "", "uid": f"uid-{name}", "ownerReferences": [manifests.owner("count", owner)]}
    metadata |= {"labels": {"cotide.dev/index": index} if index is not None else {}, **more.pop("metadata", {})}
    return pod_object(name, status=more.pop("status", {}), spec=more, **metadata)


def test_pods_of_an_earlier_job_of_the_same_name_are_not_its_children() -> None:
    pods = [pod("count-1", "new", "1"), pod("count-0", "old"), pod("stray", "new", None)]
    assert [child.name for child in seen_children(pods, "new")] == ["count-1"]


@pytest.mark.parametrize("index", ["-1", "one", "", "99999999999"])
def test_an_index_that_somebody_scribbled_over_is_none(index: str) -> None:
    assert seen_children([pod("count-0", "new", index)], "new") == []


def test_times_come_from_containers_and_the_reason_from_the_pod() -> None:
    terminated = {"startedAt": "2026-11-20T13:00:10Z", "finishedAt": "2026-11-20T13:00:40Z", "exitCode": 1}
    status = {
        "phase": "Failed",
        "reason": "Evicted",
        "startTime": "2026-11-20T13:00:00Z",
        "conditions": [{"type": "DisruptionTarget", "status": "True"}],
        "containerStatuses": [{"name": "work", "state": {"terminated": terminated}}],
    }
    child = see(pod("count-0", "new", status=status, nodeName="n1"))
    assert (child.finished_seconds or 0) - (child.started_seconds or 0) == 30.0
    assert (child.node, child.lost_its_node, child.done) == ("n1", True, True)
    odd = see(pod("count-0", "new", status={"phase": "Running", "startTime": "yesterday"}))
    assert odd.started_seconds is None


def test_names_tell_index_and_how_often_it_was_tried() -> None:
    assert [job_pod_name("count", 3, retry) for retry in (0, 1, 12)] == ["count-3", "count-3-r1", "count-3-r12"]


def test_the_hash_of_a_template_changes_with_it_and_only_with_it() -> None:
    def hashed(image: str, priority: int) -> str:
        spec = {"priority": priority, "template": {"spec": {"containers": [{"name": "work", "image": image}]}}}
        return template_hash(read_job({"metadata": {"name": "count"}, "spec": spec}).template)

    assert hashed("a", 1) == hashed("a", 2)
    assert hashed("a", 1) != hashed("b", 1)


@pytest.mark.parametrize("reclaim", [False, True])
def test_a_job_pod_asks_for_reclaimed_capacity_where_that_is_wanted(reclaim: bool) -> None:
    resources = {"requests": {"cpu": "250m", "memory": "1Ki"}}
    spec = {"template": {"spec": {"containers": [{"name": "work", "image": "none", "resources": resources}]}}}
    job = read_job({"metadata": {"name": "count"}, "spec": spec})
    made = job_pod(
        Metadata(name="count", namespace="ns", uid="u"), job, index=0, retry=0,
        workload_class=WorkloadClass.BATCH, scheduler_name="cotide", reclaim=reclaim,
    )  # fmt: skip
    asked = {"cotide.dev/reclaimed-cpu": "250", "cotide.dev/reclaimed-memory": "1024"}
    wanted = {"limits": asked, "requests": asked} if reclaim else resources
    assert made["spec"]["containers"][0]["resources"] == wanted
