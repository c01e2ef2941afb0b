"""Training data from what the engine saw: measured latencies beside mixes, and run times of finished jobs.

Fed after each cycle by the live loop, or from a ledger by `samples_from_ledger`; read by the training of both
predictors. The contention of a job is the mean over its run: each node keeps running integrals of its rate and
pressure, so that a job only remembers where they stood when it started. Invariant: at most `capacity` samples of
each sort are kept, the latest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.events import Event, Pod, PodDeleted, PodPhase, PodUpserted, ServiceSampled
from cotide_core.forecasts import CompletionSamples, MixBatch, QosSamples
from cotide_core.instructions import Bind
from cotide_core.kernels.array_types import Floats
from cotide_core.recording.ledger import read_ledger
from cotide_core.state.cluster_state import ClusterState, PodRecord
from cotide_core.state.node_columns import CPU_COLUMN


@dataclass(frozen=True, slots=True)
class _Measured:
    service: str
    rate: float
    other_rate: float
    limit: float
    pressure: float
    jobs: tuple[tuple[str, int, int], ...]
    latency: float


@dataclass(frozen=True, slots=True)
class _Running:
    uid: str
    row: int
    since: float
    rate_integral: float
    pressure_integral: float


@dataclass(frozen=True, slots=True)
class _Finished:
    type: str
    input_bytes: int
    rate: float
    pressure: float
    seconds: float


class SampleCollector:
    """Collects training samples from the state and the events of each cycle.

    Parameters
    ----------
    capacity : samples of each sort that are kept.
    teaches : whether the pods of a namespace teach the forecasts of all. A latency is kept where the service and all
        batch and gratis pods beside it do: types are words of their users, and a foreign word must not be learned.
    """

    def __init__(self, capacity: int, teaches: Callable[[str], bool] = lambda _: True) -> None:
        self._teaches = teaches
        self._measured: deque[_Measured] = deque(maxlen=capacity)
        self._finished: deque[_Finished] = deque(maxlen=capacity)
        self._running: dict[str, _Running] = {}
        self._now: float | None = None
        self._rates: Floats = np.zeros(0)
        self._pressures: Floats = np.zeros(0)
        self._rate_integrals: Floats = np.zeros(0)
        self._pressure_integrals: Floats = np.zeros(0)

    def feed(self, state: ClusterState, events: Sequence[Event], now: float) -> None:
        """Take the samples of one cycle; `state` is as it is after the events."""
        self._integrate(state, now)
        for event in events:
            match event:
                case ServiceSampled(key, rate, latency) if latency is not None:
                    self._measure(state, key, rate, latency)
                case PodUpserted(pod) if pod.workload_class is not WorkloadClass.ONLINE and self._may(pod.key):
                    self._follow(state, pod, now)
                case PodDeleted(key, uid) if key in self._running and self._running[key].uid == uid:
                    del self._running[key]
                case _:
                    pass

    def qos(self) -> QosSamples:
        """Return the measured mixes, oldest first."""
        measured = list(self._measured)
        types = tuple(sorted({name for sample in measured for name, _, _ in sample.jobs}))
        column = {name: index for index, name in enumerate(types)}
        counts = np.zeros((len(measured), len(types)))
        input_bytes = np.zeros((len(measured), len(types)))
        for index, sample in enumerate(measured):
            for name, count, size in sample.jobs:
                counts[index, column[name]] = count
                input_bytes[index, column[name]] = size
        services = tuple(sorted({sample.service for sample in measured}))
        place = {name: index for index, name in enumerate(services)}
        mixes = MixBatch(
            requests_per_second=np.array([sample.rate for sample in measured], np.float64),
            other_requests_per_second=np.array([sample.other_rate for sample in measured], np.float64),
            limit_milliseconds=np.array([sample.limit for sample in measured], np.float64),
            cpu_pressure=np.array([sample.pressure for sample in measured], np.float64),
            types=types,
            counts=counts,
            input_bytes=input_bytes,
            services=services or ("",),
            service=np.array([place[sample.service] for sample in measured], np.int64),
        )
        return QosSamples(mixes, np.array([sample.latency for sample in measured], np.float64))

    def completion(self) -> CompletionSamples:
        """Return the finished jobs, oldest first."""
        done = list(self._finished)
        return CompletionSamples(
            types=tuple(job.type for job in done),
            input_bytes=np.array([job.input_bytes for job in done], np.float64),
            requests_per_second=np.array([job.rate for job in done], np.float64),
            cpu_pressure=np.array([job.pressure for job in done], np.float64),
            seconds=np.array([job.seconds for job in done], np.float64),
        )

    def _integrate(self, state: ClusterState, now: float) -> None:
        columns = state.columns
        size = columns.size
        missing = size - len(self._rates)
        if missing > 0:
            self._rate_integrals = np.concatenate([self._rate_integrals, np.zeros(missing)])
            self._pressure_integrals = np.concatenate([self._pressure_integrals, np.zeros(missing)])
            self._rates = np.concatenate([self._rates, np.zeros(missing)])
            self._pressures = np.concatenate([self._pressures, np.zeros(missing)])
        if self._now is not None:
            passed = now - self._now
            self._rate_integrals += passed * self._rates
            self._pressure_integrals += passed * self._pressures
        self._now = now
        self._rates = columns.service_rates[:size].copy()
        self._pressures = columns.batch_millicores[:size] / np.maximum(1, columns.allocatable[CPU_COLUMN, :size])

    def _measure(self, state: ClusterState, key: str, rate: float, latency: float) -> None:
        record = state.record(key)
        workload = state.workload(record.pod.workload) if record is not None else None
        if record is None or workload is None or record.row < 0:
            return
        if not all(self._may(one.pod.key) for one in (record, *batch_on(state, record.row))):
            return
        columns, row = state.columns, record.row
        if any(service.requests_per_second is None for service in columns.services[row]):
            return  # what a neighbour does is not known: nothing is to be learned from it
        jobs = tuple(
            (name, int(columns.type_counts[index, row]), int(columns.type_bytes[index, row]))
            for name, index in columns.types.items()
            if columns.type_counts[index, row]
        )
        other = max(0.0, float(columns.service_rates[row]) - rate)
        pressure = float(self._pressures[row])
        limit = workload.latency_p95_milliseconds
        self._measured.append(_Measured(workload.key, rate, other, limit, pressure, jobs, latency))

    def _may(self, key: str) -> bool:
        return self._teaches(key.partition("/")[0])

    def _follow(self, state: ClusterState, pod: Pod, now: float) -> None:
        known = self._running.get(pod.key)
        if known is not None and known.uid != pod.uid:
            known = None
            del self._running[pod.key]
        if pod.phase is PodPhase.RUNNING and known is None and pod.node is not None:
            row = state.columns.row_of.get(pod.node)
            if row is not None:
                rate, pressure = float(self._rate_integrals[row]), float(self._pressure_integrals[row])
                self._running[pod.key] = _Running(pod.uid, row, now, rate, pressure)
        elif pod.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED) and known is not None:
            del self._running[pod.key]
            if pod.phase is PodPhase.SUCCEEDED:
                self._finish(pod, known, now)

    def _finish(self, pod: Pod, known: _Running, now: float) -> None:
        if pod.started_seconds is None or pod.finished_seconds is None or now <= known.since:
            return
        seconds = pod.finished_seconds - pod.started_seconds
        if seconds <= 0:
            return
        watched = now - known.since
        rate = (float(self._rate_integrals[known.row]) - known.rate_integral) / watched
        pressure = (float(self._pressure_integrals[known.row]) - known.pressure_integral) / watched
        self._finished.append(_Finished(pod.type, pod.input_bytes, rate, pressure, seconds))


def batch_on(state: ClusterState, row: int) -> list[PodRecord]:
    """Return the batch and gratis pods that are counted on a row."""
    return [one for one in state.records_on(row) if one.pod.workload_class is not WorkloadClass.ONLINE]


def samples_from_ledger(lines: Iterable[bytes], capacity: int = 100_000) -> tuple[QosSamples, CompletionSamples]:
    """Return the samples that a collector would have taken while a ledger was recorded; needs no models."""
    state = ClusterState()
    collector = SampleCollector(capacity)
    for entry in read_ledger(lines):
        for event in entry.events:
            state.apply(event)
        for instruction in entry.instructions:
            if isinstance(instruction, Bind) and instruction.node in state.columns.row_of:
                state.assume(instruction.key, instruction.node, entry.now)
        collector.feed(state, entry.events, entry.now)
    return collector.qos(), collector.completion()
