"""Trains the predictors again from samples of this cluster, in a separate process. Latency forecasts go through
`qos_learning`, which scores and judges them.

The loop passes samples after each cycle. At its interval this module checks for a cause (Ou 2024, section 4.3: a job of
an unseen type has finished; or many new samples). Then it trains and saves into the models directory, from where the
model store loads the model. Invariants: the loop never waits for a training; one training runs at a time. A failed
training only causes a log line and a metric, and is repeated only after new samples. Pods of namespaces that the
administrator pools teach the pool's model, others that of their own namespace. So the pods of a tenant never change the
forecasts of another tenant.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from cotide_core.errors import CotideError
from cotide_core.events import Event, WorkloadDeleted
from cotide_core.forecasting.own_models import namespace_in
from cotide_core.forecasts import CompletionForecaster, CompletionSamples
from cotide_core.instructions import Instruction
from cotide_core.placement.refusal_messages import services_at_risk
from cotide_core.recording.samples import POOL, SampleCollector
from cotide_core.state.cluster_state import ClusterState
from cotide_operator.config.settings import EVERY, RetrainingSettings
from cotide_operator.models.learned_store import LearnedStore, StoreSilent
from cotide_operator.models.qos_learning import LEARNING, QosLearning
from cotide_operator.models.shelf import COMPLETION, QOS
from cotide_operator.models.store import ModelStore
from cotide_operator.models.training_process import Files, Samples, train_apart
from cotide_operator.observability.metrics import Metrics

_LOG = logging.getLogger(__name__)

Train = Callable[[Samples, int], Awaitable[Files]]


class Retraining:
    """Collects samples and trains when there is a cause.

    Parameters
    ----------
    settings : RetrainingSettings
    store : ModelStore
        Receives the models, and has the ones in use.
    seed : int
        Of the training.
    learn : callable
        Makes the object that keeps and scores the measured mixes of a learner, and renews its QoS model.
    kept : LearnedStore, optional
        Store that outlives the pod.
    is_there : callable
        Whether a namespace exists; the learned data of a deleted one is deleted, too.
    uid_of : callable
        Uid of a namespace, empty when unknown: another namespace of the same name starts without learned data.
    train_with : callable
        Trains run times; tests pass their own function.
    """

    def __init__(
        self,
        settings: RetrainingSettings,
        store: ModelStore,
        *,
        seed: int,
        metrics: Metrics,
        learn: Callable[[str], QosLearning],
        kept: LearnedStore | None = None,
        is_there: Callable[[str], bool] = lambda _: True,
        uid_of: Callable[[str], str] = lambda _: "",
        train_with: Train = train_apart,
    ) -> None:
        self._settings = settings
        self._store = store
        self._seed = seed
        self._metrics = metrics
        self._train = train_with
        self._learn = learn
        self._kept = kept
        self._learnings: dict[str, QosLearning] = {}
        self._aside: set[str] = set()
        """Learners that may have kept data although they do not learn now."""
        self._restored = False
        self._last_warning = ""
        self._restoring = asyncio.Lock()
        """The first decision and the first look wait for the kept data."""
        store.trust_of = self._trust_of
        if settings.promotion != "atOnce":
            store.score_only()
        self._is_there = is_there
        self._uid_of = uid_of
        self._uids: dict[str, str] = {}
        """Uids of the learning namespaces at the last look."""
        self._learners_most = settings.own_models_most
        self.collector = SampleCollector(settings.capacity_samples, self._learner_of, self._learners_most)
        self._used: Counter[tuple[str, str]] = Counter()
        """Samples of a learner and kind at the last training."""
        self._tried_types: dict[str, Counter[str]] = {}

    def _learner_of(self, namespace: str) -> str | None:
        """Return the learner of a namespace's pods."""
        if namespace in self._settings.pooled_namespaces or EVERY in self._settings.pooled_namespaces:
            return POOL
        return namespace if self._learners_most else None

    def feed(self, state: ClusterState, events: Sequence[Event], now: float) -> None:
        """Take the samples of one cycle."""
        self.collector.feed(state, events, now)
        for learner, fresh in self.collector.take_fresh().items():
            self._learning(learner).feed(fresh, now)
        for event in events:
            if isinstance(event, WorkloadDeleted):
                for learning in self._learnings.values():
                    learning.forget(event.key)

    def decided(self, instructions: Sequence[Instruction], now: float) -> None:
        """Take the instructions of one cycle: pass the services that caused refusals to their learners."""
        by_learner: dict[str, set[str]] = {}
        for service in services_at_risk(instructions):
            learner = self._learner_of(namespace_in(service))
            if learner is not None and learner in self._learnings:
                by_learner.setdefault(learner, set()).add(service)
        for learner, services in by_learner.items():
            self._learnings[learner].refused(services, now)

    async def run(self) -> None:
        """Check for causes until cancelled."""
        await self.restore()
        kept = time.monotonic()
        while True:
            await asyncio.sleep(self._settings.check_seconds)
            await self.look()
            if time.monotonic() - kept >= self._settings.keep_seconds:
                kept = time.monotonic()
                await self.keep()

    async def restore(self) -> None:
        """Load the kept data of an earlier process or replica; once, before anything is learned."""
        async with self._restoring:
            if self._restored or self._kept is None:
                return
            self._restored = True
            try:
                learners = await self._kept.learners()
            except CotideError as error:
                self._restored = not isinstance(error, StoreSilent)  # otherwise the next look tries again
                self._metrics.learned_store.labels("refused").inc()
                if str(error) != self._last_warning:
                    _LOG.warning("what was learned before is not loaded: %s", error)
                self._last_warning = str(error)
                return
            own = [learner for learner in learners if learner != POOL and self._learner_of(learner) == learner]
            self._aside.update(learner for learner in learners if learner != POOL)
            for learner in [POOL] * (POOL in learners) + own[: self._learners_most]:
                await self._learning(learner).restore()

    async def keep(self) -> None:
        """Write learned data into the store, if it changed."""
        for learning in list(self._learnings.values()):
            await learning.keep()

    def _learning(self, learner: str) -> QosLearning:
        found = self._learnings.get(learner)
        if found is None:
            found = self._learnings[learner] = self._learn(learner)
            self._aside.discard(learner)
        return found

    def _trust_of(self, service: str) -> str:
        learner = self._learner_of(namespace_in(service))
        if learner is None:
            return ""
        learning = self._learnings.get(learner)
        return LEARNING if learning is None else str(learning.trust.state(service))

    async def look(self) -> None:
        """Train the models that have a cause, one after the other."""
        await self.restore()
        await self._forget_gone()
        self._put_aside()
        for learner in self.collector.learners():
            await self._learning(learner).look()
            if self._new(COMPLETION, learner):
                await self._look_at_run_times(learner)
            cause = self._cause(QOS, learner, len(self._learning(learner).reservoir), None)
            if cause is not None:
                await self._renew(QOS, learner, cause, self._learning(learner).renew)

    async def _look_at_run_times(self, learner: str) -> None:
        samples = self.collector.completion(learner)
        cause = self._cause(COMPLETION, learner, len(samples.types), samples)
        if cause is None:
            return
        self._tried_types[learner] = Counter(samples.types)

        async def train() -> None:
            files = await self._train(samples, self._seed)
            await asyncio.to_thread(self._store.save, files, learner)
            await self._store.look()

        await self._renew(COMPLETION, learner, cause, train)

    async def _forget_gone(self) -> None:
        """Drop the learned data of deleted namespaces: another tenant may get the name."""
        known = {*self.collector.learners(), *self._store.own_namespaces(), *self._learnings, *self._aside}
        before, self._uids = self._uids, {}
        for learner in known - {POOL}:
            is_there = self._is_there(learner)
            if is_there:
                was = before.get(learner, "")
                self._uids[learner] = uid = self._uid_of(learner) or was
                is_there = was in ("", uid)
            if not is_there:
                self.collector.forget(learner)
                await self._store.forget_own(learner)
                # A failed deletion is tried again: the next tenant of the name must not find the data.
                if await self._learning(learner).forget_all():
                    del self._learnings[learner]
        there = set(self.collector.learners())
        self._used = Counter({key: count for key, count in self._used.items() if key[1] in there})
        self._tried_types = {learner: tried for learner, tried in self._tried_types.items() if learner in there}

    def _put_aside(self) -> None:
        """Drop the least recently taught learners when there are more than may learn at once."""
        taught = self.collector.learners()
        own = [learner for learner in self._learnings if learner != POOL]
        own.sort(key=lambda learner: taught.index(learner) if learner in taught else -1)
        for learner in own[: max(0, len(own) - self._learners_most)]:
            self._learnings.pop(learner).put_aside()
            self._aside.add(learner)

    def _ever(self, kind: str, learner: str) -> int:
        measured, finished = self.collector.counts(learner)
        return measured if kind == QOS else finished

    def _new(self, kind: str, learner: str) -> int:
        ever, used = self._ever(kind, learner), self._used[kind, learner]
        return ever - used if ever >= used else ever  # fewer: the learner was dropped, and started again

    def _cause(self, kind: str, learner: str, size: int, samples: CompletionSamples | None) -> str | None:
        if size < self._settings.minimum_samples:
            return None
        current, new = self._store.current_of(kind, learner), self._new(kind, learner)
        if samples is not None and current is not None:
            unseen = self._unseen(samples, learner, current.model)
            if unseen:
                return f"jobs of unseen types finished: {', '.join(unseen)}"
        if current is None and new >= min(self._settings.minimum_samples, self._settings.new_samples):
            return "there is no model yet"
        if new >= self._settings.new_samples:
            return f"{new} new samples"
        return None

    def _unseen(self, samples: CompletionSamples, learner: str, model: object) -> list[str]:
        """Return the types that finished often enough, are unknown to the model, and were not tried with as many
        samples."""
        if not isinstance(model, CompletionForecaster):
            return []
        counts, tried = Counter(samples.types), self._tried_types.get(learner, Counter())
        return sorted(
            name
            for name, count in counts.items()
            if name and count >= max(self._settings.unseen_type_samples, 2 * tried[name]) and not model.knows(name)
        )

    async def _renew(self, kind: str, learner: str, cause: str, train: Callable[[], Awaitable[None]]) -> None:
        owner = "" if learner == POOL else f" of namespace {learner}"
        _LOG.info("training the %s model%s again: %s", kind, owner, cause)
        self._used[kind, learner] = self._ever(kind, learner)
        try:
            await train()
        except CotideError as error:
            self._metrics.trainings.labels(kind, "failed").inc()
            _LOG.warning("the %s model%s was not renewed: %s", kind, owner, error)
            return
        self._metrics.trainings.labels(kind, "done").inc()
