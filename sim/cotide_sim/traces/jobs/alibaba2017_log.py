"""The batch tasks of the Alibaba 2017 trace as a batch log (batch_task.csv of the released version).

Called by `any_log`. First step of the flow: text to rows. Invariant: a row of the file is a row of the log, those that
did not run to their end with an unknown run time.

A task's instances are one job that takes all of them at once, since the table does not give the number of waves. Its
only run time is from creation to end, queueing included. No user, no estimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cotide_core.limits import MAX_EXACT_INT
from cotide_files.rows import Row
from cotide_sim.traces.jobs.csv_log import UNKNOWN, CsvTrace
from cotide_sim.traces.jobs.machines import Asked, units_of
from cotide_sim.traces.jobs.pool import Demand, Pool
from cotide_sim.traces.jobs.swf import Field, OnBad, SwfLog

WHAT: Final = "Alibaba 2017 batch tasks"
CPU: Final = "number_of_cpus_requested_per_instance_in_the_task"
MEMORY: Final = "normalized_memory_requested_per_instance_in_the_task"
COLUMNS: Final = (
    "task_create_time", "task_end_time", "job_id", "task_id", "number_of_instances", "status", CPU, MEMORY,
)  # fmt: skip
"""The columns of the trace's schema, in order: the released file has no header."""
TOTALS: Final[Mapping[str, float]] = {"cpu": 1313 * 64.0, "memory": 909.554}
"""Cores, and memory in units of the largest machine's, of the 1,313 machines in the trace's server_event.csv."""
CPU_PER_PROCESSOR: Final = 0.1
STATUSES: Final = {"Terminated": 1.0, "Failed": 0.0}
"""Status in the words of the Standard Workload Format: 1 completed, 0 failed; of the others it knows nothing."""


def read_alibaba2017_log(path: Path, on_bad: OnBad, demand: Demand) -> tuple[SwfLog, str, list[Asked]]:
    """Return the tasks, the conversion in words, and what each asks for.

    Raises
    ------
    InputError
        As `CsvTrace.read`.
    """
    pool = Pool("1,313 machines of 64 cores", "a tenth of a core", CPU_PER_PROCESSOR, TOTALS, demand)

    vectors: list[Asked] = []

    def job_of(row: Row) -> Mapping[Field, float]:
        created = row.number(COLUMNS[0], minimum=-math.inf)
        ended = row.number(COLUMNS[1], minimum=-math.inf)
        status = row.text("status")
        if not status:
            raise row.error("status", "is empty")
        instances = row.number("number_of_instances")
        if instances != int(instances):
            raise row.error("number_of_instances", f"{row.text('number_of_instances')!r} is no whole number")
        cores, memory = row.optional_number(CPU), row.optional_number(MEMORY)
        one = {"cpu": (cores or 0.0) / 100.0, "memory": memory or 0.0}
        units = units_of("alibaba2017", one)
        if max(units) > MAX_EXACT_INT:
            raise row.error(MEMORY, "an instance asks for more than is counted, 2^53 millionths")
        vectors.append(Asked(int(instances), units))
        asked = {"cpu": instances * (cores or 0.0) / 100.0, "memory": instances * (memory or 0.0)}
        return {
            Field.SUBMIT: created,
            Field.RUN: ended - created if status == "Terminated" else UNKNOWN,
            Field.REQUESTED: pool.processors_for(asked) or UNKNOWN,
            Field.STATUS: STATUSES.get(status, UNKNOWN),
        }

    trace = CsvTrace(WHAT, COLUMNS, job_of, lambda row: f"{row.text('job_id')}/{row.text('task_id')}", COLUMNS)
    header = (("MaxProcs", str(pool.processors)), ("Note", pool.sentence()))
    return trace.read(path, on_bad, header), pool.sentence(), vectors
