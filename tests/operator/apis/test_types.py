"""What our resources accept, and the sentence a user gets when they don't."""

from __future__ import annotations

from typing import Any

import pytest
from manifests import job_manifest, workload_manifest

from cotide_core.errors import InputError
from cotide_operator.apis.types import LabelSelector, read_job, read_workload

TEMPLATE = {"spec": {"containers": [{"name": "work", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}]}}


def job(**spec: Any) -> dict[str, Any]:
    """A Job of this page's template, unless a test brings none."""
    return job_manifest(**{"template": TEMPLATE, **spec})


def test_a_job_with_nothing_but_a_template_gets_the_documented_defaults() -> None:
    spec = read_job(job())
    assert (spec.class_, spec.priority, spec.completions, spec.parallelism, spec.backoff_limit) == (
        "batch",
        100,
        1,
        1,
        6,
    )
    assert spec.requested_seconds is None
    assert spec.template.spec.restart_policy == "Never"


def test_a_pod_template_keeps_what_we_do_not_know() -> None:
    spec = read_job(job(template={"spec": {**TEMPLATE["spec"], "nodeSelector": {"disk": "ssd"}}}))
    written = spec.template.spec.model_dump(by_alias=True)
    assert written["nodeSelector"] == {"disk": "ssd"}
    assert written["containers"][0]["resources"] == {"requests": {"cpu": "1"}}


def asking(name: str, amount: object) -> dict[str, Any]:
    """A pod spec that asks for an amount of one resource."""
    return {"containers": [{"name": "c", "image": "x", "resources": {"requests": {name: amount}}}]}


@pytest.mark.parametrize(("size", "in_bytes"), [("4Gi", 4 * 2**30), (1500, 1500), ("1.5M", 1_500_000), ("0", 0)])
def test_an_input_size_is_a_quantity_or_a_number_of_bytes(size: int | str, in_bytes: int) -> None:
    assert read_job(job(inputSize=size)).input_bytes == in_bytes


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"class": "online"}, r"spec\.class: input should be 'batch' or 'gratis'"),
        ({"priority": 1001}, r"spec\.priority: .*1000"),
        ({"completions": 0}, r"spec\.completions: "),
        ({"parallelism": 0}, r"spec\.parallelism: "),
        ({"backoffLimit": -1}, r"spec\.backoffLimit: "),
        ({"requestedSeconds": 0}, r"spec\.requestedSeconds: "),
        ({"inputSize": "4 gigabytes"}, r"spec\.inputSize: .*is not a quantity"),
        ({"inputSize": -1}, r"spec\.inputSize: must not be negative"),
        ({"type": "no spaces"}, r"spec\.type: "),
        ({"template": {}}, r"spec\.template\.spec: field required"),
        ({"template": {"spec": {"containers": []}}}, r"spec\.template\.spec\.containers: "),
        ({"template": {"spec": {"containers": [{"image": "x"}]}}}, r"spec\.template\.spec\.containers\[0\]\.name: "),
        (
            {"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Always"}}},
            r"spec\.template\.spec\.restartPolicy: ",
        ),
        (
            {"template": {"spec": {**TEMPLATE["spec"], "schedulerName": "default-scheduler"}}},
            r"spec\.template\.spec\.schedulerName: ",
        ),
    ],
)
def test_a_job_that_cannot_be_is_refused_by_the_path_of_its_field(spec: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_job(job(**spec))


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            asking("memory", "10GiB"),
            r"spec\.template\.spec\.containers\[0\]\.resources\.requests\.memory: '10GiB' is no",
        ),
        (asking("cpu", True), r"containers\[0\]\.resources\.requests\.cpu: 'True' is no quantity, as 500m or 2Gi"),
        (asking("cpu", "-1"), r"containers\[0\]\.resources\.requests\.cpu: '-1' is no quantity"),
        (
            {**asking("cpu", "1"), "resources": {"limits": {"cpu": "1c"}}},
            r"spec\.template\.spec\.resources\.limits\.cpu: ",
        ),
        (
            {**asking("cpu", "1"), "initContainers": [{"resources": {"limits": {"cpu": ""}}}]},
            r"spec\.template\.spec\.initContainers\[0\]\.resources\.limits\.cpu: '' is no quantity",
        ),
    ],
)
def test_an_amount_of_a_template_that_is_no_quantity_is_refused_by_its_path(
    spec: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        read_job(job(template={"spec": spec}))
    with pytest.raises(InputError, match=sentence):
        read_workload(workload_manifest(template={"spec": spec}))


@pytest.mark.parametrize("amount", [1, 0.5, "500m", "+1", "1.5Gi", ".5", "1e3", "1E", "5.", "128974848", "100n"])
def test_every_way_to_write_a_quantity_is_taken(amount: float | str) -> None:
    assert read_job(job(template={"spec": asking("memory", amount)})).completions == 1


@pytest.mark.parametrize("odd", [{"resources": None}, {"resources": {"requests": None}}, {"initContainers": None}])
def test_what_asks_for_nothing_in_so_many_words_is_taken(odd: dict[str, Any]) -> None:
    spec = {"containers": [{"name": "c", "image": "x", **odd}], **odd}
    assert read_job(job(template={"spec": spec})).completions == 1


def test_a_name_that_is_too_long_for_a_label_is_refused() -> None:
    body = {**job(), "metadata": {"name": "n" * 64}}
    with pytest.raises(InputError, match=r"metadata\.name must have at most 63 characters"):
        read_job(body)


def test_a_workload_adopts_or_runs_its_pods() -> None:
    assert read_workload(workload_manifest(selector={"matchLabels": {"app": "web"}})).template is None
    running = read_workload(workload_manifest(template=TEMPLATE, replicas=3, qos={"latencyP95Milliseconds": 5}))
    assert (running.replicas, running.qos.latency_p95_milliseconds, running.exclusive) == (3, 5.0, False)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({}, "either spec.selector, to adopt pods, or spec.template"),
        ({"selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}, "and not both"),
        ({"selector": {"matchLabels": {"app": "web"}}, "replicas": 2}, "spec.replicas needs spec.template"),
        ({"selector": {}}, "spec.selector must name at least one label"),
        ({"template": TEMPLATE, "qos": {"latencyP95Milliseconds": 0}}, r"spec\.qos\.latencyP95Milliseconds: "),
        ({"template": TEMPLATE, "replicas": -1}, r"spec\.replicas: "),
        (
            {"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}},
            r"spec\.template\.spec\.restartPolicy",
        ),
    ],
)
def test_a_workload_that_cannot_be_is_refused_in_a_sentence(spec: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_workload(workload_manifest(**spec))


def test_a_selector_selects_by_all_its_requirements() -> None:
    selector = LabelSelector.model_validate(
        {
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["front", "edge"]},
                {"key": "canary", "operator": "DoesNotExist"},
                {"key": "zone", "operator": "NotIn", "values": ["b"]},
            ],
        }
    )
    assert selector.matches({"app": "web", "tier": "edge"})
    assert not selector.matches({"app": "web", "tier": "edge", "canary": "1"})
    assert not selector.matches({"app": "web", "tier": "edge", "zone": "b"})
    assert not selector.matches({"app": "web"})
    assert not LabelSelector().matches({"app": "web"})
