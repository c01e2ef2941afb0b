"""kube-scheduler's answers: in the decision store once the API server took them, and on pods that say otherwise."""

from __future__ import annotations

import msgspec
import pytest

from cotide_kube.objects import PodObject
from cotide_operator.cache.decision_store import Decision, DecisionStore
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.reporting.assisted_reporter import AssistedReporter
from cotide_operator.translation.decision_annotation import DECISION_ANNOTATION, encode

REFUSED = Decision("ns/p", "u", 1.0, None, "InsufficientSlack", "0/1 nodes are available")
CHOSEN = Decision("ns/p", "u", 2.0, "n", "Scheduled", "most slack")


class Scene:
    def __init__(self) -> None:
        self.cache, self.decisions, self.annotated = ObjectCache(), DecisionStore(), list[str]()
        self.reporter = AssistedReporter(self.decisions, self.annotated.append, self.cache)

    def see(self, node: str = "", note: str | None = None) -> None:
        annotations = {} if note is None else {DECISION_ANNOTATION: note}
        metadata = {"name": "p", "namespace": "ns", "uid": "u", "annotations": annotations}
        self.cache.apply(
            "pods", "MODIFIED", msgspec.convert({"metadata": metadata, "spec": {"nodeName": node}}, PodObject)
        )


def test_a_pod_that_was_refused_before_says_so_no_longer_once_it_is_bound() -> None:
    scene = Scene()
    scene.see()
    scene.reporter.answered(REFUSED)
    scene.see(note=encode(REFUSED))
    scene.reporter.answered(CHOSEN)
    assert scene.annotated == ["ns/p"]
    scene.see("n", note=encode(REFUSED))
    assert scene.annotated == ["ns/p", "ns/p"]
    assert scene.decisions.get("ns/p") == CHOSEN


def test_a_binding_that_brought_the_decision_along_is_not_written_again() -> None:
    scene = Scene()
    scene.see()
    scene.reporter.answered(CHOSEN)
    scene.see("n", note=encode(CHOSEN))
    assert scene.annotated == []


def test_what_somebody_else_wrote_there_is_no_decision() -> None:
    scene = Scene()
    scene.see()
    scene.reporter.answered(CHOSEN)
    scene.see("n", note="mine")
    assert scene.annotated == ["ns/p"]


@pytest.mark.parametrize("answer", [REFUSED, CHOSEN])
def test_an_answer_about_a_pod_that_went_meanwhile_is_not_kept(answer: Decision) -> None:
    scene = Scene()
    scene.see()
    scene.cache.apply("pods", "DELETED", scene.cache.pods["ns/p"])
    scene.reporter.answered(answer)
    assert (list(scene.decisions), scene.annotated) == ([], [])
