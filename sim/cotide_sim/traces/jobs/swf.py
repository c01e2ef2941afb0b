"""Reader of logs in the Standard Workload Format (SWF), plain or packed, in blocks.

Called by `replay` and by `cotide simulate`; `swf_cleaning` then makes jobs of the rows. First step of the flow.
Invariant: every line of the file is a row, a header comment or a reported fault; rows keep file order and values.

Format: the eighteen fields of version 2.2, as the Parallel Workloads Archive describes them; -1 stands for "not known".
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final, Literal

import numpy as np

from cotide_core.errors import InputError
from cotide_files.bounded_text import MAX_LINE, MAX_LOG, check_size
from cotide_sim.traces.compressed import DAMAGED, open_bytes
from cotide_sim.traces.jobs.swf_rows import COLUMNS, Fault, Lines, Table, parse_block

BLOCK_BYTES: Final = 4 << 20
"""Text parsed at a time; chosen, larger blocks are not faster."""

OnBad = Literal["fail", "skip"]


class Field(IntEnum):
    """The columns of a row; times are seconds, memory is kilobytes a processor."""

    JOB = 0
    SUBMIT = 1
    WAIT = 2
    RUN = 3
    ALLOCATED = 4
    CPU = 5
    MEMORY = 6
    REQUESTED = 7
    LIMIT = 8
    REQUESTED_MEMORY = 9
    STATUS = 10
    USER = 11
    GROUP = 12
    EXECUTABLE = 13
    QUEUE = 14
    PARTITION = 15
    PRECEDING = 16
    THINK = 17


@dataclass(frozen=True, slots=True)
class SwfLog:
    """A log as it stands in the file.

    Attributes
    ----------
    file : the name in messages.
    header : (name, value) of each ``; Name: value`` line, in order; other comments have an empty name.
    table : (n, 18) numbers, columns as in `Field`.
    lines : (n,) line numbers, from 1.
    faults : what was skipped, with its line.
    """

    file: str
    header: tuple[tuple[str, str], ...]
    table: Table
    lines: Lines
    faults: tuple[Fault, ...] = ()

    def value(self, name: str) -> str | None:
        """Return the first value of a header field, whatever the case of its name."""
        return next((value for key, value in self.header if key.lower() == name.lower()), None)

    @property
    def processors(self) -> int | None:
        """Return ``MaxProcs``, else ``MaxNodes``, else None; text behind the number is a remark."""
        for name in ("MaxProcs", "MaxNodes"):
            words = (self.value(name) or "").split()
            # Twenty digits are beyond any machine already, and Python refuses to read thousands of them.
            if words and words[0].isdecimal() and (found := int(words[0][:20])) > 0:
                return found
        return None


def read_swf(path: Path, *, on_bad: OnBad = "fail") -> SwfLog:
    """Read a log.

    Parameters
    ----------
    on_bad : at a broken row or a truncated file, ``fail``, or ``skip`` it and report it in ``faults``.

    Raises
    ------
    InputError
        When the file can't be read or holds no row, or at the first fault; names file and line.
    """
    tables: list[Table] = []
    lines: list[Lines] = []
    header: list[tuple[str, str]] = []
    faults: list[Fault] = []
    line = 1
    file = str(path)
    stream: Iterator[bytes | Fault] = _blocks(path)
    for data in stream:
        if isinstance(data, Fault):
            found_faults: tuple[Fault, ...] = (Fault(line, data.message),)
        else:
            # A spreadsheet begins its file with a byte order mark.
            block = parse_block(data.removeprefix(codecs.BOM_UTF8) if line == 1 else data, line)
            tables.append(block.table)
            lines.append(block.lines)
            header += [_header(text) for _, text in block.comments]
            found_faults = block.faults
            line += block.line_count
        if found_faults and on_bad == "fail":
            raise InputError(found_faults[0].message, file=file, line=found_faults[0].line)
        faults += found_faults
    table = np.concatenate(tables) if tables else np.empty((0, COLUMNS))
    if not len(table):
        reason = f": {faults[0].message} (line {faults[0].line})" if faults else ""
        raise InputError(f"holds no job{reason}", file=file)
    return SwfLog(file, tuple(header), table, np.concatenate(lines), tuple(faults))


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if colon and name.strip().isalnum():
        return name.strip(), value.strip()
    return "", text


def _blocks(path: Path) -> Iterator[bytes | Fault]:
    """Yield whole lines; a damaged end becomes a fault after the last whole line that could be read."""
    rest = b""
    parts: list[bytes] = []
    held = read = 0
    try:
        with open_bytes(path) as stream:
            # One step at a time: a longer read of a damaged file would lose what came before the damage.
            while data := stream.read1(BLOCK_BYTES):
                parts.append(data)
                held += len(data)
                read += len(data)
                check_size(read, MAX_LOG, str(path))
                if held >= BLOCK_BYTES:
                    whole, rest = _whole_lines(rest + b"".join(parts))
                    parts, held = [], 0
                    check_size(len(rest), MAX_LINE, str(path), "a line")
                    yield whole
    except DAMAGED as error:
        yield _whole_lines(rest + b"".join(parts))[0]
        yield Fault(0, f"the compressed file is damaged or cut off here ({error})")
        return
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", file=str(path)) from error
    yield rest + b"".join(parts)


def _whole_lines(data: bytes) -> tuple[bytes, bytes]:
    cut = data.rfind(b"\n") + 1
    return data[:cut], data[cut:]
