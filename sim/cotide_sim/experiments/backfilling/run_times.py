"""Run-time forecasts on a log, each made at its job's submission: how accurate, how far off, how well covered.

Called by `cotide experiment run-times`. The first fifth of the jobs is there to learn from; all figures are of
the other four fifths. Invariant: every forecast uses only jobs that finished before its submission
(`cotide_predictors.run_time.jobs.event_order`).

A row counts as a job when its run time and processors are known; a run of 0 s counts as 1 s, runs beyond the request
stay as they are, and a job without a request stays without one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final

import numpy as np
from rich.table import Table

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Floats
from cotide_predictors.one_thread import on_one_thread
from cotide_predictors.run_time.boosted import DAY_SECONDS
from cotide_predictors.run_time.coverage import kept_quantile
from cotide_predictors.run_time.event_forecasts import event_forecasts
from cotide_predictors.run_time.heuristics import HEURISTICS, within_request
from cotide_predictors.run_time.history import snapshots
from cotide_predictors.run_time.jobs import SHORTEST_SECONDS, Ints, JobTable, RunLog, codes, event_order
from cotide_predictors.run_time.kernels.run_forecasts import LEARNED, RATED, TREES_RATED
from cotide_predictors.run_time.regression import regressed, table_4_1
from cotide_predictors.run_time.reliability.estimation import PREDICTABLE, reliability_features, rolling_reliability
from cotide_predictors.run_time.rolling import rolling_distributions
from cotide_predictors.run_time.scores import Score, accuracy, score
from cotide_predictors.run_time.tree_features import tree_features
from cotide_sim.experiments.backfilling.reliability_table import ReliabilityTable, correlation, reliability_table
from cotide_sim.experiments.backfilling.reliability_table import tables as rule_tables
from cotide_sim.traces.jobs.swf import Field, SwfLog, read_swf

LEARNED_SHARE: Final = 0.2
"""First part of a log, by submission, that is not counted (issue 4: the last 80 % of each log)."""
FORECASTS_OF_REPLAYS: Final = {
    "replay-mixture": LEARNED,
    "replay-mixture, rated by trees": RATED,
    "replay-trees": TREES_RATED,
}
"""What `cotide simulate` has as --runtime learned, with --reliability trees, and as --runtime trees with that."""
COVERED: Final = (0.8, 0.95)
"""Quantiles whose coverage is reported (issue 4)."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Share of jobs that stayed within their quantile, as the trees gave it and with the level kept."""

    level: float
    as_learned: float
    kept: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """How good the estimated accuracies of one forecaster are.

    Attributes
    ----------
    correlation : Pearson's, of estimated and actual accuracy.
    predictable_share : of jobs with an estimate of `PREDICTABLE` or more.
    predictable_accuracy, other_accuracy : mean actual accuracy of those and of the others; None where there are none.
    """

    correlation: float
    predictable_share: float
    predictable_accuracy: float | None
    other_accuracy: float | None


@dataclass(frozen=True, slots=True)
class RunTimeReport:
    """The figures of one log."""

    trace: str
    jobs: int
    counted: int
    forecasts: dict[str, Score]
    coverage: list[Coverage]
    reliability: dict[str, Reliability]
    rules: ReliabilityTable
    seconds: dict[str, float] = field(default_factory=dict)
    rebuild_days: int = 1


def run_log(log: SwfLog) -> RunLog:
    """Return the jobs of an SWF log, by submission.

    Raises
    ------
    InputError
        When no row has both a run time and processors.
    """
    table = log.table
    asked, given = table[:, Field.REQUESTED], table[:, Field.ALLOCATED]
    processors = np.where(asked > 0, asked, given)
    kept = np.flatnonzero((table[:, Field.RUN] >= 0) & (processors > 0))
    if not len(kept):
        raise InputError("no row has a run time and processors", file=log.file)
    kept = kept[np.argsort(table[kept, Field.SUBMIT], kind="stable")]
    rows = table[kept]
    submit = np.ascontiguousarray(rows[:, Field.SUBMIT])
    run = np.maximum(rows[:, Field.RUN], SHORTEST_SECONDS)
    jobs = JobTable(
        submit_seconds=submit,
        requested_seconds=np.where(rows[:, Field.LIMIT] > 0, rows[:, Field.LIMIT], np.nan),
        processors=processors[kept],
        user=_numbers(rows, Field.USER),
        group=_numbers(rows, Field.GROUP),
        executable=_numbers(rows, Field.EXECUTABLE),
        queue=_numbers(rows, Field.QUEUE),
    )
    return RunLog(jobs, run, submit + np.maximum(rows[:, Field.WAIT], 0.0) + run)


