"""`OutcomeFile`: actions on nodes, and outcomes of predictions, as JSON lines next to the ledger.

The controllers of consolidation (``consolidation.jsonl``) and of provisioning (``provisioning.jsonl``) write it. One
operator after the other appends to it. It is no part of the ledger's chain, because the engine does not use it and a
replay does not produce it. So it may be cut, unlike the ledger::

    consolidation.jsonl --the next line would make it larger than `FILE_BYTES`--> consolidation-1.jsonl
                                                                                    (the old file of that name goes)

Invariants: it never raises, and counts a line that the disk does not take as lost. The two files together have at most
twice `FILE_BYTES`, and hold at least the latest `FILE_BYTES` of lines. When a process ends, at most its last line is
cut short, and the next process starts a new line.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any, Final

from cotide_operator.observability.metrics import Metrics

_LOG = logging.getLogger(__name__)
NAME: Final = "consolidation.jsonl"
PROVISIONING: Final = "provisioning.jsonl"
FILE_BYTES: Final = 16 << 20
"""Size of one file; chosen: provisioning writes some 200 bytes a minute, so that it lasts two months."""


class OutcomeFile:
    """Lines in a directory; without one they are dropped."""

    def __init__(self, directory: Path | None, metrics: Metrics, name: str = NAME) -> None:
        self._path = None if directory is None else directory / name
        self._metrics = metrics

    def note(self, line: Mapping[str, Any]) -> None:
        """Append one line."""
        if self._path is None:
            return
        # A lone surrogate, which JSON may hold, has no UTF-8; it is written as an escape.
        text = json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        try:
            _append(self._path, text)
        except OSError as error:
            self._metrics.ledger_lost.inc()
            _LOG.debug("%s can't be written: %s", self._path, error)


def _append(path: Path, line: bytes) -> None:
    if path.exists() and path.stat().st_size + len(line) > FILE_BYTES:
        path.replace(path.with_name(f"{path.stem}-1{path.suffix}"))
    with FileIO(path, "a+") as file:  # unbuffered: the number of written bytes is known exactly
        whole = file.tell()
        if whole:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # the writer was killed, or its machine lost power
                line = b"\n" + line
        if file.write(line) != len(line):
            file.truncate(whole)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
