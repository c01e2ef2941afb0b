"""The ledger on disk: every event and instruction of this run, and the models that were in use.

Written by the loop (`entry`) and by the model store (`keep_model`). A ledger directory holds ``ledger.jsonl`` and
``models/<sha256>/``, so that `cotide replay` needs nothing else. A directory that already holds a ledger keeps it
under another name: a chain of hashes can't be continued by a process that did not see its beginning.

A full disk is no reason to stop scheduling::

    writing --the disk says no--> held (lines wait in memory) --there is space--> writing, nothing is missing
                                    `--more than `HELD_BYTES` wait--> ended: this run's ledger is a prefix

Invariant: lines are appended in the order of the engine's calls; what is on disk is always a readable prefix plus at
most one broken last line.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Final

from cotide_core.config import SchedulerConfig
from cotide_core.errors import LedgerError
from cotide_core.events import Event
from cotide_core.instructions import Instruction
from cotide_core.recording.ledger import LedgerWriter
from cotide_operator.observability.metrics import Metrics

_LOG = logging.getLogger(__name__)

LEDGER_NAME: Final = "ledger.jsonl"
MODELS_NAME: Final = "models"
_BUFFER_BYTES: Final = 1 << 20
HELD_BYTES: Final = 64 << 20
"""Most that waits in memory for a disk; chosen: minutes of a busy cluster, and a thirtieth of the memory limit in
deploy/."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class LedgerFile:
    """A ledger being written.

    Parameters
    ----------
    directory : Path
        Made when missing.
    config : SchedulerConfig
        Written into the header.
    metrics : Metrics, optional
        Told when lines wait or are lost.

    Raises
    ------
    LedgerError
        When the directory can't be written to, and not for want of space.
    """

    def __init__(self, directory: Path, config: SchedulerConfig, metrics: Metrics | None = None) -> None:
        self.directory = directory
        self._metrics = metrics or Metrics()
        self._config = config
        self._writer = LedgerWriter(config)
        self._held = bytearray(self._writer.header())
        self._models: dict[str, Mapping[str, bytes]] = {}
        self._file: FileIO | None = None
        self._ended = False
        self.trouble = ""
        """Why nothing is written, in one sentence; empty while all is well."""
        try:
            self._open()
        except OSError as error:
            if error.errno not in _FULL:
                raise self._unwritable(error) from error
            self._stop(error)

    def entry(self, now: float, events: Sequence[Event], instructions: Sequence[Instruction]) -> None:
        """Append one call of the engine; never raises."""
        if self._ended:
            self._metrics.ledger_lost.inc()
            return
        line = self._writer.entry(now, events, instructions)
        if len(self._held) + len(line) > HELD_BYTES:
            self._end()
            return
        self._held += line
        if len(self._held) >= _BUFFER_BYTES and not self.trouble:
            self.flush()

    def renew(self) -> None:
        """Keep what was written under another name and begin a new ledger: a new engine follows; never raises."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None
        self._writer = LedgerWriter(self._config)
        self._held = bytearray(self._writer.header())
        self._ended = False
        self.flush()

    def keep_model(self, model_id: str, files: Mapping[str, bytes]) -> None:
        """Copy a model's files beside the ledger, under its id; while the disk says no they wait."""
        if not (self.directory / MODELS_NAME / model_id).exists():
            self._models[model_id] = files
            self.flush()

    def flush(self) -> None:
        """Hand what waits to the operating system; what the disk does not take waits on."""
        try:
            if self._file is None:
                self._open()
            self._write()
            for model_id in list(self._models):
                write_files(self.directory / MODELS_NAME / model_id, self._models[model_id])
                del self._models[model_id]
        except OSError as error:
            self._stop(error)
            return
        if self.trouble and not self._ended:
            self.trouble = ""
            self._metrics.ledger_stopped.set(0)
            _LOG.info("the ledger in %s is written again, nothing is missing", self.directory)

    def close(self) -> None:
        """Write what can be written and close."""
        self.flush()
        if self._held and not self._ended:
            _LOG.error("the ledger in %s ends early: %d bytes were not written", self.directory, len(self._held))
        if self._file is not None:
            self._file.close()

    def _open(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        _rename_earlier(self.directory)
        # Without a buffer of its own: what was taken is known to the byte, so that writing goes on in the middle of a
        # line.
        self._file = FileIO(self.directory / LEDGER_NAME, "w")

    def _write(self) -> None:
        while self._held and self._file is not None:
            written = self._file.write(memoryview(self._held)[:_BUFFER_BYTES].tobytes())
            del self._held[: written or 0]

    def _stop(self, error: OSError) -> None:
        if not self.trouble:
            self.trouble = str(self._unwritable(error))
            self._metrics.ledger_stopped.set(1)
            _LOG.error("%s; scheduling goes on, and up to %d MiB wait for it", self.trouble, HELD_BYTES >> 20)

    def _end(self) -> None:
        """Give this run's ledger up: a chain with a hole can't be replayed."""
        self._ended = True
        self._held.clear()
        self._metrics.ledger_lost.inc()
        self.trouble = f"the ledger in {self.directory} ended: too much waited for its disk; a restart begins another"
        _LOG.error("%s", self.trouble)

    def _unwritable(self, error: OSError) -> LedgerError:
        return LedgerError(f"the ledger in {self.directory} can't be written: {error.strerror}")


def write_files(target: Path, files: Mapping[str, bytes], *, durable: bool = False) -> None:
    """Write a model's files so that a reader sees all of them or none: aside first, then one rename.

    Parameters
    ----------
    durable : whether a reader after a machine that lost its power sees so, too; waits for the disk, in a thread only.
    """
    aside = target.with_name(f".{target.name}.incoming")
    if aside.exists():
        shutil.rmtree(aside)
    aside.mkdir(parents=True)
    try:
        for name, content in files.items():
            (aside / name).write_bytes(content)
        if durable:  # else the rename may be on the disk before what the files hold
            for path in (*(aside / name for name in files), aside):
                _sync(path)
        aside.rename(target)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)  # half a model would take the space that is missing
        raise


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _rename_earlier(directory: Path) -> None:
    ledger = directory / LEDGER_NAME
    if not ledger.exists():
        return
    number = 1
    while (earlier := directory / f"ledger-{number}.jsonl").exists():
        number += 1
    ledger.rename(earlier)
