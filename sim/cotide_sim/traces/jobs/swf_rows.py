"""Rows of the Standard Workload Format: a block of text to a table of numbers, and a sentence for each broken row.

Called by `swf` block by block. First step of the flow: bytes to values. A compiled scan takes the rows of eighteen
short decimal numbers. Every other line goes to `parse_row`, which alone decides and reports faults. Invariant: each
line of the block is a row, a comment, blank or a fault; none vanishes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.compiled import compiled, compiles
from cotide_core.limits import MAX_EXACT_INT
from cotide_core.units import counted

COLUMNS: Final = 18
"""Fields of a row (Standard Workload Format, version 2.2, of the Parallel Workloads Archive)."""
_WHOLE: Final = (1, 3, 12, 13)
"""Fields, from 1, that are taken as whole numbers as they stand: job, wait, user, group. Cleaning bounds the others."""
_SHORT: Final = 15
"""Most digits of a decimal fraction that is exact as one division of two float64 numbers."""

Table = npt.NDArray[np.float64]
Lines = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one line of a file; the line counts from 1."""

    line: int
    message: str


@dataclass(frozen=True, slots=True)
class Block:
    """What a block of lines held: (n, 18) numbers, the n lines they stand on, comments, faults."""

    table: Table
    lines: Lines
    comments: tuple[tuple[int, str], ...]
    faults: tuple[Fault, ...]
    line_count: int


def parse_row(text: str) -> list[float] | str:
    """Return the eighteen numbers of a row, or a sentence that describes its fault."""
    cells = text.split()
    if len(cells) != COLUMNS:
        return f"{counted(len(cells), 'field')} where the format has {COLUMNS}"
    row = []
    for index, cell in enumerate(cells, start=1):
        try:
            value = float(cell)
        except ValueError:
            return f"field {index}: {cell!r} is not a number"
        if not math.isfinite(value) or "_" in cell:
            return f"field {index}: {cell!r} is not a finite number"
        if index in _WHOLE and abs(value) > MAX_EXACT_INT:  # not distinguishable from its neighbours
            return f"field {index}: {cell!r} is beyond 2^53"
        row.append(value)
    return row


def parse_block(data: bytes, first_line: int) -> Block:
    """Parse whole lines; the block's first line is ``first_line`` of the file."""
    count = data.count(b"\n") + (0 if data.endswith(b"\n") or not data else 1)
    table = np.empty((count, COLUMNS), dtype=np.float64)
    starts = np.empty(count + 1, dtype=np.int64)
    kinds = np.zeros(count, dtype=np.int8)
    if compiles():
        _scan(np.frombuffer(data, dtype=np.uint8), table, starts, kinds)
    else:
        starts[0] = 0
        for index, line in enumerate(data.splitlines(keepends=True) if b"\r" not in data else _lines(data)):
            starts[index + 1] = starts[index] + len(line)
            kinds[index] = _ODD
    comments: list[tuple[int, str]] = []
    faults: list[Fault] = []
    for index in np.flatnonzero(kinds == _ODD).tolist():
        text = data[starts[index] : starts[index + 1]].decode("utf-8", errors="replace").strip()
        if not text:
            continue
        if text.startswith(";"):
            comments.append((first_line + index, text[1:].strip()))
            continue
        row = parse_row(text)
        if isinstance(row, str):
            faults.append(Fault(first_line + index, row))
        else:
            table[index] = row
            kinds[index] = _ROW
    kept = np.flatnonzero(kinds == _ROW)
    return Block(table[kept], kept + first_line, tuple(comments), tuple(faults), count)


_ROW: Final = 1
_ODD: Final = 2


def _lines(data: bytes) -> list[bytes]:
    """Split at line feeds only, as the compiled scan does."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


@compiled
def _scan(data: npt.NDArray[np.uint8], table: Table, starts: Lines, kinds: npt.NDArray[np.int8]) -> int:
    """Fill the table with the plain rows and mark the other lines as odd; return the number of lines."""
    size = data.shape[0]
    index = 0
    line = 0
    while index < size:
        starts[line] = index
        column = 0
        plain = True
        while index < size and data[index] != 10:
            character = data[index]
            if character in (32, 9, 13):
                index += 1
                continue
            negative = character == 45
            if negative:
                index += 1
            mantissa = 0
            digits = 0
            scale = 1.0
            fraction = False
            while index < size:
                character = data[index]
                if 48 <= character <= 57:
                    mantissa = mantissa * 10 + (character - 48)
                    digits += 1
                    if fraction:
                        scale *= 10.0
                    if digits > _SHORT:  # too long to be exact: left to the slow parser
                        break
                elif character == 46 and not fraction:
                    fraction = True
                else:
                    break
                index += 1
            ended = index == size or data[index] in (32, 9, 10, 13)
            if digits == 0 or not ended or column == COLUMNS:
                plain = False
                while index < size and data[index] != 10:
                    index += 1
                break
            value = float(mantissa) / scale
            table[line, column] = -value if negative else value
            column += 1
        kinds[line] = _ROW if plain and column == COLUMNS else _ODD
        index += 1
        line += 1
    starts[line] = size
    return line
