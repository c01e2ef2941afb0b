"""Which rule gave a pod its class, by what the API shows of it."""

from __future__ import annotations

from typing import Any

import pytest
from manifests import job_manifest, our_pod_manifest

from cotide_operator.explain.class_rule import ClassContext, class_and_reason

JOB = job_manifest("count", **{"class": "gratis"})


def pod(owners: list[dict[str, Any]] | None = None, **parts: Any) -> dict[str, Any]:
    """A pod, and who owns it."""
    return our_pod_manifest("p", ownerReferences=owners or [], **parts)


@pytest.mark.parametrize(
    ("body", "around", "answer"),
    [
        (pod(labels={"cotide.dev/class": "batch"}), ClassContext(), ("batch", "by its label cotide.dev/class")),
        (pod(labels={"cotide.dev/class": "gratis"}), ClassContext(owner=JOB), ("gratis", "by its Job count")),
        (pod(labels={"cotide.dev/class": "online"}), ClassContext(), ("online", "by default: no other rule applies")),
        (
            pod(labels={"cotide.dev/class": "online"}),
            ClassContext(owner=JOB),
            ("gratis", "because work of a Job is not made online without its namespace's label cotide.dev/max-class"),
        ),
        (pod(), ClassContext(), ("online", "by default: no other rule applies")),
        (
            pod(spec={"priorityClassName": "cotide-batch", "priority": 2000}),
            ClassContext(),
            ("batch", "by its PriorityClass cotide-batch"),
        ),
        (
            pod(spec={"priorityClassName": "important", "priority": 1000}),
            ClassContext(),
            ("online", "by default: no other rule applies"),
        ),
        (
            pod(owners=[{"kind": "Job", "apiVersion": "batch/v1", "controller": True}]),
            ClassContext(),
            ("batch", "because a batch/v1 Job owns it"),
        ),
        (
            pod(labels={"cotide.dev/class": "online"}),
            ClassContext(namespace={"metadata": {"labels": {"cotide.dev/max-class": "batch"}}}),
            ("batch", "because its namespace allows batch at most"),
        ),
        (
            pod(labels={"cotide.dev/class": "batch"}),
            ClassContext(namespace={"metadata": {"labels": {"cotide.dev/max-class": "batch"}}}),
            ("batch", "because its namespace allows batch at most"),
        ),
    ],
)
def test_the_rule_that_gave_the_class_is_named(
    body: dict[str, Any], around: ClassContext, answer: tuple[str, str]
) -> None:
    assert class_and_reason(body, around) == answer


def labelled_by(manager: str, label: str, **spec: Any) -> dict[str, Any]:
    """A pod whose class label the API server notes as one manager's, or as nobody's."""
    body = pod(labels={"cotide.dev/class": label}, spec={"priorityClassName": "nightly", **spec})
    fields = {"f:metadata": {"f:labels": {"f:cotide.dev/class": {}}}}
    written = [{"manager": manager, "fieldsV1": fields}] if manager else []
    body["metadata"]["managedFields"] = [{"manager": "kubectl-create", "fieldsV1": {"f:spec": {}}}, *written]
    return body


def test_a_label_of_the_operator_that_no_other_rule_gives_is_by_a_name_of_the_configuration() -> None:
    by_name = ("batch", "by its PriorityClass nightly, which classes.byPriorityClass names")
    assert class_and_reason(labelled_by("cotide", "batch"), ClassContext()) == by_name
    assert class_and_reason(labelled_by("", "batch"), ClassContext()) == by_name, "written with the binding"
    by_label = ("batch", "by its label cotide.dev/class")
    assert class_and_reason(labelled_by("kubectl-create", "batch"), ClassContext()) == by_label
    # What another rule gives is explained by that rule: here the cap, and here the owner.
    capped = ClassContext(namespace={"metadata": {"labels": {"cotide.dev/max-class": "batch"}}})
    assert class_and_reason(labelled_by("cotide", "batch"), capped)[1] == "because its namespace allows batch at most"
    assert class_and_reason(labelled_by("cotide", "batch"), ClassContext(owner=JOB))[1] != by_name[1]


def test_a_static_pod_is_told_to_be_online_and_why() -> None:
    body = pod(labels={"cotide.dev/class": "gratis"}, spec={"nodeName": "fake-3"})
    body["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "1f2e"}
    answer = ("online", "because it is a static pod of its node, which can't be evicted")
    assert class_and_reason(body, ClassContext()) == answer
