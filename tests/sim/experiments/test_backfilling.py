"""Experiments reliable-share and forecast-accuracy on small logs, and what they call missed."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from cotide_core.errors import CotideError
from cotide_predictors.run_time.scores import accuracy
from cotide_sim.experiments.backfilling import forecast_accuracy as forecast_accuracy_experiment
from cotide_sim.experiments.backfilling import reliable_share as reliable_share_experiment
from cotide_sim.experiments.backfilling.reliable_share import BACKFILLING, PLANS, SOURCES, LogResult, Row
from cotide_sim.experiments.side_by_side import Stopped, side_by_side
from cotide_sim.traces.jobs.batch_jobs import BatchJobs


def small_log(count=400, seed=1, processors=32):
    rng = np.random.default_rng(seed)
    user = rng.integers(0, 8, count)
    run = np.maximum(1, (200.0 * (1 + user) * np.exp(rng.normal(0, 0.5, count))).astype(np.int64))
    return BatchJobs(
        name="/somewhere/small.swf",
        processors=processors,
        numbers=np.arange(count),
        submit=np.cumsum(rng.integers(0, 520, count)),
        run=run,
        demand=rng.integers(1, 16, count),
        request=run * 3,
        user=user,
    )


def without_clock(report):
    document = asdict(report)
    for log in document["logs"]:
        for row in log["rows"]:
            del row["wall_seconds"]
        del log["best"]
    return document


def test_every_rival_is_replayed_with_every_source_and_workers_do_not_change_a_figure():
    logs = [small_log(seed=1), small_log(seed=2)]
    told: list[float] = []
    report = reliable_share_experiment.run(logs, progress=lambda _what, share: told.append(share))
    assert told[-1] == 1.0
    for log in report.logs:
        assert log.trace == "small.swf"
        found = {(row.policy, row.source) for row in log.rows}
        assert {(policy, source) for policy in (*BACKFILLING, *PLANS) for source in SOURCES} < found
        assert (log.rows[0].policy, log.rows[0].source) == ("hybrid", "learned")
        assert all(row.bounded_slowdown >= 1 for row in log.rows)
        # Requests are three times the run times, the clairvoyant are right.
        assert all(row.accuracy == pytest.approx(1 / 3) for row in log.rows if row.source == "request")
        assert all(row.accuracy == 1.0 for row in log.rows if row.source == "clairvoyant")
    assert without_clock(reliable_share_experiment.run(logs, workers=3)) == without_clock(report)


def row(policy, source, wait, slowdown):
    return Row(policy, source, 0.6, wait, None, slowdown, None, 0.7, 100, 0.1)


def result(platform, *, easy=90.0, clairvoyant=50.0, plan=(100.0, 60.0)) -> LogResult:
    rows = [row("hybrid", "learned", *platform)]
    rows += [row("easy", source, 120.0, easy) for source in SOURCES]
    rows += [row("svf", source, *plan) for source in SOURCES]
    rows += [row("easy-sjbf", "clairvoyant", 90.0, clairvoyant)]
    return reliable_share_experiment._result(small_log(10), rows)


def test_a_log_is_won_only_when_both_measures_are_below_every_rival():
    assert result((99.0, 59.0)).wins
    assert not result((99.0, 61.0)).wins
    assert not result((101.0, 59.0)).wins
    assert result((80.0, 30.0)).lower["plans"] == pytest.approx({"wait_seconds": 0.2, "bounded_slowdown": 0.5})


def test_the_gap_is_the_one_between_easy_and_the_clairvoyant_and_a_log_without_one_does_not_count():
    # (90 - 58) / (90 - 50) = 0.8
    assert result((99.0, 58.0)).gap_closed == pytest.approx(0.8)
    none = result((99.0, 58.0), easy=1.360, clairvoyant=1.355)
    assert none.gap_closed is None
    report = reliable_share_experiment._report((result((99.0, 50.0)), none))
    assert report.mean_gap_closed == pytest.approx(1.0)


def test_three_of_five_logs_and_four_fifths_of_the_gap_are_the_bars():
    won, lost = result((99.0, 58.0)), result((101.0, 58.0))
    assert reliable_share_experiment._report((won, won, won, lost, lost)).missed == ()
    assert reliable_share_experiment._report((won, won, lost, lost, lost)).missed == (
        "below every rival in wait and bounded slowdown on 2 of 5 logs, not on 3",
    )
    far = result((99.0, 59.0))
    assert reliable_share_experiment._report((far,)).missed == (
        "closes 78% of the gap to clairvoyant backfill on average, not 80%",
    )


@pytest.mark.parametrize("percent", [20, 40, 60, 80, 100])
def test_perturbed_run_times_have_the_accuracy_asked_for_too_long_and_too_short_alike(percent):
    run = np.random.default_rng(1).integers(1000, 100_000, 4000)
    forecast = forecast_accuracy_experiment.perturbed(run, percent, seed=5)
    assert accuracy(forecast.astype(float), run.astype(float)) == pytest.approx(np.full(4000, percent / 100), abs=2e-3)
    if percent < 100:
        assert np.mean(forecast > run) == pytest.approx(0.5, abs=0.03)
    assert forecast.tobytes() == forecast_accuracy_experiment.perturbed(run, percent, seed=5).tobytes()


def test_sensitivity_has_every_point_and_fcfs_does_not_depend_on_accuracy():
    report = forecast_accuracy_experiment.run([small_log()], accuracies=(20, 100), workers=2)
    (log,) = report.logs
    assert {(point.policy, point.accuracy) for point in log.points} == {
        (policy, accuracy) for policy in forecast_accuracy_experiment.CURVES for accuracy in (20, 100)
    }
    assert log.spread["fcfs"] == 1.0
    assert forecast_accuracy_experiment.run([small_log()], accuracies=(20, 100)) == report


def test_plans_count_as_better_from_where_one_of_them_stays_below_backfilling():
    waits = {"sjf": (90, 120, 80, 120), "svf": (120, 120, 120, 90)}
    points = [
        forecast_accuracy_experiment.Point(policy, accuracy, waits.get(policy, (100,) * 4)[place], 2.0)
        for policy in forecast_accuracy_experiment.CURVES
        for place, accuracy in enumerate((20, 40, 60, 80))
    ]
    curves = forecast_accuracy_experiment._curves(small_log(10), points)
    assert (curves.plans_from, curves.threshold) == (60, 80)


def test_the_threshold_is_where_online_svf_begins_to_wait_least_and_stays_so():
    def curves(svf_waits):
        points = [
            forecast_accuracy_experiment.Point(policy, accuracy, wait if policy == "svf" else 100.0, 2.0)
            for policy in forecast_accuracy_experiment.CURVES
            for accuracy, wait in zip((20, 60, 100), svf_waits, strict=True)
        ]
        return forecast_accuracy_experiment._curves(small_log(10), points)

    assert curves((150, 90, 80)).threshold == 60
    assert curves((90, 110, 80)).threshold == 100
    assert curves((90, 80, 120)).threshold is None
    assert "only from 100 %" in forecast_accuracy_experiment._missed(curves((90, 110, 80)))[-1]


def test_a_replay_that_nobody_waits_for_any_more_ends():
    """The second call fails while the first looks around as a watched replay does; the first is told to stop."""
    stopped = []

    def looks_around(watch):
        try:
            while True:
                watch(0)
        except Stopped:
            stopped.append(True)
            raise

    def fails(watch):
        raise CotideError("broken")

    with pytest.raises(CotideError, match="broken"):
        side_by_side([looks_around, fails], workers=2)
    assert stopped == [True]
    assert side_by_side([lambda _: 1, lambda _: 2], workers=2) == [1, 2]
