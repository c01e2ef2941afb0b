"""Trains the predictors anew from what this cluster showed, in a process of its own; latency forecasts by way of
`qos_learning`, which scores and judges them.

Fed by the loop after each cycle; looks at its interval whether there is cause (Ou 2024, section 4.3: a job of an
unseen type has finished; or many new samples), trains, saves into the models directory and lets the model store take
it up. Invariants: the loop never waits for a training; one training runs at a time; a failed one changes nothing but
a log line and a metric, and is not tried again before there are new samples; only pods of the namespaces that the
administrator pools teach anything, so that no tenant's pods change what is predicted for another.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from cotide_core.errors import CotideError
from cotide_core.events import Event, PodPhase, PodUpserted, ServiceSampled, WorkloadDeleted
from cotide_core.forecasts import CompletionForecaster, CompletionSamples
from cotide_core.samples import SampleCollector
from cotide_core.state.cluster_state import ClusterState
from cotide_operator.config.settings import EVERY, RetrainingSettings
from cotide_operator.models.qos_learning import QosLearning
from cotide_operator.models.store import COMPLETION, QOS, ModelStore
from cotide_operator.models.training_process import Files, Samples, train_apart
from cotide_operator.observability.metrics import Metrics

_LOG = logging.getLogger(__name__)

Train = Callable[[Samples, int], Awaitable[Files]]


class Retraining:
    """Collects samples and trains when there is cause.

    Parameters
    ----------
    settings : RetrainingSettings
    store : ModelStore
        Where models go, and which ones are in use.
    seed : int
        Of the training.
    learning : QosLearning
        Keeps and scores measured mixes, and renews the QoS model.
    train_with : callable
        Trains run times; tests pass their own.
    """

    def __init__(
        self,
        settings: RetrainingSettings,
        store: ModelStore,
        *,
        seed: int,
        telemetry: Metrics,
        learning: QosLearning,
        train_with: Train = train_apart,
    ) -> None:
        self._settings = settings
        self._store = store
        self._seed = seed
        self._telemetry = telemetry
        self._learning = learning
        self._train = train_with
        self.collector = SampleCollector(settings.capacity_samples, self._teaches)
        self._new: Counter[str] = Counter()
        self._tried_types: Counter[str] = Counter()

    def _teaches(self, namespace: str) -> bool:
        return namespace in self._settings.pooled_namespaces or EVERY in self._settings.pooled_namespaces

    def feed(self, state: ClusterState, events: Sequence[Event], now: float) -> None:
        """Take the samples of one cycle."""
        self.collector.feed(state, events, now)
        self._learning.feed(self.collector.take_fresh(), now)
        for event in events:
            if isinstance(event, ServiceSampled) and event.latency_p95_milliseconds is not None:
                self._new[QOS] += self._teaches(event.pod.partition("/")[0])
            elif isinstance(event, PodUpserted) and event.pod.phase is PodPhase.SUCCEEDED:
                self._new[COMPLETION] += self._teaches(event.pod.key.partition("/")[0])
            elif isinstance(event, WorkloadDeleted):
                self._learning.forget(event.key)

    async def run(self) -> None:
        """Look for cause until cancelled."""
        await self._learning.restore()
        kept = time.monotonic()
        while True:
            await asyncio.sleep(self._settings.check_seconds)
            await self.look()
            if time.monotonic() - kept >= self._settings.keep_seconds:
                kept = time.monotonic()
                await self._learning.keep()

    async def end(self) -> None:
        """Keep what was learned, before this replica stops to lead."""
        await self._learning.keep()

    async def look(self) -> None:
        """Train what there is cause to train, one after the other."""
        await self._learning.look()
        if self._new[COMPLETION]:
            samples = self.collector.completion()
            cause = self._cause(COMPLETION, len(samples.types), samples)
            if cause is not None:
                self._tried_types = Counter(samples.types)
                await self._renew(COMPLETION, cause, lambda: self._train_completion(samples))
        if self._new[QOS]:
            cause = self._cause(QOS, len(self._learning.reservoir), None)
            if cause is not None:
                await self._renew(QOS, cause, self._learning.renew)

    async def _train_completion(self, samples: CompletionSamples) -> None:
        files = await self._train(samples, self._seed)
        await asyncio.to_thread(self._store.save, files)
        await self._store.look()

    def _cause(self, kind: str, size: int, samples: CompletionSamples | None) -> str | None:
        if size < self._settings.minimum_samples:
            return None
        current = self._store.current.get(kind)
        if samples is not None and current is not None:
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

    async def _renew(self, kind: str, cause: str, train: Callable[[], Awaitable[None]]) -> None:
        _LOG.info("training the %s model anew: %s", kind, cause)
        self._new[kind] = 0
        try:
            await train()
        except CotideError as error:
            self._telemetry.trainings.labels(kind, "failed").inc()
            _LOG.warning("the %s model was not renewed: %s", kind, error)
            return
        self._telemetry.trainings.labels(kind, "done").inc()
