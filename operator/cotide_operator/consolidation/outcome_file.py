"""`OutcomeFile`: what was done to nodes, and what came of what was predicted, as JSON lines beside the ledger.

Written by `controller` (``consolidation.jsonl``), and by that of provisioning (``provisioning.jsonl``). It is appended
to by one operator after the other, and no part of the ledger's chain, since the engine has no part in it and a replay
does not make it anew. So it may be cut where the ledger may not::

    consolidation.jsonl --the next line would make it larger than `FILE_BYTES`--> consolidation-1.jsonl
                                                                                    (the one of that name goes)

Invariants: never raises, and what the disk does not take is counted as a lost line; the two files together have at most
twice `FILE_BYTES`, and the latest lines of as much as one; whenever a process ends, at most its last line is cut short,
and the next one begins a line of its own.
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
"""Of one file; chosen: provisioning writes some 200 bytes a minute, so that it is two months."""


class OutcomeFile:
    """Lines in a directory; without one they are dropped."""

    def __init__(self, directory: Path | None, metrics: Metrics, name: str = NAME) -> None:
        self._path = None if directory is None else directory / name
        self._metrics = metrics

    def note(self, line: Mapping[str, Any]) -> None:
        """Append one line."""
        if self._path is None:
            return
        # Half a character outside the basic plane, which JSON may hold, has no UTF-8; written as an escape it stays.
        text = json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        try:
            _append(self._path, text)
        except OSError as error:
            self._metrics.ledger_lost.inc()
            _LOG.debug("%s takes nothing: %s", self._path, error)


def _append(path: Path, line: bytes) -> None:
    if path.exists() and path.stat().st_size + len(line) > FILE_BYTES:
        path.replace(path.with_name(f"{path.stem}-1{path.suffix}"))
    with FileIO(path, "a+") as file:  # without a buffer of its own: what was taken is known to the byte
        whole = file.tell()
        if whole:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # whoever wrote it was killed, or its machine lost power
                line = b"\n" + line
        if file.write(line) != len(line):
            file.truncate(whole)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
