"""Who is woken for a freed node under a guard, and what is asked to find out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from engine_objects import pod_upserted

from cotide_core.classes import WorkloadClass
from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import (
    Node,
    NodeUpserted,
    PodDeleted,
    PodPhase,
    PodUpserted,
    Workload,
    WorkloadUpserted,
)
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.forecasts import MixBatch, QosAnswers
from cotide_core.instructions import Bind, Instruction, Wait
from cotide_core.kernels.array_types import Floats

GIB = 2.0**30


@dataclass
class ByInput:
    """Refuses what makes more than `most` GiB of input on a node; notes how many rows each call asks about."""

    most: float
    asked: list[int] = field(default_factory=list)
    model_id: str = "by-input"

    def violation_probability(self, mixes: MixBatch) -> Floats:
        self.asked.append(len(mixes))
        return np.where(mixes.input_bytes.sum(axis=1) > self.most * GIB, 0.9, 0.1)

    def answer(self, mixes: MixBatch) -> QosAnswers:
        return QosAnswers.within(self.violation_probability(mixes))


class Catalogue(HeuristicCatalogue):
    def __init__(self, qos: ByInput) -> None:
        self._qos = qos

    def qos(self, model_id: str) -> ByInput:
        del model_id
        return self._qos


def pod(name: str, gibibytes: float, **fields: Any) -> PodUpserted:
    """A pod that sorts so much."""
    return pod_upserted(name, **{"uid": name, "type": "sort", "input_bytes": int(gibibytes * GIB), **fields})


def crowded(forecaster: ByInput, waiting: int) -> Scheduler:
    """A node with a service and two jobs of 6 GiB, full; jobs of 1, 2, .. GiB wait, and each was told so."""
    service = pod("web", 0, workload_class=WorkloadClass.ONLINE, workload="d/web", type="")
    events = [
        WorkloadUpserted(Workload("d/web")),
        NodeUpserted(Node("a", (("cpu", 3000), ("pods", 9)))),
        PodUpserted(service.pod._replace(node="a", phase=PodPhase.RUNNING)),
        *(pod(f"r{number}", 6, node="a", phase=PodPhase.RUNNING) for number in range(2)),
    ]
    scheduler = Scheduler(SchedulerConfig(policy="qpsm"), Catalogue(forecaster))
    scheduler.handle(events, 0.0)
    out = scheduler.handle([pod(f"j{size}", size) for size in range(1, waiting + 1)], 1.0)
    assert [type(one) for one in out] == [Wait] * waiting
    return scheduler


def freed(scheduler: Scheduler) -> list[Instruction]:
    return scheduler.handle([PodDeleted("d/r0", "r0")], 2.0)


@pytest.mark.parametrize("waiting", [1, 9])
def test_where_the_smallest_job_is_refused_the_larger_ones_are_neither_asked_about_nor_woken(waiting: int) -> None:
    forecaster = ByInput(6.5)  # 6 GiB stay on the node: 1 GiB more is too much
    scheduler = crowded(forecaster, waiting)
    forecaster.asked.clear()
    assert freed(scheduler) == []
    assert forecaster.asked == [1]
    assert scheduler.pending()["unschedulable"] == waiting


def test_a_screened_job_counts_its_attempt_and_goes_when_the_guard_lets_it_pass() -> None:
    forecaster = ByInput(6.5)
    scheduler = crowded(forecaster, 3)
    assert freed(scheduler) == []
    forecaster.most = 8.0  # 6 + 1 GiB pass, and 6 + 2; not both
    out = scheduler.handle([NodeUpserted(Node("a", (("cpu", 3500), ("pods", 9))))], 3.0)
    assert [(one.key, one.attempts) for one in out if isinstance(one, Bind)] == [("d/j1", 3)]


def test_a_job_whose_place_was_taken_in_the_same_cycle_is_not_tried_and_hears_nothing_new() -> None:
    forecaster = ByInput(8.0)
    scheduler = crowded(forecaster, 2)
    forecaster.asked.clear()
    out = freed(scheduler)
    # The smallest first: it passes, so the other is asked about as well; then the one core that was free is taken.
    assert forecaster.asked == [1, 1]
    assert [type(one) for one in out] == [Bind]
    assert scheduler.pending() == {"active": 0, "backoff": 0, "unschedulable": 1, "gated": 0}
