"""A ledger on disk, for the commands that read one: its lines; other files are refused early.

Used by `cluster_input`, `replay_command` and `report_command`. Lines are read one by one, so the first one is checked
here. Otherwise a file without lines, or a device, would be read to its end, which may never come.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Final

from cotide_core.errors import InputError
from cotide_core.recording.ledger import NO_LEDGER
from cotide_files.bounded_text import MAX_LEDGER, MAX_LEDGER_LINE, bounded_lines

LEDGER_NAME: Final = "ledger.jsonl"
FIRST_BYTES: Final = 16 << 20
"""Limit of the first line, which holds the configuration. Chosen: a hundred times the longest one."""


def ledger_file(ledger: Path) -> Path:
    """Return the file of a ledger that is named by it or by its directory."""
    return ledger / LEDGER_NAME if ledger.is_dir() else ledger


@contextmanager
def ledger_lines(file: Path) -> Iterator[Iterator[bytes]]:
    """Open a ledger and yield its lines.

    Raises
    ------
    InputError
        When it can't be read, or its first line is not that of a ledger.
    """
    try:
        with file.open("rb") as opened:
            first = opened.readline(FIRST_BYTES)
            if len(first) == FIRST_BYTES:
                raise InputError(NO_LEDGER, file=str(file))
            yield chain([first] if first else [], bounded_lines(opened, str(file), MAX_LEDGER, MAX_LEDGER_LINE))
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", file=str(file)) from error
