"""Bindings that are answered after their pod has gone: nothing is kept, since nobody would tell when to forget it."""

from __future__ import annotations

from typing import Any

import pytest
from engine_objects import pod

from cotide_core.events import Pod, PodDeleted, PodUpserted
from cotide_core.instructions import Bind
from cotide_kube.answers import Answer
from cotide_operator.cache.decision_store import Decision, DecisionStore
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting.decision_reporter import DecisionReporter, Sinks
from cotide_operator.scheduling.binder import BindReport


class Sink:
    """Takes whatever it is told, and counts."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.given: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.calls.append(name) or self.given.append(given)


class Scene:
    """A reporter, the pods that the engine knows, and what was told of them."""

    def __init__(self) -> None:
        self.decisions, self.pods, self.sink, self.metrics = DecisionStore(), dict[str, Pod](), Sink(), Metrics()
        other: Any = self.sink
        sinks = Sinks(self.decisions, other, other, other, self.metrics, other, other)
        self.reporter = DecisionReporter(sinks, ObjectCache(), self.pods.get, ScaledClock(), "fifo")

    def made(self, one: Pod) -> None:
        self.pods[one.key] = one
        self.reporter.events([PodUpserted(one)], [one])

    def gone(self, one: Pod) -> None:
        del self.pods[one.key]
        self.reporter.events([PodDeleted(one.key, one.uid)], [])

    def bound(self, one: Pod, reason: str = "the only one", *, at_risk: bool = False) -> None:
        bind = Bind(one.key, one.uid, "n0", reason, at_risk=at_risk)
        self.reporter.reported(BindReport(bind, Answer(201), bound=True, retry=False, wall_seconds=0.1))


def test_a_pod_that_was_bound_is_on_the_board_until_it_is_gone() -> None:
    scene, one = Scene(), pod("a")
    scene.made(one)
    scene.bound(one)
    assert [(each.key, each.node) for each in scene.decisions] == [(one.key, "n0")]
    scene.gone(one)
    assert list(scene.decisions) == []


def test_a_binding_at_risk_is_an_event_of_its_own_beside_the_binding() -> None:
    scene, safe, risky = Scene(), pod("safe"), pod("risky")
    for one in (safe, risky):
        scene.made(one)
    scene.bound(safe)
    assert "at_risk" not in scene.sink.calls
    scene.bound(risky, "qpsm: every node that fits is predicted to break a latency limit", at_risk=True)
    at = scene.sink.calls.index("at_risk")
    assert scene.sink.calls[at - 1] == "scheduled"
    words = "on n0: every node that fits is predicted to break a latency limit"
    assert scene.sink.given[at] == (risky.key, risky.uid, words)


def test_a_pod_that_is_gone_before_its_binding_is_answered_is_not_kept() -> None:
    scene, one = Scene(), pod("a")
    scene.made(one)
    scene.gone(one)
    scene.sink.calls.clear()
    scene.bound(one)
    assert (list(scene.decisions), scene.sink.calls) == ([], [])


def test_one_that_has_its_name_by_then_is_not_said_to_be_bound() -> None:
    scene, one = Scene(), pod("a", uid="first")
    scene.made(one)
    scene.gone(one)
    scene.made(pod("a", uid="second"))
    scene.bound(one)
    assert list(scene.decisions) == []


@pytest.mark.parametrize(("node", "labelled"), [("n0", True), (None, False)])
def test_the_class_of_what_an_earlier_run_bound_is_written_where_that_did_not_come_to_it(
    node: str | None, *, labelled: bool
) -> None:
    """To a node's agent a pod without it is a service, for as long as it runs."""
    scene, one = Scene(), pod("a", node=node)
    scene.made(one)
    scene.reporter.resumed([Decision(one.key, one.uid, 1.0, node, "", "")])
    assert ("label" in scene.sink.calls) == labelled
