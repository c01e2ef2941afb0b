"""Trains the predictors anew from what this cluster showed, in a process of its own.

Fed by the loop after each cycle; looks at its interval whether there is cause (Ou 2024, section 4.3: a job of an
unseen type has finished; or many new samples), trains, saves into the models directory and lets the model store take
it up. Invariants: the loop never waits for a training; one training runs at a time; a failed one changes nothing but
a log line and a metric, and is not tried again before there are new samples; pods of the namespaces that the
administrator pools teach the model of all, others that of their own namespace, so that no tenant's pods change what is
predicted for another.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from cotide_core.errors import CotideError
from cotide_core.events import Event
from cotide_core.forecasts import CompletionForecaster, CompletionSamples, QosSamples
from cotide_core.samples import POOL, SampleCollector
from cotide_core.state.cluster_state import ClusterState
from cotide_operator.config.settings import EVERY, RetrainingSettings
from cotide_operator.models.shelf import COMPLETION, QOS
from cotide_operator.models.store import ModelStore
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
    is_there : callable
        Whether a namespace is; what the pods of one that is gone taught goes, too.
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
        is_there: Callable[[str], bool] = lambda _: True,
        train_with: Train = train_apart,
    ) -> None:
        self._settings = settings
        self._store = store
        self._seed = seed
        self._telemetry = telemetry
        self._train = train_with
        self._is_there = is_there
        self._learners_most = settings.own_models_most
        self.collector = SampleCollector(settings.capacity_samples, self._learner_of, self._learners_most)
        self._used: Counter[tuple[str, str]] = Counter()
        """Samples that a learner had of a kind when it was last trained."""
        self._tried_types: dict[str, Counter[str]] = {}

    def _learner_of(self, namespace: str) -> str | None:
        """Return whom a namespace's pods teach."""
        if namespace in self._settings.pooled_namespaces or EVERY in self._settings.pooled_namespaces:
            return POOL
        return namespace if self._learners_most else None

    def feed(self, state: ClusterState, events: Sequence[Event], now: float) -> None:
        """Take the samples of one cycle."""
        self.collector.feed(state, events, now)

    async def run(self) -> None:
        """Look for cause until cancelled."""
        while True:
            await asyncio.sleep(self._settings.check_seconds)
            await self.look()

    async def look(self) -> None:
        """Train what there is cause to train, one after the other."""
        await self._forget_gone()
        for learner in self.collector.learners():
            for kind in (COMPLETION, QOS):
                if not self._new(kind, learner):
                    continue
                samples = self.collector.completion(learner) if kind == COMPLETION else self.collector.qos(learner)
                cause = self._cause(kind, learner, samples)
                if cause is not None:
                    await self._renew(kind, learner, samples, cause)

    async def _forget_gone(self) -> None:
        """Drop what namespaces taught that are gone: another tenant may get the name."""
        for learner in {*self.collector.learners(), *self._store.own_namespaces()} - {POOL}:
            if not self._is_there(learner):
                self.collector.forget(learner)
                await self._store.forget_own(learner)
        there = set(self.collector.learners())
        self._used = Counter({key: count for key, count in self._used.items() if key[1] in there})
        self._tried_types = {learner: tried for learner, tried in self._tried_types.items() if learner in there}

    def _ever(self, kind: str, learner: str) -> int:
        measured, finished = self.collector.counts(learner)
        return measured if kind == QOS else finished

    def _new(self, kind: str, learner: str) -> int:
        ever, used = self._ever(kind, learner), self._used[kind, learner]
        return ever - used if ever >= used else ever  # fewer: it was forgotten, and began anew

    def _cause(self, kind: str, learner: str, samples: Samples) -> str | None:
        size = len(samples.mixes) if isinstance(samples, QosSamples) else len(samples.types)
        if size < self._settings.minimum_samples:
            return None
        current, new = self._store.current_of(kind, learner), self._new(kind, learner)
        if isinstance(samples, CompletionSamples) and current is not None:
            unseen = self._unseen(samples, learner, current.model)
            if unseen:
                return f"jobs of unseen types finished: {', '.join(unseen)}"
        if current is None and new >= min(self._settings.minimum_samples, self._settings.new_samples):
            return "there is no model yet"
        if new >= self._settings.new_samples:
            return f"{new} new samples"
        return None

    def _unseen(self, samples: CompletionSamples, learner: str, model: object) -> list[str]:
        """Types that finished often enough, that the model does not know and that were not tried with as many."""
        if not isinstance(model, CompletionForecaster):
            return []
        counts, tried = Counter(samples.types), self._tried_types.get(learner, Counter())
        return sorted(
            name
            for name, count in counts.items()
            if name and count >= max(self._settings.unseen_type_samples, 2 * tried[name]) and not model.knows(name)
        )

    async def _renew(self, kind: str, learner: str, samples: Samples, cause: str) -> None:
        whose = "" if learner == POOL else f" of namespace {learner}"
        _LOG.info("training the %s model%s anew: %s", kind, whose, cause)
        self._used[kind, learner] = self._ever(kind, learner)
        if isinstance(samples, CompletionSamples):
            self._tried_types[learner] = Counter(samples.types)
        try:
            files = await self._train(samples, self._seed)
            await asyncio.to_thread(self._store.save, files, learner)
        except CotideError as error:
            self._telemetry.trainings.labels(kind, "failed").inc()
            _LOG.warning("the %s model%s was not renewed: %s", kind, whose, error)
            return
        self._telemetry.trainings.labels(kind, "done").inc()
        await self._store.look()
