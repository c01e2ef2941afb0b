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

from cotide_cli.inputs.checked_types import SEED
from cotide_cli.option_groups import GroupedCommand
from cotide_cli.printing import as_text, output_option
from cotide_core.errors import InputError, ModelError
from cotide_core.units import counted
from cotide_files.replacement import replace_file
from cotide_lab.inputs import training_data
from cotide_lab.inputs.sample_options import TABLE_LIMITS, SampleOptions, sample_options

LEAST_JOBS: Final = 10
"""Least number of finished jobs for learning run times (chosen)."""


@click.command("train", cls=GroupedCommand)
@click.argument("predictor", type=click.Choice(["qos", "completion"]))
@sample_options("Which tables of --data.", "p95 limits to learn for; default: by table or samples.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Model directory to write."
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of everything random.")
@output_option
def command(predictor: str, source: SampleOptions, out: Path, seed: int, output: str) -> None:
    """Train the QoS or the completion predictor from --data, --samples or --ledger."""
    source = source.checked()
    if predictor == "completion" and source.limits is not None:
        raise click.UsageError("--limit-ms is about the QoS predictor; run times have no limit")
    click.echo("reading samples ...", err=True)
    files = _qos_files(source, seed) if predictor == "qos" else _completion_files(source, seed)
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
        replace_file(directory / name, files[name])


def _qos_files(source: SampleOptions, seed: int) -> dict[str, bytes]:
    from cotide_predictors.qos.qos_model import train_qos
    from cotide_predictors.serialisation import to_files

    limits = source.limits
    if source.data is not None:
        found = training_data.qos_from_tables(source.data, source.table)
        limits = limits or TABLE_LIMITS[source.table]
    elif source.samples is not None:
        found = training_data.qos_from_csv(source.samples)
    else:
        assert source.ledger is not None  # noqa: S101  the caller counted the sources
        found, _ = training_data.from_ledger(source.ledger)
    click.echo(f"training on {counted(len(found.mixes), 'mix', 'mixes')} ...", err=True)
    return to_files(train_qos(found, limits_milliseconds=limits or (), random_state=seed))


def _completion_files(source: SampleOptions, seed: int) -> dict[str, bytes]:
    from cotide_predictors.completion.completion_model import train_completion
    from cotide_predictors.serialisation import to_files

    if source.data is not None:
        if source.table not in ("grid", "parsec", "all"):
            raise click.UsageError(f"--table {source.table} has no run times; grid, parsec and all have")
        found = training_data.completion_from_tables(source.data, source.table, lone_runs=True)
    elif source.samples is not None:
        found = training_data.completion_from_csv(source.samples)
    else:
        assert source.ledger is not None  # noqa: S101  the caller counted the sources
        _, found = training_data.from_ledger(source.ledger)
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
