"""The pods of the OpenB trace (Alibaba's cluster-trace-gpu-v2023) as a batch log.

Called by `any_log`. First step of the flow: text to rows. Invariant: a row of the file is a row of the log; a pod that
was never scheduled has no run time.

Submission is the creation; the run goes from scheduling to deletion. The QoS class stands in the log's queue number, so
that ``--exclude 'queue=1'`` leaves the latency-sensitive pods out. No user, no estimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cotide_core.limits import MAX_EXACT_INT
from cotide_files.rows import Row
from cotide_sim.traces.jobs.csv_log import UNKNOWN, CsvTrace
from cotide_sim.traces.jobs.machines import DEVICE, Asked
from cotide_sim.traces.jobs.pool import Demand, Pool
from cotide_sim.traces.jobs.swf import Field, OnBad, SwfLog

WHAT: Final = "OpenB pods"
COLUMNS: Final = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase", "creation_time",
    "deletion_time", "scheduled_time",
)  # fmt: skip
TOTALS: Final[Mapping[str, float]] = {"cpu": 125_514_000.0, "memory": 612_028_416.0, "GPUs": 6_212_000.0}
"""Millicores, MiB and thousandths of GPUs of the 1,523 nodes in the trace's openb_node_list_all_node.csv."""
CPU_PER_PROCESSOR: Final = 100.0
QUEUES: Final = {"LS": 1.0, "BE": 2.0, "Burstable": 3.0, "Guaranteed": 4.0}
"""Queue numbers of the QoS classes; chosen."""
STATUSES: Final = {"Succeeded": 1.0, "Failed": 0.0, "Running": 1.0}
"""A pod still running at the end of the trace has the end of the trace as its deletion; it counts as completed."""


def read_openb_log(path: Path, on_bad: OnBad, demand: Demand) -> tuple[SwfLog, str, list[Asked]]:
    """Return the pods, the conversion in words, and what each asks for.

    Raises
    ------
    InputError
        As `CsvTrace.read`.
    """
    pool = Pool("1,523 nodes of the trace", "a tenth of a core", CPU_PER_PROCESSOR, TOTALS, demand)

    vectors: list[Asked] = []

    def job_of(row: Row) -> Mapping[Field, float]:
        created, scheduled = row.number("creation_time"), row.optional_number("scheduled_time")
        deleted = row.optional_number("deletion_time")
        devices = openb_devices(row)
        gpus = devices[0] * devices[1]
        asked = {"cpu": row.number("cpu_milli"), "memory": row.number("memory_mib"), "GPUs": gpus}
        if gpus > MAX_EXACT_INT:
            raise row.error("gpu_milli", f"{row.text('num_gpu')} GPUs of {row.text('gpu_milli')} are beyond 2^53")
        ran = scheduled is not None and deleted is not None
        models = tuple(name for name in row.text("gpu_spec").split("|") if name)
        vectors.append(Asked(1, tuple(math.ceil(asked[name]) for name in ("cpu", "memory", "GPUs")), models, devices))
        return {
            Field.SUBMIT: created,
            Field.WAIT: scheduled - created if scheduled is not None else UNKNOWN,
            Field.RUN: deleted - scheduled if ran else UNKNOWN,  # type: ignore[operator]  # both are known
            Field.REQUESTED: pool.processors_for(asked) or UNKNOWN,
            Field.STATUS: STATUSES.get(row.text("pod_phase"), UNKNOWN),
            Field.QUEUE: QUEUES.get(row.text("qos"), UNKNOWN),
        }

    trace = CsvTrace(WHAT, COLUMNS, job_of, lambda row: row.text("name"))
    header = (("MaxProcs", str(pool.processors)), ("Note", pool.sentence()))
    return trace.read(path, on_bad, header), pool.sentence(), vectors


def openb_devices(row: Row) -> tuple[int, int]:
    """Return how many GPUs a pod takes, and how many thousandths of each: whole ones where it takes several."""
    many, each = row.number("num_gpu"), row.number("gpu_milli")
    if many != int(many):
        raise row.error("num_gpu", f"{row.text('num_gpu')!r} is no whole number")
    if many == 0 or each == 0:
        return 0, 0
    return int(many), math.ceil(each) if many == 1 else DEVICE
