"""`cotide evaluate`: held-out scores of a predictor beside its rivals, for each table and each limit.

Called by `main`. Prints what is so: the last column is the mean of the paired differences to our model over the splits,
with their standard deviation, so that noise can be told from signal. Invariant: splits depend on the seed only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from cotide_cli.commands.train_command import TABLE_LIMITS, parse_limits
from cotide_cli.inputs import training_data
from cotide_cli.printing import as_text, output_option
from cotide_core.errors import InputError, ModelError
from cotide_core.forecasts import CompletionSamples, QosSamples
from cotide_core.units import counted

QOS_METRICS: Final = ("accuracy", "recall", "f1", "brier")
COMPLETION_METRICS: Final = ("mae_seconds", "r2", "median_relative_error")
MODEL_FILES_MAX: Final = 16
"""A model directory holds two files; many more is another directory (chosen)."""


@click.command("evaluate")
@click.argument("predictor", type=click.Choice(["qos", "completion"]))
@click.option("--data", type=click.Path(path_type=Path), help="Directory of the measured co-location tables.")
@click.option("--samples", type=click.Path(path_type=Path), help="CSV file of samples (docs/predictors.md).")
@click.option("--ledger", type=click.Path(path_type=Path), help="Directory of a recorded ledger.")
@click.option(
    "--table",
    type=click.Choice(list(TABLE_LIMITS)),
    default="all",
    show_default=True,
    help="Which table of --data; all: each on its own.",
)
@click.option(
    "--limits",
    "--limit-ms",
    "limits",
    callback=parse_limits,
    metavar="MS,MS,...",
    help="p95 limits to score; default: by table or samples.",
)
@click.option("--splits", type=click.IntRange(min=1), default=10, show_default=True, help="Random 3:1 splits.")
@click.option(
    "--split",
    "split_by",
    type=click.Choice(["cell", "row"]),
    default="cell",
    show_default=True,
    help="cell: repetitions of a cell stay on one side.",
)
@click.option(
    "--model",
    "model_directory",
    type=click.Path(path_type=Path),
    help="Score a stored model on all rows instead of training (in-sample if it was trained on them).",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the splits.")
@output_option
def command(
    predictor: str,
    data: Path | None,
    samples: Path | None,
    ledger: Path | None,
    table: str,
    limits: tuple[float, ...] | None,
    splits: int,
    split_by: str,
    model_directory: Path | None,
    seed: int,
    output: str,
) -> None:
    """Score the QoS or the completion predictor over random 3:1 splits, beside its rivals."""
    if sum(source is not None for source in (data, samples, ledger)) != 1:
        raise click.UsageError("give exactly one of --data, --samples and --ledger")
    if data is not None and data.is_file():
        data, samples = None, data
    model = None if model_directory is None else read_model(model_directory)
    options: dict[str, Any] = {"splits": splits, "split_by": split_by, "random_state": seed}
    rows: list[dict[str, object]] = []
    if predictor == "qos":
        for name, found in _qos_sources(data, samples, ledger, table):
            asked = limits or TABLE_LIMITS.get(name) or tuple(sorted(set(found.mixes.limit_milliseconds.tolist())))
            rows += _qos_rows(name, found, asked, model, options)
    else:
        if limits is not None:
            raise click.UsageError("--limits is about the QoS predictor; run times have no limit")
        for name, jobs in _completion_sources(data, samples, ledger, table):
            rows += _completion_rows(name, jobs, model, options)
    if output != "table":
        report = {"predictor": predictor, "split_by": split_by, "splits": splits, "seed": seed, "scores": rows}
        click.echo(as_text(report, output))
        return
    _print_table(rows, QOS_METRICS if predictor == "qos" else COMPLETION_METRICS)
    if model is None:
        click.echo(
            f"\n{splits} random 3:1 splits by {split_by}, seed {seed}; mean (standard deviation) over the splits. "
            f"vs cotide: paired difference of {'F1' if predictor == 'qos' else 'MAE'}."
        )


def read_model(directory: Path) -> Any:
    """Return the model of a directory; `ModelError` in one sentence when it is missing, broken or another's."""
    from cotide_predictors.serialisation import from_files

    try:
        paths = [path for path in directory.iterdir() if path.is_file() and not path.name.startswith(".")]
        if len(paths) > MODEL_FILES_MAX:
            raise ModelError(f"{directory} holds {counted(len(paths), 'file')}, which is no model")
        files = {path.name: path.read_bytes() for path in paths}
    except OSError as error:
        raise ModelError(f"{directory} can't be read: {error.strerror or error}") from error
    try:
        return from_files(files)
    except ModelError as error:
        raise ModelError(f"{directory}: {error}") from error


def _qos_sources(
    data: Path | None, samples: Path | None, ledger: Path | None, table: str
) -> list[tuple[str, QosSamples]]:
    if data is not None:
        names = [name for name in TABLE_LIMITS if name != "all"] if table == "all" else [table]
        return [(name, training_data.qos_from_tables(data, name)) for name in names]
    if samples is not None:
        return [(samples.name, training_data.qos_from_csv(samples))]
    assert ledger is not None  # noqa: S101  the caller counted the sources
    return [(ledger.name, training_data.from_ledger(ledger)[0])]


