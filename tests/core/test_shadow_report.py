"""What shadow mode's ledger comes to: arithmetic on small histories."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine_objects import node_upserted, pod, running_pod

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import (
    Event,
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


def service(on: str) -> tuple[Event, ...]:
    web = Pod("d/web", "u-web", WorkloadClass.ONLINE, (("cpu", 100),), 0.0, PodPhase.RUNNING, on, workload="d/web")
    return WorkloadUpserted(Workload("d/web", 10.0)), PodUpserted(web), ServiceSampled("d/web", 100.0)


def test_a_placement_that_breaks_a_limit_is_told_with_the_slot_that_it_broke() -> None:
    history = History().at(0.0, node_upserted("a", 4000), node_upserted("b", 4000), *service("a"))
    for number in (1, 2):  # p = .3 beside one job, .6 beside two: above .5
        at = 10.0 * number
        history.at(at, PodUpserted(pod(f"j{number}", created_seconds=at))).at(
            at + 1, PodUpserted(running_pod(f"j{number}", "a", created_seconds=at))
        )
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
    history = History().at(0.0, node_upserted("a", 4000), *service("a")).at(10.0, ServiceSampled("d/web", 100.0, 25.0))
    found = (
        history.at(20.0, ServiceSampled("d/web", 100.0, 30.0)).at(320.0, ServiceSampled("d/web", 1.0, 11.0)).report()
    )
    assert (found.slots_over, found.slots_over_beside_refused) == (2, 0)


def test_a_pod_that_was_left_waiting_counts_what_it_would_have_had() -> None:
    history = (
        History()
        .at(0.0, node_upserted("a", 4000))
        .at(10.0, PodUpserted(pod("late", created_seconds=10.0)), PodUpserted(pod("never", 500, created_seconds=10.0)))
    )
    found = history.at(110.0, PodUpserted(running_pod("late", "a", created_seconds=10.0))).at(210.0, Tick()).report()
    # 1 core for 100 s and half a core for 200 s; both at once in between.
    assert found.earlier_pods == 2
    assert found.earlier_core_seconds == pytest.approx(100.0 + 100.0)
    assert found.earlier_at_once_millicores == 1500
    assert (found.waits.pods, found.waits.mean, found.waits_as_if.mean) == (1, 100.0, 0.0)


def test_a_pod_that_was_bound_before_anybody_looked_waits_alike_in_both() -> None:
    history = (
        History()
        .at(0.0, node_upserted("a", 4000))
        .at(10.0, PodUpserted(running_pod("quick", "a", created_seconds=7.0)))
    )
    found = history.report()
    assert (found.placed, found.unseen) == (1, 1)
    assert found.waits == found.waits_as_if
    assert found.waits.mean == 3.0


def test_what_ran_before_the_shadow_fell_on_it_is_no_placement() -> None:
    old = running_pod("old", "a", created_seconds=-50.0)
    found = (
        History()
        .at(0.0, node_upserted("a", 4000), PodUpserted(old))
        .at(5.0, PodUpserted(old._replace(phase=PodPhase.SUCCEEDED)))
        .report()
    )
    assert found.placed == 0
