"""Run times learned from habits: what they answer, how sure they are, and that they never look ahead."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_predictors.run_time.kernels.run_habits import (
    BINS,
    CASES,
    LONGEST_SECONDS,
    UPPER_SHARE,
    bin_of,
    habits_of,
    note_habit,
    predict,
)


def walked(user, demand, request, run, events=None):
    """Submit and end jobs; ``events`` holds j for a submission and ~j for an end, by default one job after the other.

    Returns forecasts, reliabilities, upper forecasts and the state.
    """
    columns = [np.asarray(column, dtype=np.int64) for column in (user, demand, request)]
    habits = habits_of(*columns)
    forecast = np.zeros(len(user), dtype=np.int64)
    if events is None:
        events = [event for job in range(len(user)) for event in (job, ~job)]
    for event in events:
        job = event if event >= 0 else ~event
        if event >= 0:
            forecast[job] = predict(habits, job, int(request[job]))
        else:
            note_habit(habits, job, int(run[job]), int(request[job]), int(forecast[job]))
    return forecast, habits.reliability.copy(), habits.upper.copy(), habits


def test_a_user_who_always_runs_the_same_is_foreseen_to_the_second_and_trusted():
    jobs = 60
    forecast, reliability, upper, _ = walked([1] * jobs, [4] * jobs, [7200] * jobs, [1234] * jobs)
    assert (forecast[5:] == 1234).all()
    assert reliability[-1] > 0.9
    assert 1234 <= upper[-1] < 1500


def test_sizes_are_told_apart_and_a_new_one_is_taken_for_the_user_at_large():
    """Jobs on one processor take 100 s, on eight 5,000 s; both ask for two hours."""
    demand = [1, 8] * 40 + [2]
    run = [100, 5000] * 40 + [100]
    forecast, reliability, _, _ = walked([1] * 81, demand, [7200] * 81, run)
    assert forecast[78:80].tolist() == [100, 5000]
    assert reliability[80] < reliability[78]


def test_a_user_whose_runs_are_anything_is_not_trusted_and_the_upper_forecast_covers_nine_in_ten():
    rng = np.random.default_rng(1)
    run = np.exp(rng.uniform(np.log(10), np.log(36_000), 3000)).astype(int)
    _, reliability, upper, _ = walked([1] * 3000, [4] * 3000, [36_000] * 3000, run)
    assert reliability[500:].mean() < 0.45
    assert np.mean(run[500:] <= upper[500:]) == pytest.approx(UPPER_SHARE, abs=0.02)


def test_reliability_is_on_average_the_accuracy_that_comes_true():
    """Users whose runs scatter by a factor of 1 to 30 around their own habit."""
    rng = np.random.default_rng(2)
    user = rng.integers(0, 12, 4000)
    spread = np.log(np.linspace(1.0, 30.0, 12))
    run = np.clip(np.exp(np.log(600) + spread[user] * rng.uniform(-1, 1, 4000)), 1, 40_000).astype(int)
    forecast, reliability, _, _ = walked(user, [2] * 4000, [50_000] * 4000, run)
    seen = (np.minimum(forecast, run) / np.maximum(forecast, run))[1000:]
    assert reliability[1000:].mean() == pytest.approx(seen.mean(), abs=0.03)
    trusted = reliability[1000:] >= 0.6
    assert seen[trusted].mean() > seen[~trusted].mean() + 0.2


rows = st.lists(
    st.tuples(st.integers(-1, 2), st.integers(1, 3), st.integers(1, 5000), st.integers(1, 5000)),
    min_size=1,
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(rows)
def test_answers_stay_between_a_second_and_the_request_and_weights_add_up_to_one(jobs):
    user, demand, request, run = zip(*((u, d, max(a, b), min(a, b)) for u, d, a, b in jobs), strict=True)
    forecast, reliability, upper, habits = walked(user, demand, request, run)
    assert (forecast >= 1).all()
    assert (forecast <= upper).all()
    assert (upper <= np.array(request)).all()
    assert ((reliability >= 0) & (reliability <= 1)).all()
    assert habits.weights.reshape(CASES, -1).sum(axis=1) == pytest.approx(np.ones(CASES))
    assert (habits.weights >= 0).all()


@settings(max_examples=100, deadline=None)
@given(rows, st.data())
def test_a_run_that_is_not_over_moves_no_answer(jobs, data):
    user, demand, request, run = (list(column) for column in zip(*jobs, strict=True))
    run = [min(pair) for pair in zip(run, request, strict=True)]
    changed = data.draw(st.integers(0, len(jobs) - 1))
    ends_after = data.draw(st.integers(changed, len(jobs) - 1))
    events: list[int] = []
    for job in range(len(jobs)):
        events.append(job)
        if job != changed:
            events.append(~job)
        if job == ends_after:
            events.append(~changed)
    before = walked(user, demand, request, run, events)
    run[changed] = data.draw(st.integers(1, request[changed]))
    after = walked(user, demand, request, run, events)
    for one, other in zip(before[:3], after[:3], strict=True):
        assert one[: ends_after + 1].tobytes() == other[: ends_after + 1].tobytes()


def test_every_whole_second_lies_in_the_bin_whose_edges_enclose_it():
    edges = habits_of(*np.ones((3, 1), dtype=np.int64)).edges
    for seconds in (1, 2, 10, 59, 60, 3600, 86_400, 1_999_999):
        index = bin_of(edges, seconds)
        assert edges[index] <= seconds < edges[index + 1]
    assert bin_of(edges, int(10 * LONGEST_SECONDS)) == BINS - 1
