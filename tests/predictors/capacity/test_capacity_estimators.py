"""Task classes in two steps, arrival rates, and the containers that will be needed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.errors import InputError
from cotide_predictors.capacity.arrival_rates import METHODS, ArrivalRates
from cotide_predictors.capacity.calibration import calibrated_demand
from cotide_predictors.capacity.container_demand import ContainerDemand
from cotide_predictors.capacity.task_classes import TaskClasses


def two_sizes(count=400, seed=1):
    """Small tasks of ten seconds or an hour, wide ones of a minute."""
    rng = np.random.default_rng(seed)
    small = np.column_stack((rng.normal(0.01, 0.0005, count), rng.normal(0.01, 0.0005, count)))
    wide = np.column_stack((rng.normal(0.2, 0.01, count), rng.normal(0.4, 0.01, count)))
    need = np.concatenate((small, wide))
    seconds = np.concatenate((np.where(rng.uniform(size=count) < 0.5, 10.0, 3600.0), np.full(count, 60.0)))
    return need, np.repeat([0.0, 9.0], count), seconds


def fitted():
    return TaskClasses(random_state=0).fit(*two_sizes())


def test_sizes_are_found_and_their_number_by_what_one_more_would_explain():
    classes = fitted()
    assert len(classes.sizes_) == 2
    assert classes.explained_ > 0.9
    assert [size.mean[0][0] for size in classes.sizes_] == pytest.approx([0.01, 0.2], rel=0.02)


def test_the_second_label_comes_when_a_task_has_run_long():
    classes = fitted()
    # Between 10 and 3,600 s, on a logarithmic axis: 190 s.
    assert classes.sizes_[0].long_after == pytest.approx(np.sqrt(10 * 3600), rel=0.01)
    assert classes.sizes_[1].long_after == np.inf, "run times of one kind are not split"
    label = classes.at_arrival(np.array([[0.01, 0.01], [0.2, 0.4]]), np.array([0.0, 9.0]))
    assert label.tolist() == [0, 1]
    assert classes.is_long(label, np.array([500.0, 500.0])).tolist() == [True, False]


def test_a_task_unlike_all_others_has_a_class():
    label = fitted().at_arrival(np.array([[1e9, 0.0], [0.0, 0.0]]), np.array([1e6, -1e6]))
    assert ((label >= 0) & (label < 2)).all()


def test_tasks_that_teach_nothing_are_refused_or_one_class():
    with pytest.raises(InputError, match="no task"):
        TaskClasses().fit(np.zeros((0, 2)), np.zeros(0), np.zeros(0))
    with pytest.raises(InputError, match="not finite"):
        TaskClasses().fit(np.array([[np.nan, 1.0]]), np.zeros(1), np.ones(1))
    assert len(TaskClasses().fit(np.ones((50, 2)), np.zeros(50), np.ones(50)).sizes_) == 1


def test_each_class_uses_the_forecast_that_was_best_lately():
    rates = ArrivalRates(classes=2, day_steps=24)
    for step in range(24 * 8):
        daily = 100.0 if step % 24 < 12 else 0.0
        rates.update(np.array([daily, 7.0]))
    ahead = rates.predict(24)
    # The next step is step 0 of a day: twelve full ones, then twelve empty ones.
    assert ahead[2:10, 0].mean() > 90
    assert ahead[15:22, 0].mean() < 15
    assert ahead[:, 1].tolist() == pytest.approx([7.0] * 24)
    assert METHODS[rates.errors_[:, 0].argmin()] in ("yesterday", "shape of yesterday", "last value", "trend")


def test_bunches_widen_the_quantiles():
    rng = np.random.default_rng(2)
    even, bunched = ArrivalRates(classes=1, day_steps=1000), ArrivalRates(classes=1, day_steps=1000)
    for _ in range(300):
        even.update(rng.poisson(30.0, 1).astype(float))
        bunched.update(30.0 * rng.poisson(1.0, 1).astype(float))
    narrow, wide = (rates.quantiles(1, (0.5, 0.95))[0, 0] for rates in (even, bunched))
    assert wide[1] - wide[0] > 2 * (narrow[1] - narrow[0])


def test_what_wanders_is_less_sure_the_further_ahead_and_what_only_jitters_is_not():
    rng = np.random.default_rng(4)
    wanders, jitters = (ArrivalRates(classes=1, day_steps=10_000, leads=4) for _ in range(2))
    height = 1000.0
    for _ in range(400):
        height += rng.normal(0.0, 40.0)
        wanders.update(np.array([height]))
        jitters.update(np.array([1000.0 + rng.normal(0.0, 40.0)]))
    walk, noise = (rates.quantiles(6, (0.5, 0.95))[:, 0] for rates in (wanders, jitters))
    # Four steps of a walk are twice as wide as one (the root of four); with half of that the test is sure of its noise.
    assert walk[3, 1] - walk[3, 0] > 1.5 * (walk[0, 1] - walk[0, 0])
    assert noise[3, 1] - noise[3, 0] < 1.3 * (noise[0, 1] - noise[0, 0])
    # Beyond the last lead it is as wide as there.
    assert walk[5, 1] - walk[5, 0] == pytest.approx(walk[3, 1] - walk[3, 0], rel=0.02)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1e9), min_size=0, max_size=40))
def test_whatever_came_rates_are_finite_and_quantiles_rise(counts):
    rates = ArrivalRates(classes=1, day_steps=10)
    for count in counts:
        rates.update(np.array([count]))
    found = rates.quantiles(5, (0.1, 0.5, 0.9))
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert (np.diff(found, axis=2) >= -1e-6 * (1 + found[:, :, 1:])).all()


def test_tasks_that_run_stay_as_their_class_tells():
    demand = ContainerDemand(classes=fitted(), step_seconds=60.0, horizon=3)
    # Nothing comes; one small task of 500 s is one of the hour-long ones, two wide ones end within a minute.
    assert demand.labels_ == ((0, False), (0, True), (1, False))
    label, age = np.array([0, 1, 1]), np.array([500.0, 59.0, 59.0])
    mean = demand.mean(label, age, np.zeros(2), rates=np.zeros((3, 2)))
    assert mean[:, 1].tolist() == pytest.approx([1, 1, 1], abs=0.05)
    assert mean[1:, 2].max() < 0.1


def test_in_the_steady_state_containers_are_arrivals_times_run_time():
    # Little's law: 6 wide tasks a minute of 60 s each are 6 at a time.
    demand = ContainerDemand(classes=fitted(), step_seconds=60.0, horizon=8)
    rates = np.tile([0.0, 6.0], (8, 1))
    none = np.zeros(0)
    mean = demand.mean(none.astype(np.int64), none, np.zeros(2), rates)
    assert mean[-1, 2] == pytest.approx(6.0, rel=0.1)


def test_the_spread_is_what_came_beyond_the_forecast():
    demand = ContainerDemand(classes=fitted(), step_seconds=60.0, horizon=2)
    none = np.zeros(0)
    for _ in range(420):
        demand.predict(none.astype(np.int64), none, np.zeros(2), (0.5, 0.9))
        demand.update(np.zeros(2), np.array([0.0, 4.0]))  # nothing was foreseen, four were there
    found = demand.predict(none.astype(np.int64), none, np.zeros(2), (0.5, 0.9))
    assert found[0, 2].tolist() == pytest.approx([4.0, 4.0], abs=0.3)
    assert found[0, 0].tolist() == pytest.approx([0.0, 0.0], abs=0.1)
    assert (np.diff(found, axis=2) >= 0).all()


def test_what_runs_and_waits_is_the_least_that_the_first_step_needs():
    classes = fitted()
    demand = ContainerDemand(classes=classes, step_seconds=300.0, horizon=3)
    running = np.zeros(40, dtype=np.int64)
    # A lower quantile of the forecast's errors would have fewer; in the second step it may.
    needed = demand.predict(running, np.full(40, 4000.0), np.array([5.0, 2.0]), (0.05, 0.5))
    by_size = np.array([[float(index == size) for index, _ in demand.labels_] for size in range(2)])
    assert by_size @ needed[0, :, 0] == pytest.approx([45.0, 2.0])
    assert (by_size @ needed[1, :, 0])[0] < 45.0


def test_a_history_is_cut_into_steps_that_end_where_it_ends():
    """One task each 300 s, 10 s after the step begins, and in the last hour two: yesterday is 288 steps back."""
    starts = np.arange(288 * 2) * 300.0 + 10.0
    arrival = np.sort(np.concatenate((starts, starts[-12:] + 1.0, starts[276:288] + 1.0)))
    count = len(arrival)
    classes = TaskClasses().fit(np.full((count, 2), 0.1), np.zeros(count), np.full(count, 60.0))
    demand = calibrated_demand(
        classes, np.full((count, 2), 0.1), np.zeros(count), arrival, np.full(count, 60.0),
        step_seconds=300.0, horizon=2, until=288 * 2 * 300.0,
    )  # fmt: skip
    counts = [int(step[0]) for step in demand.rates_._history]
    assert counts[-12:] == [2] * 12
    assert counts[-13] == 1
    assert counts[-12 - 288] == 2
    assert counts[-13 - 288] == 1
