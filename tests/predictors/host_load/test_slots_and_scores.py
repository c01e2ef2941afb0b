"""Slots from raw samples whatever the feed sends; scores by hand; trust falls and comes back."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.forecasts import HostLoadForecast
from cotide_core.kernels.array_types import Floats
from cotide_predictors.host_load.scoring import LoadScorer, Trust, TrustBand
from cotide_predictors.host_load.slots import GAP_SLOTS_MAX, SlotClock, rates_of_counter, slot_maxima

ROWS = np.array([0, 1])


def sample(clock: SlotClock, at: float, *values: float) -> list[list[float]]:
    return [closed.tolist() for closed in clock.take(at, ROWS, np.array(values))]


def test_a_slots_record_is_the_maximum_inside_it() -> None:
    clock = SlotClock(2)
    assert sample(clock, 10, 0.2, 0.5) == []
    assert sample(clock, 200, 0.4, 0.1) == []
    assert sample(clock, 300, 0.9, 0.9) == [[0.4, 0.5]]


def test_duplicated_samples_change_nothing_and_late_ones_are_refused() -> None:
    clock = SlotClock(2)
    for _ in range(3):
        sample(clock, 310, 0.2, 0.3)
    assert sample(clock, 299, 0.9, 0.9) == []
    assert clock.refused["late"] == 2
    assert [closed.tolist() for closed in clock.close(600)] == [[0.2, 0.3]]


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, -0.1, 100.0])
def test_implausible_values_are_counted_and_leave_a_gap_not_a_zero(odd: float) -> None:
    clock = SlotClock(2)
    sample(clock, 0, odd, 0.3)
    (closed,) = clock.close(300)
    assert np.isnan(closed[0])
    assert closed[1] == 0.3
    assert clock.refused["value"] == 1


def test_a_gap_is_a_run_of_missing_slots_and_a_vanished_host_stays_missing() -> None:
    clock = SlotClock(2)
    sample(clock, 0, 0.1, 0.2)
    closed = clock.take(1200, np.array([0]), np.array([0.4]))
    assert [np.isnan(slot).tolist() for slot in closed] == [[False, False]] + [[True, True]] * 3
    assert np.isnan(clock.close(1500)[0]).tolist() == [False, True]


def test_a_clock_that_steps_back_is_late_until_it_caught_up() -> None:
    clock = SlotClock(2)
    sample(clock, 900, 0.1, 0.1)
    assert sample(clock, 300, 0.9, 0.9) == []
    assert clock.close(300) == []
    assert sample(clock, 1200, 0.2, 0.2) == [[0.1, 0.1]]


def test_a_clock_that_jumps_ahead_restarts_the_calendar_there() -> None:
    clock = SlotClock(2)
    sample(clock, 0, 0.1, 0.1)
    closed = sample(clock, 300.0 * (GAP_SLOTS_MAX + 1), 0.2, 0.2)
    assert closed == [[0.1, 0.1]]
    assert clock.refused["jump"] == 1
    assert sample(clock, np.inf, 0.2, 0.2) == []


def test_a_counter_that_was_reset_says_nothing_about_its_interval() -> None:
    at = np.array([0.0, 10.0, 20.0, 20.0, 30.0, 40.0])
    counter = np.array([5.0, 25.0, 3.0, 3.0, 13.0, np.nan])
    # (25 - 5) / 10; fell; no time; (13 - 3) / 10; not finite.
    assert np.array_equal(rates_of_counter(at, counter), [np.nan, 2.0, np.nan, np.nan, 1.0, np.nan], equal_nan=True)


def test_irregular_samples_fold_to_slot_maxima() -> None:
    found = slot_maxima(np.array([0.0, 299.0, 700.0, 9e9]), np.array([0.2, 0.6, 0.1, 1.0]), slot_seconds=300, slots=4)
    assert np.array_equal(found, [0.6, np.nan, 0.1, np.nan], equal_nan=True)


def forecast(hosts: int, point: float = 0.5, p99: float = 0.9) -> HostLoadForecast:
    return HostLoadForecast(np.full(hosts, point), np.full(hosts, 0.4), np.full(hosts, 0.7), np.full(hosts, p99))


def scored(scorer: LoadScorer, loads: list[float]) -> list[int]:
    """Score one host's loads; return the places at which its trust changed."""
    return [index for index, load in enumerate(loads) if len(scorer.score(forecast(1), np.array([load])))]


