"""`cotide replay`: run a recorded ledger through the engine and compare every instruction.

Called by `main`. Reads ``ledger.jsonl`` and, as the ledger names them, the model files next to it; the comparison
itself is `cotide_core.recording.replay`. Exit 0 when everything was reproduced, 1 at the first difference, a missing or
broken model included.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from cotide_cli.inputs.ledger_input import ledger_file, ledger_lines
from cotide_cli.printing import as_text, output_option
from cotide_core.errors import InputError, ModelError
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.forecasts import CompletionForecaster, QosForecaster
from cotide_core.recording.replay import ReplayResult, replay

MODELS_NAME: Final = "models"
PROGRESS_CYCLES: Final = 5_000
"""Cycles between two lines of progress (chosen: a few seconds apart)."""


class ModelDirectory:
    """The models next to a ledger, loaded when the engine first asks for one.

    Parameters
    ----------
    directory : holds one directory per model, named by its sha256.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._heuristics = HeuristicCatalogue()
        self._loaded: dict[str, QosForecaster | CompletionForecaster] = {}

    def qos(self, model_id: str) -> QosForecaster:
        """Return the QoS model of this id; the heuristic for an empty one."""
        if model_id in ("", "heuristic"):
            return self._heuristics.qos(model_id)
        model = self._model(model_id)
        if not isinstance(model, QosForecaster):
            raise ModelError(f"{self._directory / model_id}: the ledger names it as a QoS model, which it is not")
        return model

    def completion(self, model_id: str) -> CompletionForecaster:
        """Return the completion model of this id; the heuristic for an empty one."""
        if model_id in ("", "heuristic"):
            return self._heuristics.completion(model_id)
        model = self._model(model_id)
        if not isinstance(model, CompletionForecaster):
            raise ModelError(
                f"{self._directory / model_id}: the ledger names it as a completion model, which it is not"
            )
        return model

    def _model(self, model_id: str) -> QosForecaster | CompletionForecaster:
        if model_id not in self._loaded:
            self._loaded[model_id] = self._load(model_id)
        return self._loaded[model_id]

    def _load(self, model_id: str) -> QosForecaster | CompletionForecaster:
        from cotide_predictors import serialisation

        if not model_id.isalnum():
            raise ModelError(f"the ledger names a model {model_id!r}, which is no sha256")
        directory = self._directory / model_id
        try:
            files = {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}
        except OSError as error:
            raise ModelError(
                f"{directory}: the ledger names this model, but it can't be read: {error.strerror}"
            ) from error
        try:
            found = serialisation.model_id(files)
            if found != model_id:
                raise ModelError(f"its files have the sha256 {found[:12]}...: they were changed or belong elsewhere")
            return serialisation.from_files(files)
        except ModelError as error:
            raise ModelError(f"{directory}: {error}") from error


@click.command()
@click.argument("ledger", type=click.Path(path_type=Path))
@output_option
def command(ledger: Path, output: str) -> int:
    """Run the recorded LEDGER (a directory or its ledger.jsonl) through the engine and compare.

    Prints the number of exactly reproduced cycles and instructions. At the first difference it prints the line, the
    expected and the actual instruction, and exits with 1.
    """
    file = ledger_file(ledger)
    with ledger_lines(file) as lines:
        result = replay(lines, ModelDirectory(file.parent / MODELS_NAME), on_cycle=_progress)
    if not result.begun:
        raise InputError(str(result.difference), file=str(file))
    click.echo(_as_table(result) if output == "table" else as_text(_as_data(result), output))
    if result.difference is not None:
        click.echo(f"cotide: {file}: {result.difference}", err=True)
        return 1
    return 0


def _progress(cycles: int) -> None:
    if cycles % PROGRESS_CYCLES == 0:
        click.echo(f"{cycles:,} cycles reproduced so far", err=True)


def _as_data(result: ReplayResult) -> dict[str, object]:
    return {
        "reproduced": result.difference is None,
        "cycles": result.cycles,
        "instructions": result.instructions,
        "difference": result.difference,
    }


def _as_table(result: ReplayResult) -> str:
    outcome = "every instruction reproduced" if result.difference is None else "the replay differs"
    rows = [("cycles", f"{result.cycles:,}"), ("instructions", f"{result.instructions:,}"), ("outcome", outcome)]
    return "\n".join(f"{name:<14}{value}" for name, value in rows)
