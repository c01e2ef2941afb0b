"""Trees walked in machine code give the bits that xgboost gives."""

from __future__ import annotations

import numpy as np
import pytest
import xgboost

from cotide_predictors.persistence import boosted_trees
from cotide_predictors.persistence.boosted_trees import BoostedTrees, margin_of_xgboost

ROWS, COLUMNS = 400, 5
LABELS = {"objective": "binary:logistic", "max_depth": 4, "base_score": 0.5, "nthread": 1}


def payload(rounds: int, **parameters: object) -> tuple[bytes, np.ndarray]:
    generator = np.random.default_rng(7)
    features = generator.integers(0, 9, (ROWS, COLUMNS)) * generator.choice((1.0, 0.1, 1e4), COLUMNS)
    label = (features.sum(axis=1) > np.median(features.sum(axis=1))).astype(float)
    grown = xgboost.train({**LABELS, **parameters}, xgboost.DMatrix(features, label), rounds)
    return bytes(grown.save_raw("ubj")), features


@pytest.mark.parametrize("rounds", [1, 60])
def test_rows_on_thresholds_and_between_them_get_the_bits_of_xgboost(rounds: int) -> None:
    raw, features = payload(rounds)
    trees = BoostedTrees.of(raw, COLUMNS)
    asked = np.concatenate([features, features + 1e-7, -features, features * 1e6])
    for row, (column, threshold) in enumerate(zip(trees.feature, trees.threshold, strict=True)):
        asked[row % len(asked), column] = threshold if np.isfinite(threshold) else 0.0
    expected = margin_of_xgboost(raw, asked)
    assert len(asked) > boosted_trees.ROWS_AT_ONCE
    assert np.array_equal(trees.margin(asked), expected)
    assert np.array_equal(trees.margin(asked[:1]), expected[:1])
    assert trees.margin(asked[:0]).shape == (0,)
    narrow = asked[:300].astype(np.float32)
    walked = boosted_trees.sum_of_leaves(
        trees.roots, trees.depths, trees.feature, trees.threshold, trees.child, trees.leaf, narrow
    )
    assert np.array_equal(walked.astype(np.float64), expected[:300]), "these rows were really walked"


def test_xgboost_is_asked_about_rows_with_holes_and_infinite_ones_only(monkeypatch: pytest.MonkeyPatch) -> None:
    raw, features = payload(5)
    trees = BoostedTrees.of(raw, COLUMNS)
    asked = features[:3].copy()
    asked[0, 0], asked[1, 1], asked[2, 2] = np.nan, np.inf, -np.inf
    assert np.array_equal(trees.margin(asked), margin_of_xgboost(raw, asked))

    def never(*_: object) -> None:
        raise AssertionError("xgboost was asked")

    if boosted_trees.compiles():
        monkeypatch.setattr(boosted_trees, "margin_of_xgboost", never)
        trees.margin(features)


@pytest.mark.parametrize(
    ("columns", "parameters", "complaint"),
    [(1, {}, "a column outside of the 1"), (COLUMNS, {"base_score": 0.25}, "base score is not one half")],
)
def test_trees_that_would_be_walked_wrongly_are_refused(
    columns: int, parameters: dict[str, object], complaint: str
) -> None:
    raw, _ = payload(5, **parameters)
    with pytest.raises(ValueError, match=complaint):
        BoostedTrees.of(raw, columns)


def test_a_tree_that_leads_back_to_itself_is_refused() -> None:
    raw, _ = payload(1)
    offset = raw.index(b"left_children") + len(b"left_children[$l#L") + 8
    circular = raw[:offset] + (0).to_bytes(4, "big") + raw[offset + 4 :]
    with pytest.raises(ValueError, match="the nodes of a tree do not form a tree"):
        BoostedTrees.of(circular, COLUMNS)
