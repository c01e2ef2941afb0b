"""Hosts join: a larger model, scorer or slot goes on where the smaller one was."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from cotide_core.forecasts import HostLoadForecast
from cotide_core.kernels.array_types import Floats
from cotide_predictors.host_load.arma import ArmaParameters
from cotide_predictors.host_load.arma_fit import ArmaFit, stacked
from cotide_predictors.host_load.forecaster import HostLoadModel
from cotide_predictors.host_load.growth import overlay
from cotide_predictors.host_load.refit import refit
from cotide_predictors.host_load.scoring import LoadScorer, Trust
from cotide_predictors.host_load.slots import SlotClock

SLOTS = 60


def loads(hosts: int, slots: int = SLOTS) -> Floats:
    generator = np.random.default_rng(7)
    found: Floats = np.clip(0.4 + 0.1 * generator.standard_normal((slots, hosts)), 0.0, 1.0)
    return found


def widened(values: Floats, hosts: int) -> Floats:
    return np.concatenate([values, np.full(hosts - len(values), np.nan)])


@pytest.mark.parametrize("centre", ["last-state-arma", "feedback-ar"])
def test_a_model_that_grew_forecasts_as_one_that_was_always_large(
    centre: Literal["last-state-arma", "feedback-ar"],
) -> None:
    small, large = HostLoadModel(3, centre=centre), HostLoadModel(5, centre=centre)
    series = loads(3)
    for values in series[:40]:
        small.record(values)
        large.record(widened(values, 5))
    small.forecast()
    grown = small.grown(5)
    for values in series[40:]:
        for one in (grown, large):
            one.record(widened(values, 5))
        np.testing.assert_allclose(grown.quantiles(), large.quantiles(), rtol=1e-12)
    grown.record(np.full(5, 0.3))
    large.record(np.full(5, 0.3))
    np.testing.assert_allclose(grown.forecast().point, large.forecast().point, rtol=1e-12)


@pytest.mark.parametrize("asked_first", [False, True])
def test_a_model_that_grew_learns_from_the_peaks_it_had_forecast_before(*, asked_first: bool) -> None:
    small, large = HostLoadModel(3, horizons=(1, 12)), HostLoadModel(5, horizons=(1, 12))
    series = loads(3)
    for values in series[:30]:
        small.record(values)
        large.record(widened(values, 5))
    if asked_first:
        small.forecast(12)
    grown = small.grown(5)
    for values in series[30:50]:
        for one in (grown, large):
            one.record(widened(values, 5))
        np.testing.assert_allclose(grown.quantiles(12), large.quantiles(12), rtol=1e-12)


def test_a_grown_model_keeps_its_fitted_parameters_and_gives_newcomers_the_defaults() -> None:
    fitted = stacked([ArmaFit((0.5, 0.2), (0.1,), 0.4)], ArmaParameters.default(1))
    model = HostLoadModel(1, parameters=fitted)
    parameters = model.grown(2).arma.parameters
    assert parameters.ar.tolist() == [[0.5, 0.2], [0.9, 0.0]]
    assert parameters.ma.tolist() == [[0.1], [-0.35]]


def test_a_grown_scorer_keeps_its_window_and_its_doubts() -> None:
    scorer = LoadScorer(1)
    made = HostLoadForecast(*(np.full(1, value) for value in (0.5, 0.4, 0.6, 0.7)))
    for _ in range(48):
        scorer.score(made, np.array([0.9]))
    grown = scorer.grown(3)
    assert grown.trust.tolist() == [Trust.FALLEN_BACK, Trust.TRUSTED, Trust.TRUSTED]
    assert grown.scores().records.tolist() == [48.0, 0.0, 0.0]
    assert np.isnan(grown.scores().absolute_error[1:]).all()


def test_an_open_slot_stays_open_for_all_and_forgets_who_vanished() -> None:
    clock = SlotClock(2, slot_seconds=10.0)
    assert clock.slot is None
    clock.take(101.0, np.arange(2), np.array([0.3, 0.4]))
    clock.grow(3)
    clock.take(102.0, np.array([2]), np.array([0.5]))
    clock.reset(np.array([0]))
    assert clock.slot == 10
    (closed,) = clock.close(110.0)
    np.testing.assert_array_equal(closed, [np.nan, 0.4, 0.5])


def test_a_holder_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="trust of shape"):
        overlay(LoadScorer(1), LoadScorer(2))


def test_a_refit_that_is_called_off_ends_after_the_chunk_under_way() -> None:
    class CalledOff(Exception):
        pass

    done: list[int] = []

    def progress(fitted: int, hosts: int) -> None:
        done.append(fitted)
        raise CalledOff

    with pytest.raises(CalledOff):
        refit(np.full((400, 60), 0.3), workers=1, progress=progress)  # constant: nothing to fit, so it is quick
    assert done == [8]
