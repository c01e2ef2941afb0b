"""Writer of the Standard Workload Format: a log as read, or the schedule of a replay.

Called by `cotide simulate --swf` and `--write-swf`, and by tests. Last step of the flow: values to text. Invariant:
what is written reads back as the same header and the same numbers; the same log gives the same bytes (gzip without a
time stamp).
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Integers
from cotide_sim.traces.jobs.batch_jobs import BatchJobs
from cotide_sim.traces.jobs.swf import Field, SwfLog
from cotide_sim.traces.jobs.swf_rows import COLUMNS

_COMPLETED: Final = 1
"""Status of a job that ran to its end, in the format's words."""


def format_swf(log: SwfLog) -> bytes:
    """Return the text of a log; whole numbers are written without a fraction."""
    lines = [f"; {name}: {value}" if name else f"; {value}".rstrip() for name, value in log.header]
    whole = (log.table == np.floor(log.table)).all(axis=0)
    lines += [
        " ".join(str(int(value)) if whole[index] else _shortest(value) for index, value in enumerate(row))
        for row in log.table.tolist()
    ]
    return ("\n".join(lines) + "\n").encode()


def write_swf(log: SwfLog, path: Path) -> None:
    """Write a log, compressed when the name ends in ``.gz``.

    Raises
    ------
    InputError
        When the file can't be written.
    """
    data = format_swf(log)
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror or error}", file=str(path)) from error


def log_of_jobs(jobs: BatchJobs, note: str) -> SwfLog:
    """Return jobs as a log without a schedule: the wait is unknown."""
    log = log_of_schedule(jobs, jobs.submit, note)
    log.table[:, Field.WAIT] = -1.0
    return log


def log_of_schedule(jobs: BatchJobs, start: Integers, note: str) -> SwfLog:
    """Return a schedule as a log: the wait is start - submit, what a replay does not know is -1."""
    table = np.full((len(jobs), COLUMNS), -1.0)
    columns = {
        Field.JOB: jobs.numbers, Field.SUBMIT: jobs.submit, Field.WAIT: start - jobs.submit, Field.RUN: jobs.run,
        Field.ALLOCATED: jobs.demand, Field.REQUESTED: jobs.demand, Field.LIMIT: jobs.request, Field.USER: jobs.user,
    }  # fmt: skip
    for field, values in columns.items():
        table[:, field] = values
    if jobs.group is not None:
        table[:, Field.GROUP] = jobs.group
    table[:, Field.STATUS] = _COMPLETED
    count = str(len(jobs))
    header = (
        ("Version", "2.2"),
        ("MaxJobs", count),
        ("MaxRecords", count),
        ("MaxProcs", str(jobs.processors)),
        ("Note", note),
    )
    return SwfLog(jobs.name, header, table, np.arange(1, len(jobs) + 1, dtype=np.int64))


def _shortest(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