@on_one_thread
def run(path: Path, *, rebuild_days: int = 1, progress: Callable[[str, float], object] | None = None) -> RunTimeReport:
    """Forecast every job of a log and return how it went.

    Parameters
    ----------
    rebuild_days : of the log, between two rebuilds of all trees (Naghshnejad 2019, section 4.4.4, has one).
    progress : told the step's name and the share of it that is done.
    """
    log = run_log(read_swf(path))
    report_step = progress or (lambda _step, _share: None)
    every = rebuild_days * DAY_SECONDS
    clock = perf_counter()
    seconds: dict[str, float] = {}
    jobs, events = log.jobs, event_order(log.jobs.submit_seconds, log.finish_seconds)
    rows = snapshots(codes(jobs.user), jobs, log.run_seconds, log.finish_seconds)
    made = {name: rule(rows, jobs.requested_seconds) for name, rule in HEURISTICS.items()}
    seconds["heuristics"], clock = perf_counter() - clock, perf_counter()
    printed = table_4_1(rows, jobs)
    made["online-regression"] = regressed(events, printed, log.run_seconds, jobs.requested_seconds)
    seconds["online-regression"], clock = perf_counter() - clock, perf_counter()
    features = tree_features(log)
    trees = rolling_distributions(log, features, every_seconds=every, progress=partial(report_step, "distributions"))
    made["trees-most-accurate"] = within_request(trees.most_accurate(), jobs.requested_seconds)
    made["trees-median"] = within_request(kept_quantile(events, trees, log.run_seconds, 0.5), jobs.requested_seconds)
    made["trees-mean"] = within_request(trees.mean(), jobs.requested_seconds)
    seconds["distributions"], clock = perf_counter() - clock, perf_counter()
    in_replay = {
        name: event_forecasts(log, mode, every_seconds=every, progress=partial(report_step, name))
        for name, mode in FORECASTS_OF_REPLAYS.items()
    }
    made["replay-mixture"] = in_replay["replay-mixture"].point
    made["replay-trees"] = in_replay["replay-trees"].point
    seconds["forecasts of replays"], clock = perf_counter() - clock, perf_counter()
    counted = slice(int(len(log) * LEARNED_SHARE), None)
    actual = log.run_seconds[counted]
    coverage = [
        Coverage(
            level,
            float((actual <= trees.quantile(level)[counted]).mean()),
            float((actual <= kept_quantile(events, trees, log.run_seconds, level)[counted]).mean()),
        )
        for level in COVERED
    ]
    reliability: dict[str, Reliability] = {}
    for name, forecasts in (("trees-most-accurate", trees), ("online-regression", None)):
        columns = reliability_features(features, made[name], forecasts)
        estimate = rolling_reliability(
            log, columns, made[name], every_seconds=every, progress=partial(report_step, f"reliability of {name}")
        )
        reliability[name] = _reliability(estimate[counted], accuracy(made[name], log.run_seconds)[counted])
    for name, forecast in in_replay.items():
        point_accuracy = accuracy(forecast.point, log.run_seconds)[counted]
        reliability[name] = _reliability(forecast.reliability[counted], point_accuracy)
    rules = reliability_table(log, printed, made["online-regression"], counted, every, report_step)
    seconds["reliability"] = perf_counter() - clock
    return RunTimeReport(
        trace=path.name,
        jobs=len(log),
        counted=len(actual),
        forecasts={name: score(forecast[counted], actual) for name, forecast in made.items()},
        coverage=coverage,
        reliability=reliability,
        rules=rules,
        seconds=seconds,
        rebuild_days=rebuild_days,
    )


def tables(report: RunTimeReport) -> list[Table]:
    """Return the report as tables for a terminal."""
    title = f"{report.trace}: {report.counted:,} of {report.jobs:,} jobs counted"
    points = Table("forecast", "accuracy", "MAE s", "outlived %", "by s", title=title)
    for name, found in report.forecasts.items():
        cells = (f"{found.accuracy:.3f}", f"{found.mae_seconds:,.0f}", f"{100 * found.under_share:.1f}")
        points.add_row(name, *cells, f"{found.under_seconds:,.0f}")
    covered = Table(
        "quantile", "covered as learned %", "covered, level kept %", title="coverage of the trees' quantiles"
    )
    for level in report.coverage:
        covered.add_row(f"p{100 * level.level:g}", f"{100 * level.as_learned:.1f}", f"{100 * level.kept:.1f}")
    headings = ("forecast", "correlation", f"estimate >= {PREDICTABLE} %", "accuracy of those", "of the others")
    estimates = Table(*headings, title="estimated accuracy")
    for name, one in report.reliability.items():
        share = f"{100 * one.predictable_share:.1f}"
        means = ["-" if mean is None else f"{mean:.3f}" for mean in (one.predictable_accuracy, one.other_accuracy)]
        estimates.add_row(name, f"{one.correlation:.3f}", share, *means)
    return [points, covered, estimates, *rule_tables(report.rules)]


def _reliability(estimate: Floats, actual: Floats) -> Reliability:
    chosen = estimate >= PREDICTABLE
    return Reliability(
        correlation=correlation(estimate, actual),
        predictable_share=float(chosen.mean()),
        predictable_accuracy=float(actual[chosen].mean()) if chosen.any() else None,
        other_accuracy=float(actual[~chosen].mean()) if not chosen.all() else None,
    )


def _numbers(rows: Floats, which: Field) -> Ints:
    return rows[:, which].astype(np.int64)
