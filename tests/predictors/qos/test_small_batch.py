"""A few mixes in machine code get the bits that numpy and xgboost give together."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_core.forecasts import MixBatch
from cotide_predictors.persistence.boosted_trees import compiles
from cotide_predictors.qos.mix_features import feature_matrix
from cotide_predictors.qos.qos_model import QosModel
from cotide_predictors.qos.small_batch import SmallBatch


def drawn(generator: np.random.Generator, types: tuple[str, ...]) -> MixBatch:
    rows = int(generator.integers(1, 40))
    counts = generator.integers(0, 5, (rows, len(types))).astype(np.float64)
    return MixBatch(
        generator.uniform(0.0, 2e5, rows) * (generator.random(rows) > 0.1),
        generator.uniform(0.0, 3e5, rows) * (generator.random(rows) > 0.4),
        generator.choice([0.5, 1.0, 10.0], rows),
        generator.uniform(0.0, 1.3, rows),
        types,
        counts,
        np.where(counts > 0, generator.integers(0, 10**11, counts.shape), 0).astype(np.float64),
    )


def by_numpy(model: QosModel, mixes: MixBatch) -> np.ndarray:
    return model.ensemble_.decision_function(feature_matrix(mixes, model.contention_))


@pytest.mark.skipif(not compiles(), reason="without numba these mixes are answered by numpy and xgboost")
@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
def test_any_number_of_types_in_any_order_gets_the_same_bits(
    qos_model: QosModel, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qos_model.ensemble_, "share", share)
    few = SmallBatch(qos_model.contention_, qos_model.ensemble_)
    generator = np.random.default_rng(3)
    names = [*qos_model.contention_.types, *(f"unknown-{number}" for number in range(30))]
    for _ in range(200):
        types = tuple(generator.permutation(names)[: generator.integers(0, len(names) + 1)].tolist())
        mixes = drawn(generator, types)
        assert few.takes(mixes)
        assert np.array_equal(few.margin(mixes), by_numpy(qos_model, mixes))


def test_a_value_that_is_not_finite_is_left_to_numpy(qos_model: QosModel) -> None:
    mixes = drawn(np.random.default_rng(4), ("sort",))
    mixes.requests_per_second[0] = np.inf
    few = SmallBatch(qos_model.contention_, qos_model.ensemble_)
    assert few.margin(mixes) is None
    assert np.array_equal(qos_model._margin(mixes), by_numpy(qos_model, mixes), equal_nan=True)
