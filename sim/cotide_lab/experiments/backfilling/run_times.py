"""Run-time forecasts on a log, each made at its job's submission: accuracy, error and coverage.

Called by `cotide experiment run-times`. The first fifth of the jobs is for learning; all figures are of the other four
fifths. Invariant: every forecast uses only jobs that finished before its submission
(`cotide_predictors.run_time.jobs.event_order`).

A row counts as a job when its run time and processors are known. A run of 0 s counts as 1 s, runs beyond the request
stay as they are, and a job without a request stays without one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, MutableMapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
from rich.table import Table

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Floats
from cotide_core.units import counted
from cotide_lab.experiments.backfilling.reliability_table import ReliabilityTable
from cotide_lab.experiments.backfilling.reliability_table import tables as rule_tables
from cotide_lab.experiments.backfilling.run_time_parts import (
    PARTS,
    Coverage,
    LogUnderTest,
    PartFigures,
    Reliability,
)
from cotide_lab.predictors.run_time.boosted import DAY_SECONDS
from cotide_lab.predictors.run_time.reliability.estimation import PREDICTABLE
from cotide_predictors.one_thread import on_one_thread
from cotide_predictors.run_time.jobs import SHORTEST_SECONDS, Ints, JobTable, RunLog
from cotide_predictors.run_time.scores import Score
from cotide_sim.traces.jobs.swf import Field, SwfLog, read_swf
from cotide_sim.traces.jobs.swf_cleaning import PARTIAL

SETTINGS: Final = "settings"
"""Key of the log's content and the settings, stored with the finished parts."""


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
    kept = np.flatnonzero((table[:, Field.RUN] >= 0) & (processors > 0) & ~np.isin(table[:, Field.STATUS], PARTIAL))
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
def run(
    path: Path,
    *,
    rebuild_days: int = 1,
    kept: MutableMapping[tuple[str, str], dict[str, Any]] | None = None,
    progress: Callable[[str, float], object] | None = None,
    emit: Callable[[str], object] | None = None,
) -> RunTimeReport:
    """Forecast every job of a log and return the figures.

    Parameters
    ----------
    rebuild_days : of the log, between two rebuilds of all trees (Naghshnejad 2019, section 4.4.4, has one).
    kept : records by log and part. Present parts are not run again, and the parts that run are added.
    progress : called with the part's name and its finished share.
    tell : called with a sentence at the end of a part.

    Raises
    ------
    InputError
        When no row has both a run time and processors, or the kept records are of other settings or another content.
    """
    kept = {} if kept is None else kept
    log = run_log(read_swf(path))
    _check(path, rebuild_days, kept)
    report_step, say = progress or (lambda _part, _share: None), emit or (lambda _text: None)
    of = LogUnderTest(log, rebuild_days * DAY_SECONDS)
    found = PartFigures()
    seconds: dict[str, float] = {}
    for name, part in PARTS.items():
        key = path.name, name
        if key not in kept:
            clock = perf_counter()
            figures = part(of, partial(report_step, name))
            kept[key] = {**asdict(figures), "seconds": perf_counter() - clock}
            say(f"{path.name}: {name}, {kept[key]['seconds']:,.0f} s")
        found.add(PartFigures.of_record(kept[key]))
        seconds[name] = kept[key]["seconds"]
    return RunTimeReport(
        trace=path.name,
        jobs=len(log),
        counted=len(log.run_seconds[of.counted]),
        forecasts=found.forecasts,
        coverage=found.coverage,
        reliability=found.reliability,
        rules=ReliabilityTable(found.correlations, found.importances),
        seconds=seconds,
        rebuild_days=rebuild_days,
    )


def _check(path: Path, rebuild_days: int, kept: MutableMapping[tuple[str, str], dict[str, Any]]) -> None:
    now: dict[str, Any] = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "rebuild_days": rebuild_days}
    key = path.name, SETTINGS
    if key not in kept:
        kept[key] = now
    then = kept[key]
    if then["sha256"] != now["sha256"]:
        checksums = ", now ".join(f"sha256 {item['sha256'][:12]}..." for item in (then, now))
        raise InputError(
            f"is another {path.name} than the journal's ({checksums}); rename the file or choose another journal",
            file=str(path),
        )
    if then["rebuild_days"] != rebuild_days:
        raise InputError(
            f"the journal holds results of {path.name} with a rebuild every {counted(then['rebuild_days'], 'day')}, "
            f"now {rebuild_days}; choose another journal",
            field="--rebuild-days",
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
    for name, reliability in report.reliability.items():
        share = f"{100 * reliability.predictable_share:.1f}"
        means = [
            "-" if mean is None else f"{mean:.3f}"
            for mean in (reliability.predictable_accuracy, reliability.other_accuracy)
        ]
        estimates.add_row(name, f"{reliability.correlation:.3f}", share, *means)
    return [points, covered, estimates, *rule_tables(report.rules)]


def _numbers(rows: Floats, which: Field) -> Ints:
    return rows[:, which].astype(np.int64)
