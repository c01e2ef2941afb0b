"""A pod that trips the webhook is allowed as it is, counted, and told to its creator; the next one is answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cotide_core.errors import InputError
from cotide_core.limits import MAX_CONTAINERS
from cotide_kube.objects import Metadata
from cotide_operator.cache.object_cache import KINDS, CustomObject, ObjectCache
from cotide_operator.webhooks.admission import review as review_module
from cotide_operator.webhooks.admission.review import Reviewer


def review(name: str, **metadata: Any) -> bytes:
    container = {"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}]
    pod = {
        "metadata": {"name": name, "ownerReferences": owners, **metadata},
        "spec": {"schedulerName": "cotide", "containers": [container]},
    }
    resource = {"group": "", "version": "v1", "resource": "pods"}
    request = {"uid": f"of-{name}", "operation": "CREATE", "namespace": "ns", "resource": resource, "object": pod}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def synced() -> ObjectCache:
    cache = ObjectCache()
    for kind in KINDS:
        cache.mark_synced(kind)
    return cache


def trips(monkeypatch: pytest.MonkeyPatch, function: str, result: Any = None) -> None:
    """Have one part of the webhook raise, or answer something that can't be sent, for pods of the name ``bad``."""
    real = getattr(review_module, function)

    def poisoned(pod: Any, *args: Any) -> Any:
        name = pod["metadata"]["name"] if isinstance(pod, dict) else pod.metadata.name
        if name != "bad":
            return real(pod, *args)
        if result is not None:
            return result
        raise OverflowError("int too large")

    monkeypatch.setattr(review_module, function, poisoned)


@pytest.mark.parametrize(
    ("function", "result"),
    [("affiliation_of_new", None), ("class_of", None), ("_patch", None), ("_patch", [{"op": "add", "value": 2**70}])],
)
def test_a_pod_that_trips_the_webhook_is_allowed_unchanged_and_the_next_one_is_changed(
    function: str, result: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trips(monkeypatch, function, result)
    reviewer = Reviewer(synced(), ("cotide",))
    answer = reviewer.answer(review("bad"))
    response = json.loads(answer.body())["response"]
    assert (response["uid"], response["allowed"], "patch" in response) == ("of-bad", True, False)
    assert "keeps its plain requests" in response["warnings"][0]
    assert answer.outcome == "failed"
    assert "in review.py" in caplog.text or "in test_poisoned_reviews.py" in caplog.text, "the log names the place"
    assert reviewer.answer(review("good")).outcome == "reclaimed"


@pytest.mark.parametrize("value", [5, ["text"], {"class": ["x"]}, "text"])
def test_a_poisoned_job_in_the_mirror_leaves_the_pods_of_others_changed(value: Any) -> None:
    cache = synced()
    cache.apply("jobs", "ADDED", CustomObject(Metadata(name="bad", namespace="ns"), spec=value))
    cache.apply("workloads", "ADDED", CustomObject(Metadata(name="bad", namespace="ns"), spec=value))
    reviewer = Reviewer(cache, ("cotide",))
    ours = [{"apiVersion": "cotide.dev/v1", "kind": "Job", "name": "bad", "uid": "u", "controller": True}]
    assert json.loads(reviewer.answer(review("p", ownerReferences=ours)).body())["response"]["allowed"]
    assert reviewer.answer(review("good")).outcome == "reclaimed"


def crowded(containers: int) -> bytes:
    """A review of a pod with so many containers."""
    body = json.loads(review("crowded"))
    one = body["request"]["object"]["spec"]["containers"][0]
    body["request"]["object"]["spec"]["containers"] = [{**one, "name": f"c{n}"} for n in range(containers)]
    return json.dumps(body).encode()


def test_a_pod_of_more_containers_than_are_read_keeps_its_plain_requests() -> None:
    reviewer = Reviewer(synced(), ("cotide",))
    assert reviewer.answer(crowded(MAX_CONTAINERS)).outcome == "reclaimed"
    answer = reviewer.answer(crowded(MAX_CONTAINERS + 1))
    assert (answer.outcome, "512" in answer.warning) == ("untouched", True)


def test_a_review_of_more_values_than_are_read_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review_module.orjson, "loads", lambda _: pytest.fail("was read"))
    with pytest.raises(InputError, match="values, at most 50000 are read"):
        Reviewer(synced(), ("cotide",)).answer(crowded(25_000))
