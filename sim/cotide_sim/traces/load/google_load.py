"""Readers of the Google load series: jobs of the 2011 trace by slot, and one Borg cell of 2019 over a month.

Called by `experiments.host_load.forecasts`. Values are percent of a machine (2011) and shares of a cell (2019).
Invariant: days follow each other without a gap, by their numbers; a series that lacks a day has no records there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cotide_core.errors import InputError
from cotide_files.columns import read_table
from cotide_files.rows import stream_rows
from cotide_sim.traces.load.load_series import PERCENT, SLOTS_MAX, LoadSeries, check_cells, file_of, stacked_series

FILE_2011: Final = "google/google2011_job_load_days1-5.csv.gz"
PATTERN_2011: Final = "google/google2011_job_load*.csv*"
PATTERN_2019: Final = "google/google2019_instance_usage*.csv*"
FILE_2019: Final = "google/google2019_instance_usage_grouped_300s_month.csv"
DAY_SLOTS: Final = 288


def read_google2011_load(source: Path) -> LoadSeries:
    """Return the cpu load of jobs that stand for hosts, as shares of 100 percent.

    ``source``: the file, or a data directory.

    Raises
    ------
    InputError
        When the file is missing or a row is broken; names file, line and column.
    """
    path = file_of(source, FILE_2011, PATTERN_2011)
    found: dict[str, dict[int, float]] = {}
    for row in stream_rows(path, ("series", "day", "slot", "cpu_percent"), what="Google 2011 job load"):
        day, slot = row.number("day", minimum=1), row.number("slot")
        if slot >= DAY_SLOTS or slot != int(slot) or day != int(day):
            raise row.error("slot", f"day {day:g}, slot {slot:g} is not one of a day's {DAY_SLOTS} slots")
        if day > SLOTS_MAX // DAY_SLOTS:
            raise row.error("day", f"{day:g} is above {SLOTS_MAX // DAY_SLOTS}")
        found.setdefault(row.text("series"), {})[(int(day) - 1) * DAY_SLOTS + int(slot)] = (
            row.number("cpu_percent") * PERCENT
        )
    if not found:
        raise InputError("has no rows", file=str(path))
    first = min(min(loads) for loads in found.values()) // DAY_SLOTS * DAY_SLOTS
    check_cells(path, len(found), 1 + max(max(loads) for loads in found.values()) - first)
    moved = {name: {slot - first: load for slot, load in loads.items()} for name, loads in found.items()}
    return stacked_series("google2011", moved)


def read_google2019_load(source: Path) -> LoadSeries:
    """Return the mean cpu usage of the cell's instances, one series of shares.

    ``source``: the file, or a data directory.

    Raises
    ------
    InputError
        When the file is missing or a row is broken; names file, line and column.
    """
    table = read_table(file_of(source, FILE_2019, PATTERN_2019), numbers=("avg_cpu",))
    return LoadSeries("google2019", ("cell",), table.numbers["avg_cpu"][None, :])
