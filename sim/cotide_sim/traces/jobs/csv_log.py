"""Rows of a CSV trace as rows of a batch log, with a fault for each that is broken.

Called by the readers of public traces for `cotide simulate`. First step of the flow: text to values. Invariant: every
line of the file is a row or a fault with its line; rows keep file order.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TextIO

import numpy as np

from cotide_core.errors import InputError
from cotide_core.units import counted
from cotide_files.bounded_text import MAX_LOG, bounded_lines
from cotide_files.rows import Row
from cotide_sim.traces.compressed import DAMAGED, open_bytes
from cotide_sim.traces.jobs.swf import Field, OnBad, SwfLog
from cotide_sim.traces.jobs.swf_rows import COLUMNS, Fault

UNKNOWN: Final = -1.0
"""What the Standard Workload Format writes for a value that is not known."""
NAMES_READ: Final = 4096
"""Characters of a first line that decide the format; chosen."""
BLANKS_READ: Final = 10_000
"""Blank lines before it that are passed over; chosen."""

Values = Mapping[Field, float]


@dataclass(frozen=True, slots=True)
class CsvTrace:
    """How one format is read.

    Attributes
    ----------
    what : what the file is, for messages.
    columns : names that the header must hold, among others.
    bare_columns : all columns in order, for files of the format that come without a header; empty where none do.
    job_of : the fields of a row; raises `InputError` where a cell is wrong. Fields not named are unknown.
    identity_of : what a job is known by; two rows of one identity are one job twice.
    """

    what: str
    columns: tuple[str, ...]
    job_of: Callable[[Row], Values]
    identity_of: Callable[[Row], str]
    bare_columns: tuple[str, ...] = ()

    def read(self, path: Path, on_bad: OnBad, header: Sequence[tuple[str, str]]) -> SwfLog:
        """Read a file; ``header`` becomes the log's.

        Raises
        ------
        InputError
            When the file can't be read or holds no job, or at the first fault where ``on_bad`` is ``fail``.
        """
        file = str(path)
        table: list[list[float]] = []
        lines: list[int] = []
        faults: list[Fault] = []
        numbers: dict[str, int] = {}
        for found in self._rows(path):
            fault = found if isinstance(found, Fault) else None
            if isinstance(found, Row):
                try:
                    values = self.job_of(found)
                except InputError as error:
                    fault = Fault(found.line, str(error).removeprefix(f"{file}:{found.line}: "))
                else:
                    row = [UNKNOWN] * COLUMNS
                    for field, value in values.items():
                        row[field] = value
                    row[Field.JOB] = numbers.setdefault(self.identity_of(found), len(numbers) + 1)
                    table.append(row)
                    lines.append(found.line)
            if fault is not None:
                if on_bad == "fail":
                    raise InputError(fault.message, file=file, line=fault.line)
                faults.append(fault)
        if not table:
            reason = f": {faults[0].message} (line {faults[0].line})" if faults else ""
            raise InputError(f"holds no job{reason}", file=file)
        return from_first_submission(
            SwfLog(file, tuple(header), np.array(table), np.array(lines, dtype=np.int64), tuple(faults))
        )

    def _rows(self, path: Path) -> Iterator[Row | Fault]:
        file = str(path)
        line = 0
        try:
            with open_text(path) as stream:
                reader = csv.reader(bounded_lines(stream, file, MAX_LOG))
                first = [cell.strip() for cell in next(reader, [])]
                line = reader.line_num
                names = first
                if self._is_bare(first):
                    names = list(self.bare_columns)
                    yield Row(file, 1, first, {name: index for index, name in enumerate(names)})
                for name in self.columns:
                    if name not in names:
                        raise InputError(f"the header lacks column {name!r} of the {self.what}", file=file, line=1)
                    if names.count(name) > 1:
                        raise InputError("the header names this column more than once", file=file, line=1, field=name)
                indices = {name: names.index(name) for name in self.columns}
                for cells in reader:
                    line = reader.line_num
                    if not cells:
                        continue
                    if len(cells) != len(names):
                        yield Fault(line, f"{counted(len(cells), 'cell')} where the header has {len(names)}")
                    else:
                        yield Row(file, line, cells, indices)
        except DAMAGED as error:
            yield Fault(line + 1, f"the compressed file is damaged or cut off here ({error})")
        except OSError as error:
            raise InputError(f"can't be read: {error.strerror or error}", file=file) from error
        except (UnicodeDecodeError, csv.Error) as error:
            yield Fault(line + 1, f"is no CSV text from here on: {error}")

    def _is_bare(self, first: Sequence[str]) -> bool:
        """Return whether the first row is data: as many cells as the format has, and a number where names begin."""
        return len(first) == len(self.bare_columns) > 0 and first[0].lstrip("-").replace(".", "", 1).isdigit()


def from_first_submission(log: SwfLog) -> SwfLog:
    """Return the log with its clock at 0, in whole seconds, at the first submission, wherever the trace's zero lies."""
    log.table[:, Field.SUBMIT] -= np.floor(log.table[:, Field.SUBMIT].min())
    return log


def open_text(path: Path) -> TextIO:
    """Open a file as text, unpacked where it is packed; a byte order mark, as of a spreadsheet, is passed over."""
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", newline="")


def first_line(path: Path) -> str:
    """Return the beginning of the first line that is not blank; empty for an empty or a damaged file.

    Raises
    ------
    InputError
        When the file can't be read.
    """
    try:
        with open_text(path) as stream:
            for text in islice(iter(partial(stream.readline, NAMES_READ), ""), BLANKS_READ):
                if text.strip():
                    return text.strip()
    except (*DAMAGED, UnicodeDecodeError):
        return ""
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", file=str(path)) from error
    return ""
