"""The calibrated quantiles: coverage, cold start, odd records, placements, horizons and memory."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_core.forecasts import HostLoadForecaster
from cotide_core.kernels.array_types import Floats
from cotide_predictors.host_load import experts, feedback_ar, mixture
from cotide_predictors.host_load.forecaster import HostLoadModel
from cotide_predictors.host_load.mixture import LEVELS
from cotide_predictors.host_load.residual_histograms import (
    BINS,
    BLOCK,
    REACH,
    add_residuals,
    bin_edges,
    bins_of,
    residual_quantiles,
)


def noisy_hosts(hosts: int, slots: int, seed: int = 0) -> Floats:
    generator = np.random.default_rng(seed)
    levels = generator.uniform(0.2, 0.6, (hosts, 1))
    return np.clip(levels + generator.normal(0, 0.05, (hosts, slots)), 0, 1)


def fed(load: Floats, **options: object) -> tuple[HostLoadModel, Floats]:
    """Return a model after all slots and what it forecast for each."""
    model = HostLoadModel(len(load), **options)  # type: ignore[arg-type]  # options of the constructor
    found = np.full((*load.shape, len(LEVELS)), np.nan)
    for slot in range(load.shape[1]):
        found[:, slot] = model.quantiles()
        model.record(load[:, slot])
    return model, found


def test_each_level_covers_its_share_of_what_happens() -> None:
    load = noisy_hosts(40, 500)
    _, found = fed(load)
    coverage = (load[:, 200:, None] <= found[:, 200:]).mean(axis=(0, 1))
    # 12,000 slots: one standard error is 0.5, 0.3 and 0.1 points.
    assert coverage == pytest.approx(LEVELS, abs=0.015)
    assert 0.98 < coverage[2] < 0.997


def test_quantiles_are_read_from_counts_as_numpy_reads_them_from_values() -> None:
    generator = np.random.default_rng(4)
    residuals = generator.normal(0, 1, 4000)
    counts = np.zeros((1, 1, BINS), dtype=np.float32)
    blocks = np.zeros((1, 1, BINS // BLOCK), dtype=np.float32)
    pool = np.zeros((1, BINS))
    one = np.ones((1, 1))
    for residual in residuals:
        bins = bins_of(np.array([residual]), 0 * one, one, 1)
        add_residuals(counts, blocks, pool, np.array([True]), bins, 1.0)
    levels = np.array([[0.05, 0.5, 0.9, 0.99]])
    found = np.empty((1, 4, 1))
    residual_quantiles(counts, blocks, np.array([4000.0]), 0 * pool, levels, bin_edges(1, 1), found)
    # A bin is 0.1 wide at the centre and 0.1 * cosh(asinh(2.3)) = 0.25 at p99.
    assert found[0, :, 0] == pytest.approx(np.quantile(residuals, levels[0]), abs=0.06)
    assert np.array_equal(pool[0], counts[0, 0])
    assert np.arcsinh(50) < REACH


@pytest.mark.parametrize("centre", ["last-state-arma", "feedback-ar", "held-rise"])
def test_the_kernels_answer_alike_compiled_and_as_plain_python(centre: str, monkeypatch: pytest.MonkeyPatch) -> None:
    load = noisy_hosts(4, 60)
    load[1, :20] = load[2, 30:33] = np.nan
    _, compiled = fed(load, centre=centre)
    kernels = {
        mixture: ("add_residuals", "residual_quantiles", "_weigh", "_mix", "_score", "_correct"),
        experts: ("_learn",),
        feedback_ar: ("_yule_walker",),
    }
    for module, names in kernels.items():
        for name in names:
            kernel = getattr(module, name)
            monkeypatch.setattr(module, name, getattr(kernel, "py_func", kernel))
    _, plain = fed(load, centre=centre)
    assert np.isfinite(plain).all()
    assert np.allclose(plain, compiled, rtol=0, atol=1e-12)


def test_a_value_counts_in_the_bin_whose_edges_hold_it() -> None:
    # Expert 0 is counted on asinh, expert 1 in equal bins; scales of 2 halve the residuals, 1.0 and -0.5 are left.
    values, scales = np.array([2.0, -1.0, np.nan]), np.full((3, 2), 2.0)
    bins = bins_of(values, np.zeros((3, 2)), scales, 1)
    edges = bin_edges(2, 1)
    for row, residual in enumerate((1.0, -0.5)):
        for expert in range(2):
            index = int(bins[row, expert])
            assert edges[expert, index] <= residual + 1e-9
            assert residual - 1e-9 <= edges[expert, index + 1]
    far = bins_of(np.array([1e9, -1e9]), np.zeros((2, 2)), np.ones((2, 2)), 1)
    assert far.tolist() == [[BINS - 1, BINS - 1], [0, 0]]


def test_a_new_host_is_answered_from_the_pool_at_its_first_record() -> None:
    load = noisy_hosts(21, 300)
    load[-1, :-1] = np.nan
    load[-1, -1] = 0.4
    model, _ = fed(load)
    forecast = model.forecast()
    old_width = np.median((forecast.p99 - forecast.p50)[:-1])
    new_width = (forecast.p99 - forecast.p50)[-1]
    assert np.isfinite([forecast.point[-1], forecast.p50[-1], forecast.p99[-1]]).all()
    assert forecast.p50[-1] == pytest.approx(0.4, abs=0.05)
    assert 0.02 < new_width < 5 * old_width


def test_a_model_without_any_record_still_has_ordered_finite_quantiles() -> None:
    forecast = HostLoadModel(2).forecast()
    assert np.isfinite(forecast.point).all()
    assert np.all((forecast.p50 >= 0) & (forecast.p50 <= forecast.p90) & (forecast.p90 <= forecast.p99))


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, -0.3])
def test_an_odd_record_is_missing_and_never_zero(odd: float) -> None:
    load = noisy_hosts(5, 200)
    gap, strange = load.copy(), load.copy()
    gap[2, 120:140], strange[2, 120:140] = np.nan, odd
    missing, _ = fed(gap)
    seen, _ = fed(strange)
    assert np.array_equal(missing.quantiles(), seen.quantiles())
    assert seen.forecast().p50[2] == pytest.approx(load[2].mean(), abs=0.05)


def test_a_hundredfold_record_is_held_at_the_ceiling_and_forgotten() -> None:
    load = noisy_hosts(10, 400)
    load[3, 300] *= 100
    model, found = fed(load)
    assert found.max() <= 1.0
    assert model.forecast().p50[3] == pytest.approx(load[3, :300].mean(), abs=0.06)
    # One odd slot must not ruin a host: a hundred slots later p99 is back within reach of its own peaks.
    assert model.forecast().p99[3] < load[3, :300].max() + 0.15


def test_a_vanished_hosts_row_serves_another_as_if_new() -> None:
    load = noisy_hosts(6, 250)
    load[0] = 0.9
    model, _ = fed(load)
    model.reset([0])
    after = np.full(6, 0.4)
    after[0] = 0.1
    model.record(after)
    forecast = model.forecast()
    assert forecast.p50[0] < 0.2
    assert forecast.point[0] == pytest.approx(0.1, abs=0.02)


def test_a_row_without_records_changes_nothing_for_the_others() -> None:
    load = noisy_hosts(4, 120)
    with_silent = np.vstack([load, np.full((1, 120), np.nan)])
    alone, _ = fed(load)
    beside, _ = fed(with_silent)
    assert np.allclose(alone.quantiles(), beside.quantiles()[:4])


def test_the_same_records_give_the_same_forecasts() -> None:
    load = noisy_hosts(7, 150, seed=9)
    assert np.array_equal(fed(load)[1], fed(load)[1], equal_nan=True)


def test_a_horizon_forecasts_the_peak_over_its_slots() -> None:
    load = noisy_hosts(30, 500, seed=2)
    model = HostLoadModel(30, horizons=(6,))
    hits = []
    for slot in range(500):
        if 250 <= slot < 494:
            hits.append(load[:, slot : slot + 6].max(axis=1) <= model.forecast(6).p90)
        model.record(load[:, slot])
    assert np.mean(hits) == pytest.approx(0.9, abs=0.03)
    assert np.all(model.forecast(6).p90 >= model.forecast(1).p90)
    with pytest.raises(ValueError, match="no horizon of 3 slots"):
        model.forecast(3)


@pytest.mark.parametrize("centre", ["feedback-ar", "held-now", "held-rise"])
def test_allocated_load_moves_with_a_placement_before_the_next_record(centre: str) -> None:
    generator = np.random.default_rng(5)
    load = np.round(0.3 + 0.02 * generator.standard_normal((3, 200)), 2)
    model, _ = fed(load, centre=centre)
    before = model.forecast()
    model.revise([1], np.array([load[1, -1] + 0.4]))
    after = model.forecast()
    assert after.p50[1] > before.p50[1] + 0.3
    assert after.point[1] > before.point[1] + 0.3
    assert after.p99[0] == before.p99[0]
    model.record(np.array([0.3, 0.7, 0.3]))
    assert np.isfinite(model.forecast().p99).all()


def test_what_is_placed_beyond_the_ceiling_and_goes_again_leaves_nothing_behind() -> None:
    """Ten placements of 40 % more than a full host, each taken back within the slot."""
    models = [HostLoadModel(1, centre="held-rise") for _ in range(2)]
    for model in models:
        for _ in range(40):
            model.record(np.array([0.5]))
    for _ in range(10):
        models[0].revise([0], np.array([1.4]))
        models[0].revise([0], np.array([0.5]))
    assert models[0].forecast().p99 == pytest.approx(models[1].forecast().p99)


def test_usage_is_measured_and_not_revised() -> None:
    with pytest.raises(ValueError, match="only allocated load"):
        HostLoadModel(1).revise([0], np.array([0.5]))


def test_state_stays_below_twenty_kibibytes_a_host() -> None:
    model = HostLoadModel(200, centre="feedback-ar", horizons=(1, 12))
    for _ in range(15):
        model.record(np.full(200, 0.3))
    assert model.bytes_per_host() < 20 * 1024


def test_the_model_fulfils_the_protocol_of_the_core() -> None:
    assert isinstance(HostLoadModel(1), HostLoadForecaster)
