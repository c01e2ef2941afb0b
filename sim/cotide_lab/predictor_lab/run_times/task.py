"""The run-time task: a predictor walks a log, and the last four fifths of its forecasts are scored.

Called by `cell_run`. A rolling origin job by job: each forecast is made at its submission, from completions before it.
Figures: accuracy (Naghshnejad 2019, eqs. 4.2 and 5.13, one measure), absolute error of the median, under-estimates,
coverage of the p90, log density. Blocks are weeks, or days of a short log. Invariant: same log, predictor and seed,
same figures.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import process_time
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_lab.experiments.backfilling.run_time_parts import LEARNED_SHARE
from cotide_lab.experiments.backfilling.run_times import run_log
from cotide_lab.job_logs.generated_log import generated_log
from cotide_lab.predictor_lab.blocks import sums_by_block
from cotide_lab.predictor_lab.cells import LabCell, LabOutcome, LabSource
from cotide_lab.predictor_lab.run_times.decision import GENERATED_JOBS, decided
from cotide_lab.predictor_lab.run_times.entries import ENTRIES, RunTimeForecasts
from cotide_lab.predictor_lab.user_predictor import run_time_forecasts
from cotide_lab.trace_replay.user_policy import PolicySource
from cotide_predictors.one_thread import on_one_thread
from cotide_predictors.run_time.jobs import JobTable, RunLog
from cotide_predictors.run_time.scores import accuracy, score
from cotide_sim.traces.jobs.swf import read_swf

DAY_SECONDS: Final = 86_400.0
WEEKS_MIN: Final = 8
"""Shortest log with weeks as blocks; a shorter one has days (chosen)."""


def read_log(source: LabSource, seed: int) -> RunLog:
    """Return a source's jobs, by submission, at most ``limit`` of them.

    Raises
    ------
    InputError
        When the file cannot be read or holds no job.
    """
    log = _generated(seed) if source.path is None else run_log(read_swf(source.path))
    if source.limit is None or source.limit >= len(log):
        return log
    first = slice(0, source.limit)
    return RunLog(log.jobs.rows(first), log.run_seconds[first], log.finish_seconds[first])


@on_one_thread
def run(cell: LabCell, source: LabSource, predictor: PolicySource | None) -> LabOutcome:
    """Forecast every job and score the forecasts after the first fifth."""
    log = read_log(source, cell.seed)
    begin = process_time()
    found = forecasts_of(cell.predictor, predictor, log, cell.seed)
    seconds = process_time() - begin
    outcome = scored(cell, log, found, seconds)
    if not source.decide:
        return outcome
    figures, blocks = decided(source, partial(forecasts_of, cell.predictor, predictor), cell.seed)
    return replace(outcome, figures=outcome.figures | figures, blocks=outcome.blocks | blocks)


def forecasts_of(name: str, predictor: PolicySource | None, log: RunLog, seed: int) -> RunTimeForecasts:
    """Return the forecasts of a built-in predictor by name, or of a user's file.

    Raises
    ------
    InputError
        At an unknown name, and at an error in the file.
    """
    if predictor is not None:
        return run_time_forecasts(predictor, log)
    if name not in ENTRIES:
        raise InputError(f"there is no {name!r} for run times; there are {', '.join(ENTRIES)}", field="--predictor")
    return ENTRIES[name].forecasts(log, seed)


def scored(cell: LabCell, log: RunLog, found: RunTimeForecasts, seconds: float) -> LabOutcome:
    """Return the outcome of a cell from its forecasts."""
    counted = slice(int(len(log) * LEARNED_SHARE), None)
    actual = log.run_seconds[counted]
    submit = log.jobs.submit_seconds[counted]
    length = 7 * DAY_SECONDS if submit[-1] - submit[0] >= 7 * WEEKS_MIN * DAY_SECONDS else DAY_SECONDS
    block = ((submit - submit[0]) // length).astype(np.int64)
    total, by_median = score(found.point[counted], actual), score(found.median[counted], actual)
    columns = {
        "accuracy": accuracy(found.point[counted], actual),
        "mae_seconds": np.abs(found.median[counted] - actual),
    }
    figures = {
        "accuracy": total.accuracy,
        "mae_seconds": by_median.mae_seconds,
        "under_share": total.under_share,
        "under_seconds": total.under_seconds,
    }
    if found.upper is not None:
        columns["within_90"] = (actual <= found.upper[counted]).astype(np.float64)
        figures["within_90"] = float(columns["within_90"].mean())
    if found.log_density is not None:
        columns["log_density"] = found.log_density[counted]
        figures["log_density"] = float(columns["log_density"].mean())
    costs = {"seconds_per_1000": 1000.0 * seconds / len(log)}
    blocks = {name: sums_by_block(block, values) for name, values in columns.items()}
    return LabOutcome(cell, len(actual), figures, blocks, costs, None)


def _generated(seed: int) -> RunLog:
    jobs = generated_log("generated", "lublin", GENERATED_JOBS, 0.8, seed)
    same = np.zeros(len(jobs), dtype=np.int64)
    submit, run = jobs.submit.astype(np.float64), np.maximum(jobs.run, 1).astype(np.float64)
    requested, processors = jobs.request.astype(np.float64), jobs.demand.astype(np.float64)
    table = JobTable(submit, requested, processors, jobs.user.astype(np.int64), same, same, same)
    return RunLog(table, run, submit + run)
