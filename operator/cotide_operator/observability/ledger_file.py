"""The ledger on disk: every event and instruction of this run, and the models that were in use.

Written by the loop (`entry`) and by the model store (`keep_model`). A ledger directory holds ``ledger.jsonl`` and
``models/<sha256>/``, so that `cotide replay` needs nothing else. A directory that already holds a ledger keeps it
under another name: a chain of hashes can't be continued by a process that did not see its beginning.
Invariant: lines are appended in the order of the engine's calls; what is on disk is always a readable prefix plus at
most one broken last line.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cotide_core.config import SchedulerConfig
from cotide_core.errors import LedgerError
from cotide_core.events import Event
from cotide_core.instructions import Instruction
from cotide_core.ledger import LedgerWriter

LEDGER_NAME: Final = "ledger.jsonl"
MODELS_NAME: Final = "models"
_BUFFER_BYTES: Final = 1 << 20


class LedgerFile:
    """A ledger being written.

    Parameters
    ----------
    directory : Path
        Made when missing.
    config : SchedulerConfig
        Written into the header.

    Raises
    ------
    LedgerError
        When the directory can't be written to.
    """

    def __init__(self, directory: Path, config: SchedulerConfig) -> None:
        self.directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            _set_aside(directory)
            self._file = (directory / LEDGER_NAME).open("wb", buffering=_BUFFER_BYTES)
        except OSError as error:
            raise LedgerError(f"the ledger directory {directory} can't be written: {error.strerror}") from error
        self._writer = LedgerWriter(config)
        self._put(self._writer.header())

    def entry(self, now: float, events: Sequence[Event], instructions: Sequence[Instruction]) -> None:
        """Append one call of the engine."""
        self._put(self._writer.entry(now, events, instructions))

    def keep_model(self, model_id: str, files: Mapping[str, bytes]) -> None:
        """Copy a model's files beside the ledger, under its id."""
        target = self.directory / MODELS_NAME / model_id
        if target.exists():
            return
        try:
            write_files(target, files)
        except OSError as error:
            raise self._unwritable(error) from error

    def flush(self) -> None:
        """Hand what is buffered to the operating system."""
        try:
            self._file.flush()
        except OSError as error:
            raise self._unwritable(error) from error

    def close(self) -> None:
        """Write everything out and close."""
        try:
            self._file.close()
        except OSError as error:
            raise self._unwritable(error) from error

    def _put(self, line: bytes) -> None:
        try:
            self._file.write(line)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> LedgerError:
        return LedgerError(f"the ledger in {self.directory} can't be written: {error.strerror}")


def write_files(target: Path, files: Mapping[str, bytes]) -> None:
    """Write a model's files so that a reader sees all of them or none: aside first, then one rename."""
    aside = target.with_name(f".{target.name}.incoming")
    if aside.exists():
        shutil.rmtree(aside)
    aside.mkdir(parents=True)
    for name, content in files.items():
        (aside / name).write_bytes(content)
    aside.rename(target)


def _set_aside(directory: Path) -> None:
    ledger = directory / LEDGER_NAME
    if not ledger.exists():
        return
    number = 1
    while (earlier := directory / f"ledger-{number}.jsonl").exists():
        number += 1
    ledger.rename(earlier)
