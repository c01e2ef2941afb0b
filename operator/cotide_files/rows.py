"""Rows of a large CSV file, one at a time: a broken row is named by file, line and column.

Called by the readers of long traces, which must not hold a file in memory (measured tables use `columns`). First
step of the flow: text to values. Invariant: rows come in file order, none is dropped or repaired silently; a
reader that stops early never reads the rest.
"""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from cotide_core.errors import InputError
from cotide_core.limits import MAX_EXACT_INT
from cotide_core.units import counted
from cotide_files.bounded_text import MAX_LOG, bounded_lines


class Row:
    """One row: cells by column name, each checked as it is read."""

    __slots__ = ("_cells", "_indices", "file", "line")

    def __init__(self, file: str, line: int, cells: list[str], indices: dict[str, int]) -> None:
        self.file, self.line = file, line
        self._cells, self._indices = cells, indices

    def text(self, column: str) -> str:
        """Return the cell without the space around it."""
        return self._cells[self._indices[column]].strip()

    def number(self, column: str, *, minimum: float = 0.0) -> float:
        """Return a finite number that is not below ``minimum``, and not beyond 2^53.

        Raises
        ------
        InputError
            Names file, line and column.
        """
        cell = self.text(column)
        try:
            value = float(cell)
        except ValueError:
            raise self.error(column, f"{cell!r} is not a number") from None
        if not math.isfinite(value) or value < minimum:
            bound = "a finite number" if minimum == -math.inf else f"a finite number >= {minimum:g}"
            raise self.error(column, f"{cell!r} is not {bound}")
        if abs(value) > MAX_EXACT_INT:  # nothing that is counted or timed; and a product of two of them is finite yet
            raise self.error(column, f"{cell!r} is beyond 2^53")
        return value

    def optional_number(self, column: str) -> float | None:
        """Return a number >= 0, or None for an empty cell."""
        return self.number(column) if self.text(column) else None

    def error(self, column: str, message: str) -> InputError:
        """Return the error that names this row."""
        return InputError(message, file=self.file, line=self.line, field=column)


def stream_rows(path: Path, columns: Sequence[str], *, what: str, most: int = MAX_LOG) -> Iterator[Row]:
    """Yield the rows of a CSV file with a header (gzip when the name ends in ``.gz``).

    Parameters
    ----------
    columns : names that the header must hold, among others.
    what : what the file is, for the message when it is missing (``Alibaba 2017 batch tasks``).
    most : most characters that are read of it.

    Raises
    ------
    InputError
        When the file is missing, unreadable or too large, the header lacks a column, or a row has another number of
        cells.
    """
    file = str(path)
    try:
        with _open(path) as stream:
            reader = csv.reader(bounded_lines(stream, file, most))
            header = [name.strip() for name in next(reader, [])]
            for name in columns:
                if name not in header:
                    raise InputError(f"the header lacks column {name!r} of the {what}", file=file, line=1)
                if header.count(name) > 1:
                    raise InputError("the header names this column more than once", file=file, line=1, field=name)
            indices = {name: header.index(name) for name in columns}
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    raise InputError(
                        f"{counted(len(cells), 'cell')} where the header has {len(header)}",
                        file=file,
                        line=reader.line_num,
                    )
                yield Row(file, reader.line_num, cells, indices)
    except FileNotFoundError:
        raise InputError(f"no such file, where the file of {what} was expected", file=file) from None
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", file=file) from error
    except (UnicodeDecodeError, EOFError, zlib.error, csv.Error) as error:
        raise InputError(f"is no CSV text: {error}", file=file) from error


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")  # a spreadsheet begins its file with a byte order mark