def _completion_sources(
    data: Path | None, samples: Path | None, ledger: Path | None, table: str
) -> list[tuple[str, CompletionSamples]]:
    if data is not None:
        if table not in ("grid", "parsec", "all"):
            raise click.UsageError(f"--table {table} has no run times; grid, parsec and all have")
        names = ["grid", "parsec"] if table == "all" else [table]
        # Without the lone runs: they tell each contender the answer at rate 0 of cells that are held out.
        return [(name, training_data.completion_from_tables(data, name, lone_runs=False)) for name in names]
    if samples is not None:
        return [(samples.name, training_data.completion_from_csv(samples))]
    assert ledger is not None  # noqa: S101  the caller counted the sources
    return [(ledger.name, training_data.from_ledger(ledger)[1])]


def _qos_rows(
    name: str, found: QosSamples, limits: Sequence[float], model: Any, options: dict[str, Any]
) -> list[dict[str, object]]:
    from cotide_predictors.evaluation.held_out import OURS, evaluate_qos, score_qos
    from cotide_predictors.qos.mixes import with_limit
    from cotide_predictors.qos.qos_model import QosModel

    latency = found.latency_milliseconds
    if model is not None:
        if not isinstance(model, QosModel):
            raise InputError("holds a completion model; this is about QoS", field="--model")
        rows = []
        for limit in limits:
            violated = latency > limit
            scores = score_qos(model, with_limit(found.mixes, limit), violated)
            rows.append(_row(name, limit, float(violated.mean()), "stored model", {k: [v] for k, v in scores.items()}))
        return rows
    _require(name, len(latency))
    scores_found = evaluate_qos(
        found, limits_milliseconds=limits, progress=lambda text: click.echo(f"{name}: {text}", err=True), **options
    )
    rows = []
    for limit in limits:
        at_limit = [score for score in scores_found if score.limit_milliseconds == limit]
        ours = next(score for score in at_limit if score.contender == OURS)
        share = float((latency > limit).mean())
        for score in at_limit:
            columns = {metric: values.tolist() for metric, values in score.metrics.items()}
            apart = score.metrics["f1"] - ours.metrics["f1"]
            rows.append(_row(name, limit, share, score.contender, columns, None if score is ours else apart.tolist()))
    return rows


def _completion_rows(
    name: str, found: CompletionSamples, model: Any, options: dict[str, Any]
) -> list[dict[str, object]]:
    from cotide_predictors.completion.completion_model import CompletionModel, jobs_of
    from cotide_predictors.evaluation.held_out import OURS, evaluate_completion, score_completion

    if model is not None:
        if not isinstance(model, CompletionModel):
            raise InputError("holds a QoS model; this is about run times", field="--model")
        scores = score_completion(model.predict(jobs_of(found)), found.seconds)
        return [_row(name, None, None, "stored model", {key: [value] for key, value in scores.items()})]
    _require(name, len(found.types))
    scores_found = evaluate_completion(found, progress=lambda text: click.echo(f"{name}: {text}", err=True), **options)
    ours = next(score for score in scores_found if score.contender == OURS)
    rows = []
    for score in scores_found:
        columns = {metric: values.tolist() for metric, values in score.metrics.items()}
        apart = score.metrics["mae_seconds"] - ours.metrics["mae_seconds"]
        rows.append(_row(name, None, None, score.contender, columns, None if score is ours else apart.tolist()))
    return rows


def _require(name: str, samples: int) -> None:
    if samples < 8:
        raise InputError(f"{counted(samples, 'sample')}: too few for 3:1 splits; at least 8 are needed", file=name)


def _row(
    table: str,
    limit: float | None,
    share: float | None,
    contender: str,
    columns: dict[str, list[float]],
    apart: list[float] | None = None,
) -> dict[str, object]:
    """Return one line of the report; a metric that no split defines is None."""
    summary = {name: _mean_and_deviation(values) for name, values in columns.items()}
    return {
        "table": table,
        "limit_milliseconds": limit,
        "violated_share": share,
        "model": contender,
        "metrics": summary,
        "versus_cotide": None if apart is None else _mean_and_deviation(apart),
    }


def _mean_and_deviation(values: list[float]) -> dict[str, float] | None:
    defined = [value for value in values if math.isfinite(value)]
    if not defined:
        return None
    return {"mean": float(np.mean(defined)), "sd": float(np.std(defined))}


def _print_table(rows: list[dict[str, Any]], metrics: Sequence[str]) -> None:
    header = ["table", "limit", "violated", "model", *(metric.replace("_", " ") for metric in metrics), "vs cotide"]
    lines = [header]
    for row in rows:
        limit, share = row["limit_milliseconds"], row["violated_share"]
        cells = [row["table"], "" if limit is None else f"{limit:g} ms", "" if share is None else f"{share:.0%}"]
        cells.append(row["model"])
        cells += [_cell(row["metrics"].get(metric)) for metric in metrics]
        cells.append(_cell(row["versus_cotide"], signed=True) if row["versus_cotide"] else "")
        lines.append(cells)
    if not any(line[1] for line in lines[1:]):
        lines = [[line[0], *line[3:]] for line in lines]
    widths = [max(len(line[index]) for line in lines) for index in range(len(lines[0]))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: dict[str, float] | None, *, signed: bool = False) -> str:
    if value is None:
        return "n/a"
    return f"{value['mean']:+.3f} ({value['sd']:.3f})" if signed else f"{value['mean']:.3f} ({value['sd']:.3f})"
