"""Columns of a CSV file, checked as they are read: a broken row is named by file, line and column.

Called by the readers of this package that hold whole tables in memory (measurements, samples). First step of
the flow: text to arrays. Invariant: every column of a `Table` has one entry for each data row, numbers are
finite, and nothing is dropped or repaired silently.
"""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Floats
from cotide_core.units import counted
from cotide_files.bounded_text import bounded_lines


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of one file.

    Attributes
    ----------
    path : the file it came from.
    lines : (n,) line of each row in that file, from 1 (the header is line 1).
    numbers : numeric columns, each (n,) float64; an empty cell of a column read as optional is nan.
    texts : text columns, each n strings.
    """

    path: Path
    lines: tuple[int, ...]
    numbers: Mapping[str, Floats]
    texts: Mapping[str, tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.lines)


def read_table(
    path: Path,
    *,
    numbers: Sequence[str] = (),
    texts: Sequence[str] = (),
    optional: Sequence[str] = (),
    absent: Sequence[str] = (),
) -> Table:
    """Read the named columns of a CSV file with a header (plain, or gzip when the name ends in ``.gz``).

    Parameters
    ----------
    numbers : columns that must hold a finite number >= 0 in every row.
    texts : columns taken as they stand.
    optional : numeric columns in which a cell may be empty, which becomes nan.
    absent : text columns that a file may lack, which reads as empty cells.

    Raises
    ------
    InputError
        When the file is absent, empty or too large, a column is missing, a row has the wrong length, or a cell is not
        such a number. Names file, line and column.
    """
    rows: dict[str, list[float]] = {name: [] for name in (*numbers, *optional)}
    words: dict[str, list[str]] = {name: [] for name in (*texts, *absent)}
    lines: list[int] = []
    file = str(path)
    try:
        with _open(path) as stream:
            reader = csv.reader(bounded_lines(stream, file))
            header = [name.strip() for name in next(reader, [])]
            if not header:
                raise InputError("the file is empty: a header row was expected", file=file, line=1)
            present = [name for name in absent if name in header]
            indices = _indices(header, (*numbers, *optional, *texts, *present), file)
            for row in reader:
                if not row:
                    continue
                line = reader.line_num
                if len(row) != len(header):
                    raise InputError(
                        f"{counted(len(row), 'cell')} where the header has {len(header)}", file=file, line=line
                    )
                lines.append(line)
                for name, values in rows.items():
                    cell = row[indices[name]].strip()
                    values.append(_number(cell, name, file, line, may_be_empty=name in optional))
                for name, strings in words.items():
                    strings.append(row[indices[name]].strip() if name in indices else "")
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", file=file) from error
    except (UnicodeDecodeError, EOFError, zlib.error, csv.Error) as error:
        raise InputError(f"is no CSV text: {error}", file=file) from error
    if not lines:
        raise InputError("has a header and no rows", file=file, line=1)
    return Table(
        path=path,
        lines=tuple(lines),
        numbers={name: np.asarray(values, dtype=np.float64) for name, values in rows.items()},
        texts={name: tuple(strings) for name, strings in words.items()},
    )


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")  # a spreadsheet begins its file with a byte order mark


def _indices(header: list[str], wanted: Sequence[str], file: str) -> dict[str, int]:
    missing = [name for name in wanted if name not in header]
    if missing:
        raise InputError("the header lacks this column", file=file, line=1, field=missing[0])
    twice = [name for name in wanted if header.count(name) > 1]
    if twice:
        raise InputError("the header names this column more than once", file=file, line=1, field=twice[0])
    return {name: header.index(name) for name in wanted}


def _number(cell: str, name: str, file: str, line: int, *, may_be_empty: bool) -> float:
    if not cell and may_be_empty:
        return math.nan
    try:
        value = float(cell)
    except ValueError:
        raise InputError(f"{cell!r} is not a number", file=file, line=line, field=name) from None
    if not math.isfinite(value) or value < 0:
        raise InputError(f"{cell!r} is not a finite number >= 0", file=file, line=line, field=name)
    return value
