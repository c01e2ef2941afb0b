"""Which pods the webhook gives reclaimed requests, and what it answers to what it can't read."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifests import container, our_pod_manifest

from cotide_core.classes import WorkloadClass
from cotide_core.errors import InputError
from cotide_kube.objects import Metadata, NamespaceObject, PriorityClassObject
from cotide_operator.cache.object_cache import KINDS, CustomObject, ObjectCache
from cotide_operator.webhooks.admission.review import ORIGINAL_RESOURCES_ANNOTATION, Reviewer
from cotide_sim.apiserver.patch.json_patch import json_patch

Json = dict[str, Any]
CPU, MEMORY = "cotide.dev/reclaimed-cpu", "cotide.dev/reclaimed-memory"
ASKED = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
RECLAIMED = {"requests": {CPU: "500", MEMORY: "1073741824"}, "limits": {CPU: "500", MEMORY: "1073741824"}}


def cache() -> ObjectCache:
    """Return a cache of a small cluster in which every rule of a class has something to go by."""
    found = ObjectCache()
    for name, value in (("cotide-online", 0), ("cotide-batch", -10), ("cotide-gratis", -1000), ("important", 1000)):
        found.apply("priorityclasses", "ADDED", PriorityClassObject(Metadata(name=name), value=value))
    for name, labels in (
        ("team", {}),
        ("capped", {"cotide.dev/max-class": "batch"}),
        ("lowest", {"cotide.dev/max-class": "gratis"}),
    ):
        found.apply("namespaces", "ADDED", NamespaceObject(Metadata(name=name, labels=labels)))
    found.apply("jobs", "ADDED", CustomObject(Metadata(name="count", namespace="team"), spec={"class": "gratis"}))
    selector = {"selector": {"matchLabels": {"app": "web"}}}
    found.apply("workloads", "ADDED", CustomObject(Metadata(name="web", namespace="team"), spec=selector))
    for kind in KINDS:
        found.mark_synced(kind)
    return found


REVIEWER = Reviewer(cache(), ("cotide",))


def owner(api_version: str, kind: str, name: str = "count") -> list[Json]:
    return [{"apiVersion": api_version, "kind": kind, "name": name, "uid": "u", "controller": True}]


def pod(resources: Json | None = None, spec: Json | None = None, **metadata: Any) -> Json:
    """A pod as a user applies it: what it asks for is what a review changes."""
    asked = copy.deepcopy(ASKED if resources is None else resources)
    return our_pod_manifest(
        "p", spec={"containers": [container(name="main", resources=asked)], **(spec or {})}, **metadata
    )


def review(obj: Any, namespace: str = "team", **request: Any) -> bytes:
    asked = {
        "uid": "1-2-3", "operation": "CREATE", "namespace": namespace, "object": obj, "dryRun": False,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"}, **request,
    }  # fmt: skip
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}).encode()


def admitted(obj: Json, namespace: str = "team", reviewer: Reviewer = REVIEWER, **request: Any) -> Json:
    """Return a pod as an API server would go on with it."""
    answer = json.loads(reviewer.answer(review(obj, namespace, **request)).body())
    assert answer["apiVersion"] == "admission.k8s.io/v1"
    assert answer["kind"] == "AdmissionReview"
    response = answer["response"]
    assert (response["uid"], response["allowed"]) == ("1-2-3", True)
    assert ("patch" in response) is (response.get("patchType") == "JSONPatch")
    steps = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    result: Json = json_patch(copy.deepcopy(obj), steps)
    return result


CLASSES: list[tuple[str, Json, str, bool]] = [
    # what says so, the pod, its namespace, whether it gets reclaimed requests
    ("nothing says otherwise: online", pod(), "team", False),
    ("priority 0 alone is no class", pod(spec={"priority": 0}), "team", False),
    ("label batch", pod(labels={"cotide.dev/class": "batch"}), "team", True),
    ("label gratis", pod(labels={"cotide.dev/class": "gratis"}), "team", True),
    ("label online over a batch class", pod(labels={"cotide.dev/class": "online"},
                                            spec={"priorityClassName": "cotide-batch"}), "team", False),
    ("a label that names no class", pod(labels={"cotide.dev/class": "fast"}), "team", False),
    ("PriorityClass batch", pod(spec={"priorityClassName": "cotide-batch", "priority": -10}), "team", True),
    ("PriorityClass gratis", pod(spec={"priorityClassName": "cotide-gratis", "priority": -1000}), "team", True),
    ("PriorityClass online", pod(spec={"priorityClassName": "cotide-online", "priority": 0}), "team", False),
    ("a PriorityClass of a low value", pod(spec={"priorityClassName": "important", "priority": 1000}), "team", False),
    ("a PriorityClass that is not known yet", pod(spec={"priorityClassName": "new"}), "team", False),
    ("owned by a batch/v1 Job", pod(ownerReferences=owner("batch/v1", "Job")), "team", True),
    ("owned by a ReplicaSet", pod(ownerReferences=owner("apps/v1", "ReplicaSet")), "team", False),
    ("owned by a Job of ours", pod(ownerReferences=owner("cotide.dev/v1alpha1", "Job")), "team", True),
    ("owned by a Job of ours that's gone", pod(ownerReferences=owner("cotide.dev/v1alpha1", "Job", "x")), "team", True),
    ("owned by a Workload", pod(ownerReferences=owner("cotide.dev/v1alpha1", "Workload", "web")), "team", False),
    ("selected by a Workload", pod(labels={"app": "web"}, ownerReferences=owner("batch/v1", "Job")), "team", False),
    ("selected by a Workload elsewhere", pod(labels={"app": "web"}, spec={"priorityClassName": "cotide-batch"}),
     "capped", True),
    ("capped to batch by its namespace", pod(), "capped", True),
    ("capped to gratis by its namespace", pod(labels={"cotide.dev/class": "online"}), "lowest", True),
    ("a namespace that is not known yet", pod(labels={"cotide.dev/class": "batch"}), "new", True),
    ("another scheduler", pod(spec={"schedulerName": "default-scheduler"}, labels={"cotide.dev/class": "batch"}),
     "team", False),
]  # fmt: skip


@pytest.mark.parametrize(("obj", "namespace", "swapped"), [one[1:] for one in CLASSES], ids=[one[0] for one in CLASSES])
def test_batch_and_gratis_pods_get_reclaimed_requests_and_others_stay(obj: Json, namespace: str, swapped: bool) -> None:
    after = admitted(obj, namespace)
    if not swapped:
        assert after == obj
        return
    assert after["spec"]["containers"][0]["resources"] == RECLAIMED
    note = json.loads(after["metadata"]["annotations"][ORIGINAL_RESOURCES_ANNOTATION])
    assert note == {"main": ASKED}
    # Nothing else was touched.
    after["spec"]["containers"][0]["resources"] = ASKED
    del after["metadata"]["annotations"]
    assert after == obj


BATCH = {"cotide.dev/class": "batch"}
UNTOUCHED: list[tuple[str, Json, dict[str, Any]]] = [
    ("an update", pod(labels=BATCH), {"operation": "UPDATE"}),
    ("a subresource", pod(labels=BATCH), {"subResource": "ephemeralcontainers"}),
    ("another kind", pod(labels=BATCH), {"resource": {"group": "apps", "version": "v1", "resource": "pods"}}),
    ("a deletion", pod(labels=BATCH), {"operation": "DELETE", "object": None}),
    ("no requests at all", pod({}, labels=BATCH), {}),
    ("another resource alone", pod({"limits": {"nvidia.com/gpu": "1"}}, labels=BATCH), {}),
    ("reclaimed requests of its own", pod(RECLAIMED, labels=BATCH), {}),
    ("pod-level resources", pod(labels=BATCH, spec={"resources": {"requests": {"cpu": "1"}}}), {}),
    ("an amount that can't be read", pod({"requests": {"cpu": "much"}}, labels=BATCH), {}),
]


@pytest.mark.parametrize(("obj", "request_"), [one[1:] for one in UNTOUCHED], ids=[one[0] for one in UNTOUCHED])
def test_what_is_no_new_pod_with_plain_requests_is_left_alone(obj: Json, request_: dict[str, Any]) -> None:
    assert admitted(obj, **request_) == obj


def test_a_dry_run_is_answered_like_any_other() -> None:
    assert admitted(pod(labels=BATCH), dryRun=True) == admitted(pod(labels=BATCH))


def test_annotations_that_were_there_stay() -> None:
    after = admitted(pod(labels=BATCH, annotations={"team": "a"}))
    assert after["metadata"]["annotations"].keys() == {"team", ORIGINAL_RESOURCES_ANNOTATION}
    assert admitted(pod(labels=BATCH, annotations=None))["metadata"]["annotations"].keys() == {
        ORIGINAL_RESOURCES_ANNOTATION
    }


def test_before_the_cluster_was_listed_pods_keep_their_requests_and_users_are_told() -> None:
    answer = Reviewer(ObjectCache(), ("cotide",)).answer(review(pod(labels=BATCH)))
    assert answer.patch == []
    assert "only just started" in answer.warning
    assert json.loads(answer.body())["response"]["warnings"] == [answer.warning]


def test_a_container_injected_by_a_later_webhook_is_completed_when_the_pod_is_shown_again() -> None:
    once = admitted(pod(labels=BATCH))
    once["spec"]["containers"].append({"name": "proxy", "resources": {"requests": {"cpu": "100m"}}})
    twice = admitted(once)
    first, second = (container["resources"] for container in twice["spec"]["containers"])
    assert first == RECLAIMED
    assert second == {"requests": {CPU: "100"}, "limits": {CPU: "100"}}
    note = json.loads(twice["metadata"]["annotations"][ORIGINAL_RESOURCES_ANNOTATION])
    assert note == {"main": ASKED, "proxy": {"requests": {"cpu": "100m"}}}
    assert admitted(twice) == twice


def test_defaults_that_a_limit_range_fills_in_again_are_taken_away_again() -> None:
    # The API server runs its own mutating plugins once more after a webhook changed something.
    once = admitted(pod(labels=BATCH))
    once["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100m"
    once["spec"]["containers"][0]["resources"]["limits"] |= {"cpu": "1", "memory": "512Mi"}
    twice = admitted(once)
    assert twice["spec"]["containers"][0]["resources"] == RECLAIMED
    assert json.loads(twice["metadata"]["annotations"][ORIGINAL_RESOURCES_ANNOTATION]) == {"main": ASKED}


def test_somebody_elses_words_in_our_annotation_do_no_harm() -> None:
    for words in ("no JSON", "[]", "null"):
        after = admitted(pod(labels=BATCH, annotations={ORIGINAL_RESOURCES_ANNOTATION: words}))
        assert after["spec"]["containers"][0]["resources"] == RECLAIMED


MALFORMED: list[tuple[bytes, str]] = [
    (b"", "the review is no JSON"),
    (b"{", "the review is no JSON"),
    (b"[]", "the review must be an object with apiVersion: admission.k8s.io/v1 and kind: AdmissionReview"),
    (b"{}", "apiVersion: must be admission.k8s.io/v1"),
    (b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}', "apiVersion: must be admission.k8s.io/v1"),
    (b'{"apiVersion":"admission.k8s.io/v1","kind":"Pod"}', "kind: must be AdmissionReview"),
    (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', "request: must be an object"),
    (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}', "request.uid: must be the uid"),
    (review(None), "request.object: must be the pod that is created"),
    (review("pod"), "request.object: must be the pod that is created"),
    (review({"metadata": {}, "spec": {"containers": "none"}}), "request.object: can't be read as a pod"),
    (review({"spec": {}}), "request.object: can't be read as a pod"),
]


@pytest.mark.parametrize(("body", "sentence"), MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_review_is_told_by_one_line_that_names_the_field(body: bytes, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        REVIEWER.answer(body)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


quantities = st.one_of(
    st.integers(0, 10**6),
    st.integers(0, 10**6).map(lambda value: f"{value}m"),
    st.integers(0, 10**6).map(lambda value: f"{value}Ki"),
    st.sampled_from(["1", "0.5", "1e3", "3Gi"]),
)
amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu", CPU, MEMORY]), quantities, max_size=4)
resources = st.one_of(
    st.none(),
    st.fixed_dictionaries({}, optional={"requests": amounts, "limits": amounts}),
)
containers = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["a", "b", "c"])}, optional={"resources": resources}),
    min_size=1,
    max_size=3,
)


@given(
    containers=containers, init=containers, injected=containers, label=st.sampled_from(["batch", "gratis", "online"])
)
def test_shown_again_nothing_changes_and_no_pod_asks_for_both_kinds(
    containers: list[Json], init: list[Json], injected: list[Json], label: str
) -> None:
    spec = {"schedulerName": "cotide", "containers": containers, "initContainers": init}
    once = admitted({"metadata": {"labels": {"cotide.dev/class": label}}, "spec": spec})
    assert admitted(once) == once
    if ORIGINAL_RESOURCES_ANNOTATION in (once["metadata"].get("annotations") or {}):
        assert not plain(once)
        once["spec"]["containers"] += copy.deepcopy(injected)
        twice = admitted(once)
        assert not plain(twice)
        assert admitted(twice) == twice


def plain(pod: Json) -> bool:
    """Return whether any container asks for plain cpu or memory."""
    return any(
        {"cpu", "memory"} & (((container.get("resources") or {}).get(kind)) or {}).keys()
        for listed in ("containers", "initContainers")
        for container in pod["spec"].get(listed, ())
        for kind in ("requests", "limits")
    )


def test_a_pod_of_any_of_our_schedulers_names_is_reviewed_and_no_other() -> None:
    reviewer = Reviewer(cache(), ("cotide", "default-scheduler"))
    for name, changed in (("cotide", True), ("default-scheduler", True), ("other", False)):
        answer = reviewer.answer(review(pod(labels=BATCH, spec={"schedulerName": name})))
        assert bool(answer.patch) is changed


def test_a_priority_class_of_the_configuration_gives_the_class() -> None:
    found = cache()
    found.class_by_priority_class = {**found.class_by_priority_class, "important": WorkloadClass.BATCH}
    body = review(pod(spec={"priorityClassName": "important", "priority": 1000}))
    assert Reviewer(found, ("cotide",)).answer(body).patch
    assert not REVIEWER.answer(body).patch
