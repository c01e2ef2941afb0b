"""Training data from the engine's observations: measured latencies with mixes, and run times of finished jobs.

Fed after each cycle by the live loop, or from a ledger by `samples_from_ledger`; read by the training of both
predictors. The contention of a job is the mean over its run: each node keeps running integrals of its rate and
pressure, so a job only remembers their values at its start. Samples are kept by *learner*, the owner of the forecasts
that they train. Invariants: each learner keeps at most the latest `capacity` samples of each sort; learners do not
share this room.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.events import Event, Pod, PodDeleted, PodPhase, PodUpserted, ServiceSampled
from cotide_core.forecasts import CompletionSamples, MixBatch, QosSamples
from cotide_core.instructions import Bind
from cotide_core.kernels.array_types import Floats
from cotide_core.recording.ledger import read_ledger
from cotide_core.state.cluster_state import ClusterState, PodRecord
from cotide_core.state.namespace_use import namespace_of
from cotide_core.state.node_columns import CPU_COLUMN, MAX_TYPES

POOL: Final = ""
"""The learner of the namespaces that an administrator pools; each other namespace is a learner of its own name."""
CONTENTION_SECONDS: Final = 60.0
"""Duration of a report that a service is throttled by its own limit (chosen: four readings)."""
LEAST_MILLISECONDS: Final = 1e-6
"""A lower p95 is no measurement (chosen: a nanosecond). Without requests a query returns 0, which has no logarithm."""


@dataclass(frozen=True, slots=True)
class MeasuredMix:
    """A service's p95 with the load of its node; ``jobs`` are (type, count, summed input bytes)."""

    service: str
    rate: float
    other_rate: float
    limit: float
    pressure: float
    jobs: tuple[tuple[str, int, int], ...]
    latency: float

    @property
    def broken(self) -> bool:
        """Whether the latency exceeded its limit."""
        return self.latency > self.limit


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


@dataclass(slots=True)
class _Samples:
    measured: deque[MeasuredMix]
    fresh: deque[MeasuredMix]
    """The measured samples that have not been taken yet."""
    finished: deque[_Finished]
    measured_ever: int = field(default=0)
    finished_ever: int = field(default=0)