def test_scores_by_hand() -> None:
    scorer = LoadScorer(1)
    scored(scorer, [0.3, 0.6, 0.8, 0.95, np.nan])
    found = scorer.scores()
    # Errors of the point 0.5: +0.2, -0.1, -0.3, -0.45; the missing slot is not scored.
    assert found.records[0] == 4
    assert found.absolute_error[0] == pytest.approx(1.05 / 4)
    assert found.bias[0] == pytest.approx(-0.65 / 4)
    assert found.underestimates[0] == 0.75
    assert found.underestimate_size[0] == pytest.approx(0.85 / 3)
    assert found.coverage[0].tolist() == [0.25, 0.5, 0.75]


@given(
    st.lists(
        st.tuples(st.floats(0, 1) | st.just(math.nan), st.floats(0, 1), st.floats(0, 1), st.booleans()), max_size=40
    )
)
def test_sums_kept_up_are_those_of_a_recount(slots: list[tuple[float, float, float, bool]]) -> None:
    scorer, window = LoadScorer(1, window_slots=7), []
    for load, point, p99, vanished in slots:
        if vanished and len(window) > 3:
            scorer.reset(np.array([0]))
            window = []
        scorer.score(forecast(1, point, p99), np.array([load]))
        if math.isfinite(load):
            window = [*window, (float(np.float32(point - load)), load <= p99)][-7:]
    found = scorer.scores()
    assert found.records[0] == len(window)
    if window:
        errors = [error for error, _ in window]
        assert found.absolute_error[0] == pytest.approx(sum(map(abs, errors)) / len(window), abs=1e-12)
        assert found.bias[0] == pytest.approx(sum(errors) / len(window), abs=1e-12)
        assert found.underestimates[0] == sum(error < 0 for error in errors) / len(window)
        assert found.coverage[0, 2] == sum(covered for _, covered in window) / len(window)


def test_only_the_window_counts() -> None:
    scorer = LoadScorer(1, window_slots=10)
    scored(scorer, [0.95] * 20 + [0.3] * 10)
    assert scorer.scores().coverage[0, 2] == 1.0


def test_nothing_scored_is_nan_not_zero() -> None:
    assert np.isnan(LoadScorer(1).scores().coverage).all()


def test_trust_falls_on_misses_and_comes_back_by_itself_with_hysteresis() -> None:
    scorer = LoadScorer(1, window_slots=100, band=TrustBand(records_min=20))
    # The fifth miss is at place 34: 30 of 35 covered, 85.7 %.
    assert scored(scorer, [0.3] * 30 + [0.95] * 10) == [34]
    assert scorer.trust[0] == Trust.FALLEN_BACK
    # Ten misses leave the window one by one from place 100 on; one of 100 is above 98.2 % at the ninth gone, 108 - 40
    # places later; eleven more slots in a row and it is trusted.
    changes = scored(scorer, [0.3] * 200)
    assert len(changes) == 1
    assert changes[0] == 130 + 8 - 40 + 11
    assert scorer.trust[0] == Trust.TRUSTED


def test_a_young_host_is_not_judged_by_two_misses_of_chance() -> None:
    scorer = LoadScorer(1)
    assert scored(scorer, [0.3] * 46 + [0.95] * 2 + [0.3] * 5) == []


def test_one_hosts_fall_leaves_the_others_trusted() -> None:
    scorer = LoadScorer(2)
    loads: Floats = np.array([0.3, 0.95])
    changed = [scorer.score(forecast(2), loads).tolist() for _ in range(60)]
    assert [rows for rows in changed if rows] == [[1]]
    assert scorer.trust.tolist() == [Trust.TRUSTED, Trust.FALLEN_BACK]
    scorer.reset(np.array([1]))
    assert scorer.trust.tolist() == [Trust.TRUSTED, Trust.TRUSTED]


def test_a_band_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="coverage_min"):
        TrustBand(coverage_min=0.99, return_coverage=0.98)
