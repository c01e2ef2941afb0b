"""A field that is not what it should be spoils its own line of an explanation, and no other."""

from __future__ import annotations

import io
from typing import Any

import pytest
from manifests import our_pod_manifest
from rich.console import Console

from cotide_cli.commands.explain_command import show
from cotide_operator.explain.class_rule import ClassContext
from cotide_operator.explain.explanation import explain_job, explain_pod

NOW = 1_790_000_000.0
EVENT = {"reason": "Waiting", "message": "no room", "metadata": {}, "involvedObject": {"name": "p"}}


def owned(status: Any) -> ClassContext:
    return ClassContext(owner={"kind": "Job", "metadata": {"name": "j"}, "spec": {}, "status": status}, events=[EVENT])


@pytest.mark.parametrize(
    ("around", "status", "what"),
    [
        (owned({}), {"phase": "Running", "startTime": "yesterday"}, "State"),
        (owned({"completionTime": "never", "startTime": 5}), {}, "Job"),
        (owned({"conditions": ["text"]}), {}, "Job"),
        (ClassContext(owner={"kind": "Workload", "metadata": {"name": "w"}, "status": ["text"]}), {}, "Workload"),
        (ClassContext(owner={"kind": "Job", "metadata": {"name": "j"}, "spec": ["text"]}), {}, "Class"),
        (ClassContext(events=[{**EVENT, "count": "many"}]), {}, "Events"),
        (ClassContext(events=[{**EVENT, "type": ["x"]}]), {}, "Events"),
    ],
)
def test_a_poisoned_field_of_a_pod_or_what_it_belongs_to_spoils_its_own_line(
    around: ClassContext, status: dict[str, Any], what: str
) -> None:
    explanation = explain_pod(
        our_pod_manifest("p", namespace="ns", uid="u", spec={"nodeName": "n"}, status={**status}), around, NOW
    )
    unread = [words for name, words in explanation.facts if name == "Not read"]
    assert [words.split(":")[0] for words in unread] == [what]
    assert "none written yet" in dict(explanation.facts)["Decision"]
    assert explanation.data["name"] == "p"


def test_a_poisoned_phase_spoils_its_own_line() -> None:
    notes = {"cotide.dev/granted-phase": "read", "cotide.dev/phase-since": "yesterday"}
    explanation = explain_pod(our_pod_manifest("p", namespace="ns", uid="u", annotations=notes), ClassContext(), NOW)
    assert [words.split(":")[0] for name, words in explanation.facts if name == "Not read"] == ["Phase of work"]


@pytest.mark.parametrize("status", [{"startTime": "x"}, {"conditions": [{}]}, {"predictedSeconds": {"p50": "long"}}])
def test_a_poisoned_status_of_a_job_leaves_its_work_and_its_events(status: dict[str, Any]) -> None:
    job = {"metadata": {"namespace": "ns", "name": "j"}, "spec": {"type": "count"}, "status": status}
    explanation = explain_job(job, [], [EVENT], NOW)
    assert dict(explanation.facts)["Work"].startswith("count")
    assert dict(explanation.facts)["Not read"].startswith("Status:")
    assert [happening.reason for happening in explanation.happenings] == ["Waiting"]


def test_words_of_an_event_that_look_like_markup_are_printed_as_they_stand() -> None:
    explanation = explain_pod(
        our_pod_manifest("p", namespace="ns", uid="u", spec={"nodeName": "n"}, status={}),
        ClassContext(events=[{**EVENT, "reason": "[/red]", "lastTimestamp": "[/x]"}]),
        NOW,
    )
    out = io.StringIO()
    show(explanation, Console(file=out, width=120, highlight=False))
    assert "[/red]" in out.getvalue()
    assert "[/x]" in out.getvalue()
