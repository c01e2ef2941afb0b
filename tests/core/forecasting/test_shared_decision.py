"""The model answers for the services that trust it, the heuristic for all others."""

from __future__ import annotations

import numpy as np

from cotide_core.forecasting.heuristics import HEURISTIC, HeuristicQos
from cotide_core.forecasting.shared_decision import SharedDecision
from cotide_core.forecasts import MixBatch, QosAnswers

SERVICES = ("shop/db", "shop/web")


class Sure:
    """A model that says the same of everything."""

    model_id = "sure"

    def violation_probability(self, mixes: MixBatch) -> np.ndarray:
        return self.answer(mixes).probability

    def answer(self, mixes: MixBatch) -> QosAnswers:
        rows = len(mixes)
        return QosAnswers(np.full(rows, 0.75), np.full(rows, 4), np.full(rows, 20))


def mixes(service: list[int] | None) -> MixBatch:
    rows = 1 if service is None else len(service)
    return MixBatch(
        np.full(rows, 1000.0), np.zeros(rows), np.full(rows, 10.0), np.full(rows, 0.2), (), np.zeros((rows, 0)),
        np.zeros((rows, 0)), services=SERVICES, service=None if service is None else np.array(service),
    )  # fmt: skip


def test_each_row_is_answered_by_whoever_decides_for_its_service() -> None:
    asked = mixes([0, 1, 0])
    answer = SharedDecision(Sure(), ("shop/web",)).answer(asked)
    heuristic = HeuristicQos().answer(asked)
    assert answer.probability.tolist() == [heuristic.probability[0], 0.75, heuristic.probability[2]]
    assert answer.evidence.tolist() == [-1, 20, -1]
    assert answer.outside.tolist() == [0, 4, 0]


def test_rows_without_numbers_are_about_the_first_service() -> None:
    assert SharedDecision(Sure(), ("shop/db",)).answer(mixes(None)).probability.tolist() == [0.75]


def test_a_model_that_decides_for_nobody_is_not_named() -> None:
    assert SharedDecision(Sure(), ()).model_id == HEURISTIC
    assert SharedDecision(Sure(), ("shop/db",)).model_id == "sure"
