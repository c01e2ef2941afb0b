"""A cluster in small that learns from what it lets happen: candidates are drawn, decided, measured where accepted.

The pair of `services_pair`. Whoever decides (the heuristic, or the model where it is trusted) accepts a mix at a
probability of .1 or less; only what was accepted, or tried, is measured and teaches. All
else is the live learning loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from services_pair import BASES, CACHE, DATABASE, LIMITS, NOISE, TYPES, medians

from cotide_core.events import Event, ModelsChanged
from cotide_core.forecasting.shared_decision import SharedDecision
from cotide_core.forecasts import MixBatch, QosForecaster
from cotide_core.kernels.array_types import Booleans, Floats
from cotide_core.recording.samples import MeasuredMix
from cotide_operator.config.settings import RetrainingSettings
from cotide_operator.models.learned_store import LearnedStore
from cotide_operator.models.qos_learning import QosLearning
from cotide_operator.models.store import ModelStore
from cotide_operator.models.training_process import renew
from cotide_operator.observability.metrics import Metrics
from cotide_predictors.learning.renewal import Renewal

SERVICES = (CACHE, DATABASE)
THRESHOLD = 0.1
SLOT_SECONDS = 300.0
SHARE, CEILING = 0.01, 0.3
"""Trials per accepted mix, and the highest probability that is tried: the defaults of the settings."""


@dataclass(frozen=True)
class Generation:
    """Of one generation: mixes that were accepted, those of them that broke, and mixes that were refused."""

    accepted: int
    broken: int
    refused: int

    @property
    def broken_share(self) -> float:
        return self.broken / max(1, self.accepted)

    @property
    def refused_share(self) -> float:
        return self.refused / (self.accepted + self.refused)


class Cluster:
    """Draws, decides, measures and learns."""

    def __init__(self, directory: Path, *, seed: int = 0, kept: LearnedStore | None = None, **settings: object) -> None:
        self.published: list[Event] = []
        self.metrics = Metrics()
        self.store = ModelStore(directory, emit=self.published.append, metrics=self.metrics)
        self.learning = QosLearning(
            RetrainingSettings(enabled=True, pooled_namespaces=("*",), **settings),
            self.store,
            threshold=THRESHOLD,
            slot_seconds=SLOT_SECONDS,
            seed=seed,
            metrics=self.metrics,
            kept=kept,
            renew_with=self.renew_in_thread,
        )
        self.store.score_only()
        self.store.trust_of = lambda service: str(self.learning.trust.state(service))
        self.generator = np.random.default_rng(seed)
        self.now = 0.0
        self.outcomes: list[str] = []
        self._accepted = self._tried = 0

    async def renew_in_thread(
        self,
        older: Sequence[MeasuredMix],
        latest: Mapping[str, Sequence[MeasuredMix]],
        files: Mapping[str, bytes] | None,
        seed: int,
    ) -> Renewal:
        return await asyncio.to_thread(renew, older, latest, files, seed)

    @property
    def decider(self) -> QosForecaster:
        """What the engine would ask now."""
        changes = [event for event in self.published if isinstance(event, ModelsChanged)]
        last = changes[-1] if changes else ModelsChanged()
        model = self.store.qos(last.qos)
        return model if last.decides_for is None else SharedDecision(model, last.decides_for)

    def campaign(self, slots: int = 50, each: int = 10) -> None:
        """Measure every candidate: what a profile, or a service that runs beside batch already, tells at first."""
        for _ in range(slots):
            mixes = self.candidates(each)
            self._measure(mixes, self._latencies(mixes), np.ones(len(mixes), np.bool_))

    def generation(self, slots: int = 96, each: int = 10) -> Generation:
        """Pass so many slots, each with so many candidates beside each service."""
        counted = np.zeros(3, np.int64)
        for _ in range(slots):
            mixes = self.candidates(each)
            said = self.decider.violation_probability(mixes)
            latency = self._latencies(mixes)
            runs = said <= THRESHOLD
            counted += runs.sum(), (runs & (latency > mixes.limit_milliseconds)).sum(), (~runs).sum()
            self._accepted += int(runs.sum())
            for row in np.flatnonzero(~runs & (said <= CEILING)).tolist():
                if self._tried + 1 <= SHARE * self._accepted:
                    self._tried += 1
                    runs[row] = True
                    counted += 1, latency[row] > mixes.limit_milliseconds[row], -1
            self._measure(mixes, latency, runs)
        return Generation(*counted.tolist())

    def _latencies(self, mixes: MixBatch) -> Floats:
        noise = np.exp(NOISE * self.generator.standard_normal(len(mixes)))
        return np.asarray(medians(mixes, 1.0) * np.array(BASES)[mixes.service] * noise)

    def _measure(self, mixes: MixBatch, latency: Floats, runs: Booleans) -> None:
        rows = np.flatnonzero(runs).tolist()
        self.learning.feed([measured_mix(mixes, row, float(latency[row])) for row in rows], self.now)
        self.learning.score()
        self.now += SLOT_SECONDS

    def candidates(self, each: int) -> MixBatch:
        """Draw mixes as the pair's law says."""
        count = 2 * each
        jobs = self.generator.integers(0, 5, (count, 2)).astype(np.float64)
        service = np.repeat([0, 1], each)
        return MixBatch(
            requests_per_second=self.generator.uniform(100, 1000, count),
            other_requests_per_second=np.zeros(count),
            limit_milliseconds=np.array(LIMITS)[service],
            cpu_pressure=0.1 * jobs.sum(axis=1),
            types=TYPES,
            counts=jobs,
            input_bytes=1e8 * jobs,
            services=SERVICES,
            service=service,
        )


def measured_mix(mixes: MixBatch, row: int, latency: float) -> MeasuredMix:
    """One row of a batch as it was measured."""
    jobs = tuple(
        (name, int(mixes.counts[row, column]), int(mixes.input_bytes[row, column]))
        for column, name in enumerate(mixes.types)
        if mixes.counts[row, column]
    )
    return MeasuredMix(
        mixes.services[0 if mixes.service is None else int(mixes.service[row])],
        float(mixes.requests_per_second[row]),
        0.0,
        float(mixes.limit_milliseconds[row]),
        float(mixes.cpu_pressure[row]),
        jobs,
        latency,
    )
