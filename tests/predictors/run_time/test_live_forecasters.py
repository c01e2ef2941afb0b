"""The forecasters that can run live: what a series takes, whose past counts, and the same numbers as over a log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_predictors.run_time.habits.likeness import NAMESPACE_BYTES, Likeness
from cotide_predictors.run_time.habits.live_catalogue import LIVE_PREDICTORS, LivePredictor, live_forecaster
from cotide_predictors.run_time.habits.live_filters import HOUR_SECONDS, LiveFilters
from cotide_predictors.run_time.habits.live_forecaster import LiveForecaster
from cotide_predictors.run_time.habits.live_mixture import whole
from cotide_predictors.run_time.habits.live_smoothing import LiveSmoothing
from cotide_predictors.run_time.habits.upper_margin import FIRST_MARGIN, moved
from cotide_predictors.run_time.history import snapshots
from cotide_predictors.run_time.jobs import JobTable, RunLog, codes, event_order
from cotide_predictors.run_time.kalman.forecasts import kalman_forecasts
from cotide_predictors.run_time.kalman.smoothing import KEPT, Smoothing, exponentially_smoothed
from cotide_predictors.run_time.regression import OnlineRegression, table_4_1
from cotide_predictors.run_time.sequential.forecaster import answers_of

EVERY = pytest.mark.parametrize("name", LIVE_PREDICTORS)
FACTORS = {"fmkf": 1.3, "mlkf": 1.3}
"""By which a forecast of a series without any spread may be off after 30 runs; else a tenth."""
SLOW = {"regression"}
"""Its 153 weights take hundreds of runs; below, it is held to what it says over a log."""


def like(owner: str, namespace: str = "shop") -> Likeness:
    """Keys of an owner's pods, all of one image, type and size."""
    begin = namespace.encode().ljust(NAMESPACE_BYTES, b".")
    kind, whose = (owner + "/all").encode().ljust(10, b"."), owner.encode().ljust(10, b".")
    return begin + kind, begin + whose, begin + b"an image  ", begin + b"everybody "


def run(forecaster: LiveForecaster, owner: str, seconds: float, namespace: str = "shop", said: float = 60.0) -> Any:
    """Forecast a run and learn how long it took."""
    made = forecaster.forecast(like(owner, namespace), said)
    forecaster.learn(made, seconds)
    return made


@pytest.mark.parametrize("name", [name for name in LIVE_PREDICTORS if name not in SLOW])
def test_a_series_that_takes_the_same_again_and_again_is_forecast_so(name: LivePredictor) -> None:
    forecaster = live_forecaster(name)
    for _ in range(30):
        run(forecaster, "etl", 300.0)
    made = forecaster.forecast(like("etl"), 60.0)
    factor = FACTORS.get(name, 1.1)
    assert 300 / factor <= made.seconds <= 300 * factor
    assert made.seconds <= made.upper
    assert made.alike > 0


@EVERY
def test_who_knows_nothing_says_what_the_model_says_and_that_it_rests_on_nothing(name: LivePredictor) -> None:
    made = live_forecaster(name).forecast(like("etl"), 60.0)
    assert made.alike == 0
    if name != "habits":
        assert (made.seconds, made.upper) == (60, 120)


@pytest.mark.parametrize("name", [name for name in LIVE_PREDICTORS if name not in SLOW])
def test_a_new_owner_starts_from_what_its_namespace_knows(name: LivePredictor) -> None:
    forecaster = live_forecaster(name)
    for number in range(40):
        run(forecaster, f"owner{number % 4}", 300.0)
    made = forecaster.forecast(like("newcomer"), 60.0)
    assert made.alike > 0
    assert 100 <= made.seconds <= 900


@EVERY
def test_runs_of_another_namespace_move_no_bit(name: LivePredictor) -> None:
    alone, beside = live_forecaster(name), live_forecaster(name)
    for number in range(20):
        run(alone, "etl", 200.0 + number)
        run(beside, "etl", 200.0 + number)
        run(beside, "etl", 90_000.0, "bank")
    assert repr(alone.forecast(like("etl"), 60.0)) == repr(beside.forecast(like("etl"), 60.0))


def test_nine_in_ten_runs_stay_below_the_upper_end_beside_a_tenant_whose_runs_are_all_alike() -> None:
    """Ten runs of 100 s come for each of ours, which spread by a factor of four."""
    generator, forecaster = np.random.default_rng(1), live_forecaster("habits")
    held = []
    for _ in range(800):
        for _ in range(10):
            run(forecaster, "steady", 100.0, "bank")
        seconds = float(np.exp(generator.normal(6.0, 0.7)))
        held.append(seconds <= run(forecaster, "etl", seconds).upper)
    assert np.mean(held[200:]) == pytest.approx(0.9, abs=0.03)


@EVERY
def test_what_a_namespace_taught_goes_with_it(name: LivePredictor) -> None:
    forecaster = live_forecaster(name)
    for _ in range(5):
        run(forecaster, "etl", 300.0)
        run(forecaster, "etl", 300.0, "bank")
    forecaster.retain([b"bank.."])
    assert len(forecaster) == 1
    assert forecaster.forecast(like("etl"), 60.0).alike == 0
    assert forecaster.forecast(like("etl", "bank"), 60.0).alike > 0


@EVERY
def test_of_too_many_owners_the_one_not_learned_for_longest_goes(name: LivePredictor) -> None:
    forecaster = live_forecaster(name, most_keys=2)
    for owner in ("a", "b", "a", "c"):  # b is the oldest when c comes
        run(forecaster, owner, 300.0)
    assert len(forecaster) == 2


