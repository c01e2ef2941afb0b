"""Reader of the batch tasks of the Alibaba 2017 cluster trace (batch_task.csv of the released version).

Called by `workloads.traced` for batch arrivals. Invariant: values are as in the file (seconds from the trace's start,
which may lie a little before zero); which tasks are used is the caller's choice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cotide_files.rows import stream_rows

FILE: Final = "alibaba/alibaba2017_batch_task.csv.gz"
WHAT: Final = "Alibaba 2017 batch tasks"
_COLUMNS: Final = (
    "task_create_time", "task_end_time", "job_id", "task_id", "number_of_instances", "status",
    "number_of_cpus_requested_per_instance_in_the_task", "normalized_memory_requested_per_instance_in_the_task",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BatchTask:
    """One task of a batch job: a group of like instances.

    Attributes
    ----------
    created_seconds, ended_seconds : seconds from the start of the trace.
    job, task : identifiers in the trace.
    instances : instances of the task, >= 0.
    status : ``Terminated``, ``Waiting``, ``Running`` or ``Failed``.
    cores : cpu asked for by an instance (the column counts hundredths of a core: 50, 100, ...); None if unknown.
    memory_share : memory asked for by an instance as a share of the largest machine's; None if not told.
    """

    created_seconds: float
    ended_seconds: float
    job: str
    task: str
    instances: int
    status: str
    cores: float | None
    memory_share: float | None

    @property
    def seconds(self) -> float:
        """From creation to end: the only run time that the trace has, queueing included."""
        return self.ended_seconds - self.created_seconds


def read_batch_tasks(directory: Path) -> Iterator[BatchTask]:
    """Yield the tasks below a data directory, in file order.

    Raises
    ------
    InputError
        When the file is missing or a row is broken; names file, line and column.
    """
    for row in stream_rows(directory / FILE, _COLUMNS, what=WHAT):
        hundredths = row.optional_number(_COLUMNS[6])
        status = row.text("status")
        if not status:
            raise row.error("status", "is empty")
        yield BatchTask(
            created_seconds=row.number("task_create_time", minimum=-math.inf),
            ended_seconds=row.number("task_end_time", minimum=-math.inf),
            job=row.text("job_id"),
            task=row.text("task_id"),
            instances=int(row.number("number_of_instances")),
            status=status,
            cores=None if hundredths is None else hundredths / 100.0,
            memory_share=row.optional_number(_COLUMNS[7]),
        )
