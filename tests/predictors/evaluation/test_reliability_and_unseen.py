"""Reliability diagrams by hand, and scores on samples of a kind that nothing was learned from."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_core.forecasts import MixBatch, QosSamples
from cotide_lab.predictors.evaluation.baselines import QOS_BASELINES
from cotide_lab.predictors.evaluation.held_out import OURS
from cotide_lab.predictors.evaluation.reliability_diagram import Bin, calibration_error, reliability_diagram
from cotide_lab.predictors.evaluation.unseen import UNBOUNDED, evaluate_unseen


def test_rows_are_counted_in_tenths_of_the_probability_and_one_belongs_to_the_last():
    """Two rows below a tenth of which one breaks, two at the top of which both do: mean 0.05 said, 0.5 seen there."""
    probability, violated = np.array([0.04, 0.06, 0.9, 1.0]), np.array([False, True, True, True])
    low, high = reliability_diagram(probability, violated)
    assert low == Bin(0.0, 0.1, 2, pytest.approx(0.05), 0.5)
    assert high == Bin(0.9, 1.0, 2, pytest.approx(0.95), 1.0)
    # Half of the rows are .45 off, the other half .05.
    assert calibration_error([low, high]) == pytest.approx(0.25)


def rising(jobs: str, factor: float, rates: range) -> QosSamples:
    """Return samples of latency ``factor`` x (1 ms + 1 ms for each 10,000 requests/s), beside a job of either type."""
    rate = np.array([1000.0 * one for one in rates])
    counts = np.zeros((len(rate), 2))
    counts[:, ("scan", "sort").index(jobs)] = 1.0
    zero = np.zeros(len(rate))
    mixes = MixBatch(rate, zero, zero + 3.0, zero + 0.5, ("scan", "sort"), counts, counts * 1e8)
    return QosSamples(mixes, factor * (1.0 + rate / 10_000.0))


def test_a_table_of_jobs_that_nobody_has_seen_is_scored_by_who_learned_from_another():
    steps = []
    scores = evaluate_unseen(
        rising("sort", 1.0, range(60)),
        rising("scan", 1.0, range(60)),
        limits_milliseconds=(3.0,),
        watch=lambda name, limit, probability, violated: steps.append((name, limit, probability.shape, violated.sum())),
    )
    assert [score.contender for score in scores] == [OURS, UNBOUNDED, *QOS_BASELINES]
    # 1 + r / 10 > 3 from 21,000 requests/s on: 39 of 60 rows.
    assert steps == [(name, 3.0, (60,), 39) for name in (OURS, UNBOUNDED, *QOS_BASELINES)]
    found = {score.contender: score.metrics["f1"][0] for score in scores}
    # A job of another type is outside what was learned: all rows are refused, 2 x 39 / (60 + 39). The trees themselves
    # take it for the worst known, and here it is just like that.
    assert found[OURS] == pytest.approx(78 / 99)
    assert found[UNBOUNDED] > 0.9


def test_nothing_of_what_is_scored_is_learned_from():
    """The same mixes, a thousand times as fast: every contender says of them what it said before."""
    learned, asked = rising("sort", 1.0, range(60)), rising("scan", 4.0, range(60))
    said = []
    for latency in (asked.latency_milliseconds, asked.latency_milliseconds / 1000.0):
        evaluate_unseen(
            learned,
            QosSamples(asked.mixes, latency),
            limits_milliseconds=(3.0,),
            watch=lambda name, limit, probability, violated: said.append((name, probability.tobytes())),
        )
    assert said[: len(said) // 2] == said[len(said) // 2 :]