class SampleCollector:
    """Collects training samples from the state and the events of each cycle.

    Parameters
    ----------
    capacity : samples of each sort that are kept for a learner.
    learner_of : the learner of a namespace's pods: `POOL`, the namespace itself, or None to exclude them. A latency is
        kept if all batch and gratis pods next to the service have the same learner or the pool. Types are words of
        their users, and a foreign word must not be learned.
    learners_most : learners in addition to the pool; beyond that, those with the oldest latest samples are forgotten.
    """

    def __init__(
        self, capacity: int, learner_of: Callable[[str], str | None] = lambda _: POOL, learners_most: int = 0
    ) -> None:
        self._learner_of = learner_of
        self._capacity = capacity
        self._learners_most = learners_most
        self._samples: dict[str, _Samples] = {}
        """By learner, the most recently trained at the end."""
        self._running: dict[str, _Running] = {}
        self._now: float | None = None
        self._rates: Floats = np.zeros(0)
        self._pressures: Floats = np.zeros(0)
        self._rate_integrals: Floats = np.zeros(0)
        self._pressure_integrals: Floats = np.zeros(0)

    def feed(self, state: ClusterState, events: Sequence[Event], now: float) -> None:
        """Take the samples of one cycle; `state` is the state after the events."""
        self._integrate(state, now)
        for event in events:
            match event:
                case ServiceSampled(key, rate, latency) if latency is not None:
                    self._measure(state, key, rate, latency)
                case PodUpserted(pod) if pod.workload_class is not WorkloadClass.ONLINE:
                    self._follow(state, pod, now)
                case PodDeleted(key, uid) if key in self._running and self._running[key].uid == uid:
                    del self._running[key]
                case _:
                    pass

    def learners(self) -> list[str]:
        """Return the learners with any samples."""
        return list(self._samples)

    def forget(self, learner: str) -> None:
        """Drop the samples of a learner."""
        self._samples.pop(learner, None)

    def counts(self, learner: str = POOL) -> tuple[int, int]:
        """Return how many mixes and finished jobs a learner has received so far, dropped ones included."""
        found = self._samples.get(learner)
        return (0, 0) if found is None else (found.measured_ever, found.finished_ever)

    def qos(self, learner: str = POOL) -> QosSamples:
        """Return the measured mixes of a learner, oldest first."""
        return qos_samples(list(self._samples[learner].measured) if learner in self._samples else [])

    def take_fresh(self) -> dict[str, list[MeasuredMix]]:
        """Return by learner the samples since the last call, oldest first: at most `capacity` of them."""
        fresh = {learner: list(sample.fresh) for learner, sample in self._samples.items() if sample.fresh}
        for learner in fresh:
            self._samples[learner].fresh.clear()
        return fresh

    def completion(self, learner: str = POOL) -> CompletionSamples:
        """Return the finished jobs of a learner, oldest first."""
        done = list(self._samples[learner].finished) if learner in self._samples else []
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
        if record is None or workload is None or record.row < 0 or latency < LEAST_MILLISECONDS:
            return
        learner = self._learner(record.pod)
        if learner is None or not {self._learner(pod_record.pod) for pod_record in batch_on(state, record.row)} <= {
            learner,
            POOL,
        }:
            return
        columns, row = state.columns, record.row
        if self._now is not None and state.contention.throttled(row, self._now, CONTENTION_SECONDS):
            return  # its own limit made some service here slow, and no mix
        if any(service.requests_per_second is None for service in columns.services[row]):
            return  # the behaviour of a neighbour is unknown: the sample is useless
        jobs = tuple(
            (name, int(columns.type_counts[index, row]), int(columns.type_bytes[index, row]))
            for name, index in columns.types.items()
            if columns.type_counts[index, row]
        )
        other = max(0.0, float(columns.service_rates[row]) - rate)
        pressure = float(self._pressures[row])
        limit = workload.latency_p95_milliseconds
        taught = self._taught(learner)
        measured = MeasuredMix(workload.key, rate, other, limit, pressure, jobs, latency)
        taught.measured.append(measured)
        taught.fresh.append(measured)
        taught.measured_ever += 1

    def _learner(self, pod: Pod) -> str | None:
        return self._learner_of(namespace_of(pod))

    def _taught(self, learner: str) -> _Samples:
        """Return the samples of a learner, which becomes the most recently trained."""
        found = self._samples.pop(learner, None)
        if found is None:
            own = [name for name in self._samples if name != POOL]
            if learner != POOL and own and len(own) >= self._learners_most:
                del self._samples[own[0]]
            measured: deque[MeasuredMix] = deque(maxlen=self._capacity)
            found = _Samples(measured, deque(maxlen=self._capacity), deque(maxlen=self._capacity))
        self._samples[learner] = found
        return found

    def _follow(self, state: ClusterState, pod: Pod, now: float) -> None:
        known = self._running.get(pod.key)
        if known is not None and known.uid != pod.uid:
            known = None
            del self._running[pod.key]
        if pod.phase is PodPhase.RUNNING and known is None and pod.node is not None and self._learner(pod) is not None:
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
        learner = self._learner(pod)
        if learner is not None:
            taught = self._taught(learner)
            taught.finished.append(_Finished(pod.type, pod.input_bytes, rate, pressure, seconds))
            taught.finished_ever += 1


def qos_samples(measured: Sequence[MeasuredMix]) -> QosSamples:
    """Return measured mixes as columns, in the same order.

    At most `MAX_TYPES` types have columns, the most frequent ones; rarer ones share that of pods without a type, as in
    the engine's state. Samples come from many moments: otherwise types that never met would be as many as samples.
    """
    met = Counter(name for sample in measured for name, _, _ in sample.jobs)
    usual = sorted(met, key=lambda name: (-met[name], name))[:MAX_TYPES]
    types = tuple(sorted({*usual, *([""] if len(met) > len(usual) else [])}))
    found = {name: index for index, name in enumerate(types)}
    column = {name: found[name] if name in found else found[""] for name in met}
    counts = np.zeros((len(measured), len(types)))
    input_bytes = np.zeros((len(measured), len(types)))
    for index, sample in enumerate(measured):
        for name, count, size in sample.jobs:
            counts[index, column[name]] += count
            input_bytes[index, column[name]] += size
    services = tuple(sorted({sample.service for sample in measured}))
    at = {name: index for index, name in enumerate(services)}
    mixes = MixBatch(
        requests_per_second=np.array([sample.rate for sample in measured], np.float64),
        other_requests_per_second=np.array([sample.other_rate for sample in measured], np.float64),
        limit_milliseconds=np.array([sample.limit for sample in measured], np.float64),
        cpu_pressure=np.array([sample.pressure for sample in measured], np.float64),
        types=types,
        counts=counts,
        input_bytes=input_bytes,
        services=services or ("",),
        service=np.array([at[sample.service] for sample in measured], np.int64),
    )
    return QosSamples(mixes, np.array([sample.latency for sample in measured], np.float64))


def batch_on(state: ClusterState, row: int) -> list[PodRecord]:
    """Return the batch and gratis pods that are counted on a row."""
    return [record for record in state.records_on(row) if record.pod.workload_class is not WorkloadClass.ONLINE]


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
