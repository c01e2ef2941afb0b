"""SWIM's samples of Facebook's MapReduce logs: what jobs read, shuffled and wrote (Chen et al. 2011).

Called by `phases.swim_model`. First step of the flow: text to columns. A line is a job: name, submission and gap in
seconds, bytes of input, shuffle and output, by tabs, without a header. Invariant: a line is a job, in the file's order.

Source: SWIMProjectUCB/SWIM, workloadSuite, ``FB-2009_samples_24_times_1hr_0.tsv`` and ``FB-2010_...``.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Floats
from cotide_files.bounded_text import bounded_lines

FILES: Final = {
    "facebook-2009": "SWIM_FB-2009_samples_24_times_1hr_0.tsv",
    "facebook-2010": "SWIM_FB-2010_samples_24_times_1hr_0.tsv",
}
MACHINES: Final = {"facebook-2009": 600, "facebook-2010": 3000}
"""Of the clusters that were logged (SWIM's wiki, "Workloads repository")."""
_FIELDS: Final = ("submission", "gap", "input bytes", "shuffle bytes", "output bytes")
_CHARACTERS: Final = 32
_MAX_VALUE: Final = 2.0**53


@dataclass(frozen=True, slots=True, eq=False)
class SwimLog:
    """n jobs: ``submitted`` (n,) seconds, rising; bytes (n,)."""

    name: str
    submitted: Floats
    read_bytes: Floats
    shuffle_bytes: Floats
    written_bytes: Floats


def read_swim(path: Path, name: str) -> SwimLog:
    """Return a log.

    Raises
    ------
    InputError
        When the file is missing, empty or unreadable, a line has another number of fields, a number is invalid, or jobs
        are not in order of submission. Names file, line and field.
    """
    file = str(path)
    rows = []
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.reader(bounded_lines(stream, file), delimiter="\t", quoting=csv.QUOTE_NONE)
            for cells in reader:
                if len(cells) != 1 + len(_FIELDS):
                    raise InputError(f"{len(cells)} fields, not {1 + len(_FIELDS)}", file=file, line=reader.line_num)
                rows.append(
                    [
                        _number(cell, field, file, reader.line_num)
                        for cell, field in zip(cells[1:], _FIELDS, strict=True)
                    ]
                )
                if len(rows) > 1 and rows[-1][0] < rows[-2][0]:
                    raise InputError("comes before the line above", file=file, line=reader.line_num, field=_FIELDS[0])
    except FileNotFoundError:
        raise InputError("no such file: one of SWIM's samples was expected here", file=file) from None
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", file=file) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"is no text of tabs: {error}", file=file) from error
    if not rows:
        raise InputError("holds no job", file=file, line=1)
    submitted, _, read, shuffle, written = np.array(rows, np.float64).T
    return SwimLog(name, submitted, read, shuffle, written)


def _number(cell: str, field: str, file: str, line: int) -> float:
    try:
        value = float(cell) if len(cell) <= _CHARACTERS else math.nan
    except ValueError:
        value = math.nan
    if not 0 <= value <= _MAX_VALUE:
        raise InputError(f"{cell[:_CHARACTERS]!r} is no number from 0 to 2^53", file=file, line=line, field=field)
    return value
