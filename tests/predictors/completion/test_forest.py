"""The forest in plain arrays says what scikit-learn's forest says, before and after storage."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from cotide_core.errors import ModelError
from cotide_predictors.completion.forest import DEEPEST, NumericForest
from cotide_predictors.persistence.model_files import read_arrays, write_arrays


def grown(rows: int = 300, trees: int = 12) -> tuple[RandomForestRegressor, np.ndarray]:
    generator = np.random.default_rng(5)
    features = generator.normal(size=(rows, 3))
    target = features[:, 0] ** 2 + (features[:, 1] > 0) + generator.normal(0, 0.1, rows)
    return RandomForestRegressor(trees, min_samples_leaf=2, random_state=1).fit(features, target), features


def test_arrays_predict_what_scikit_learn_predicts() -> None:
    forest, _ = grown()
    asked = np.random.default_rng(6).normal(size=(2000, 3)) * 3
    assert NumericForest.from_sklearn(forest).predict(asked) == pytest.approx(forest.predict(asked), rel=1e-12)


def test_values_on_a_split_go_the_way_scikit_learn_sends_them() -> None:
    forest, _ = grown()
    thresholds = np.concatenate([tree.tree_.threshold for tree in forest.estimators_])
    asked = np.column_stack([thresholds] * 3)
    assert NumericForest.from_sklearn(forest).predict(asked) == pytest.approx(forest.predict(asked), rel=1e-12)


def test_out_of_bag_predictions_come_from_trees_that_did_not_see_the_row() -> None:
    forest, features = grown(trees=40)
    target = forest.predict(features)
    ours, out_of_bag = NumericForest.grow(features, target, trees=40, least_leaf=2, random_state=1)
    reference = RandomForestRegressor(40, min_samples_leaf=2, max_depth=DEEPEST, random_state=1, oob_score=True).fit(
        features, target
    )
    seen = np.isfinite(out_of_bag)
    assert seen.all()
    assert out_of_bag == pytest.approx(reference.oob_prediction_, rel=1e-9)
    assert ours.predict(features) == pytest.approx(reference.predict(features), rel=1e-12)


def test_a_single_leaf_is_a_forest() -> None:
    forest, _ = NumericForest.grow(np.zeros((4, 1)), np.full(4, 2.5), trees=3, least_leaf=1, random_state=0)
    assert forest.predict(np.array([[0.0], [9.0]])).tolist() == [2.5, 2.5]


def test_forest_survives_storage() -> None:
    forest, features = grown()
    ours = NumericForest.from_sklearn(forest)
    back = NumericForest.from_arrays(read_arrays(write_arrays(ours.arrays()), "forest.npz"))
    assert np.array_equal(back.predict(features), ours.predict(features))


def test_broken_arrays_are_refused() -> None:
    arrays = NumericForest.from_sklearn(grown()[0]).arrays()
    outside = {**arrays, "left": arrays["left"] + 10**6}
    with pytest.raises(ModelError, match="left points outside its nodes"):
        NumericForest.from_arrays(outside)
    with pytest.raises(ModelError, match="lacks the array value"):
        NumericForest.from_arrays({name: array for name, array in arrays.items() if name != "value"})
    with pytest.raises(ModelError, match="array threshold has 1 entries"):
        NumericForest.from_arrays({**arrays, "threshold": arrays["threshold"][:1]})


@pytest.mark.parametrize(
    "spoil", [lambda b: b[: len(b) // 2], lambda b: b"PK\x03\x04junk", lambda b: b[:-30] + b"x" * 30]
)
def test_arrays_that_a_disk_spoilt_are_refused_by_name(spoil: Callable[[bytes], bytes]) -> None:
    payload = spoil(write_arrays({"a": np.arange(9.0)}))
    with pytest.raises(ModelError, match=r"forest\.npz is not an npz of plain numbers"):
        read_arrays(payload, "forest.npz")
