"""Results of a campaign: samples for `cotide train`, a model, the findings, and the page.

Called by `profile_command` after a campaign, and to make everything again from the journal. Invariant: the same journal
gives the same samples and findings.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cotide_core.config import SchedulerConfig
from cotide_core.errors import InputError, ModelError
from cotide_lab.commands.train_command import LEAST_JOBS, write_model
from cotide_lab.predictors.profiling.design import Cell, Standing, standings
from cotide_lab.predictors.profiling.findings import (
    CellFinding,
    Cost,
    Fit,
    by_cell,
    cell_findings,
    costs,
    fits,
    held_out_p95,
    job_warnings,
    log_error,
    train,
)
from cotide_lab.predictors.profiling.windows import Circumstances, Window, completion_samples
from cotide_lab.profile.journal import Journal

SAMPLES: Final = "samples.csv"
COMPLETIONS: Final = "completions.csv"
MODEL: Final = "qos"
COMPLETION_MODEL: Final = "completion"
PAGE: Final = "profile.html"
THRESHOLD: Final = SchedulerConfig().qos_risk_threshold
"""The model's column refuses a mix above this probability: the operator's default."""


@dataclass(frozen=True, slots=True)
class Results:
    """The findings; ``refused``: the reason for no model; ``warnings``: failures of jobs."""

    cells: list[CellFinding]
    where: dict[Cell, Standing]
    fits: list[Fit]
    costs: list[Cost]
    predicted: dict[Cell, float]
    error: float | None
    model_metrics: dict[str, float]
    refused: str
    note: str
    warnings: list[str]

    def as_document(self, journal: Journal) -> dict[str, Any]:
        """Return all findings for JSON."""
        plan = journal.plan
        return {
            "limit_milliseconds": plan.limit_milliseconds,
            "windows": len(journal.windows),
            "ended_early": self.note,
            "warnings": self.warnings,
            "least_kernel_share": min(
                (window.kernel_share for window in journal.windows if not math.isnan(window.kernel_share)), default=None
            ),
            "cells": [
                {
                    "requests_per_second": cell_finding.cell.rate,
                    "jobs": dict(cell_finding.cell.mix),
                    "p95_milliseconds": _finite(cell_finding.p95.middle),
                    "p95_low": _finite(cell_finding.p95.low),
                    "p95_high": _finite(cell_finding.p95.high),
                    "windows": cell_finding.p95.windows,
                    "broken_share": cell_finding.broken_share,
                    "batch_cores": _finite(cell_finding.batch_cores),
                    "cut": cell_finding.cut,
                    "standing": self.where.get(cell_finding.cell, Standing.OPEN).value,
                    "predicted_p95_milliseconds": self.predicted.get(cell_finding.cell),
                }
                for cell_finding in self.cells
            ],
            "skipped": [
                {"requests_per_second": cell.rate, "jobs": dict(cell.mix)}
                for cell, standing in self.where.items()
                if standing is Standing.SKIPPED
            ],
            "fits": [
                {"requests_per_second": fit.rate, "type": fit.name, "measured": fit.measured, "model": fit.predicted}
                for fit in self.fits
            ],
            "costs": [
                {
                    "limit_milliseconds": _finite(cost.limit_milliseconds),
                    "batch_cores": cost.batch_cores,
                    "highest_rate_alone": cost.rate_alone,
                }
                for cost in self.costs
            ],
            "held_out_median_log_error": self.error,
            "model": self.model_metrics or None,
            "model_refused": self.refused or None,
        }


def make_results(directory: Path, journal: Journal, note: str, progress: Callable[[str, float], object]) -> Results:
    """Write samples and model, and return the findings.

    Raises
    ------
    InputError
        When nothing was measured, or the directory can't be written.
    """
    from cotide_predictors.serialisation import to_files

    plan, windows = journal.plan, journal.windows
    if not windows:
        raise InputError("holds no window: nothing was measured", file=str(journal.path))
    circumstances = plan.circumstances()
    _write(directory / SAMPLES, samples_csv(windows, circumstances))
    _write(directory / COMPLETIONS, completions_csv(windows, circumstances))
    progress("training", 0.0)
    model, refused = None, ""
    try:
        model = train(windows, circumstances, plan.seed)
        _write_model(directory / MODEL, to_files(model))
    except ModelError as error:
        refused = str(error)
    _train_completion(directory / COMPLETION_MODEL, windows, circumstances, plan.seed)
    found = cell_findings(windows, plan.limit_milliseconds)
    predicted = held_out_p95(
        windows, circumstances, plan.seed, lambda done, all_: progress("held-out predictions", done / all_)
    )
    measured = by_cell(windows)
    cells = plan.cells() if plan.rates else tuple(sorted(measured))
    return Results(
        cells=found,
        where=standings(cells, measured, plan.rule),
        fits=fits(found, circumstances, model, THRESHOLD),
        costs=costs(found, circumstances),
        predicted=predicted,
        error=log_error(found, predicted),
        model_metrics={} if model is None else dict(model.metrics_),
        refused=refused,
        note=note,
        warnings=job_warnings(windows),
    )


def samples_csv(windows: list[Window], circumstances: Circumstances) -> str:
    """Return the windows as `cotide train qos --samples` reads them."""
    size = {kind.name: kind.input_bytes for kind in circumstances.kinds}
    heads = ["requests_per_second", "other_requests_per_second", "limit_ms", "cpu_pressure", "latency_p95_ms", "jobs"]
    rows = [
        [
            f"{window.cell.rate:g}", "0", f"{circumstances.limit_milliseconds:g}",
            f"{circumstances.pressure(window.cell):.6g}",
            f"{window.p95_milliseconds:.6g}", ";".join(f"{name}:{n}:{n * size[name]}" for name, n in window.cell.mix),
        ]
        for window in windows
    ]  # fmt: skip
    if circumstances.service:
        heads, rows = [*heads, "service"], [[*row, circumstances.service] for row in rows]
    return _csv(heads, rows)


def completions_csv(windows: list[Window], circumstances: Circumstances) -> str:
    """Return the jobs that ended as `cotide train completion --samples` reads them."""
    size = {kind.name: kind.input_bytes for kind in circumstances.kinds}
    return _csv(
        ["type", "input_bytes", "requests_per_second", "cpu_pressure", "seconds"],
        [
            [
                name,
                str(size[name]),
                f"{window.cell.rate:g}",
                f"{circumstances.pressure(window.cell):.6g}",
                f"{seconds:.6g}",
            ]
            for window in windows
            for name, seconds in window.job_seconds
        ],
    )


def _train_completion(directory: Path, windows: list[Window], circumstances: Circumstances, seed: int) -> None:
    from cotide_predictors.completion.completion_model import train_completion
    from cotide_predictors.serialisation import to_files

    ended = completion_samples(windows, circumstances)
    if len(ended.types) >= LEAST_JOBS:
        _write_model(directory, to_files(train_completion(ended, random_state=seed)))


def _csv(heads: list[str], rows: list[list[str]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(rows)
    return text.getvalue()


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror or error}", file=str(path)) from error


def _write_model(directory: Path, files: dict[str, bytes]) -> None:
    try:
        write_model(directory, files)
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror or error}", file=str(directory)) from error


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