@EVERY
def test_a_tenant_whose_jobs_are_all_named_anew_makes_nobody_elses_past_be_forgotten(name: LivePredictor) -> None:
    forecaster = live_forecaster(name, most_keys=10)
    for owner, seconds in (("etl", 300.0), ("report", 9000.0), ("etl", 310.0)):
        run(forecaster, owner, seconds)
    before = [repr(forecaster.forecast(like(owner), 60.0)) for owner in ("etl", "report")]
    for number in range(50):
        run(forecaster, f"j{number}", 7.0, "bank")
    assert len(forecaster) == 10
    assert [repr(forecaster.forecast(like(owner), 60.0)) for owner in ("etl", "report")] == before


@EVERY
@settings(max_examples=25, deadline=None)
@given(
    past=st.lists(st.tuples(st.integers(0, 2), st.floats(0.01, 1e8), st.floats(0.01, 1e9)), max_size=25),
    cores=st.floats(0.0, 1e5),
    hour=st.integers(0, 10**6),
)
def test_a_forecast_is_positive_and_its_upper_end_is_never_below_it(
    name: LivePredictor, past: list[tuple[int, float, float]], cores: float, hour: int
) -> None:
    forecaster = live_forecaster(name, most_keys=2)
    for number, seconds, said in past:
        run(forecaster, f"o{number}", seconds, said=said)
    made = forecaster.forecast(like("o0"), 30.0, cores=cores, hour=hour)
    assert 1 <= made.seconds <= made.upper


def walked(forecaster: LiveForecaster, log: RunLog) -> list[Any]:
    """Forecasts of a log whose users are the owners of one namespace, by submission."""
    made: dict[int, Any] = {}
    for event in event_order(log.jobs.submit_seconds, log.finish_seconds).tolist():
        if event < 0:
            forecaster.learn(made[~event], float(log.run_seconds[~event]))
        else:
            made[event] = forecaster.forecast(
                like(f"u{log.jobs.user[event]}"),
                float(log.jobs.requested_seconds[event]),
                cores=float(log.jobs.processors[event]),
                hour=int(log.jobs.submit_seconds[event] // HOUR_SECONDS),
            )
    return [made[job] for job in range(len(log))]


def half_hour_log(jobs: int = 120) -> RunLog:
    """Jobs of four users at the half of each hour, of whole seconds: what a live forecaster sees of them is exact."""
    generator = np.random.default_rng(11)
    submit = 3600.0 * np.arange(jobs) + 1800.0
    user = generator.integers(0, 4, jobs)
    run = np.round(np.exp(generator.normal(6.0 + user, 0.5))) + 1.0
    same = np.zeros(jobs, np.int64)
    processors = generator.integers(1, 9, jobs).astype(np.float64)
    table = JobTable(submit, np.full(jobs, 50_000.0), processors, user, same, same, same)
    return RunLog(table, run, submit + run)


@pytest.mark.parametrize("kind", ["fmkf", "mlkf"])
def test_the_filters_of_one_namespace_are_those_of_a_log(kind: Any) -> None:
    """Below 200 completions no noise is chosen for a log either. The first job is the model's."""
    log = half_hour_log()
    asked = answers_of(kalman_forecasts(log, kind), np.full(len(log), np.nan))
    made = walked(LiveFilters(kind), log)
    first = int(np.searchsorted(log.jobs.submit_seconds, log.finish_seconds.min(), side="right"))
    assert [one.seconds for one in made[first:]] == [whole(seconds) for seconds in asked.point[first:]]
    assert [one.upper for one in made[first:]] == [whole(seconds) for seconds in asked.upper[first:]]


def test_smoothing_of_an_owner_is_that_of_a_user() -> None:
    log = half_hour_log()
    levels = exponentially_smoothed(log, setting=Smoothing(KEPT, in_logs=False))
    known = np.flatnonzero(np.isfinite(levels))
    made = walked(live_forecaster("exponential-smoothing"), log)
    assert len(known) > 100
    assert [made[job].seconds for job in known] == [whole(levels[job]) for job in known]


def test_the_regression_of_one_namespace_is_that_of_a_log() -> None:
    log = half_hour_log()
    rows = snapshots(codes(log.jobs.user), log.jobs, log.run_seconds, log.finish_seconds)
    raw = np.empty(len(log))
    events = event_order(log.jobs.submit_seconds, log.finish_seconds)
    OnlineRegression().walk(events, table_4_1(rows, log.jobs), log.run_seconds, raw)
    made = walked(live_forecaster("regression"), log)
    first = int(np.searchsorted(log.jobs.submit_seconds, log.finish_seconds.min(), side="right"))
    assert [one.seconds for one in made[first:]] == [whole(seconds) for seconds in raw[first:]]


def test_a_margin_rests_where_one_in_ten_outlives_it() -> None:
    """Runs of 1 to 1,000 s alike, forecast as 500 s: nine in ten are up to 900 s, a margin of ln 1.8."""
    generator = np.random.default_rng(3)
    margin, met = FIRST_MARGIN, []
    for seconds in generator.uniform(1.0, 1000.0, 4000):
        met.append(margin)
        margin = moved(margin, seconds > 500.0 * np.exp(margin))
    assert np.exp(np.mean(met[500:])) == pytest.approx(1.8, rel=0.05)


def test_smoothing_stretches_its_upper_end_by_what_came() -> None:
    steady, wild = LiveSmoothing(), LiveSmoothing()
    for number in range(60):
        run(steady, "etl", 300.0)
        run(wild, "etl", 30.0 if number % 2 else 3000.0)
    assert steady.forecast(like("etl"), 60.0).upper < 400
    made = wild.forecast(like("etl"), 60.0)
    assert made.upper > 1.5 * made.seconds
