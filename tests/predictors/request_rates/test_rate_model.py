"""Forecasts of request rates: courses that recur are foreseen, noise is not, and the scores tell which is which."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_predictors.host_load.slot_ring import DAY_SLOTS
from cotide_predictors.request_rates.rate_model import LEAST_PEAKS, RateModel

HORIZONS = (1, 12)


def daily(slots: int, phase: int = 0) -> np.ndarray:
    """From 100 to 1,900 requests a second in the course of a day."""
    return 1000.0 - 900.0 * np.cos(2 * np.pi * (np.arange(slots) + phase) / DAY_SLOTS)


def fed(series: np.ndarray, horizons: tuple[int, ...] = HORIZONS) -> RateModel:
    """A model that saw (n, m) rates."""
    model = RateModel(len(series), horizons)
    for column in series.T:
        model.record(column)
    return model


def test_after_some_days_the_morning_is_foreseen() -> None:
    """At a quarter of a day the rate is 1,000; an hour later 1,000 + 900 sin(2 pi 12 / 288) = 1,233."""
    model = fed(daily(3 * DAY_SLOTS + DAY_SLOTS // 4 + 1)[None, :])
    assert model.last()[0] == pytest.approx(1000.0, abs=1.0)
    assert model.peaks(0.5)[1, 0] == pytest.approx(1233.0, rel=0.05)
    assert model.trusted(0.5)[1, 0]
    made = model.scores(0.5)[1]
    assert made.loss < 0.5 * made.last_value_loss


def test_in_steps_without_memory_nothing_is_gained_and_the_score_says_so() -> None:
    """Of a walk the last value is the best that there is at a median of one slot."""
    steps = np.random.default_rng(4).normal(0.0, 0.05, (8, 600))
    model = fed(np.exp(7.0 + np.cumsum(steps, axis=1)), (1,))
    (found,) = model.scores(0.5)
    assert found.loss > 0.98 * found.last_value_loss
    assert found.coverage == pytest.approx(0.5, abs=0.06)


def test_a_higher_quantile_covers_more_peaks_and_says_more() -> None:
    noise = np.exp(np.random.default_rng(1).normal(6.0, 0.3, (10, 500)))
    model = fed(noise)
    assert (np.diff([model.peaks(level)[1] for level in (0.5, 0.6, 0.75, 0.9)], axis=0) >= 0).all()
    for level in (0.5, 0.75):
        assert model.scores(level)[0].coverage == pytest.approx(level, abs=0.06)


def test_nothing_is_trusted_before_enough_peaks_are_over() -> None:
    """One service, one slot ahead: the first record is forecast by nothing, each later one is a peak."""
    slots = int(LEAST_PEAKS)
    assert not fed(daily(slots)[None, :]).trusted(0.5).any()


def test_a_missing_slot_is_no_zero_and_changes_nothing_else() -> None:
    series = np.stack([daily(DAY_SLOTS), daily(DAY_SLOTS, 40)])
    whole = fed(series)
    for wrong in (np.nan, np.inf, -1.0):
        gap = series.copy()
        gap[1, -1] = wrong
        model = fed(gap)
        assert model.last()[1] == pytest.approx(series[1, -2])
        assert model.last()[0] == whole.last()[0]


def test_a_model_of_more_services_knows_what_the_smaller_one_knew() -> None:
    small = fed(daily(2 * DAY_SLOTS)[None, :])
    large = small.grown(3)
    assert large.last()[0] == small.last()[0]
    assert large.peaks(0.5)[:, 0] == pytest.approx(small.peaks(0.5)[:, 0])
    assert large.scores(0.5) == small.scores(0.5)
    assert np.isnan(large.peaks(0.5)[:, 1:]).all()


def test_a_row_that_is_given_away_starts_anew() -> None:
    model = fed(np.stack([daily(DAY_SLOTS), daily(DAY_SLOTS)]))
    model.reset([1])
    assert np.isnan(model.peaks(0.5)[:, 1]).all()
    assert not np.isnan(model.peaks(0.5)[:, 0]).any()


def test_horizons_rise() -> None:
    with pytest.raises(ValueError, match="rising"):
        RateModel(1, (12, 1))
