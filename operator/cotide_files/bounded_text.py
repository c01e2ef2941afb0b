"""The gate before every text file of the user's: its lines, as far as a file with an end may go, and no further.

Called by all readers of traces, samples and series, and by commands that read files of their own. A device, an open
pipe, or a packed file that unpacks to far more has no end. A reader of one line, or of the whole file, would take all
memory first. Invariant: no more than the bound is held, and what is beyond is refused with the file, the line and the
bound.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol, TypeVar

from cotide_core.errors import InputError

MAX_LINE: Final = 16 << 20
"""Bytes or characters of one line. Chosen: a row of the loads of 100,000 machines takes a megabyte."""
MAX_TABLE: Final = 1 << 30
"""Of a file that is held in memory. Chosen: 20 million rows of samples."""
MAX_LOG: Final = 4 << 30
"""Of a batch log. Chosen: ten times the largest of the public ones."""
MAX_LEDGER: Final = 1 << 40
MAX_LEDGER_LINE: Final = 256 << 20
"""Of a ledger, which is read line by line and never held. Chosen: a year of cycles; the first list of 50,000 pods."""
UNREAD: Final = "of which no more is read"


Text_co = TypeVar("Text_co", str, bytes, covariant=True)


class Readable(Protocol[Text_co]):
    """Any open file, of text or of bytes, packed or not."""

    def readline(self, size: int, /) -> Text_co:
        """Return the rest of the line, as much of it as was asked for at most; empty at the end."""
        ...


def bounded_lines(
    stream: Readable[Text_co], file: str, most: int = MAX_TABLE, line_most: int = MAX_LINE
) -> Iterator[Text_co]:
    """Yield the lines of a stream, each with its end.

    Parameters
    ----------
    file : its name in messages.
    most, line_most : bytes or characters, as the stream counts, of all lines and of each.

    Raises
    ------
    InputError
        At a line that is too long, or when there are too many.
    """
    read = number = 0
    while line := stream.readline(line_most + 1):
        number += 1
        read += len(line)
        check_size(len(line), line_most, f"{file}:{number}", "a line")
        check_size(read, most, file)
        yield line


def read_bounded(path: Path, most: int) -> bytes:
    """Return the whole of a small file.

    Raises
    ------
    InputError
        When it is larger.
    OSError
        When it can't be read.
    """
    with path.open("rb") as stream:
        found = stream.read(most + 1)
    check_size(len(found), most, str(path))
    return found


def checksum_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes.

    Raises
    ------
    InputError
        When it is none, but a device or a pipe: read again, it would be another.
    OSError
        When it can't be read.
    """
    with path.open("rb") as stream:
        if not stat.S_ISREG(path.stat().st_mode):
            words = "is no file: what is known by its checksum must be there to be read again, so write it to a file"
            raise InputError(words, file=str(path))
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_size(size: int, most: int, file: str, what: str = "") -> None:
    """Refuse a file that is too long.

    Parameters
    ----------
    what : that is as large; empty for the file itself.

    Raises
    ------
    InputError
        When it is larger than it may be.
    """
    if size > most:
        raise InputError(f"has {what and f'{what} of '}more than {_size(most)}, {UNREAD}", file=file)


def _size(amount: int) -> str:
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB")):
        if amount >= 1 << power:
            return f"{amount / (1 << power):g} {unit}"
    return f"{amount} bytes"
