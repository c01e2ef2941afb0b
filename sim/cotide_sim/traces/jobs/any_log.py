"""Reads a trace of jobs in whichever of the known formats its content shows, as rows of a batch log.

Called by `cotide simulate` and `cotide sweep`. First step of the flow. Invariants: one reader reads a file. The result
has the fields of the Standard Workload Format whatever the format was, so that cleaning, filters and reports of broken
rows are the same for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from cotide_core.errors import InputError
from cotide_sim.traces.jobs import alibaba2017_log, google2011_log, ledger_log, openb_log
from cotide_sim.traces.jobs.csv_log import first_line
from cotide_sim.traces.jobs.machines import Asked
from cotide_sim.traces.jobs.pool import Demand
from cotide_sim.traces.jobs.swf import OnBad, SwfLog, read_swf

Format = Literal["swf", "alibaba2017", "openb", "google2011", "ledger"]
FORMATS: Final[tuple[Format, ...]] = ("swf", "alibaba2017", "openb", "google2011", "ledger")
_MARKS: Final[tuple[tuple[Format, tuple[str, ...]], ...]] = (
    ("alibaba2017", (alibaba2017_log.COLUMNS[0], alibaba2017_log.CPU)),
    ("openb", ("cpu_milli", "creation_time", "scheduled_time")),
    ("google2011", ("job_ID", "task_duration", "logical_job_name")),
)
"""Column names that identify a header."""


@dataclass(frozen=True, slots=True)
class JobTrace:
    """A trace as rows.

    Attributes
    ----------
    log : the rows; its header names the size of the machine.
    format : how the file was read.
    conversion : how demands became processors, in words; empty where the format counts processors. asked : what each
    row asks for in several resources; empty where the format names none.
    in_order : whether the format promises rows by submission, so that a row out of order is a fault.
    """

    log: SwfLog
    format: Format
    conversion: str = ""
    asked: Sequence[Asked] = ()

    @property
    def in_order(self) -> bool:
        """Return whether rows out of order are a fault: the other formats don't promise an order."""
        return self.format == "swf"


def content_of(path: Path) -> Path:
    """Return the file that holds a trace: a ledger may be named by its directory."""
    return path / ledger_log.LEDGER_NAME if path.is_dir() else path


def format_of(path: Path) -> Format:
    """Return the format that a file's beginning shows.

    Raises
    ------
    InputError
        When the file can't be read, or read once only, or is a table of unknown columns.
    """
    if path.exists() and not path.is_dir() and not path.is_file():
        raise InputError(
            "is a pipe or a device, of which a look at the format would take the beginning away; name the format with "
            "--format",
            file=str(path),
        )
    if path.is_dir() and not (path / ledger_log.LEDGER_NAME).is_file():
        raise InputError(
            f"is a folder without a {ledger_log.LEDGER_NAME}; name a trace file, or a ledger's folder", file=str(path)
        )
    if path.is_dir() or path.name == ledger_log.LEDGER_NAME:
        return "ledger"
    first = first_line(path)
    if first.startswith('{"chain":"'):
        return "ledger"
    cells = [cell.strip() for cell in first.split(",")]
    for found, marks in _MARKS:
        if set(marks) <= set(cells):
            return found
    if len(cells) == len(alibaba2017_log.COLUMNS) and cells[0].lstrip("-").isdigit() and cells[5].isalpha():
        return "alibaba2017"
    # Rows of the Standard Workload Format hold no comma; what is wrong with one that does not parse is for its reader.
    if len(cells) > 1 and not first.startswith(";"):
        raise InputError(
            f"the first line fits none of the formats {', '.join(FORMATS)}; force one with --format",
            file=str(path),
            line=1,
        )
    return "swf"


def read_any_log(path: Path, *, form: Format | None = None, on_bad: OnBad = "fail", demand: Demand = "cpu") -> JobTrace:
    """Read a trace.

    Parameters
    ----------
    form : how to read it; None: as its content shows.
    on_bad : at a broken row or a cut-off file, ``fail``, or ``skip`` it and report it in the log's ``faults``.
    demand : which resources count where jobs ask for several.

    Raises
    ------
    InputError
        When the file can't be read or holds no job, or at the first fault; names file and line.
    """
    chosen = form or format_of(path)
    asked: Sequence[Asked] = ()
    match chosen:
        case "alibaba2017":
            log, conversion, asked = alibaba2017_log.read_alibaba2017_log(path, on_bad, demand)
        case "openb":
            log, conversion, asked = openb_log.read_openb_log(path, on_bad, demand)
        case "google2011":
            log, conversion = google2011_log.read_google2011_log(path, on_bad, demand)
        case "ledger":
            log, conversion = ledger_log.read_ledger_log(path, on_bad, demand)
        case "swf":
            log, conversion = read_swf(path, on_bad=on_bad), ""
    return JobTrace(log, chosen, conversion, asked)
