"""The ledger on disk: every event and instruction of this run, and the models that were in use.

The loop (`entry`) and the model store (`keep_model`) write it. A ledger directory holds ``ledger.jsonl`` and
``models/<sha256>/``, so that `cotide replay` needs nothing else. An existing ledger in the directory gets another name:
a process that did not see the beginning of a chain of hashes can't continue it.

A full disk is no reason to stop scheduling::

    writing --the disk refuses--> held (lines wait in memory) --there is space--> writing, nothing is missing
                                    `--more than `HELD_BYTES` wait--> ended: this run's ledger is a prefix

Invariant: lines are appended in the order of the engine's calls; the disk always holds a readable prefix plus at most
one broken last line.
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
"""Most bytes that wait in memory for a disk; chosen: minutes of a busy cluster, and a thirtieth of the memory limit in
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
        Counts lines that wait or are lost.

    Raises
    ------
    LedgerError
        When the directory is not writable, for another reason than a full disk.
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
        """Why nothing is written, in one sentence; empty without a fault."""
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
        """Rename the present ledger and begin a new one: a new engine follows; never raises."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None
        self._writer = LedgerWriter(self._config)
        self._held = bytearray(self._writer.header())
        self._ended = False
        self.flush()

    def keep_model(self, model_id: str, files: Mapping[str, bytes]) -> None:
        """Copy a model's files next to the ledger, under its id; while the disk refuses they wait."""
        if not (self.directory / MODELS_NAME / model_id).exists():
            self._models[model_id] = files
            self.flush()

    def flush(self) -> None:
        """Hand waiting lines to the operating system; lines that the disk refuses go on waiting."""
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
        """Write the waiting lines if possible, and close."""
        self.flush()
        if self._held and not self._ended:
            _LOG.error("the ledger in %s ends early: %d bytes were not written", self.directory, len(self._held))
        if self._file is not None:
            self._file.close()

    def _open(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        _rename_earlier(self.directory)
        # Without a buffer of its own: the written bytes are known exactly, so that writing continues in the middle of a
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
            _LOG.error("%s; scheduling continues, and up to %d MiB wait for it", self.trouble, HELD_BYTES >> 20)

    def _end(self) -> None:
        """End this run's ledger: a chain with a hole can't be replayed."""
        self._ended = True
        self._held.clear()
        self._metrics.ledger_lost.inc()
        self.trouble = f"the ledger in {self.directory} ended: too much waited for its disk; a restart begins another"
        _LOG.error("%s", self.trouble)

    def _unwritable(self, error: OSError) -> LedgerError:
        return LedgerError(f"the ledger in {self.directory} can't be written: {error.strerror}")


def write_files(target: Path, files: Mapping[str, bytes], *, durable: bool = False) -> None:
    """Write a model's files so that a reader sees all of them or none: to a new folder first, then one rename.

    Parameters
    ----------
    durable : whether this also holds after a power failure; waits for the disk, in a thread only.
    """
    incoming = target.with_name(f".{target.name}.incoming")
    if incoming.exists():
        shutil.rmtree(incoming)
    incoming.mkdir(parents=True)
    try:
        for name, content in files.items():
            (incoming / name).write_bytes(content)
        if durable:  # otherwise the rename may reach the disk before the content of the files
            for path in (*(incoming / name for name in files), incoming):
                _sync(path)
        incoming.rename(target)
    except OSError:
        shutil.rmtree(incoming, ignore_errors=True)  # half a model would take the missing space
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
