"""Reads a file of load series in whichever of the known formats its first line shows.

Called by `experiment_command` for files that a user names: one more part of a public trace, or series of their own.
Invariant: a file is read by one reader only, or refused with the format that was expected.
"""

from __future__ import annotations

import csv
import dataclasses
import zlib
from pathlib import Path

from cotide_core.errors import InputError
from cotide_files.bounded_text import bounded_lines
from cotide_sim.traces.load.alibaba2018 import read_alibaba2018_usage
from cotide_sim.traces.load.google_load import read_google2011_load, read_google2019_load
from cotide_sim.traces.load.load_series import LoadSeries, open_text, read_own_series
from cotide_sim.traces.load.vm_load import PLANETLAB_SLOTS, read_azure_cpu, read_planetlab_cpu


def read_load_series(path: Path) -> LoadSeries:
    """Return the series of a file, named after it.

    Raises
    ------
    InputError
        When the file can't be read, its first line fits no format, or a row is broken.
    """
    header = _first_row(path)
    columns = set(header)
    if {"series", "day", "slot", "cpu_percent"} <= columns:
        found = read_google2011_load(path)
    elif "avg_cpu" in columns:
        found = read_google2019_load(path)
    elif {"machine", "time_s", "cpu_percent"} <= columns:
        found = read_alibaba2018_usage(path)
    elif {"series", "slot", "load"} <= columns:
        found = read_own_series(path)
    elif header[0] == "t":
        found = read_azure_cpu(path, "avg")
    elif len(header) == PLANETLAB_SLOTS + 1:
        found = read_planetlab_cpu(path)
    else:
        raise InputError(
            "the first line fits no format; columns series, slot, load were expected, or those of a public trace",
            file=str(path),
            line=1,
        )
    return dataclasses.replace(found, name=path.name.removesuffix(".gz").removesuffix(".csv"))


def _first_row(path: Path) -> list[str]:
    try:
        with open_text(path) as stream:
            return [cell.strip() for cell in next(csv.reader(bounded_lines(stream, str(path))), [])] or [""]
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", file=str(path)) from error
    except (UnicodeDecodeError, EOFError, zlib.error, csv.Error) as error:
        raise InputError(f"is no CSV text: {error}", file=str(path)) from error
