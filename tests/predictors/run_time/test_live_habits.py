"""Run times of live pods from habits: what counts as alike, what is told, and who is believed."""

from __future__ import annotations

import pytest
from engine_objects import pod
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.events import Event, Pod, PodDeleted, PodPhase, PodUpserted
from cotide_core.forecasting.heuristics import HeuristicCompletion
from cotide_core.instructions import Bind, Forecast
from cotide_predictors.run_time.habits.likeness import likeness_of, namespace_key, program_of, series_of, step_of
from cotide_predictors.run_time.habits.live_catalogue import HABITS
from cotide_predictors.run_time.habits.live_mixture import RunTimeMixture
from cotide_predictors.run_time.habits.pod_run_times import FROM_MODEL, LEAST_RUNS, PodRunTimes

MODEL = HeuristicCompletion()
"""Says what the user asked for: here always 60 s, twice that nine times in ten."""


def nightly(number: int, namespace: str = "shop", **fields: object) -> Pod:
    """The pod of one run of a series, which asks for 60 s."""
    job = f"{namespace}/nightly-{28_471_200 + number}"
    return pod(f"{job}-0", job=job, requested_seconds=60.0, image="r.example/etl:v1", **fields)


def run(run_times: PodRunTimes, one: Pod, seconds: float, slowdown: float = 1.0) -> float | None:
    """Let a pod come, be bound, and succeed; returns the seconds that the engine was told, if any."""
    forecasts = run_times.arrived([PodUpserted(one)], MODEL)
    p50 = None if forecasts is None else forecasts.forecasts[0].seconds_p50
    forecast = Forecast(seconds_p50=slowdown * (60.0 if p50 is None else p50), seconds_p90=999.0)
    run_times.decided([Bind(one.key, one.uid, "a", "because", forecast)])
    over = one._replace(node="a", phase=PodPhase.SUCCEEDED, started_seconds=10.0, finished_seconds=10.0 + seconds)
    assert run_times.arrived([PodUpserted(over)], MODEL) is None
    return p50


@pytest.mark.parametrize(
    ("name", "series"),
    [
        ("report-28471200", "report"),
        ("report-28471200-x7k2p", "report"),
        ("train-bert-2-7", "train-bert"),
        ("sort-big", "sort-big"),
        ("28471200", "28471200"),
        ("etl-lorry", "etl-lorry"),
    ],
)
def test_runs_of_a_series_have_one_name(name: str, series: str) -> None:
    assert series_of(name) == series


def test_a_new_release_is_the_same_program_and_a_port_is_no_tag() -> None:
    assert program_of("r.example:5000/etl:v2") == program_of("r.example:5000/etl@sha256:00") == "r.example:5000/etl"


def test_tonights_input_is_of_the_size_of_last_nights_and_twice_as_much_is_another() -> None:
    assert step_of(10 * 2**30) == step_of(int(9.7 * 2**30)) != step_of(20 * 2**30)
    assert step_of(0) == 0


def test_pods_of_two_namespaces_are_never_alike() -> None:
    ours, theirs = likeness_of(nightly(1)), likeness_of(nightly(1, "bank"))
    assert not set(ours) & set(theirs)
    assert all(key.startswith(namespace_key("shop")) for key in ours)


def test_a_series_is_told_what_it_takes_once_that_was_better_than_the_model_often_enough() -> None:
    """The model says 60 s, the runs take 300: the first ten score both, from then on the habit is told."""
    run_times = PodRunTimes()
    forecasts = [run(run_times, nightly(number), 300.0) for number in range(LEAST_RUNS + 2)]
    assert forecasts[:LEAST_RUNS] == [None] * LEAST_RUNS
    assert forecasts[LEAST_RUNS:] == [pytest.approx(300.0, abs=2)] * 2


def test_where_the_model_is_better_it_stays() -> None:
    """Two sorts of runs under one name that the model tells apart by the estimate, in no order that a habit has."""
    run_times = PodRunTimes()
    for number in range(40):
        seconds = (20.0, 900.0)[number * number % 7 % 2]
        one = nightly(number)._replace(requested_seconds=seconds)
        forecasts = run_times.arrived([PodUpserted(one)], MODEL)
        assert forecasts is None
        over = one._replace(phase=PodPhase.SUCCEEDED, started_seconds=0.0, finished_seconds=seconds)
        run_times.arrived([PodUpserted(over)], MODEL)
    (found,) = run_times.accuracies.values()
    assert found.model == pytest.approx(1.0)
    assert found.habits < 1.0


