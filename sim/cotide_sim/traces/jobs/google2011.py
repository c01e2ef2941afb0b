"""Reader of the job features of the Google 2011 trace (derived from ClusterData2011_2).

Called by `workloads.traced` for batch and gratis arrivals. Invariant: values as in the file, in file order.

The unit of ``task_duration`` is not documented. Every one of the 226,214 values is a whole multiple of 1/300; half of
those multiples are odd and a third divisible by three, so there is no larger step. It is read here as five-minute
slots (the trace's sampling period) measured to the second: seconds = value x 300. Read as hours the durations would
come in steps of 12 s, which nothing in the trace has. So read, the median is 57 s and the longest 17 hours.

The table has no submit times. Job identifiers of the trace were handed out in rising order, so they stand in for
the time of submission here: order for certain, distances only roughly (`GoogleJob.order`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cotide_core.classes import WorkloadClass
from cotide_files.rows import stream_rows

FILE: Final = "google/google2011_job_runtime_features_DataCenterSim.csv.gz"
WHAT: Final = "Google 2011 job features"
SLOT_SECONDS: Final = 300.0
"""What one unit of ``task_duration`` is read as: see the module's docstring."""
_COLUMNS: Final = (
    "job_ID", "priority", "requestCPU", "requestRAM", "user_name", "scheduling_class", "logical_job_name",
    "task_duration", "task_number",
)  # fmt: skip


GRATIS_PRIORITY_MAX: Final = 1
BATCH_PRIORITY_MAX: Final = 8


def class_of_priority(priority: int) -> WorkloadClass:
    """Return the class of a priority of this trace, 0-11: 0-1 gratis, 2-8 batch, 9-11 online (Jiang et al.).

    Priorities of Kubernetes are another scale, where a value gives no class.
    """
    if priority <= GRATIS_PRIORITY_MAX:
        return WorkloadClass.GRATIS
    return WorkloadClass.BATCH if priority <= BATCH_PRIORITY_MAX else WorkloadClass.ONLINE


@dataclass(frozen=True, slots=True)
class GoogleJob:
    """One job.

    Attributes
    ----------
    order : the job's identifier, which rises with submission.
    priority : 0-11; see `class_of_priority`.
    cpu_percent : cpu asked for, in percent of the largest machine.
    memory_share : memory asked for, as a share of the largest machine's.
    seconds : run time, see the module's docstring.
    tasks : tasks of the job, >= 1.
    user, name : hashes of the trace.
    """

    order: float
    priority: int
    cpu_percent: float
    memory_share: float
    seconds: float
    tasks: int
    user: str
    name: str


def read_google_jobs(directory: Path) -> Iterator[GoogleJob]:
    """Yield the jobs below a data directory, in file order.

    Raises
    ------
    InputError
        When the file is missing or a row is broken; names file, line and column.
    """
    for row in stream_rows(directory / FILE, _COLUMNS, what=WHAT):
        priority = row.number("priority")
        if priority > 11 or priority != int(priority):
            raise row.error("priority", f"{row.text('priority')!r} is not a whole number from 0 to 11")
        yield GoogleJob(
            order=row.number("job_ID"),
            priority=int(priority),
            cpu_percent=row.number("requestCPU"),
            memory_share=row.number("requestRAM"),
            seconds=row.number("task_duration") * SLOT_SECONDS,
            tasks=max(1, int(row.number("task_number"))),
            user=row.text("user_name"),
            name=row.text("logical_job_name"),
        )
