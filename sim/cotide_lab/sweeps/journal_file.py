"""Records written one by one, each on the disk before the next is counted: the durable state of sweeps and of the lab.

Called by `journal` and by the lab's. Lines of ``<crc32 in hex> <JSON>``: a head with kind, schema and version, then one
record each. Invariants: a record that was read back has survived every end of the process. A line that was cut off by
such an end shows by its checksum or its missing line feed, and is removed. One process at a time holds a journal (an
advisory lock, gone with its process).
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import zlib
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from cotide_core.errors import InputError

SCHEMA: Final = 1
"""Of the lines; a journal of another schema is refused."""


class JournalFile:
    """An open file of records.

    Parameters
    ----------
    kind : ``sweep`` or ``lab``, as required in the head.

    Attributes
    ----------
    records : those that the file held when it was opened, in order.
    remarks : a sentence for each broken line that was found.

    Raises
    ------
    InputError
        When the file can't be opened, is no such journal, was made by another version, or is in use by another process.
    """

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.kind = path, kind
        self.records: list[dict[str, Any]] = []
        self.remarks: list[str] = []
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise InputError(f"can't be opened: {error.strerror or error}", file=str(path)) from error
        try:
            if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                raise InputError("is no file, but a device or a pipe; name a file", file=str(path))
            self._lock()
            self._read()
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._descriptor)

    def append(self, record: dict[str, Any]) -> None:
        """Write a record; on return it is on the disk.

        Raises
        ------
        InputError
            When the disk refuses.
        """
        data = _line(record)
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
            os.fsync(self._descriptor)
        except OSError as error:
            raise InputError(f"can't be written: {error.strerror or error}", file=str(self.path)) from error

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"is in use by another {self.kind}", file=str(self.path)) from error

    def _read(self) -> None:
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        lines = data[:whole].split(b"\n")[:-1]
        head = _parsed(lines[0]) if lines else None
        ours = {self.kind: SCHEMA, "version": version("cotide")}
        if (lines and (head is None or self.kind not in head)) or (
            not lines and data and not _line(ours).startswith(data)
        ):
            raise InputError(f"is no journal of a {self.kind}; choose another output", file=str(self.path))
        if head is not None and head != ours:
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
            self.records.append(record)
        if whole < len(data):
            self.remarks.append(f"{self.path}:{len(lines) + 1}: half-written line cut off, its cell is run again")
            os.ftruncate(self._descriptor, whole)
        if not lines:
            self.append(ours)
            _sync_directory(self.path.parent)


def _line(record: dict[str, Any]) -> bytes:
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parsed(line: bytes) -> dict[str, Any] | None:
    checksum, _, text = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        return None
    record: dict[str, Any] = json.loads(text)
    return record


def _sync_directory(directory: Path) -> None:
    """Make the file's name durable too, not only its content."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
