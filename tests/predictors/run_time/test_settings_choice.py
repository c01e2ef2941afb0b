"""Filters and smoothing choose by one rule: accuracy on completed jobs, as many settings each, and no look ahead."""

from __future__ import annotations

import numpy as np
import pytest
from run_logs import small_log, with_longer_run

from cotide_core.kernels.array_types import Floats
from cotide_predictors.run_time.gaussian_mixtures import GaussianMixtures
from cotide_predictors.run_time.jobs import Ints, JobTable, RunLog, event_order
from cotide_predictors.run_time.kalman import fixed_multiple, multi_layer, smoothing
from cotide_predictors.run_time.kalman.forecasts import kalman_forecasts, points_of
from cotide_predictors.run_time.kalman.settings_choice import (
    FIRST_CHOICE_JOBS,
    JUDGED_JOBS,
    TRIALS,
    SettingsChoice,
)
from cotide_predictors.run_time.kalman.smoothing import Smoothing, exponentially_smoothed


def log_of(run: Floats, gap: float = 1e6) -> RunLog:
    """One user's jobs, each of which ends before the next is submitted."""
    count = len(run)
    submit, same = gap * np.arange(count), np.zeros(count, np.int64)
    table = JobTable(submit, np.full(count, np.nan), np.ones(count), same, same, same, same)
    return RunLog(table, run, submit + run)


def test_each_has_as_many_settings_and_begins_with_its_default() -> None:
    for settings, first in (
        (fixed_multiple.SETTINGS, fixed_multiple.DEFAULT_NOISE),
        (multi_layer.SETTINGS, multi_layer.DEFAULT_NOISE),
        (smoothing.SETTINGS, Smoothing(smoothing.KEPT, in_logs=False)),
    ):
        assert len(set(settings)) == TRIALS
        assert settings[0] == first  # type: ignore[comparison-overlap]  # tuples of both
    with pytest.raises(ValueError, match="24 settings, not 1"):
        SettingsChoice([1])


def test_smoothing_by_hand_in_seconds_and_in_logarithms() -> None:
    log = log_of(np.array([100.0, 400.0, 50.0]))
    in_seconds = exponentially_smoothed(log, setting=Smoothing(0.5, in_logs=False))
    assert in_seconds.tolist() == pytest.approx([np.nan, 100.0, 250.0], nan_ok=True)
    # The logarithms' mean is that of the geometric mean: the root of 100 x 400.
    in_logs = exponentially_smoothed(log, setting=Smoothing(0.5, in_logs=True))
    assert in_logs.tolist() == pytest.approx([np.nan, 100.0, 200.0], nan_ok=True)


def test_the_setting_that_would_have_been_most_accurate_holds_from_the_two_hundredth_completion_on() -> None:
    """Runs come in blocks of twenty alike: the last run foretells the next, so that nothing of the level is kept."""
    run = np.repeat(np.exp(np.random.default_rng(1).uniform(3.0, 9.0, 20)), 20)
    found = exponentially_smoothed(log_of(run))
    usual = exponentially_smoothed(log_of(run), setting=smoothing.SETTINGS[0])
    np.testing.assert_array_equal(found[: FIRST_CHOICE_JOBS + 1], usual[: FIRST_CHOICE_JOBS + 1])
    np.testing.assert_allclose(found[FIRST_CHOICE_JOBS + 2 :], run[FIRST_CHOICE_JOBS + 1 : -1])


def test_trials_are_asked_about_the_latest_completed_jobs_alone() -> None:
    """Job 0 never ends; job 1 ends as the 200th completion."""
    choice: SettingsChoice[int] = SettingsChoice(range(TRIALS))
    first = np.concatenate([[0, 1], np.column_stack([np.arange(2, 201), ~np.arange(2, 201)]).ravel(), [~1, 201]])
    piece = choice.piece_of(first)
    assert piece[-1] == ~1
    assert choice.is_due()
    asked: list[Ints] = []

    def trial(setting: int, events: Ints) -> Floats:
        asked.append(events)
        return np.full(int((events >= 0).sum()), 10.0 if setting == 7 else 20.0)

    choice.choose(np.full(300, 10.0), trial)
    assert choice.setting == 7
    assert len(asked) == TRIALS
    assert set(np.where(asked[0] < 0, ~asked[0], asked[0]).tolist()) == set(range(1, 201))
    assert not choice.is_due()
    assert JUDGED_JOBS >= FIRST_CHOICE_JOBS


def test_the_printed_filter_answers_with_the_likelier_class() -> None:
    """Weights .6 and .4, deviations 1 and .1: eq. 6.3 would take the second, .4 / .1 > .6 / 1."""
    found = GaussianMixtures(np.array([[0.6, 0.4]]), np.array([[5.0, 8.0]]), np.array([[1.0, 0.1]]))
    assert points_of(found, np.array([np.nan]), "likelier") == pytest.approx(np.exp([5.0]))
    assert found.highest_centre() == pytest.approx(np.exp([8.0]))
    assert points_of(found, np.array([100.0]), "likelier").tolist() == [100.0]


@pytest.mark.parametrize("name", ["smoothing", "fmkf", "mlkf", "printed"])
def test_a_choice_sees_only_what_was_over(name: str) -> None:
    log = small_log()
    changed, unmoved = with_longer_run(log, 250)

    def point(of: RunLog) -> Floats:
        if name == "smoothing":
            return np.nan_to_num(exponentially_smoothed(of))
        kind, rule = ("mlkf", "likelier") if name == "printed" else (name, "most-accurate")
        return points_of(kalman_forecasts(of, kind, point=rule), of.jobs.requested_seconds, rule)  # type: ignore[arg-type]  # literals

    before, after = point(log), point(changed)
    np.testing.assert_array_equal(before[unmoved], after[unmoved])
    assert np.any(before[~unmoved] != after[~unmoved])


def test_pieces_of_events_give_what_the_whole_gives() -> None:
    log = small_log()
    events = event_order(log.jobs.submit_seconds, log.finish_seconds)
    whole, parts = np.full((2, len(log)), np.nan)
    smoothing.Smoother(log.jobs).walk(events, log.run_seconds, whole)
    smoother = smoothing.Smoother(log.jobs)
    for piece in np.array_split(events, 11):
        smoother.walk(piece, log.run_seconds, parts)
    np.testing.assert_array_equal(whole, parts)
