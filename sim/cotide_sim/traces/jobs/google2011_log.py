"""The job features of the Google 2011 trace as a batch log (derived from ClusterData2011_2).

Called by `any_log`. First step of the flow: text to rows. Invariant: a row of the file is a row of the log.
`google2011` argues the unit of run times, and why job identifiers replace time. Here the identifiers are spread evenly
over the trace's 29 days: their order is certain, distances between submissions are rough. Tasks of a job are taken to
run at once. The name of a job is its executable; no estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from cotide_files.rows import Row
from cotide_sim.traces.jobs.csv_log import UNKNOWN, CsvTrace, from_first_submission
from cotide_sim.traces.jobs.google2011 import SLOT_SECONDS, WHAT
from cotide_sim.traces.jobs.pool import Demand, Pool
from cotide_sim.traces.jobs.swf import Field, OnBad, SwfLog

COLUMNS: Final = (
    "job_ID", "priority", "requestCPU", "requestRAM", "user_name", "logical_job_name", "task_duration", "task_number",
)  # fmt: skip
TOTALS: Final[Mapping[str, float]] = {"cpu": 6659.0, "memory": 5921.8}
"""Cpu and memory of the 12,583 machines, in units of the largest one's (Reiss et al., Heterogeneity and dynamicity of
clouds at scale, SoCC 2012, Table 1)."""
CPU_PER_PROCESSOR: Final = 0.001
SPAN_SECONDS: Final = 29 * 86_400.0
PRIORITY_MAX: Final = 11
ROUNDING_SECONDS: Final = 1e-6


def read_google2011_log(path: Path, on_bad: OnBad, demand: Demand) -> tuple[SwfLog, str]:
    """Return the jobs and the conversion in words.

    Raises
    ------
    InputError
        As `CsvTrace.read`.
    """
    pool = Pool("12,583 machines", "a thousandth of the largest machine", CPU_PER_PROCESSOR, TOTALS, demand)
    users: dict[str, int] = {}
    names: dict[str, int] = {}

    def job_of(row: Row) -> Mapping[Field, float]:
        priority = row.number("priority")
        if priority > PRIORITY_MAX or priority != int(priority):
            raise row.error("priority", f"{row.text('priority')!r} is not a whole number from 0 to {PRIORITY_MAX}")
        tasks = max(1.0, row.number("task_number"))
        asked = {"cpu": tasks * row.number("requestCPU") / 100.0, "memory": tasks * row.number("requestRAM")}
        seconds = row.number("task_duration") * SLOT_SECONDS
        user, name = row.text("user_name"), row.text("logical_job_name")
        return {
            Field.SUBMIT: row.number("job_ID"),
            # Whole seconds that a division by 300 has left a little short or long.
            Field.RUN: float(round(seconds)) if abs(seconds - round(seconds)) < ROUNDING_SECONDS else seconds,
            Field.REQUESTED: pool.processors_for(asked) or UNKNOWN,
            Field.USER: float(users.setdefault(user, len(users) + 1)) if user else UNKNOWN,
            Field.EXECUTABLE: float(names.setdefault(name, len(names) + 1)) if name else UNKNOWN,
            Field.QUEUE: priority,
        }

    trace = CsvTrace(WHAT, COLUMNS, job_of, lambda row: row.text("job_ID"))
    sentence = f"{pool.sentence()}; submissions spread over 29 days in the order of job numbers"
    log = trace.read(path, on_bad, (("MaxProcs", str(pool.processors)), ("Note", sentence)))
    order = log.table[:, Field.SUBMIT]
    wide = float(np.ptp(order))
    log.table[:, Field.SUBMIT] = np.floor((order - order.min()) * (SPAN_SECONDS / wide if wide > 0 else 0.0))
    return from_first_submission(log), sentence
