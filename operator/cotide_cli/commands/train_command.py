"""`cotide train`: fit a predictor to measured samples and write it as a model directory.

Called by `main`. The directory then goes to `cotide operator` (settings, ``models``) or to `cotide evaluate --model`.
Invariant: the manifest is written last, so that a directory that loads is whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from cotide_cli.inputs import training_data
from cotide_cli.printing import as_text, output_option
from cotide_core.errors import InputError, ModelError
from cotide_core.units import counted

TABLE_LIMITS: Final[dict[str, tuple[float, ...]]] = {
    "grid": (0.5, 1.0, 2.5, 5.0),
    "grid-once": (0.2, 0.5, 1.0, 2.5),
    "antagonists": (1.0, 1.5, 2.0, 2.5),
    "parsec": (0.6, 0.7, 0.8),
    "all": (0.5, 1.0, 2.0, 5.0),
}
"""Limits in ms where both kinds of rows occur in each measured table (chosen from the latencies' quantiles)."""


LEAST_JOBS: Final = 10
"""Finished jobs without which no run times are learned (chosen)."""


def parse_limits(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[float, ...] | None:
    """Return limits in milliseconds, sorted, as a user writes them: ``0.5,1,2``."""
    if value is None:
        return None
    try:
        limits = tuple(sorted({float(part) for part in value.split(",")}))
    except ValueError:
        message = f"{value!r} is not a list of milliseconds such as 0.5,1,2"
        raise click.BadParameter(message, ctx, param) from None
    if not all(0 < limit < float("inf") for limit in limits):
        raise click.BadParameter("every limit must be a finite number of milliseconds > 0", ctx, param)
    return limits


@click.command("train")
@click.argument("predictor", type=click.Choice(["qos", "completion"]))
@click.option("--data", type=click.Path(path_type=Path), help="Directory of the measured co-location tables.")
@click.option("--samples", type=click.Path(path_type=Path), help="CSV file of samples (docs/predictors.md).")
@click.option("--ledger", type=click.Path(path_type=Path), help="Directory of a recorded ledger.")
@click.option(
    "--table", type=click.Choice(list(TABLE_LIMITS)), default="all", show_default=True, help="Which tables of --data."
)
@click.option(
    "--limit-ms",
    "--limits",
    "limits",
    callback=parse_limits,
    metavar="MS,MS,...",
    help="p95 limits to learn for; default: by table or samples.",
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Model directory to write."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of everything random.")
@output_option
def command(
    predictor: str,
    data: Path | None,
    samples: Path | None,
    ledger: Path | None,
    table: str,
    limits: tuple[float, ...] | None,
    out: Path,
    seed: int,
    output: str,
) -> None:
    """Train the QoS or the completion predictor from --data, --samples or --ledger."""
    if sum(source is not None for source in (data, samples, ledger)) != 1:
        raise click.UsageError("give exactly one of --data, --samples and --ledger")
    if data is not None and data.is_file():
        data, samples = None, data
    if predictor == "completion" and limits is not None:
        raise click.UsageError("--limit-ms is about the QoS predictor; run times have no limit")
    click.echo("reading samples ...", err=True)
    files = (
        _qos_files(data, samples, ledger, table, limits, seed)
        if predictor == "qos"
        else _completion_files(data, samples, ledger, table, seed)
    )
    try:
        write_model(out, files)
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror or error}", file=str(out)) from error
    _report(out, files, output)


def write_model(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write a model's files, each by rename, the manifest last."""
    from cotide_predictors.persistence.model_files import MANIFEST

    directory.mkdir(parents=True, exist_ok=True)
    for name in sorted(files, key=lambda name: name == MANIFEST):
        aside = directory / f".{name}.new"
        aside.write_bytes(files[name])
        aside.replace(directory / name)


def _qos_files(
    data: Path | None,
    samples: Path | None,
    ledger: Path | None,
    table: str,
    limits: tuple[float, ...] | None,
    seed: int,
) -> dict[str, bytes]:
    from cotide_predictors.qos.qos_model import train_qos
    from cotide_predictors.serialisation import to_files

    if data is not None:
        found = training_data.qos_from_tables(data, table)
        limits = limits or TABLE_LIMITS[table]
    elif samples is not None:
        found = training_data.qos_from_csv(samples)
    else:
        assert ledger is not None  # noqa: S101  the caller counted the sources
        found, _ = training_data.from_ledger(ledger)
    click.echo(f"training on {counted(len(found.mixes), 'mix', 'mixes')} ...", err=True)
    return to_files(train_qos(found, limits_milliseconds=limits or (), random_state=seed))


def _completion_files(
    data: Path | None, samples: Path | None, ledger: Path | None, table: str, seed: int
) -> dict[str, bytes]:
    from cotide_predictors.completion.completion_model import train_completion
    from cotide_predictors.serialisation import to_files

    if data is not None:
        if table not in ("grid", "parsec", "all"):
            raise click.UsageError(f"--table {table} has no run times; grid, parsec and all have")
        found = training_data.completion_from_tables(data, table, lone_runs=True)
    elif samples is not None:
        found = training_data.completion_from_csv(samples)
    else:
        assert ledger is not None  # noqa: S101  the caller counted the sources
        _, found = training_data.from_ledger(ledger)
    click.echo(f"training on {counted(len(found.types), 'job')} ...", err=True)
    if len(found.types) < LEAST_JOBS:
        raise ModelError(
            f"{counted(len(found.types), 'finished job')}: too few to learn from, at least {LEAST_JOBS} are needed"
        )
    return to_files(train_completion(found, random_state=seed))


def _report(out: Path, files: Mapping[str, bytes], output: str) -> None:
    from cotide_predictors.persistence.model_files import MANIFEST, fingerprint

    manifest = json.loads(files[MANIFEST])
    training = manifest["training"]
    facts = {
        "kind": manifest["kind"],
        "model": fingerprint(files),
        "directory": str(out),
        "samples": training["samples"],
        "types": manifest["types"],
        "limits_milliseconds": training.get("limits_milliseconds", []),
        "services": manifest.get("by_service", {}),
        "metrics": manifest["metrics"],
        "bytes": sum(map(len, files.values())),
    }
    if output != "table":
        click.echo(as_text(facts, output))
        return
    click.echo(f"{facts['kind']} model {facts['model'][:12]} in {out}, {facts['bytes']} bytes")
    click.echo(
        f"  {counted(facts['samples'], 'sample')} of {counted(len(facts['types']), 'type')}: "
        + (", ".join(facts["types"]) or "none")
    )
    if facts["limits_milliseconds"]:
        click.echo(f"  limits {', '.join(f'{limit:g} ms' for limit in facts['limits_milliseconds'])}")
    for name, scores in facts["services"].items():
        labels = f"{scores['samples']:g} samples, {scores['violations']:g} over the limit"
        click.echo(f"  {name}: {labels}, held-out Brier {scores['held_out_brier']:.4f}")
    for name, value in facts["metrics"].items():
        click.echo(f"  {name.replace('_', ' ')} {value:.4f}")
