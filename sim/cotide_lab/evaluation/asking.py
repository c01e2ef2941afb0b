"""The request to `cotide evaluate`: its options and sources, and the check for contradictions.

Called by `evaluate_command`. Invariant: an impossible request is refused before anything is trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from cotide_core.errors import ModelError
from cotide_core.units import counted
from cotide_lab.inputs.sample_options import SampleOptions

MODEL_FILES_MAX: Final = 16
"""A model directory holds two files; with many more it is another kind of directory (chosen)."""
SHARES: Final = (0.125, 0.25, 0.5, 1.0)
"""Shares of the training cells of a learning curve (chosen: doubled each time)."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The options, named as on the command line."""

    predictor: str
    table: str
    limits: tuple[float, ...] | None
    splits: int
    split_by: str
    seed: int
    unseen: bool
    learning_curve: bool
    reliability: bool

    @property
    def shares(self) -> tuple[float, ...]:
        """Return the shares of the training cells that models learn from."""
        return SHARES if self.learning_curve else (1.0,)


def check(asked: Asked, source: SampleOptions, model: Path | None) -> None:
    """Refuse contradicting options, with `click.UsageError`."""
    if asked.predictor == "completion" and asked.limits is not None:
        raise click.UsageError("--limits is about the QoS predictor; run times have no limit")
    if asked.predictor == "completion" and (asked.unseen or asked.reliability):
        raise click.UsageError("--unseen, --reliability and --page are about the QoS predictor")
    if asked.unseen and source.data is None:
        raise click.UsageError("--unseen is for the measured tables of --data")
    if model is not None and (asked.unseen or asked.learning_curve):
        raise click.UsageError("--model trains nothing: no --unseen and no --learning-curve with it")
    if asked.unseen and asked.learning_curve:
        raise click.UsageError("--unseen learns from all other tables: no --learning-curve with it")


def read_model(directory: Path) -> Any:
    """Return the model of a directory; `ModelError` in one sentence when it is missing, broken or of another kind."""
    from cotide_predictors.serialisation import from_files

    try:
        paths = [path for path in directory.iterdir() if path.is_file() and not path.name.startswith(".")]
        if len(paths) > MODEL_FILES_MAX:
            raise ModelError(f"{directory} holds {counted(len(paths), 'file')}, which is not a model")
        files = {path.name: path.read_bytes() for path in paths}
    except OSError as error:
        raise ModelError(f"{directory} can't be read: {error.strerror or error}") from error
    try:
        return from_files(files)
    except ModelError as error:
        raise ModelError(f"{directory}: {error}") from error
