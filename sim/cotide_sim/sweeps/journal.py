"""The journal of a sweep: every finished cell, written once and on the disk before the next is counted as finished.

Called by `sweep`. The one place with durable state. Lines of ``<crc32 in hex> <JSON>``: a head with schema and version,
then one outcome each. Invariant: what `Journal.outcomes` holds has survived whatever ended the process; a line that was
being written when it ended is noticed by its checksum or its missing line feed, cut off, and its cell run again. One
sweep at a time holds a journal (an advisory lock, gone with its process).
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from cotide_core.errors import InputError
from cotide_sim.sweeps.cells import Cell, Outcome

SCHEMA: Final = 1
"""Of the lines; a journal of another schema is refused."""


class Journal:
    """An open journal.

    Attributes
    ----------
    outcomes : by the cells' keys; of a cell that was run again after a failure, the latest.
    remarks : a sentence for each broken line that was found.

    Raises
    ------
    InputError
        When the file can't be opened, is no journal, was made by another version, or is in use by another sweep.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcomes: dict[str, Outcome] = {}
        self.remarks: list[str] = []
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise InputError(f"can't be opened: {error.strerror or error}", file=str(path)) from error
        try:
            self._lock()
            self._read()
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._descriptor)

    def add(self, outcome: Outcome) -> None:
        """Write an outcome; on return it is on the disk.

        Raises
        ------
        InputError
            When the disk refuses.
        """
        self._append({"key": outcome.cell.key, **asdict(outcome)})
        self.outcomes[outcome.cell.key] = outcome

    def check_traces(self, cells: list[Cell]) -> None:
        """Refuse a trace that is not the one which the journal has results of under the same name.

        Raises
        ------
        InputError
            Names the trace and both checksums.
        """
        known = {outcome.cell.trace: outcome.cell.trace_sha256 for outcome in self.outcomes.values()}
        for cell in cells:
            digest = known.setdefault(cell.trace, cell.trace_sha256)
            if digest != cell.trace_sha256:
                raise InputError(
                    f"holds results of another {cell.trace} (sha256 {digest[:12]}..., now "
                    f"{cell.trace_sha256[:12]}...); rename the trace or choose another output",
                    file=str(self.path),
                )

    def check_policies(self, cells: list[Cell]) -> None:
        """Refuse a policy's file that is not the one which the journal has results of under the same name.

        Raises
        ------
        InputError
            Names the policy and both checksums.
        """
        known = {outcome.cell.policy: outcome.cell.policy_sha256 for outcome in self.outcomes.values()}
        for cell in cells:
            digest = known.setdefault(cell.policy, cell.policy_sha256)
            if digest != cell.policy_sha256:
                then, now = (f"sha256 {one[:12]}..." if one else "one of ours" for one in (digest, cell.policy_sha256))
                raise InputError(
                    f"holds results of another policy {cell.policy} ({then}, now {now}): its file was changed; rename "
                    "it or choose another output",
                    file=str(self.path),
                )

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError("is in use by another sweep", file=str(self.path)) from error

    def _read(self) -> None:
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        lines = data[:whole].split(b"\n")[:-1]
        head = _parsed(lines[0]) if lines else None
        if lines and (head is None or "sweep" not in head):
            raise InputError("is no journal of a sweep; choose another output", file=str(self.path))
        if not lines and data and not _line({"sweep": SCHEMA, "version": version("cotide")}).startswith(data):
            raise InputError("is no journal of a sweep; choose another output", file=str(self.path))
        if head is not None and (head["sweep"] != SCHEMA or head["version"] != version("cotide")):
            raise InputError(
                f"was made by cotide {head['version']}, whose results need not be those of {version('cotide')}; "
                "choose another output",
                file=str(self.path),
            )
        for number, line in enumerate(lines[1:], start=2):
            record = _parsed(line)
            if record is None:
                self.remarks.append(f"{self.path}:{number}: broken line, its cell is run again")
                continue
            outcome = _outcome(record)
            self.outcomes[outcome.cell.key] = outcome
        if whole < len(data):
            self.remarks.append(f"{self.path}:{len(lines) + 1}: half-written line cut off, its cell is run again")
            os.ftruncate(self._descriptor, whole)
        if not lines:
            self._append({"sweep": SCHEMA, "version": version("cotide")})
            _sync_directory(self.path.parent)

    def _append(self, record: dict[str, Any]) -> None:
        data = _line(record)
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
            os.fsync(self._descriptor)
        except OSError as error:
            raise InputError(f"can't be written: {error.strerror or error}", file=str(self.path)) from error


def _line(record: dict[str, Any]) -> bytes:
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parsed(line: bytes) -> dict[str, Any] | None:
    checksum, _, text = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        return None
    record: dict[str, Any] = json.loads(text)
    return record


def _outcome(record: dict[str, Any]) -> Outcome:
    figures = {name: (value, low, high) for name, (value, low, high) in record["figures"].items()}
    return Outcome(
        Cell(**record["cell"]), record["processors"], record["jobs"], figures, record["error"], record["wall_seconds"]
    )


def _sync_directory(directory: Path) -> None:
    """Make the file's name durable too, not only its content."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
