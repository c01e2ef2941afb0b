"""The completion model: lone time, slowdown, quantiles, unknown types, and the user's own estimate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.errors import ModelError
from cotide_core.forecasts import CompletionForecaster, CompletionSamples
from cotide_predictors.completion import completion_model as completion_model_module
from cotide_predictors.completion.completion_model import (
    SLOWEST_ASKED,
    CompletionModel,
    JobBatch,
    jobs_of,
    train_completion,
)
from cotide_predictors.completion.forest import NumericForest

NONE_GIVEN = np.array([np.nan])


def lone(model: CompletionModel, name: str, size: float, requested: float = np.nan) -> tuple[float, float]:
    forecast = model.isolated_seconds((name,), np.array([float(size)]), np.array([requested]))
    return float(forecast.p50[0]), float(forecast.p90[0])


def test_model_fulfils_the_protocol_of_the_engine(completion_model: CompletionModel) -> None:
    assert isinstance(completion_model, CompletionForecaster)
    assert completion_model.knows("slow")
    assert not completion_model.knows("never seen")


def test_lone_time_and_slowdown_are_told_apart(completion_model: CompletionModel) -> None:
    """Trained on lone x exp(rate / 100,000): 2 s + 4 s for 100 MB, a tenth of that for ``quick``."""
    assert lone(completion_model, "slow", 1e8)[0] == pytest.approx(6.0, rel=0.05)
    assert lone(completion_model, "slow", 4e8)[0] == pytest.approx(18.0, rel=0.05)
    assert lone(completion_model, "quick", 1e8)[0] == pytest.approx(0.6, rel=0.05)
    factor = completion_model.slowdown(("slow",) * 3, np.array([0.0, 60_000.0, 100_000.0]), np.full(3, 0.25))
    assert factor == pytest.approx(np.exp([0.0, 0.6, 1.0]), rel=0.06)


def test_line_goes_on_beyond_the_largest_size_seen(completion_model: CompletionModel) -> None:
    assert lone(completion_model, "slow", 4e9)[0] == pytest.approx(162.0, rel=0.1)  # 2 s + 40 x 4 s


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(["slow", "quick", "never seen", ""]),
    size=st.floats(0, 1e12),
    rate=st.floats(0, 1e6),
    more_rate=st.floats(0, 1e6),
    pressure=st.floats(0, 5),
    more_pressure=st.floats(0, 5),
)
def test_quantiles_are_ordered_and_slowdown_never_falls_below_one_or_with_contention(
    completion_model: CompletionModel,
    name: str,
    size: float,
    rate: float,
    more_rate: float,
    pressure: float,
    more_pressure: float,
) -> None:
    p50, p90 = lone(completion_model, name, size)
    assert 0 < p50 <= p90
    before, fuller = completion_model.slowdown(
        (name, name), np.array([rate, rate + more_rate]), np.array([pressure, pressure + more_pressure])
    )
    assert 1 <= before <= fuller


def test_unknown_type_is_the_slowest_known_one(completion_model: CompletionModel) -> None:
    for size in (2e7, 1e8, 4e8):
        assert lone(completion_model, "never seen", size) == lone(completion_model, "slow", size)
    rates, pressure = np.array([60_000.0] * 3), np.full(3, 0.25)
    unknown, slow, quick = completion_model.slowdown(("never seen", "slow", "quick"), rates, pressure)
    assert unknown == max(slow, quick)


def of_types(count: int, runs: int = 6) -> CompletionModel:
    """Type ``t7`` takes 8 s for each 100 MB."""
    kinds, sizes = np.repeat(np.arange(count), runs), np.tile(np.geomspace(1e7, 1e9, runs), count)
    noise = np.exp(0.02 * np.random.default_rng(5).standard_normal(len(kinds)))
    jobs = JobBatch(tuple(f"t{kind}" for kind in kinds), sizes, np.zeros(len(kinds)), np.zeros(len(kinds)))
    return CompletionModel(trees=10).fit(jobs, (kinds + 1) * sizes / 1e8 * noise)


def test_beside_many_known_types_an_unknown_one_is_the_slowest_of_those_with_the_longest_trend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever runs 200 pods of as many new types must not hold up everybody's for seconds."""
    model, asked = of_types(100), 0
    assert lone(model, "never seen", 1e8) == max(lone(model, f"t{kind}", 1e8) for kind in range(100))
    predict = NumericForest.predict

    def counted(forest: NumericForest, features: np.ndarray) -> np.ndarray:
        nonlocal asked
        asked += len(features)
        return predict(forest, features)

    monkeypatch.setattr(NumericForest, "predict", counted)
    sizes = np.repeat(np.linspace(1e7, 1e9, 100), 2)
    model.isolated_seconds([f"new{number}" for number in range(200)], sizes, np.full(200, np.nan))
    assert asked <= 100 * SLOWEST_ASKED


