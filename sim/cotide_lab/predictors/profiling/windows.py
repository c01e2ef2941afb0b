"""The measurements of one window, and windows as training samples.

Called by `journal`, `results` and `passive`. Pure. Invariant: a window becomes one QoS sample, and each job that ended
in it one completion sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cotide_core.forecasts import CompletionSamples, MixBatch, QosSamples
from cotide_lab.predictors.profiling.design import Cell


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of batch job.

    Attributes
    ----------
    name : its type, as in ``cotide.dev/type``.
    input_bytes : of one job, >= 0.
    millicores : what one job requests, > 0.
    """

    name: str
    input_bytes: int
    millicores: int


@dataclass(frozen=True, slots=True)
class Window:
    """One measured window.

    Attributes
    ----------
    p95_milliseconds : > 0; where ``cut``, a lower bound.
    achieved_rate : answers/s.
    requests : latencies behind the p95; 0 where the load command or Prometheus does not report it.
    seconds : its length.
    cut : stopped early, when enough late requests proved that the p95 is above the harm.
    lag_milliseconds : mean delay of the generator's own sending, which counts; nan where unknown.
    job_seconds : run times of jobs that ended in it, by name.
    job_core_seconds : cpu time of the jobs in it, nan where unknown.
    kernel_share : share of answers timed when the kernel received them; the others are timed when the generator read
        them; nan where unknown.
    reading_lag_milliseconds : mean delay of reading the former, which does not count; nan where unknown.
    failed_jobs : jobs that ended in it with another exit code than 0, by name.
    """

    cell: Cell
    p95_milliseconds: float
    achieved_rate: float
    requests: int
    seconds: float
    cut: bool = False
    lag_milliseconds: float = float("nan")
    job_seconds: tuple[tuple[str, float], ...] = ()
    job_core_seconds: float = float("nan")
    kernel_share: float = float("nan")
    reading_lag_milliseconds: float = float("nan")
    failed_jobs: tuple[tuple[str, int], ...] = ()
    at_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The circumstances that all windows of a campaign share.

    Attributes
    ----------
    kinds : of jobs that may run next to the service.
    limit_milliseconds : the service's p95 limit.
    allocatable_millicores : cpu of the node, or of the cores that service and jobs share.
    service : the Workload as ``namespace/name``; empty for any.
    """

    kinds: tuple[JobKind, ...]
    limit_milliseconds: float
    allocatable_millicores: int
    service: str = ""

    def pressure(self, cell: Cell) -> float:
        """Return the cpu requested by the mix over the allocatable cpu."""
        millicores = {kind.name: kind.millicores for kind in self.kinds}
        return sum(millicores[name] * count for name, count in cell.mix) / self.allocatable_millicores


def mixes_of(cells: Sequence[Cell], circumstances: Circumstances) -> MixBatch:
    """Return (n,) cells as mixes at the campaign's limit."""
    types = tuple(sorted(kind.name for kind in circumstances.kinds))
    size = {kind.name: kind.input_bytes for kind in circumstances.kinds}
    counts = np.array([[dict(cell.mix).get(name, 0) for name in types] for cell in cells], np.float64)
    counts = counts.reshape(len(cells), len(types))
    rows = len(cells)
    return MixBatch(
        requests_per_second=np.array([cell.rate for cell in cells], np.float64),
        other_requests_per_second=np.zeros(rows),
        limit_milliseconds=np.full(rows, circumstances.limit_milliseconds),
        cpu_pressure=np.array([circumstances.pressure(cell) for cell in cells], np.float64),
        types=types,
        counts=counts,
        input_bytes=counts * np.array([size[name] for name in types], np.float64),
        services=(circumstances.service,),
        service=np.zeros(rows, np.int64),
    )


def qos_samples(windows: Sequence[Window], circumstances: Circumstances) -> QosSamples:
    """Return one sample a window, in their order."""
    latency = np.array([window.p95_milliseconds for window in windows], np.float64)
    return QosSamples(mixes_of([window.cell for window in windows], circumstances), latency)


def completion_samples(windows: Sequence[Window], circumstances: Circumstances) -> CompletionSamples:
    """Return one sample for each job that ended inside a window."""
    size = {kind.name: kind.input_bytes for kind in circumstances.kinds}
    ended = [(window, name, seconds) for window in windows for name, seconds in window.job_seconds]
    return CompletionSamples(
        tuple(name for _, name, _ in ended),
        np.array([size[name] for _, name, _ in ended], np.float64),
        np.array([window.cell.rate for window, _, _ in ended], np.float64),
        np.array([circumstances.pressure(window.cell) for window, _, _ in ended], np.float64),
        np.array([seconds for _, _, seconds in ended], np.float64),
    )
