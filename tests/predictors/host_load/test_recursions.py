"""ARMA and feedback AR: parity with statsmodels, the printed formulas by hand, and odd records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.kernels.array_types import Floats
from cotide_predictors.host_load.arma import ArmaParameters, LastStateArma
from cotide_predictors.host_load.arma_fit import fit_arma, fit_group, stacked
from cotide_predictors.host_load.feedback_ar import FeedbackAr, HeldLoad
from cotide_predictors.host_load.refit import refit


def simulated(seed: int, slots: int, ar: tuple[float, ...], ma: tuple[float, ...], mean: float = 0.4) -> Floats:
    generator = np.random.default_rng(seed)
    noise = generator.normal(0, 0.02, slots + 50)
    values = np.zeros(slots + 50)
    for slot in range(2, slots + 50):
        values[slot] = noise[slot]
        values[slot] += sum(phi * values[slot - 1 - lag] for lag, phi in enumerate(ar))
        values[slot] += sum(theta * noise[slot - 1 - lag] for lag, theta in enumerate(ma))
    return mean + values[50:]


def one_host(ar: tuple[float, ...], ma: tuple[float, ...], mean: float) -> ArmaParameters:
    return ArmaParameters(np.array([ar]), np.array([ma]), np.array([mean]))


@pytest.mark.parametrize(("ar", "ma"), [((0.8,), (-0.3,)), ((1.2, -0.4), (0.3,)), ((0.6,), (0.2, 0.3))])
def test_recursion_agrees_with_statsmodels_one_and_six_slots_ahead(
    ar: tuple[float, ...], ma: tuple[float, ...]
) -> None:
    from statsmodels.tsa.arima.model import ARIMA

    history = simulated(1, 400, ar, ma)
    model = ARIMA(history, order=(len(ar), 0, len(ma)), trend="c")
    found = model.smooth([0.4, *ar, *ma, 0.02**2])
    recursion = LastStateArma(one_host(ar, ma, 0.4))
    one_ahead = []
    for value in history:
        one_ahead.append(recursion.path(1)[0, 0])
        recursion.record(np.array([value]))
    # The Kalman filter's doubt about the time before the first record fades as theta^t: after 100 slots it is gone.
    assert np.allclose(one_ahead[100:], found.predict()[100:], atol=1e-6)
    assert np.allclose(recursion.path(6)[0], found.forecast(6), atol=1e-6)


def test_hosts_of_different_orders_are_forecast_together_as_alone() -> None:
    histories = np.stack([simulated(seed, 60, (0.7,), (0.1,)) for seed in range(3)])
    together = LastStateArma(
        ArmaParameters(
            np.array([[0.7, 0.0], [0.5, 0.3], [0.0, 0.0]]), np.array([[0.1], [0.0], [0.4]]), np.array([0.4, 0.3, 0.5])
        )
    )
    alone = [
        LastStateArma(one_host((0.7,), (0.1,), 0.4)),
        LastStateArma(one_host((0.5, 0.3), (), 0.3)),
        LastStateArma(one_host((), (0.4,), 0.5)),
    ]
    for slot in range(60):
        together.record(histories[:, slot])
        for host, single in enumerate(alone):
            single.record(histories[host : host + 1, slot])
    expected = np.concatenate([single.path(4) for single in alone])
    assert np.allclose(together.path(4), expected)


def test_last_state_takes_the_higher_of_prediction_and_last_record() -> None:
    recursion = LastStateArma(one_host((0.5,), (0.0,), 0.2))
    recursion.record(np.array([0.6]))
    # 0.2 + 0.5 * (0.6 - 0.2) = 0.4 is below the last record, 0.6.
    assert recursion.path(1)[0, 0] == pytest.approx(0.4)
    assert recursion.corrected()[0] == pytest.approx(0.6)
    recursion.record(np.array([0.1]))
    # 0.2 + 0.5 * (0.1 - 0.2) = 0.15 is above it.
    assert recursion.corrected()[0] == pytest.approx(0.15)


def test_a_missing_record_leaves_the_prediction_to_the_recursion() -> None:
    recursion = LastStateArma(one_host((0.5,), (0.3,), 0.2))
    recursion.record(np.array([0.6]))
    two_ahead = recursion.path(2)[0, 1]
    recursion.record(np.array([np.nan]))
    assert recursion.path(1)[0, 0] == pytest.approx(two_ahead)


def test_a_fit_finds_the_parameters_that_made_the_series() -> None:
    fit = fit_arma(simulated(5, 2016, (0.8,), (-0.3,)))
    assert fit is not None
    assert fit.ar[0] == pytest.approx(0.8, abs=0.06)
    assert fit.ma[0] == pytest.approx(-0.3, abs=0.1)
    assert fit.mean == pytest.approx(0.4, abs=0.02)


def test_another_order_is_fitted_where_it_is_given() -> None:
    fit = fit_arma(simulated(6, 2016, (1.2, -0.5), ()), order=(2, 0))
    assert fit is not None
    assert fit.ar == pytest.approx((1.2, -0.5), abs=0.08)
    assert fit.ma == ()


def test_a_group_fit_does_not_carry_one_host_into_the_next() -> None:
    histories = np.stack([simulated(seed, 300, (0.8,), (-0.3,), mean=0.1 + 0.2 * seed) for seed in range(4)])
    fit = fit_group(histories)
    assert fit is not None
    # The means differ by 0.6, thirty times the noise: carried over they would read as a slope near 1.
    assert fit.ar[0] == pytest.approx(0.8, abs=0.08)
    assert np.isnan(fit.mean)


@pytest.mark.parametrize("history", [np.full(300, 0.5), np.full(300, np.nan), np.linspace(0, 1, 20)])
def test_a_constant_empty_or_short_history_is_not_fitted(history: Floats) -> None:
    assert fit_arma(history) is None
    parameters = stacked([fit_arma(history)], ArmaParameters.default(1))
    assert parameters.ar[0, 0] == ArmaParameters.default(1).ar[0, 0]


def test_refitting_in_workers_gives_the_same_in_host_order_and_shows_progress() -> None:
    histories = np.stack([simulated(seed, 200, (0.8,), (-0.3,)) for seed in range(9)])
    histories[4] = 0.5
    progress: list[tuple[int, int]] = []
    apart = refit(histories, workers=1, progress=lambda done, hosts: progress.append((done, hosts)))
    here = refit(histories, workers=0)
    assert np.array_equal(apart.ar, here.ar)
    assert np.array_equal(apart.ma, here.ma)
    assert progress[-1] == (9, 9)
    assert here.ar[4, 0] == ArmaParameters.default(1).ar[0, 0]


def by_hand(window: Floats) -> tuple[float, float, float]:
    """Eqs. 10 (corrected), 11 and 14, written out with lags over the full length."""
    steps = np.diff(window)
    centred = steps - steps.mean()
    count = len(steps)
    g0, g1, g2 = (float((centred[lag:] * centred[: count - lag]).sum()) / count for lag in range(3))
    first = (g0 * g1 - g1 * g2) / (g0**2 - g1**2)
    second = (g0 * g2 - g1**2) / (g0**2 - g1**2)
    x0, x1, x2 = window[-1], window[-2], window[-3]
    return first, second, (1 + first) * x0 + (second - first) * x1 - second * x2


def test_feedback_ar_is_yule_walker_and_equation_14_by_hand() -> None:
    generator = np.random.default_rng(2)
    windows = 0.5 + 0.1 * generator.standard_normal((4, 20))
    model = FeedbackAr(4, window_slots=20)
    for slot in range(20):
        model.record(windows[:, slot])
    for host in range(4):
        first, second, expected = by_hand(windows[host])
        assert model.coefficients[host] == pytest.approx([first, second])
        assert model.path(1)[host, 0] == pytest.approx(expected)


def test_a_constant_window_forecasts_the_last_value_at_every_horizon() -> None:
    model = FeedbackAr(1)
    for _ in range(40):
        model.record(np.array([0.3]))
    assert model.path(3).tolist() == [[0.3, 0.3, 0.3]]


@pytest.mark.parametrize("slots", [30, 60])
def test_a_placement_appends_a_record_of_the_open_slot_until_its_maximum_is_known(slots: int) -> None:
    """Also where the window of 36 slots is full, and for a second placement in the same slot."""
    generator = np.random.default_rng(3)
    records = 0.3 + 0.05 * generator.standard_normal((slots, 2))
    placed, recorded, untouched = FeedbackAr(2), FeedbackAr(2), FeedbackAr(2)
    for row in records:
        for model in (placed, recorded, untouched):
            model.record(row)
    placed.revise(np.array([1]), np.array([0.5]))
    placed.revise(np.array([1]), np.array([0.8]))
    recorded.record(np.array([0.0, 0.8]))
    assert np.array_equal(placed.path(2)[1], recorded.path(2)[1])
    assert np.array_equal(placed.path(2)[0], untouched.path(2)[0])
    placed.record(np.array([0.4, 0.9]))
    untouched.record(np.array([0.4, 0.9]))
    assert np.array_equal(placed.path(2), untouched.path(2))
    assert placed.last.tolist() == [0.4, 0.9]


def test_the_window_holds_each_slots_maximum_once() -> None:
    """Maxima .1 .2 .35 .4 .6, each held from a placement in its slot on: .7 is held when the next slot begins.

    Differences .1 .15 .05 .2 .1 with the mean .12: -.02 .03 -.07 .08 -.02. Sums of their products at lags 0, 1 and 2:
    .0130, -.0099, .0052; eq. 11 gives phi1 = -1.088, phi2 = -.428, eq. 14 a step of -1.088 x .1 - .428 x .2 = -.195.
    """
    model = FeedbackAr(1)
    model.record(np.array([0.1]))
    for held in (0.2, 0.35, 0.4, 0.6):
        model.revise(np.array([0]), np.array([held]))
        model.record(np.array([held]))
    model.revise(np.array([0]), np.array([0.7]))
    g0, g1, g2 = 0.0130, -0.0099, 0.0052
    first = (g0 * g1 - g1 * g2) / (g0**2 - g1**2)
    second = (g0 * g2 - g1**2) / (g0**2 - g1**2)
    assert model.coefficients[0] == pytest.approx([first, second])
    assert model.path(1)[0, 0] == pytest.approx(0.7 + first * 0.1 + second * 0.2)


def test_a_gap_repeats_what_was_held_last() -> None:
    model = FeedbackAr(1)
    model.record(np.array([0.2]))
    model.revise(np.array([0]), np.array([0.5]))
    model.record(np.array([np.nan]))
    assert model.last.tolist() == [0.5]


def test_held_now_stays_at_every_horizon() -> None:
    model = HeldLoad(2, rises=False)
    model.record(np.array([0.2, np.nan]))
    model.revise(np.array([0]), np.array([0.5]))
    assert model.path(2)[0].tolist() == [0.5, 0.5]
    assert np.isnan(model.path(2)[1]).all()
    model.record(np.array([np.nan, 0.3]))
    assert model.last.tolist() == [0.5, 0.3]
    model.reset(np.array([0]))
    assert np.isnan(model.last[0])


def test_the_mean_rise_is_from_what_a_slot_began_with_to_its_maximum() -> None:
    """Slots begin with .1 and .3 and reach .2 and .6: rises of .1 and .3, their mean .2."""
    model = HeldLoad(1)
    model.record(np.array([0.1]))
    for start, later, peak in ((0.1, 0.15, 0.2), (0.3, 0.5, 0.6)):
        model.revise(np.array([0]), np.array([start]))
        model.revise(np.array([0]), np.array([later]))
        model.record(np.array([peak]))
    model.revise(np.array([0]), np.array([0.4]))
    assert model.path(2)[0] == pytest.approx([0.6, 0.6])
    model.record(np.array([np.nan]))  # teaches no rise
    assert model.path(1)[0, 0] == pytest.approx(0.6)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=8, max_size=36))
def test_feedback_ar_is_stationary_whatever_it_sees(records: list[float]) -> None:
    model = FeedbackAr(1)
    for value in records:
        model.record(np.array([value]))
    first, second = model.coefficients[0]
    assert np.isfinite([first, second]).all()
    roots = np.roots([1.0, -first, -second])
    assert np.all(np.abs(roots) < 1 + 1e-6)
