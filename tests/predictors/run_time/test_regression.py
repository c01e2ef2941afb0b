"""The online regression: Table 4.1's features, learning, and no look into the future."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.kernels.array_types import Floats
from cotide_predictors.run_time import regression
from cotide_predictors.run_time.history import snapshots
from cotide_predictors.run_time.jobs import Ints, JobTable, codes, event_order
from cotide_predictors.run_time.regression import FEATURES, PADDED, TERMS, OnlineRegression, regressed, table_4_1


def jobs_of(submit: Floats, requested: Floats, processors: Floats) -> JobTable:
    same = np.ones(len(submit), dtype=np.int64)
    return JobTable(submit, requested, processors, same, same, same, same)


def events_one_after_another(count: int) -> Ints:
    """Each job completes before the next is submitted."""
    start = np.arange(count) * 10.0
    return event_order(start, start + 5.0)


def test_table_4_1_has_its_sixteen_features_in_the_units_of_the_docstring() -> None:
    submit = np.array([0.0, 50_000.0, 100_000.0])
    jobs = jobs_of(submit, np.array([7200.0, 3600.0, 1800.0]), np.array([2.0, 6.0, 1.0]))
    run = np.array([3600.0, 1800.0, 9.0])
    rows = snapshots(codes(jobs.user), jobs, run, submit + run)
    found = dict(zip(FEATURES, table_4_1(rows, jobs)[2].tolist(), strict=True))
    assert len(FEATURES) == 16
    assert found["reqTime"] == 0.5
    assert (found["last"], found["beflast"], found["beflast2"]) == (0.5, 1.0, 0.0)
    assert (found["lastcpu"], found["maxcpu"], found["meancpu"], found["stdcpu"]) == (6, 6, 4, 2)
    assert (found["maxrt"], found["meanrt"], found["stdrt"]) == (1.0, 0.75, 0.25)
    assert found["prevuser"] == 2
    assert found["tod1"] == pytest.approx(np.cos(2 * np.pi * 13_600 / 86_400))
    assert found["dow2"] == pytest.approx(np.sin(2 * np.pi * 100_000 / 604_800))


def test_it_has_every_product_of_at_most_two_features() -> None:
    terms = np.empty(TERMS)
    regression._terms(np.arange(2.0, 18.0), terms)
    row = np.concatenate([[1.0], np.arange(2.0, 18.0)])
    products = [row[first] * row[second] for first in range(17) for second in range(first, 17)]
    assert sorted(terms.tolist()) == sorted(products)


def test_it_learns_a_run_time_that_is_a_product_of_two_features() -> None:
    generator = np.random.default_rng(5)
    features = np.zeros((4000, len(FEATURES)))
    features[:, 0] = generator.uniform(0.5, 2, 4000)
    features[:, 4] = generator.uniform(1, 4, 4000)
    run = 3600 * features[:, 0] * features[:, 4]
    out = np.empty(4000)
    OnlineRegression(rate=1.0, penalty=0.0).walk(events_one_after_another(4000), features, run, out)
    error = np.abs(out - run)
    assert error[3000:].mean() < 0.12 * np.abs(run - run.mean())[3000:].mean()


def test_a_features_unit_does_not_matter_without_a_penalty() -> None:
    generator = np.random.default_rng(6)
    features = generator.uniform(0, 1, (200, len(FEATURES)))
    run = generator.uniform(1, 9000, 200)
    one, other = np.empty(200), np.empty(200)
    events = events_one_after_another(200)
    OnlineRegression(penalty=0.0).walk(events, features, run, one)
    # Factors of two are exact in binary, so that the bits may be compared.
    OnlineRegression(penalty=0.0).walk(events, features * 1024.0 ** np.arange(-8, 8), run, other)
    np.testing.assert_allclose(one, other, rtol=1e-9)


def test_a_penalty_draws_forecasts_to_zero_as_far_as_it_should() -> None:
    features = np.ones((500, len(FEATURES)))
    run = np.full(500, 3600.0)
    free, held = np.empty(500), np.empty(500)
    events = events_one_after_another(500)
    OnlineRegression(penalty=0.0).walk(events, features, run, free)
    OnlineRegression(penalty=100.0).walk(events, features, run, held)
    assert free[-1] == pytest.approx(3600, rel=0.05)
    # With all 153 terms at 1, (153 w - 1)^2 + 100 * 153 w^2 is least where the sum 153 w is 153 / 253 of an hour.
    assert held[-1] == pytest.approx(3600 * 153 / 253, rel=0.01)


def test_one_event_at_a_time_gives_the_same_bits() -> None:
    generator = np.random.default_rng(7)
    features = generator.normal(0, 1, (50, len(FEATURES)))
    run = generator.uniform(1, 9000, 50)
    submit = np.sort(generator.uniform(0, 1000, 50))
    events = event_order(submit, submit + run)
    at_once, in_steps = np.empty(50), np.empty(50)
    OnlineRegression().walk(events, features, run, at_once)
    model = OnlineRegression()
    for event in events:
        model.walk(np.array([event]), features, run, in_steps)
    np.testing.assert_array_equal(at_once, in_steps)


def test_plain_python_and_machine_code_agree() -> None:
    generator = np.random.default_rng(8)
    features = generator.normal(0, 1, (30, len(FEATURES)))
    run = generator.uniform(1, 9000, 30)
    events = events_one_after_another(30)
    model = OnlineRegression()
    compiled, plain = np.empty(30), np.empty(30)
    model.walk(events, features, run, compiled)
    walk = getattr(regression._walk, "py_func", regression._walk)
    knobs = np.array([model.rate, model.penalty])
    walk(events, features, run, np.zeros((4, PADDED)), np.zeros(2), knobs, plain)
    np.testing.assert_allclose(compiled, plain, rtol=1e-9)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), changed=st.integers(0, 29))
def test_a_run_time_moves_no_forecast_before_it_is_over(seed: int, changed: int) -> None:
    generator = np.random.default_rng(seed)
    submit = np.sort(generator.integers(0, 5000, 30)).astype(np.float64)
    run = generator.integers(1, 2000, 30).astype(np.float64)
    jobs = jobs_of(submit, np.full(30, 5000.0), np.ones(30))

    def forecasts(runs: Floats) -> Floats:
        finish = submit + runs
        rows = snapshots(codes(jobs.user), jobs, runs, finish)
        return regressed(event_order(submit, finish), table_4_1(rows, jobs), runs, jobs.requested_seconds)

    longer = run.copy()
    longer[changed] += 700
    unaware = submit <= submit[changed] + run[changed]
    np.testing.assert_array_equal(forecasts(run)[unaware], forecasts(longer)[unaware])


def test_forecasts_stay_between_a_second_and_the_request() -> None:
    generator = np.random.default_rng(9)
    features = generator.normal(0, 100, (200, len(FEATURES)))
    found = regressed(events_one_after_another(200), features, generator.uniform(1, 1e6, 200), np.full(200, 900.0))
    assert found.min() >= 1
    assert found.max() <= 900
