"""Trees walked in machine code give the bits that xgboost gives."""

from __future__ import annotations

import numpy as np
import pytest
import xgboost

from cotide_predictors import boosted_trees
from cotide_predictors.boosted_trees import BoostedTrees

ROWS, COLUMNS = 400, 5


def trained(rounds: int) -> tuple[BoostedTrees, np.ndarray]:
    generator = np.random.default_rng(7)
    features = generator.integers(0, 9, (ROWS, COLUMNS)) * generator.choice((1.0, 0.1, 1e4), COLUMNS)
    label = (features.sum(axis=1) > np.median(features.sum(axis=1))).astype(float)
    parameters = {"objective": "binary:logistic", "max_depth": 4, "base_score": 0.5, "nthread": 1}
    return BoostedTrees.of(xgboost.train(parameters, xgboost.DMatrix(features, label), rounds)), features


def by_xgboost(trees: BoostedTrees, features: np.ndarray) -> np.ndarray:
    margin = trees.booster.inplace_predict(features, predict_type="margin", validate_features=False)
    return np.asarray(margin, dtype=np.float64)


@pytest.mark.parametrize("rounds", [1, 60])
def test_rows_on_thresholds_and_between_them_get_the_bits_of_xgboost(
    rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees, features = trained(rounds)
    asked = np.concatenate([features, features + 1e-7, -features, features * 1e6])
    for row, (column, threshold) in enumerate(zip(trees.feature, trees.threshold, strict=True)):
        asked[row % len(asked), column] = threshold if np.isfinite(threshold) else 0.0
    expected = by_xgboost(trees, asked)
    monkeypatch.setattr(boosted_trees, "FEW_ROWS", len(asked))
    assert np.array_equal(trees.margin(asked), expected)
    assert np.array_equal(trees.margin(asked[:1]), expected[:1])
    if boosted_trees.COMPILES:
        narrow = asked.astype(np.float32)
        walked = boosted_trees.sum_of_leaves(
            trees.roots, trees.depths, trees.feature, trees.threshold, trees.child, trees.leaf, narrow
        )
        assert np.array_equal(walked.astype(np.float64), expected), "these rows were really walked"


def test_rows_with_holes_and_infinite_ones_are_left_to_xgboost() -> None:
    trees, features = trained(5)
    asked = features[:3].copy()
    asked[0, 0], asked[1, 1], asked[2, 2] = np.nan, np.inf, -np.inf
    assert np.array_equal(trees.margin(asked), by_xgboost(trees, asked))
