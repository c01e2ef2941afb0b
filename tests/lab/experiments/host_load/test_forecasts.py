"""Experiment host-load: nobody sees the future, scores by hand, baselines as published, bars reached."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from repository import ROOT

from cotide_lab.experiments.host_load.forecasts import (
    BEST_RIVAL,
    COVERAGE_BAND,
    NOTHING,
    OURS,
    WHOLE,
    _forecast,
    pinball,
    run_set,
    warm_up_slots,
)
from cotide_predictors.host_load import baselines
from cotide_sim.traces.load import alibaba2018
from cotide_sim.traces.load.load_series import LoadSeries
from cotide_sim.workloads.generated_load import generated_load


def small(hosts: int = 10, slots: int = 500) -> LoadSeries:
    return generated_load(3, hosts=hosts, slots=slots)


def test_no_forecast_sees_its_own_slot_or_a_later_one() -> None:
    load = small(5, 330).load
    changed = load.copy()
    changed[:, 300:] = 1 - changed[:, 300:]
    from cotide_predictors.host_load.arma import ArmaParameters

    for one, other in zip(
        _forecast(load, ArmaParameters.default(5)), _forecast(changed, ArmaParameters.default(5)), strict=True
    ):
        assert np.array_equal(one[:, :301], other[:, :301], equal_nan=True)
        assert not np.array_equal(one[:, 302:], other[:, 302:], equal_nan=True)
    for rival in (
        baselines.last_value,
        baselines.running_mean,
        baselines.exponential_smoothing,
        lambda series: baselines.n_sigma(series, 0.99),
        lambda series: baselines.decayed_percentile(series, 0.99),
    ):
        assert np.array_equal(rival(load)[:, :301], rival(changed)[:, :301], equal_nan=True)


def test_rivals_by_hand() -> None:
    series = np.array([[0.2, 0.4, np.nan, 0.6, 0.0]])
    assert np.array_equal(baselines.last_value(series), [[np.nan, 0.2, 0.4, 0.4, 0.6]], equal_nan=True)
    assert baselines.running_mean(series)[0, 1:] == pytest.approx([0.2, 0.3, 0.3, 0.4])
    # 0.2; 0.2 + 0.5 * 0.2 = 0.3; a gap; 0.3 + 0.5 * 0.3 = 0.45.
    assert baselines.exponential_smoothing(series, smoothing=0.5)[0, 1:] == pytest.approx([0.2, 0.3, 0.3, 0.45])
    # Mean 0.3, standard deviation 0.1 over the first two.
    assert baselines.n_sigma(series, 0.99)[0, 3] == pytest.approx(0.3 + 0.23263478740408408)
    # Two of the last two slots: 0.4 left the window of two by its gap, 0.6 alone is left.
    assert baselines.n_sigma(series, 0.99, slots=2)[0, 4] == pytest.approx(0.6)
    # Upper edge of the bin of half a percent that 0.6 falls into.
    assert baselines.decayed_percentile(series, 0.99)[0, 4] == pytest.approx(0.605)


def test_pinball_loss_by_hand() -> None:
    # 0.9 * 0.1 under, 0.1 * 0.3 over: mean of 0.09 and 0.03.
    assert pinball(np.array([0.5, 0.2]), np.array([0.4, 0.5]), 0.9) == pytest.approx(0.06)


def test_warm_up_is_a_day_or_a_quarter() -> None:
    assert warm_up_slots(2016) == 288
    assert warm_up_slots(288) == 72


def test_last_state_buys_fewer_and_smaller_under_estimates() -> None:
    report = run_set(small(), seed=0)
    scores = {score.method: score for score in report.points}
    plain, corrected = scores["ARMA(1,1)"], scores["ARMA(1,1), last state"]
    assert corrected.underestimates < plain.underestimates
    assert corrected.underestimate_mean < plain.underestimate_mean


def test_our_quantiles_reach_every_bar_on_generated_series() -> None:
    report = run_set(small(20, 900), seed=0)
    assert report.missed == ()
    scores = {score.method: score for score in report.quantiles}
    assert scores[OURS].pinball_p99 < scores[BEST_RIVAL].pinball_p99
    assert report.same_violation.slack > report.same_violation.rival_slack


def test_to_refuse_and_to_accept_everything_both_miss_the_band_of_coverage() -> None:
    scores = {score.method: score for score in run_set(small(), seed=0).quantiles}
    low, high = COVERAGE_BAND
    assert scores[WHOLE].coverage_p99 == 1.0 > high
    assert scores[WHOLE].slack_p99 == 0.0
    assert scores[NOTHING].coverage_p99 < low
    assert scores[NOTHING].slack_p99 == 1.0


def test_a_missed_bar_is_said() -> None:
    # Loads that never change: the last value is exact, and no quantile can lose less than nothing.
    load = np.tile(np.linspace(0.1, 0.8, 8)[:, None], (1, 300))
    report = run_set(LoadSeries("constant", tuple(f"h{row}" for row in range(8)), load), seed=0)
    assert "constant: pinball at p99 is not below that of last value" in report.missed


def test_a_set_larger_than_what_is_fitted_one_by_one_is_fitted_as_a_group() -> None:
    report = run_set(small(110, 200), seed=0)
    assert "group of 24 hosts" in report.arma


@pytest.mark.data
def test_our_quantiles_reach_every_bar_on_alibabas_machines() -> None:
    data = Path(os.environ.get("COTIDE_DATA", ROOT.parent / "shared" / "data"))
    if not (data / alibaba2018.FILE).is_file():
        pytest.skip(f"no Alibaba machine usage in {data}: set COTIDE_DATA to a directory that holds {alibaba2018.FILE}")
    series = alibaba2018.read_alibaba2018_usage(data)
    report = run_set(LoadSeries(series.name, series.hosts, series.load[:, :1000]), seed=0)
    assert report.missed == ()
