"""What a campaign says: what fits, what the limit costs, and its samples."""

from __future__ import annotations

import math

import numpy as np

from cotide_lab.predictors.profiling.design import Cell, Mix
from cotide_lab.predictors.profiling.findings import cell_findings, costs, fits, held_out_p95, log_error, train
from cotide_lab.predictors.profiling.windows import Circumstances, JobKind, Window, completion_samples, qos_samples

AROUND = Circumstances((JobKind("sort", 1000, 250),), 10.0, 1000, "shop/web")


def window(rate: float, sorts: int, p95: float, cores: float = 0.0, *, cut: bool = False) -> Window:
    mix: Mix = (("sort", sorts),) if sorts else ()
    ended = (("sort", 2.5),) if sorts else ()
    return Window(Cell(rate, mix), p95, rate, 100, 4.0, cut, job_seconds=ended, job_core_seconds=4.0 * cores)


def twice(*windows: Window) -> list[Window]:
    return [one for one in windows for _ in range(2)]


def law(rate: float, sorts: int) -> float:
    """2 ms alone at 100/s and 6 at 1100/s, each sort half as much again."""
    return (1.6 + 0.004 * rate) * (1 + 0.5 * sorts)


def test_fits_is_the_last_count_before_the_first_that_breaks() -> None:
    """At 100/s one sort holds 10 ms and two don't; three, which held, are not believed. At 500/s not even alone."""
    measured = twice(
        window(100, 0, 5),
        window(100, 1, 8),
        window(100, 2, 12),
        window(100, 3, 9),
        window(500, 0, 11),
        window(500, 1, 5),
    )
    found = fits(cell_findings(measured, 10.0), AROUND, None, 0.1)
    assert [(one.rate, one.measured) for one in found] == [(100.0, 1), (500.0, None)]


def test_a_cut_window_holds_no_limit() -> None:
    """It was stopped early: 5 ms is a lower bound."""
    found = fits(cell_findings(twice(window(100, 0, 1), window(100, 1, 5, cut=True)), 10.0), AROUND, None, 0.1)
    assert found[0].measured == 0


def test_the_limit_costs_the_cores_that_break_it() -> None:
    """At 100/s two sorts (.8 cores) hold 10 ms, at 500/s one (.2 of .4): (.8 + .2) / 2 = .5; without a limit .6."""
    measured = twice(
        window(100, 0, 1), window(100, 1, 2, 0.4), window(100, 2, 4, 0.8),
        window(500, 0, 3), window(500, 1, 8, 0.2), window(500, 2, 30, 0.4),
    )  # fmt: skip
    found = {cost.limit_milliseconds: cost.batch_cores for cost in costs(cell_findings(measured, 10.0), AROUND)}
    assert np.isclose(found[10.0], 0.5)
    assert np.isclose(found[math.inf], 0.6)
    assert found[2.5] == 0.2  # at 100/s one sort at 2 ms: .4; at 500/s the service alone breaks 2.5 ms


def test_where_cpu_is_not_known_requests_stand_for_it() -> None:
    """Two sorts of 250m hold 10 ms."""
    measured = twice(window(100, 0, 1), window(100, 2, 4, math.nan))
    found = {cost.limit_milliseconds: cost.batch_cores for cost in costs(cell_findings(measured, 10.0), AROUND)}
    assert found[10.0] == 0.5


def test_windows_become_samples_of_their_mix() -> None:
    samples = qos_samples([window(100, 2, 4.0), window(100, 0, 1.0)], AROUND)
    assert samples.mixes.counts.tolist() == [[2.0], [0.0]]
    assert samples.mixes.input_bytes.tolist() == [[2000.0], [0.0]]
    assert samples.mixes.cpu_pressure.tolist() == [0.5, 0.0]  # two of 250m on one core
    assert samples.mixes.services == ("shop/web",)
    assert samples.latency_milliseconds.tolist() == [4.0, 1.0]


def test_jobs_that_ended_become_completion_samples() -> None:
    ended = completion_samples([window(100, 1, 4.0), window(100, 0, 1.0)], AROUND)
    assert (ended.types, ended.seconds.tolist(), ended.input_bytes.tolist()) == (("sort",), [2.5], [1000.0])


def test_a_model_predicts_cells_that_it_did_not_see() -> None:
    generator = np.random.default_rng(0)
    measured = [
        window(rate, sorts, law(rate, sorts) * float(generator.lognormal(0, 0.05)))
        for rate in range(100, 1200, 100)
        for sorts in range(4)
        for _ in range(2)
    ]
    predicted = held_out_p95(measured, AROUND, 0, lambda done, every: None)
    assert len(predicted) == 44
    error = log_error(cell_findings(measured, 10.0), predicted)
    assert error is not None
    assert error < 0.25  # logs; the law spans a factor of 7.5, and always saying its middle errs by .5
    model = train(measured, AROUND)
    assert model.metrics_["held_out_brier"] < model.metrics_["constant_brier"]
