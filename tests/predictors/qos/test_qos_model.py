"""The QoS model: its laws, what it does with types it never saw, and that it learns what is there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from cotide_core.forecasts import MixBatch, QosForecaster, QosSamples
from cotide_predictors.qos.mix_features import FEATURES, MONOTONE, feature_matrix
from cotide_predictors.qos.mixes import take_mixes, with_limit
from cotide_predictors.qos.qos_model import QosModel, train_qos


def mix(
    *,
    rate: float = 10_000,
    other: float = 0,
    limit: float = 2,
    pressure: float = 0.2,
    jobs: dict[str, tuple[float, float]] | None = None,
) -> MixBatch:
    """One mix; ``jobs`` maps a type to its count and summed bytes."""
    jobs = {"light": (1, 1e8)} if jobs is None else jobs
    return MixBatch(
        requests_per_second=np.array([float(rate)]),
        other_requests_per_second=np.array([float(other)]),
        limit_milliseconds=np.array([float(limit)]),
        cpu_pressure=np.array([float(pressure)]),
        types=tuple(jobs),
        counts=np.array([[float(count) for count, _ in jobs.values()]]),
        input_bytes=np.array([[float(size) for _, size in jobs.values()]]),
    )


def probability(model: QosModel, **what: object) -> float:
    return float(model.violation_probability(mix(**what))[0])  # type: ignore[arg-type]  # passed through


def test_model_fulfils_the_protocol_of_the_engine(qos_model: QosModel) -> None:
    assert isinstance(qos_model, QosForecaster)
    assert len(qos_model.model_id) == 64


def test_scikit_learn_can_clone_it_with_its_parameters() -> None:
    model = QosModel(limits_milliseconds=(1.0,), trees=17, random_state=5)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    with pytest.raises(ValueError, match="has no parameter 'leaves'"):
        copy.set_params(leaves=3)


DIRECTIONS = {
    "rate": st.floats(0, 3e5),
    "other": st.floats(0, 1e5),
    "limit": st.floats(0.2, 20),
    "pressure": st.floats(0, 4),
    "heavy": st.floats(0, 9),
    "light": st.floats(0, 9),
    "unknown": st.floats(0, 3),
    "heavy_bytes": st.floats(0, 1e11),
    "light_bytes": st.floats(0, 1e11),
}
ROUNDING = 1e-6
"""Probabilities come from single precision: equal mixes on different sides of a float may differ by this."""


def mix_of(values: dict[str, float]) -> MixBatch:
    jobs = {
        "light": (values["light"], values["light_bytes"]),
        "never seen": (values["unknown"], 0.0),
        "heavy": (values["heavy"], values["heavy_bytes"]),
    }
    return mix(**{key: values[key] for key in ("rate", "other", "limit", "pressure")}, jobs=jobs)


@settings(max_examples=150, deadline=None)
@given(values=st.fixed_dictionaries(DIRECTIONS), what=st.sampled_from(sorted(DIRECTIONS)), by=st.floats(1.0001, 50))
def test_probability_never_falls_as_the_node_gets_fuller(
    qos_model: QosModel, values: dict[str, float], what: str, by: float
) -> None:
    fuller = dict(values)
    # A looser limit is the one change that makes a mix safer, so it is tightened.
    fuller[what] = values[what] / by if what == "limit" else values[what] * by + (by - 1)
    before = float(qos_model.violation_probability(mix_of(values))[0])
    after = float(qos_model.violation_probability(mix_of(fuller))[0])
    assert 0 <= before <= 1
    assert after >= before - ROUNDING


@settings(max_examples=60, deadline=None)
@given(rate=st.floats(0, 2e5), limit=st.floats(0.5, 8), count=st.integers(1, 5), size=st.floats(0, 1e9))
def test_unknown_type_is_as_bad_as_the_worst_known_one_and_no_better_than_any(
    qos_model: QosModel, rate: float, limit: float, count: int, size: float
) -> None:
    def with_type(name: str) -> float:
        return probability(qos_model, rate=rate, limit=limit, jobs={name: (count, size)})

    assert not qos_model.knows("never seen")
    assert qos_model.contention_.worst_type == "heavy"
    assert with_type("never seen") >= with_type("heavy") - ROUNDING
    assert with_type("never seen") >= with_type("light") - ROUNDING


def test_undeclared_type_is_unknown_until_a_sample_has_it(qos_model: QosModel, qos_samples: QosSamples) -> None:
    assert probability(qos_model, jobs={"": (1, 1e8)}) == probability(qos_model, jobs={"never seen": (1, 1e8)})
    renamed = replace(qos_samples, mixes=replace(qos_samples.mixes, types=("heavy", "")))
    assert train_qos(renamed, limits_milliseconds=(2.0,)).knows("")


def test_one_job_beside_one_service_is_described_by_type_size_and_rate(qos_model: QosModel) -> None:
    """Ou 2024, eq. 1: with limit and pressure fixed nothing but the three features may move the matrix."""
    alone = feature_matrix(mix(jobs={"heavy": (1, 1e8)}), qos_model.contention_)
    among_absent = feature_matrix(
        mix(jobs={"light": (0, 0), "heavy": (1, 1e8), "never seen": (0, 0)}), qos_model.contention_
    )
    assert np.array_equal(alone, among_absent)
    for change in ({"rate": 20_000}, {"jobs": {"heavy": (1, 2e8)}}, {"jobs": {"light": (1, 1e8)}}):
        changed = mix(**{"jobs": {"heavy": (1, 1e8)}, **change})  # type: ignore[arg-type]  # one of each kind
        assert not np.array_equal(alone, feature_matrix(changed, qos_model.contention_))


def test_order_of_type_columns_does_not_matter(qos_model: QosModel) -> None:
    one = mix(jobs={"heavy": (2, 1e8), "light": (1, 5e7), "other": (1, 0)})
    other = mix(jobs={"other": (1, 0), "light": (1, 5e7), "heavy": (2, 1e8)})
    # The sum over types runs in column order, so the last bit may differ.
    assert qos_model.violation_probability(one) == pytest.approx(qos_model.violation_probability(other), abs=ROUNDING)


def test_a_row_gets_the_same_answer_alone_and_among_others(qos_model: QosModel, qos_samples: QosSamples) -> None:
    together = qos_model.violation_probability(qos_samples.mixes)
    alone = [
        float(qos_model.violation_probability(take_mixes(qos_samples.mixes, np.array([row])))[0]) for row in range(40)
    ]
    assert together[:40].tolist() == alone


def test_no_rows_and_no_jobs_are_answered(qos_model: QosModel) -> None:
    assert len(qos_model.violation_probability(take_mixes(mix(), np.array([], dtype=np.intp)))) == 0
    assert probability(qos_model, jobs={}) < 0.5


def test_it_learns_what_is_there_for_each_limit(qos_model: QosModel, qos_samples: QosSamples) -> None:
    """0.5 ms x (1 + rate / 50,000) x (1 + 3 for each heavy job, 0.1 for a light one)."""
    assert probability(qos_model, rate=1_000, limit=1, jobs={"light": (1, 1e8)}) < 0.2  # 0.56 ms
    assert probability(qos_model, rate=90_000, limit=1, jobs={"light": (1, 1e8)}) > 0.8  # 1.54 ms
    assert probability(qos_model, rate=90_000, limit=2, jobs={"light": (1, 1e8)}) < 0.2
    assert probability(qos_model, rate=50_000, limit=2, jobs={"heavy": (1, 1e8)}) > 0.8  # 4 ms
    for limit in (1.0, 2.0, 4.0):
        said = qos_model.predict(with_limit(qos_samples.mixes, limit))
        assert (said == (qos_samples.latency_milliseconds > limit)).mean() > 0.95


def test_base_carries_on_beyond_what_was_measured(qos_model: QosModel) -> None:
    """Trees stop at three heavy jobs and at the limits trained for; the base does not."""
    few = probability(qos_model, rate=2_000, limit=12, jobs={"heavy": (2, 1e8)})  # 3.6 ms of 12
    many = probability(qos_model, rate=2_000, limit=12, jobs={"heavy": (40, 1e8)})  # some 63 ms of 12
    assert few < 0.5
    assert many > few + 0.2


def test_same_seed_gives_the_same_bytes(qos_model: QosModel, qos_samples: QosSamples) -> None:
    again = train_qos(qos_samples, limits_milliseconds=(1.0, 2.0, 4.0), random_state=3)
    assert again.to_files() == qos_model.to_files()
    assert again.model_id == qos_model.model_id


def test_samples_of_one_kind_give_a_confident_answer_that_is_still_monotone(qos_samples: QosSamples) -> None:
    model = QosModel(limits_milliseconds=(1_000.0,)).fit(qos_samples.mixes, qos_samples.latency_milliseconds)
    assert probability(model, limit=1_000) < 0.1
    assert probability(model, limit=1_000, rate=2e5) >= probability(model, limit=1_000, rate=1e3) - ROUNDING


def test_more_rows_than_allowed_are_sampled(qos_samples: QosSamples) -> None:
    model = QosModel(limits_milliseconds=(1.0, 2.0), most_rows=100)
    model.fit(qos_samples.mixes, qos_samples.latency_milliseconds)
    assert model.samples_ == 50  # 100 rows over two limits


def test_samples_without_a_usable_latency_are_left_out(qos_samples: QosSamples) -> None:
    latency = qos_samples.latency_milliseconds.copy()
    latency[:3] = (0.0, np.nan, -1.0)
    model = train_qos(QosSamples(qos_samples.mixes, latency), limits_milliseconds=(2.0,))
    assert model.samples_ == len(latency) - 3


def test_calibration_never_moves_a_row_across_one_half(qos_model: QosModel, qos_samples: QosSamples) -> None:
    raw = qos_model._margin(qos_samples.mixes) > 0
    assert np.array_equal(qos_model.predict(qos_samples.mixes), raw)
    assert qos_model.sharpness_ > 0


def test_laws_hold_where_the_samples_say_the_opposite(qos_samples: QosSamples) -> None:
    """Latency falls with the rate and with each job here: noise to the model, which must stay flat, not fall."""
    mixes = qos_samples.mixes
    upside_down = 8.0 / (1 + mixes.requests_per_second / 20_000) / (1 + mixes.counts.sum(axis=1))
    model = train_qos(QosSamples(mixes, upside_down), limits_milliseconds=(1.0, 2.0, 4.0))
    busier = [probability(model, rate=rate) for rate in range(0, 200_000, 5_000)]
    fuller = [probability(model, jobs={"heavy": (count, 1e8)}) for count in range(6)]
    larger = [probability(model, jobs={"heavy": (1, size * 1e7)}) for size in range(60)]
    for rising in (busier, fuller, larger):
        assert (np.diff(rising) >= -ROUNDING).all()


def test_trees_are_bound_in_every_feature() -> None:
    """The limit alone lowers the risk; a feature without a direction would be free to break the law."""
    assert {feature.name: feature.direction for feature in FEATURES if feature.direction != 1} == {
        "limit_milliseconds": -1
    }
    assert len(MONOTONE) == len(FEATURES)
