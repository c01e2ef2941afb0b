"""The conditions that say what latency forecasts of a Workload rest on, from the model in use to its status."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from services_pair import DATABASE, measured

from cotide_core.forecasting.heuristics import HeuristicQos
from cotide_core.forecasts import QosForecaster
from cotide_operator.clock import ScaledClock
from cotide_operator.controllers.applicability_conditions import with_applicability
from cotide_operator.controllers.status_builder import ReconcileContext
from cotide_operator.models.service_applicability import ServiceApplicability, applicability_of
from cotide_predictors.qos.qos_model import train_qos

CONTEXT = ReconcileContext(ScaledClock(0.0, 1.0), 1_000.0, 1)


@pytest.fixture(scope="module")
def model() -> QosForecaster:
    return train_qos(measured(200, 1), random_state=1)


def conditions(known: ServiceApplicability) -> dict[str, dict[str, Any]]:
    return {one["type"]: one for one in with_applicability([{"type": "Ready", "status": "True"}], known, CONTEXT)}


def test_a_service_inside_what_was_learned_has_both_conditions_false(model: QosForecaster) -> None:
    known = applicability_of(model, DATABASE, 500.0, 200.0)
    assert known == ServiceApplicability((), 200)
    said = conditions(known)
    assert said["RateUnknown"]["status"] == said["OutsideTraining"]["status"] == "False"
    assert said["OutsideTraining"]["message"] == "alone it lies inside what was learned from 200 samples of it"
    assert said["Ready"]["status"] == "True", "other conditions stay"


def test_an_unmeasured_rate_is_said_and_is_nothing_that_training_could_mend(model: QosForecaster) -> None:
    said = conditions(applicability_of(model, DATABASE, None, 200.0))
    assert (said["RateUnknown"]["status"], said["RateUnknown"]["reason"]) == ("True", "NotMeasured")
    assert "differs from a rate of 0" in said["RateUnknown"]["message"]
    assert said["OutsideTraining"]["status"] == "False"


@pytest.mark.parametrize(
    ("service", "rate", "limit", "words"),
    [
        ("shop/new", 500.0, 200.0, "by service (0 samples)"),
        (DATABASE, 5_000.0, 200.0, "by rate (200 samples)"),
        (DATABASE, 500.0, 100.0, "by limit (200 samples)"),
        (DATABASE, 5_000.0, 100.0, "by rate, limit (200 samples)"),
    ],
)
def test_what_is_outside_is_named(model: QosForecaster, service: str, rate: float, limit: float, words: str) -> None:
    said = conditions(applicability_of(model, service, rate, limit))
    assert (said["OutsideTraining"]["status"], said["OutsideTraining"]["reason"]) == ("True", "Outside")
    assert words in said["OutsideTraining"]["message"]
    assert "the larger of model and heuristic counts" in said["OutsideTraining"]["message"]


def test_without_a_model_the_heuristic_is_named() -> None:
    known = applicability_of(HeuristicQos(), DATABASE, 500.0, 200.0)
    assert known.samples is None
    assert conditions(known)["OutsideTraining"]["reason"] == "NoModel"


def test_a_rate_of_zero_that_was_measured_is_inside(model: QosForecaster) -> None:
    assert applicability_of(model, DATABASE, 0.0, np.float64(200.0)).outside == ()