def test_what_contention_took_is_no_habit() -> None:
    """300 s at a predicted slowdown of 3 are 100 s alone."""
    run_times = PodRunTimes()
    forecasts = [run(run_times, nightly(number), 300.0, slowdown=3.0) for number in range(LEAST_RUNS + 2)]
    assert forecasts[-1] == pytest.approx(100.0, abs=1)


def test_each_run_scores_habits_and_model_on_the_node_where_it_ran() -> None:
    run_times = PodRunTimes()
    run(run_times, nightly(1), 120.0, slowdown=2.0)
    scores = {score.source: score for score in run_times.take_scores()}
    assert (scores[FROM_MODEL].p50, scores[FROM_MODEL].p90, scores[FROM_MODEL].seconds) == (120.0, 240.0, 120.0)
    assert scores[HABITS].seconds == 120.0
    assert run_times.take_scores() == []


@pytest.mark.parametrize("end", ["failed", "deleted"])
def test_a_run_that_did_not_succeed_teaches_nothing(end: str) -> None:
    run_times, one = PodRunTimes(), nightly(1)
    run_times.arrived([PodUpserted(one)], MODEL)
    over = one._replace(phase=PodPhase.FAILED, started_seconds=0.0, finished_seconds=5.0)
    run_times.arrived([PodUpserted(over) if end == "failed" else PodDeleted(one.key, one.uid)], MODEL)
    later = one._replace(phase=PodPhase.SUCCEEDED, started_seconds=0.0, finished_seconds=5.0)
    run_times.arrived([PodUpserted(later)], MODEL)
    assert run_times.learned == 0


def test_online_pods_have_no_run_time() -> None:
    run_times = PodRunTimes()
    run_times.arrived([PodUpserted(nightly(1)._replace(workload_class=WorkloadClass.ONLINE))], MODEL)
    run(run_times, nightly(1), 5.0)
    assert run_times.learned == 1


def test_a_new_engine_is_told_what_the_one_before_it_knew() -> None:
    run_times = PodRunTimes()
    for number in range(LEAST_RUNS):
        run(run_times, nightly(number), 300.0)
    waits = PodUpserted(nightly(99))
    first = run_times.arrived([waits], MODEL)
    assert first is not None
    assert run_times.arrived([waits], MODEL) is None
    run_times.begin_anew()
    assert run_times.arrived([waits], MODEL) == first


def test_another_tenant_under_the_name_of_one_that_is_gone_begins_with_nothing() -> None:
    run_times = PodRunTimes()
    for number in range(LEAST_RUNS):
        run(run_times, nightly(number), 300.0)
        run(run_times, nightly(number, "bank"), 300.0)
    run_times.retain(["bank"])
    assert run(run_times, nightly(50), 300.0) is None
    assert run(run_times, nightly(50, "bank"), 300.0) == pytest.approx(300.0, abs=2)


def test_of_too_many_keys_the_one_not_learned_for_longest_goes() -> None:
    mixture = RunTimeMixture(most_keys=2)
    pods = {name: likeness_of(nightly(1, name)) for name in ("a", "b", "c")}
    for name in ("a", "b", "a", "c"):  # b is the oldest when c comes
        mixture.learn(mixture.forecast(pods[name], 60.0), 300.0)
    assert [mixture.forecast(pods[name], 60.0).alike for name in ("a", "b", "c")] == [2, 0, 1]
    assert len(mixture) == 2


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.1, 1e7)), max_size=40), st.floats(0.01, 1e9))
def test_a_forecast_is_positive_and_its_upper_end_is_never_below_it(past: list[tuple[int, float]], said: float) -> None:
    mixture = RunTimeMixture(most_keys=2)
    for number, seconds in past:
        mixture.learn(mixture.forecast(likeness_of(nightly(1, f"n{number}")), said), seconds)
    made = mixture.forecast(likeness_of(nightly(1, "n0")), said)
    assert 1 <= made.seconds <= made.upper
    assert 0.0 <= made.reliability <= 1.0


def test_many_pods_of_one_job_are_forecast_alike() -> None:
    events: list[Event] = [PodUpserted(nightly(number)) for number in range(3)]
    run_times = PodRunTimes()
    for number in range(LEAST_RUNS):
        run(run_times, nightly(900 + number), 300.0)
    forecasts = run_times.arrived(events, MODEL)
    assert forecasts is not None
    assert len({(forecast.seconds_p50, forecast.seconds_p90) for forecast in forecasts.forecasts}) == 1
