"""Load series: hosts (or machines, jobs, virtual machines standing for hosts) by five-minute slots.

Value type of the readers `google_load`, `alibaba2018` and `vm_load`, of generated series and of a user's own files;
used by `experiments.host_load.forecasts`. Invariant: loads are shares of capacity, finite and >= 0, or nan where a
slot has no record; nothing is filled in.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Floats
from cotide_files.columns import read_table

SLOT_SECONDS: Final = 300.0
PERCENT: Final = 0.01
SLOTS_MAX: Final = 1_000_000
"""Ten years of slots: a larger number is a time stamp in the wrong column (chosen)."""
CELLS_MAX: Final = 100_000_000
"""Series times slots of one file: 800 MB (chosen)."""
LOAD_MAX: Final = 4.0
"""Shares of capacity above which a load is taken for a percentage (chosen)."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadSeries:
    """One set of series.

    Attributes
    ----------
    name : of the set, as tables print it.
    hosts : n names.
    load : (n, m) share of capacity in each slot; nan: no record.
    """

    name: str
    hosts: tuple[str, ...]
    load: Floats


def open_text(path: Path) -> TextIO:
    """Open a text file, gzip when its name ends in ``.gz``."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def file_of(source: Path, default: str, pattern: str) -> Path:
    """Return the file itself, or the one below a directory: of the default name, else the first that fits."""
    if not source.is_dir() or (source / default).is_file():
        return source / default if source.is_dir() else source
    return next(iter(sorted(source.glob(pattern))), source / default)


def check_cells(path: Path, series: int, slots: int) -> None:
    """Check that so many series of so many slots are to be held in memory.

    Raises
    ------
    InputError
        When they are more than `CELLS_MAX` cells.
    """
    if series * slots > CELLS_MAX:
        raise InputError(f"has {series} series of {slots} slots, more than {CELLS_MAX} in all", file=str(path))


def stacked_series(name: str, series: dict[str, dict[int, float]], slots: int | None = None) -> LoadSeries:
    """Return series given as slot to load, each from its own dictionary; ``slots``: length, default the longest."""
    length = slots if slots is not None else 1 + max((max(loads) for loads in series.values() if loads), default=-1)
    load = np.full((len(series), length), np.nan)
    for row, loads in enumerate(series.values()):
        for slot, value in loads.items():
            if slot < length:
                load[row, slot] = value
    return LoadSeries(name, tuple(series), load)


def read_own_series(path: Path) -> LoadSeries:
    """Read a user's CSV file with columns ``series``, ``slot`` (from 0) and ``load`` (share of capacity or empty).

    Raises
    ------
    InputError
        When a column is missing, a cell is no such number, or a load is above 4, which is no share.
    """
    table = read_table(path, texts=("series",), numbers=("slot",), optional=("load",))
    found: dict[str, dict[int, float]] = {}
    for line, name, slot, load in zip(
        table.lines, table.texts["series"], table.numbers["slot"], table.numbers["load"], strict=True
    ):
        if slot != int(slot) or slot > SLOTS_MAX:
            raise InputError(
                f"{slot:g} is not a whole number up to {SLOTS_MAX}", file=str(path), line=line, field="slot"
            )
        if load > LOAD_MAX:
            raise InputError(
                f"{load:g} is no share of capacity: 1 is a full host", file=str(path), line=line, field="load"
            )
        found.setdefault(name, {})[int(slot)] = float(load)
    check_cells(path, len(found), 1 + max((max(loads) for loads in found.values()), default=0))
    return stacked_series(path.name.removesuffix(".gz").removesuffix(".csv"), found)
