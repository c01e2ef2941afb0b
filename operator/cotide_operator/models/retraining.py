"""Trains the predictors anew from what this cluster showed, in a process of its own.

Fed by the loop after each cycle; looks at its interval whether there is cause (Ou 2024, section 4.3: a job of an
unseen type has finished; or many new samples), trains, saves into the models directory and lets the model store take
it up. Invariants: the loop never waits for a training; one training runs at a time; a failed one changes nothing but
a log line and a metric, and is not tried again before there are new samples; only pods of the namespaces that the
administrator pools teach anything, so that no tenant's pods change what is predicted for another.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from cotide_core.errors import CotideError
from cotide_core.events import Event, PodPhase, PodUpserted, ServiceSampled
from cotide_core.forecasts import CompletionForecaster, CompletionSamples, QosSamples
from cotide_core.recording.samples import SampleCollector
from cotide_core.state.cluster_state import ClusterState
from cotide_operator.config.settings import EVERY, RetrainingSettings
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
    train_with : callable
        Trains; tests pass their own.
    """

    def __init__(
        self,
        settings: RetrainingSettings,
        store: ModelStore,
        *,
        seed: int,
        telemetry: Metrics,
        train_with: Train = train_apart,
    ) -> None:
        self._settings = settings
        self._store = store
        self._seed = seed
        self._telemetry = telemetry
        self._train = train_with
        self.collector = SampleCollector(settings.capacity_samples, self._teaches)
        self._new: Counter[str] = Counter()
        self._tried_types: Counter[str] = Counter()

    def _teaches(self, namespace: str) -> bool:
        return namespace in self._settings.pooled_namespaces or EVERY in self._settings.pooled_namespaces

    def feed(self, state: ClusterState, events: Sequence[Event], now: float) -> None:
        """Take the samples of one cycle."""
        self.collector.feed(state, events, now)
        for event in events:
            if isinstance(event, ServiceSampled) and event.latency_p95_milliseconds is not None:
                self._new[QOS] += self._teaches(event.pod.partition("/")[0])
            elif isinstance(event, PodUpserted) and event.pod.phase is PodPhase.SUCCEEDED:
                self._new[COMPLETION] += self._teaches(event.pod.key.partition("/")[0])

    async def run(self) -> None:
        """Look for cause until cancelled."""
        while True:
            await asyncio.sleep(self._settings.check_seconds)
            await self.look()

    async def look(self) -> None:
        """Train what there is cause to train, one after the other."""
        for kind in (COMPLETION, QOS):
            if not self._new[kind]:
                continue
            samples = self.collector.completion() if kind == COMPLETION else self.collector.qos()
            cause = self._cause(kind, samples)
            if cause is not None:
                await self._renew(kind, samples, cause)

    def _cause(self, kind: str, samples: Samples) -> str | None:
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

    async def _renew(self, kind: str, samples: Samples, cause: str) -> None:
        _LOG.info("training the %s model anew: %s", kind, cause)
        self._new[kind] = 0
        if isinstance(samples, CompletionSamples):
            self._tried_types = Counter(samples.types)
        try:
            files = await self._train(samples, self._seed)
            await asyncio.to_thread(self._store.save, files)
        except CotideError as error:
            self._telemetry.trainings.labels(kind, "failed").inc()
            _LOG.warning("the %s model was not renewed: %s", kind, error)
            return
        self._telemetry.trainings.labels(kind, "done").inc()
        await self._store.look()
