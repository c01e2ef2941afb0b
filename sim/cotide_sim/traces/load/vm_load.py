"""Readers of virtual machines' cpu: Azure 2017 (mean and maximum in five minutes) and PlanetLab 2011 (days of 288).

Called by `experiments.host_load.forecasts`. A PlanetLab row is one machine on one day; days are not consecutive and
names may come again, so each row is a series of its own. Invariant: one value for each slot of a row, in percent
divided by 100.
"""

from __future__ import annotations

import csv
import zlib
from pathlib import Path
from typing import Final, Literal

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Floats
from cotide_files.bounded_text import bounded_lines
from cotide_sim.traces.load.load_series import PERCENT, LoadSeries, file_of, open_text

AZURE_FILE: Final = "vm/azure2017_vm_cpu_{kind}_70vms_300s.csv.gz"
PLANETLAB_FILE: Final = "vm/planetlab2011_vm_cpu_percent_6days_300s.csv.gz"
AZURE_PATTERN: Final = "vm/azure2017_vm_cpu_{kind}*.csv*"
PLANETLAB_PATTERN: Final = "vm/planetlab2011_vm_cpu*.csv*"
PLANETLAB_SLOTS: Final = 288


def read_azure_cpu(source: Path, kind: Literal["avg", "max"]) -> LoadSeries:
    """Return the machines' cpu: the first row names them, each further row is a slot that starts with its time.

    ``source``: the file, or a data directory.

    Raises
    ------
    InputError
        When the file is missing or a row is broken; names file and line.
    """
    path = file_of(source, AZURE_FILE.format(kind=kind), AZURE_PATTERN.format(kind=kind))
    rows = _rows(path)
    if len(rows) < 2 or len(rows[0]) < 2:
        raise InputError("has no rows below a header of machines", file=str(path), line=1)
    load = np.stack([_numbers(path, line, cells[1:], len(rows[0]) - 1) for line, cells in enumerate(rows[1:], 2)])
    return LoadSeries(f"azure2017-{kind}", tuple(rows[0][1:]), load.T.copy())


def read_planetlab_cpu(source: Path) -> LoadSeries:
    """Return the machine-days: each row is a name and 288 values; ``source``: the file, or a data directory.

    Raises
    ------
    InputError
        When the file is missing or a row is broken; names file and line.
    """
    path = file_of(source, PLANETLAB_FILE, PLANETLAB_PATTERN)
    rows = _rows(path)
    if not rows:
        raise InputError("has no rows", file=str(path))
    load = np.stack([_numbers(path, line, cells[1:], PLANETLAB_SLOTS) for line, cells in enumerate(rows, 1)])
    return LoadSeries("planetlab2011", tuple(cells[0] for cells in rows), load)


def _rows(path: Path) -> list[list[str]]:
    try:
        with open_text(path) as stream:
            return [cells for cells in csv.reader(bounded_lines(stream, str(path))) if cells]
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", file=str(path)) from error
    except (UnicodeDecodeError, EOFError, zlib.error, csv.Error) as error:
        raise InputError(f"is no CSV text: {error}", file=str(path)) from error


def _numbers(path: Path, line: int, cells: list[str], count: int) -> Floats:
    if len(cells) != count:
        raise InputError(f"{len(cells)} values where {count} were expected", file=str(path), line=line)
    try:
        values = np.array([float(cell) if cell else np.nan for cell in cells])
    except ValueError as error:
        raise InputError(f"holds a cell that is no number: {error}", file=str(path), line=line) from None
    known = values[~np.isnan(values)]
    if np.any(known < 0) or np.any(known > 100):
        raise InputError("holds a value that is no percentage", file=str(path), line=line)
    return values * PERCENT
