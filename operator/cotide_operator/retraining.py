"""Trains the predictors anew from what this cluster showed, in a process of its own.

Fed by the loop after each cycle; looks at its interval whether there is cause (seed 003, section 4.3: a job of an
unseen type has finished; or many new samples), trains, saves into the models directory and lets the model store take
it up. Invariants: the loop never waits for a training; one training runs at a time; a failed one changes nothing but
a log line and a metric, and is not tried again before there are new samples.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Final

from cotide_core.errors import CotideError
from cotide_core.events import Event, PodPhase, PodUpserted, ServiceSampled
from cotide_core.forecasts import CompletionForecaster, CompletionSamples, QosSamples
from cotide_core.samples import SampleCollector
from cotide_core.state import ClusterState
from cotide_operator.model_store import COMPLETION, QOS, Files, ModelStore
from cotide_operator.settings import RetrainingSettings
from cotide_operator.telemetry import Telemetry

_LOG = logging.getLogger(__name__)

_NICE: Final = 10
"""A training gives way to the live loop on a small machine; chosen."""
Train = Callable[[QosSamples | CompletionSamples, int], Files]


def train(samples: QosSamples | CompletionSamples, seed: int) -> Files:
    """Train one predictor and return its files; runs in the worker process."""
    from cotide_predictors import serialisation  # heavy: loads xgboost and scikit-learn
    from cotide_predictors.completion import train_completion
    from cotide_predictors.qos import train_qos

    if isinstance(samples, QosSamples):
        return serialisation.to_files(train_qos(samples, random_state=seed))
    return serialisation.to_files(train_completion(samples, random_state=seed))


def _worker_start() -> None:
    os.nice(_NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the operator ends its worker, not the terminal


def worker() -> Executor:
    """Return a process that trains; started at its first task, with nothing inherited from the loop."""
    return ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"), initializer=_worker_start)


class Retraining:
    """Collects samples and trains when there is cause.

    Parameters
    ----------
    settings : RetrainingSettings
    store : ModelStore
        Where models go, and which ones are in use.
    seed : int
        Of the training.
    executor : Executor
        Where trainings run.
    """

    def __init__(
        self,
        settings: RetrainingSettings,
        store: ModelStore,
        *,
        seed: int,
        telemetry: Telemetry,
        executor: Executor,
        train_with: Train = train,
    ) -> None:
        self._settings = settings
        self._store = store
        self._seed = seed
        self._telemetry = telemetry
        self._executor = executor
        self._train = train_with
        self.collector = SampleCollector(settings.capacity_samples)
        self._new: Counter[str] = Counter()
        self._tried_types: Counter[str] = Counter()

    def feed(self, state: ClusterState, events: Sequence[Event], now: float) -> None:
        """Take the samples of one cycle."""
        self.collector.feed(state, events, now)
        for event in events:
            if isinstance(event, ServiceSampled) and event.latency_p95_milliseconds is not None:
                self._new[QOS] += 1
            elif isinstance(event, PodUpserted) and event.pod.phase is PodPhase.SUCCEEDED:
                self._new[COMPLETION] += 1

    async def run(self) -> None:
        """Look for cause until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._settings.check_seconds)
                await self.look()
        finally:
            self._executor.shutdown(wait=False, cancel_futures=True)

    async def look(self) -> None:
        """Train what there is cause to train, one after the other."""
        for kind in (COMPLETION, QOS):
            if not self._new[kind]:
                continue
            samples = self.collector.completion() if kind == COMPLETION else self.collector.qos()
            cause = self._cause(kind, samples)
            if cause is not None:
                await self._renew(kind, samples, cause)

    def _cause(self, kind: str, samples: QosSamples | CompletionSamples) -> str | None:
        size = len(samples.mixes) if isinstance(samples, QosSamples) else len(samples.types)
        if size < self._settings.minimum_samples:
            return None
        current = self._store.current.get(kind)
        if isinstance(samples, CompletionSamples) and current is not None:
            unseen = self._unseen(samples, current.model)
            if unseen:
                return f"jobs of unseen types finished: {', '.join(unseen)}"
        if current is None and self._new[kind] >= min(self._settings.minimum_samples, self._settings.new_samples):
            return "there is no model yet"
        if self._new[kind] >= self._settings.new_samples:
            return f"{self._new[kind]} new samples"
        return None

    def _unseen(self, samples: CompletionSamples, model: object) -> list[str]:
        """Types that finished often enough, that the model does not know and that were not tried with as many."""
        if not isinstance(model, CompletionForecaster):
            return []
        counts = Counter(samples.types)
        return sorted(
            name
            for name, count in counts.items()
            if name
            and count >= max(self._settings.unseen_type_samples, 2 * self._tried_types[name])
            and not model.knows(name)
        )

    async def _renew(self, kind: str, samples: QosSamples | CompletionSamples, cause: str) -> None:
        _LOG.info("training the %s model anew: %s", kind, cause)
        self._new[kind] = 0
        if isinstance(samples, CompletionSamples):
            self._tried_types = Counter(samples.types)
        loop = asyncio.get_running_loop()
        try:
            files = await loop.run_in_executor(self._executor, self._train, samples, self._seed)
            await asyncio.to_thread(self._store.save, files)
        except (CotideError, ValueError, BrokenProcessPool) as error:  # ValueError: the samples show one class only
            self._telemetry.trainings.labels(kind, "failed").inc()
            _LOG.warning("the %s model was not renewed: %s", kind, error)
            return
        self._telemetry.trainings.labels(kind, "done").inc()
        await self._store.look()
