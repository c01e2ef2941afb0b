"""Splits that do not leak, and scores whose arithmetic can be followed."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_core.forecasts import CompletionSamples, MixBatch, QosSamples
from cotide_lab.predictors.evaluation.baselines import COMPLETION_BASELINES, QOS_BASELINES, REFUSE_ALL
from cotide_lab.predictors.evaluation.held_out import (
    OURS,
    SHIPPED,
    evaluate_completion,
    evaluate_qos,
    part_of,
    score_completion,
    score_qos,
    splits_of,
)
from cotide_predictors.qos.mixes import cells_of, take_mixes


class Fixed:
    """Answers with given probabilities."""

    def __init__(self, *probabilities: float) -> None:
        self.probabilities = np.array(probabilities)

    def violation_probability(self, mixes: MixBatch) -> np.ndarray:
        return self.probabilities

    def predict(self, mixes: MixBatch) -> np.ndarray:
        return self.probabilities > 0.5


def test_repetitions_of_a_cell_stay_on_one_side(qos_samples: QosSamples) -> None:
    doubled = take_mixes(qos_samples.mixes, np.repeat(np.arange(40), 3))
    cells = cells_of(doubled)
    assert len(set(cells.tolist())) == 40
    for train, test in splits_of(cells, 5, 0):
        assert not set(cells[train].tolist()) & set(cells[test].tolist())
        assert len(train) + len(test) == 120
        assert len(test) == 30  # a quarter of 40 cells, three rows each


def test_splits_depend_on_seed_and_number_only() -> None:
    cells = np.arange(100)
    few, many = list(splits_of(cells, 2, 7)), list(splits_of(cells, 5, 7))
    assert all(np.array_equal(a[1], b[1]) for a, b in zip(few, many, strict=False))
    assert not np.array_equal(few[0][1], few[1][1])
    assert not np.array_equal(few[0][1], next(iter(splits_of(cells, 1, 8)))[1])


def test_a_smaller_part_of_the_training_cells_lies_in_a_larger_one() -> None:
    cells = np.repeat(np.arange(40), 3)
    train, _ = next(splits_of(cells, 1, 0))
    parts = [set(part_of(train, cells, share, (0, 1)).tolist()) for share in (0.01, 0.1, 0.5, 1.0)]
    # Thirty cells of three rows are for training: one at least, three, fifteen and all of them.
    assert [len(part) for part in parts] == [3, 9, 45, 90]
    assert parts[0] < parts[1] < parts[2] < parts[3] == set(train.tolist())


def test_classification_scores() -> None:
    """Four rows, two violated; called: the first (right) and the third (wrong)."""
    violated = np.array([True, True, False, False])
    row = score_qos(Fixed(0.9, 0.4, 0.8, 0.1), None, violated)  # type: ignore[arg-type]  # Fixed does not look
    assert row["accuracy"] == 0.5
    assert row["recall"] == 0.5
    assert row["f1"] == 0.5  # 2 x 1 / (2 + 2)
    assert row["brier"] == pytest.approx((0.01 + 0.36 + 0.64 + 0.01) / 4)


def test_f1_without_a_violation_is_undefined_not_zero() -> None:
    row = score_qos(Fixed(0.1, 0.2), None, np.array([False, False]))  # type: ignore[arg-type]  # Fixed does not look
    assert np.isnan(row["f1"])
    assert np.isnan(row["recall"])
    assert row["accuracy"] == 1.0


def test_regression_scores() -> None:
    row = score_completion(np.array([1.0, 4.0]), np.array([2.0, 4.0]))
    assert row["mae_seconds"] == 0.5
    assert row["r2"] == pytest.approx(1 - 1 / 2)  # squares about the mean of 3: 1 + 1
    assert row["median_relative_error"] == 0.25


def test_every_contender_is_scored_on_every_limit_and_split(qos_samples: QosSamples) -> None:
    said: list[str] = []
    scores = evaluate_qos(qos_samples, limits_milliseconds=(2.0, 1_000.0), splits=2, progress=said.append)
    assert {score.contender for score in scores} == {OURS, SHIPPED, *QOS_BASELINES}
    assert len(said) == 2
    for score in scores:
        assert len(score.metrics["f1"]) == 2
        if score.contender == REFUSE_ALL:
            continue
        # Nothing breaks a limit of one second, and everybody else says so.
        assert score.limit_milliseconds == 2.0 or score.mean("accuracy") == 1.0
        assert score.limit_milliseconds == 2.0 or np.isnan(score.mean("f1"))
    at_two = {score.contender: score for score in scores if score.limit_milliseconds == 2.0}
    assert at_two[OURS].mean("f1") > at_two["xgboost, rate only"].mean("f1") + 0.2


def test_types_absent_from_training_are_not_scored() -> None:
    """One cell each for 12 types: whatever is held out was never trained on, so that nothing can be scored."""
    types = tuple(f"type {number}" for number in range(12))
    samples = CompletionSamples(types, np.ones(12), np.zeros(12), np.zeros(12), np.arange(1.0, 13.0))
    with pytest.raises(ValueError, match="no test row"):
        evaluate_completion(samples, splits=2)


def test_completion_contenders_see_the_same_rows(completion_samples: CompletionSamples) -> None:
    scores = evaluate_completion(completion_samples, splits=2, split_by="row")
    assert {score.contender for score in scores} == {OURS, *COMPLETION_BASELINES}
    assert len({tuple(score.metrics["scored"].tolist()) for score in scores}) == 1
    ours = next(score for score in scores if score.contender == OURS)
    blind = next(score for score in scores if "without rate" in score.contender)
    assert ours.mean("mae_seconds") < blind.mean("mae_seconds") / 2


def test_splits_by_cell_give_repetitions_nothing_to_copy(qos_samples: QosSamples) -> None:
    """Sixty cells four times each, latency drawn by lot: by row it can be looked up, by cell only guessed."""
    mixes = take_mixes(qos_samples.mixes, np.repeat(np.arange(60), 4))
    latency = np.repeat(np.random.default_rng(4).choice([1.0, 3.0], 60), 4)
    accuracy = {}
    for by in ("row", "cell"):
        scores = evaluate_qos(QosSamples(mixes, latency), limits_milliseconds=(2.0,), splits=2, split_by=by)  # type: ignore[arg-type]  # both are literals
        accuracy[by] = next(score for score in scores if "plain" in score.contender).mean("accuracy")
    assert accuracy["row"] > 0.9
    assert accuracy["cell"] < 0.75
