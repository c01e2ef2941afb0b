"""What shadow mode's ledger comes to: arithmetic on small histories."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import (
    Event,
    Node,
    NodeUpserted,
    Pod,
    PodPhase,
    PodUpserted,
    ServiceSampled,
    Tick,
    Workload,
    WorkloadUpserted,
)
from cotide_core.forecasting.heuristics import HeuristicCompletion
from cotide_core.forecasts import CompletionForecaster, MixBatch, QosAnswers, QosForecaster
from cotide_core.recording.ledger import LedgerWriter
from cotide_core.recording.shadow_report import ShadowReport, shadow_report

GIB = 2**30


class ThirdPerJob:
    """A limit breaks with p = .3 for each job beside a service."""

    @property
    def model_id(self) -> str:
        return "heuristic"

    def answer(self, mixes: MixBatch) -> QosAnswers:
        return QosAnswers.within(np.minimum(1.0, 0.3 * mixes.counts.sum(axis=1)))


class Catalogue:
    def qos(self, model_id: str) -> QosForecaster:
        return ThirdPerJob()

    def completion(self, model_id: str) -> CompletionForecaster:
        return HeuristicCompletion()


class History:
    """An engine in shadow, and the ledger that it writes."""

    def __init__(self, **knobs: Any) -> None:
        config = SchedulerConfig(policy="qpsm", qos_risk_threshold=0.5, assume_timeout_seconds=1e9, **knobs)
        self._engine, self._writer = Scheduler(config, Catalogue()), LedgerWriter(config)
        self.lines = [self._writer.header()]

    def at(self, now: float, *events: Event) -> History:
        self.lines.append(self._writer.entry(now, events, self._engine.handle(events, now)))
        return self

    def report(self) -> ShadowReport:
        return shadow_report(self.lines, Catalogue(), slot_seconds=300.0)


def node(name: str, cpu: int = 4000) -> NodeUpserted:
    return NodeUpserted(Node(name, (("cpu", cpu), ("memory", 16 * GIB), ("pods", 110))))


def job(name: str, created: float, on: str | None = None, cpu: int = 1000) -> Pod:
    phase = PodPhase.PENDING if on is None else PodPhase.RUNNING
    asked = (("cpu", cpu), ("memory", GIB))
    return Pod(f"d/{name}", f"u-{name}", WorkloadClass.BATCH, asked, created, phase, on, ours=True)


def service(on: str) -> tuple[Event, ...]:
    web = Pod("d/web", "u-web", WorkloadClass.ONLINE, (("cpu", 100),), 0.0, PodPhase.RUNNING, on, workload="d/web")
    return WorkloadUpserted(Workload("d/web", 10.0)), PodUpserted(web), ServiceSampled("d/web", 100.0)


def test_a_placement_that_breaks_a_limit_is_told_with_the_slot_that_it_broke() -> None:
    history = History().at(0.0, node("a"), node("b"), *service("a"))
    for number in (1, 2):  # p = .3 beside one job, .6 beside two: above .5
        at = 10.0 * number
        history.at(at, PodUpserted(job(f"j{number}", at))).at(at + 1, PodUpserted(job(f"j{number}", at, "a")))
    history.at(40.0, ServiceSampled("d/web", 100.0, 25.0)).at(400.0, Tick()).at(401.0, Tick())
    found = history.report()
    assert (found.placed, found.refused) == (2, {"QosAtRisk": 1})
    assert found.services == {"d/web": 1}
    assert (found.slots_over, found.slots_over_beside_refused) == (1, 1)
    assert found.judged == 2
    assert found.mean_probability == pytest.approx((0.3 + 0.6) / 2)
    assert found.broken_share == 1.0
    assert found.brier == pytest.approx((0.7**2 + 0.4**2) / 2)
    assert found.seconds == 401.0


def test_a_slot_over_the_limit_without_such_a_pod_beside_it_is_not_counted_as_kept() -> None:
    history = History().at(0.0, node("a"), *service("a")).at(10.0, ServiceSampled("d/web", 100.0, 25.0))
    found = (
        history.at(20.0, ServiceSampled("d/web", 100.0, 30.0)).at(320.0, ServiceSampled("d/web", 1.0, 11.0)).report()
    )
    assert (found.slots_over, found.slots_over_beside_refused) == (2, 0)


def test_a_pod_that_was_left_waiting_counts_what_it_would_have_had() -> None:
    history = (
        History().at(0.0, node("a")).at(10.0, PodUpserted(job("late", 10.0)), PodUpserted(job("never", 10.0, cpu=500)))
    )
    found = history.at(110.0, PodUpserted(job("late", 10.0, "a"))).at(210.0, Tick()).report()
    # 1 core for 100 s and half a core for 200 s; both at once in between.
    assert found.earlier_pods == 2
    assert found.earlier_core_seconds == pytest.approx(100.0 + 100.0)
    assert found.earlier_at_once_millicores == 1500
    assert (found.waits.pods, found.waits.mean, found.waits_as_if.mean) == (1, 100.0, 0.0)


def test_a_pod_that_was_bound_before_anybody_looked_waits_alike_in_both() -> None:
    history = History().at(0.0, node("a")).at(10.0, PodUpserted(job("quick", 7.0, "a")))
    found = history.report()
    assert (found.placed, found.unseen) == (1, 1)
    assert found.waits == found.waits_as_if
    assert found.waits.mean == 3.0


def test_what_ran_before_the_shadow_fell_on_it_is_no_placement() -> None:
    old = job("old", -50.0, "a")
    found = (
        History()
        .at(0.0, node("a"), PodUpserted(old))
        .at(5.0, PodUpserted(old._replace(phase=PodPhase.SUCCEEDED)))
        .report()
    )
    assert found.placed == 0
