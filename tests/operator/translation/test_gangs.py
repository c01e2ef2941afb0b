"""The gang that a pod names: its size, its bounds, and that one which can't be read is never ignored."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from child_pod_builders import child_pod
from job_builders import plan_job
from manifests import pod_object

from cotide_core.classes import WorkloadClass
from cotide_core.events import Gang, Pod
from cotide_kube.objects import Metadata
from cotide_operator.apis.types import read_job
from cotide_operator.cache.object_cache import CustomObject, ObjectCache
from cotide_operator.controllers.child_pods import job_pod
from cotide_operator.controllers.job_reconciler import Progress, ReconcilerCache
from cotide_operator.translation.gangs import gang_of
from cotide_operator.translation.pod_times import PodTimes
from cotide_operator.translation.pods_and_nodes import ownership_of, translate_pod

NAMED = {"cotide.dev/gang": "train", "cotide.dev/gang-min-member": "4", "cotide.dev/gang-timeout-seconds": "60"}
TEMPLATE = {"spec": {"containers": [{"name": "work", "image": "none"}]}}


def translated(cache: ObjectCache, **metadata: Any) -> Pod:
    found = pod_object("p", spec={"schedulerName": "cotide", "containers": [{"name": "c"}]}, **metadata)
    cache.apply("pods", "ADDED", found)
    return translate_pod(found, ownership_of(found, cache), PodTimes(found.metadata.uid, 100.0))


def made(spec: dict[str, Any], **labels: str) -> dict[str, Any]:
    """The first pod of a Job ``count`` with these labels."""
    whole = read_job({"metadata": {"name": "count"}, "spec": {"template": TEMPLATE, **spec}})
    job = Metadata(name="count", namespace="ns", uid="uid", labels=labels)
    pod = job_pod(job, whole, index=0, retry=0, workload_class=WorkloadClass.BATCH, scheduler_name="cotide")
    metadata: dict[str, Any] = pod["metadata"]
    return metadata


def test_a_gang_lives_in_its_pods_namespace() -> None:
    pod = translated(ObjectCache(), namespace="ns", annotations=NAMED)
    assert pod.gang == Gang("ns/train", 4, 60.0)


def test_the_label_of_coscheduling_names_a_gang_where_its_size_is_given_beside_it() -> None:
    labels = {"scheduling.x-k8s.io/pod-group": "mpi"}
    assert gang_of("ns", labels, {"cotide.dev/gang-min-member": "2"})[0] == Gang("ns/mpi", 2, 300.0)
    pod = translated(ObjectCache(), namespace="ns", labels=labels)
    assert pod.gang is None
    assert "metadata.labels[scheduling.x-k8s.io/pod-group]" in pod.unsupported[0], "it never starts alone by mistake"


@pytest.mark.parametrize("size", ["", "0", "-1", "four", "1025", "9" * 40, "\u00b2"])
def test_a_size_that_is_none_keeps_the_pod_pending_and_names_the_annotation(size: str) -> None:
    gang, faults = gang_of("ns", {}, {**NAMED, "cotide.dev/gang-min-member": size})
    assert gang is None
    assert "cotide.dev/gang-min-member" in faults[0]


@pytest.mark.parametrize("seconds", ["soon", "nan", "-5", "0", "inf", "1e400"])
def test_an_odd_timeout_is_a_time_that_ends(seconds: str) -> None:
    gang, _ = gang_of("ns", {}, {**NAMED, "cotide.dev/gang-timeout-seconds": seconds})
    assert gang is not None
    assert 1 <= gang.timeout_seconds <= 1e9


def test_a_jobs_pods_carry_its_gang_all_of_parallelism_by_default() -> None:
    annotations = made({"completions": 8, "parallelism": 4, "gang": {}})["annotations"]
    assert annotations["cotide.dev/gang"] == "count"
    assert annotations["cotide.dev/gang-min-member"] == "4"
    few = made({"completions": 3, "parallelism": 4, "gang": {"timeoutSeconds": 30}})["annotations"]
    assert (few["cotide.dev/gang-min-member"], few["cotide.dev/gang-timeout-seconds"]) == ("3", "30")
    assert "cotide.dev/gang" not in made({})["annotations"]


def test_who_succeeded_by_the_jobs_status_counts_for_a_new_engine() -> None:
    cache = ObjectCache()
    job = {
        "metadata": {"name": "count", "namespace": "ns", "uid": "uid"},
        "spec": {"gang": {}, "parallelism": 4, "template": TEMPLATE},
        "status": {"succeeded": 3},
    }
    cache.apply("jobs", "ADDED", msgspec.convert(job, CustomObject))
    owner = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "name": "count", "uid": "uid", "controller": True}
    pod = translated(cache, namespace="ns", annotations=NAMED, ownerReferences=[owner])
    assert pod.gang == Gang("ns/train", 4, 60.0, 3)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"gang": {"minMember": 5}, "parallelism": 4, "completions": 9}, "spec.gang.minMember must be at most"),
        ({"gang": {}, "parallelism": 2000, "completions": 2000}, "spec.gang may require at most 1024 pods"),
    ],
)
def test_a_gang_that_can_never_start_is_refused_in_a_sentence(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(Exception, match=words):
        read_job({"metadata": {"name": "count"}, "spec": {"template": TEMPLATE, **spec}})


def test_pods_of_a_job_in_a_queue_of_kueue_are_a_group_where_all_run_at_once() -> None:
    queue = {"kueue.x-k8s.io/queue-name": "team"}
    whole = made({"completions": 3, "parallelism": 3}, **queue)
    assert whole["labels"]["kueue.x-k8s.io/pod-group-name"] == "count"
    assert whole["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert whole["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "3"
    assert "kueue.x-k8s.io/pod-group-name" not in made({"completions": 4, "parallelism": 3}, **queue)["labels"]
    assert "kueue.x-k8s.io/queue-name" not in made({})["labels"]


def test_a_suspended_job_makes_no_pod_takes_its_pods_away_and_counts_no_failure() -> None:
    spec = read_job({"spec": {"template": TEMPLATE, "parallelism": 2, "completions": 2}})
    memory = ReconcilerCache()
    suspended = spec.model_copy(update={"suspend": True})
    plan = plan_job(suspended, Progress(), [child_pod(0, "Running", node="n")], memory, 0.0)
    assert (plan.make, [pod.name for pod in plan.delete]) == ((), ["count-0"])
    after = plan_job(suspended, plan.progress, [], memory, 1.0)
    assert (after.make, after.progress.failures, after.progress.evictions) == ((), 0, 0)
    assert plan_job(spec, after.progress, [], memory, 2.0).make == ((0, 0), (1, 0))