def test_a_model_knows_the_types_with_the_most_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion_model_module, "MAX_TYPES", 2)
    jobs = JobBatch(("a", "b", "b", "c", "c", "c"), np.full(6, 1e8), np.zeros(6), np.zeros(6))
    model = CompletionModel().fit(jobs, np.full(6, 5.0))
    assert (model.types_, model.samples_) == (("b", "c"), 5)


def test_estimate_of_the_user_counts_for_unknown_types_only(completion_model: CompletionModel) -> None:
    assert lone(completion_model, "never seen", 1e8, requested=77.0)[0] == 77.0
    assert lone(completion_model, "slow", 1e8, requested=77.0) == lone(completion_model, "slow", 1e8)


def test_undeclared_size_means_the_types_usual_one(completion_model: CompletionModel) -> None:
    usual = float(completion_model.lone_.usual_bytes[completion_model.types_.index("slow")])
    assert lone(completion_model, "slow", 0) == lone(completion_model, "slow", usual)


def test_p90_holds_for_about_nine_of_ten(
    completion_model: CompletionModel, completion_samples: CompletionSamples
) -> None:
    jobs = jobs_of(completion_samples)
    lone_p90 = completion_model.isolated_seconds(jobs.types, jobs.input_bytes, np.full(len(jobs), np.nan)).p90
    factor = completion_model.slowdown(jobs.types, jobs.requests_per_second, jobs.cpu_pressure)
    covered = float((completion_samples.seconds <= lone_p90 * factor).mean())
    assert 0.85 <= covered <= 0.99


def test_types_in_a_batch_do_not_disturb_each_other(completion_model: CompletionModel) -> None:
    names, sizes = ("quick", "never seen", "slow"), np.array([1e8, 2e7, 4e8])
    together = completion_model.isolated_seconds(names, sizes, np.full(3, np.nan))
    apart = [lone(completion_model, name, size) for name, size in zip(names, sizes.tolist(), strict=True)]
    assert list(zip(together.p50.tolist(), together.p90.tolist(), strict=True)) == apart
    assert len(completion_model.isolated_seconds((), np.zeros(0), np.zeros(0)).p50) == 0


def test_pressure_slows_jobs_where_samples_say_so() -> None:
    """Twice the time at pressure 1.5, whatever the rate of zero says."""
    samples = CompletionSamples(
        types=("a",) * 20,
        input_bytes=np.full(20, 1e8),
        requests_per_second=np.zeros(20),
        cpu_pressure=np.repeat([0.5, 1.5], 10),
        seconds=np.repeat([10.0, 20.0], 10),
    )
    model = train_completion(samples)
    alone, beside = model.slowdown(("a", "a"), np.zeros(2), np.array([0.5, 1.5]))
    assert alone == 1.0
    assert beside == pytest.approx(2.0, rel=0.05)
    assert lone(model, "a", 1e8)[0] == pytest.approx(10.0, rel=0.05)


def test_one_sample_is_enough_to_answer() -> None:
    model = train_completion(CompletionSamples(("a",), np.array([1e6]), np.zeros(1), np.zeros(1), np.array([3.0])))
    assert lone(model, "a", 1e6) == pytest.approx((3.0, 3.0))
    # One size only: time in proportion to it.
    assert lone(model, "a", 2e6)[0] == pytest.approx(6.0)


def test_samples_without_a_usable_time_are_left_out_and_none_left_is_an_error(
    completion_samples: CompletionSamples,
) -> None:
    seconds = completion_samples.seconds.copy()
    seconds[:2] = (0.0, np.nan)
    one = CompletionSamples(
        completion_samples.types, completion_samples.input_bytes, completion_samples.requests_per_second,
        completion_samples.cpu_pressure, seconds,
    )  # fmt: skip
    assert train_completion(one).samples_ == len(seconds) - 2
    empty = CompletionSamples((), np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0))
    with pytest.raises(ModelError, match="no sample has a run time"):
        train_completion(empty)


def test_same_seed_gives_the_same_bytes(
    completion_model: CompletionModel, completion_samples: CompletionSamples
) -> None:
    assert train_completion(completion_samples, random_state=3).to_files() == completion_model.to_files()


def test_misfit_arguments_are_refused() -> None:
    jobs = JobBatch(("a",), np.ones(1), np.zeros(1), np.zeros(1))
    with pytest.raises(ValueError, match="2 run times for 1 jobs"):
        CompletionModel().fit(jobs, np.ones(2))
    with pytest.raises(ValueError, match="finite number of seconds > 0"):
        CompletionModel().fit(jobs, np.zeros(1))
