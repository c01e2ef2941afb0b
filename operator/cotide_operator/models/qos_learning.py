"""Continuous learning of latency forecasts: scored in shadow, trusted by service, renewed, rolled back.

One for each learner (see `samples.POOL`). `retraining` passes samples after each cycle and calls `look` regularly::

    measured mixes -> scored by model and heuristic -> trust by service -> `ModelsChanged` with the trusted services
                   -> reservoir -> challenger (a process of its own) -> promoted, or not
                   -> probation of a promoted model -> rolled back, or kept
                   -> store that outlives the pod

Each sample is scored before anything learns from it. Invariants: a model decides for a service only while its forecasts
of that service are trusted. A fault of the store, the training or a model leaves the deciding model unchanged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from cotide_core.errors import CotideError, ModelError
from cotide_core.forecasting.heuristics import HeuristicQos
from cotide_core.recording.samples import POOL, MeasuredMix, qos_samples
from cotide_operator.config.settings import RetrainingSettings
from cotide_operator.models.lead_times import LeadTimes
from cotide_operator.models.learned_store import MODEL, SAMPLES, LearnedStore, StoreSilent, TooLarge
from cotide_operator.models.shelf import QOS, Loaded
from cotide_operator.models.store import ModelStore
from cotide_operator.models.training_process import renew_apart
from cotide_operator.observability.metrics import Metrics

if TYPE_CHECKING:
    from cotide_predictors.learning.probation import Probation
    from cotide_predictors.learning.renewal import Renewal

_LOG = logging.getLogger(__name__)

Renew = Callable[
    [Sequence[MeasuredMix], Mapping[str, Sequence[MeasuredMix]], Mapping[str, bytes] | None, int],
    Awaitable["Renewal"],
]
LEARNING: Final = "Learning"
"""State of the forecasts of a service without scores, as in `service_trust.Trust`."""
PENDING: Final = 100_000
"""Samples that may wait for their score; the oldest are dropped (chosen: minutes of the largest cluster)."""
LEAST_SAMPLES: Final = 250
"""Least number of samples in a digest; when a store has no room for it, a log line reports it and nothing is kept
(chosen)."""


class QosLearning:
    """Learns latency forecasts continuously.

    Parameters
    ----------
    settings : RetrainingSettings
    store : the models in use.
    learner : the owner of the samples: `POOL`, or a namespace that learns for itself.
    threshold : highest probability that the guard accepts.
    slot_seconds : of the operator's clock; each slot counts once in a score.
    kept : store of samples and trust that outlives the pod; None keeps them in memory.
    is_there : whether a Workload exists; kept data of a deleted one is not loaded.
    renew_with : trains and judges; tests pass their own function.
    """

    def __init__(
        self,
        settings: RetrainingSettings,
        store: ModelStore,
        learner: str = POOL,
        *,
        threshold: float,
        slot_seconds: float,
        seed: int,
        metrics: Metrics,
        kept: LearnedStore | None = None,
        is_there: Callable[[str], bool] = lambda _: True,
        renew_with: Renew = renew_apart,
    ) -> None:
        from cotide_predictors.learning.reservoir import SampleReservoir  # only where it learns
        from cotide_predictors.learning.service_trust import ServiceTrust

        self._settings = settings
        self._store = store
        self._learner = learner
        self._threshold = threshold
        self._slot_seconds = slot_seconds
        self._seed = seed
        self._metrics = metrics
        self._kept = kept
        self._is_there = is_there
        self._renew_with = renew_with
        generator = np.random.default_rng(seed)
        self.reservoir = SampleReservoir(settings.capacity_samples, generator=generator)
        self.trust = ServiceTrust(threshold)
        self._leads = LeadTimes(metrics, slot_seconds)
        self._pending: deque[tuple[float, MeasuredMix]] = deque(maxlen=PENDING)
        self._probation: Probation | None = None
        self._judged = ""
        """Id of the model that earned the trust, or that a challenge let take over the trust."""
        self._restored = False
        """Whether the store was read: it must not be written earlier."""
        self._restoring = asyncio.Lock()
        self._gone: set[str] = set()
        """Workloads that were deleted before the store was read."""
        self._undeleted = False
        """Whether the store holds samples of an earlier tenant of the same name."""
        self._unsaved = 0
        self._trusts_others = False
        """Whether the set of trusted services differs from the last kept one."""
        self._last_warning = ""

    def feed(self, fresh: Sequence[MeasuredMix], now: float) -> None:
        """Take the measurements of one cycle."""
        self._pending.extend((now, measured_mix) for measured_mix in fresh)

    def refused(self, services: Iterable[str], now: float) -> None:
        """Take the services that pods were refused nodes for in one cycle."""
        self._leads.refused(services, now)

    def forget(self, service: str) -> None:
        """Drop the data of a deleted Workload; another one of its name has to earn its own trust."""
        self._pending = deque((pair for pair in self._pending if pair[1].service != service), maxlen=PENDING)
        if not self._restored:
            self._gone.add(service)
        samples, was_scored = len(self.reservoir), service in self.trust.services()
        self.reservoir.forget([service])
        if was_scored or len(self.reservoir) != samples:
            self._unsaved += 1  # the kept data must not contain it either
        self.trust.begin_anew([service])
        self._leads.forget(service)
        self._metrics.forget_service(service)
        self._decide()

    async def forget_all(self) -> bool:
        """Drop all data, kept or not: the namespace is gone, and another tenant may get its name.

        Returns whether the store is clear of it. Data that can't be deleted is not read either.
        """
        waiting = {measured_mix.service for _, measured_mix in self._pending}
        for service in waiting.union(self.trust.services(), self.reservoir.all_services()):
            self.forget(service)
        self._store.decide_for(self._learner, ())
        self._unsaved, self._restored, self._undeleted = 0, True, self._kept is not None
        return await self._deleted()

    async def _deleted(self) -> bool:
        """Delete the kept data of a learner without a namespace, and return whether the store is clear of it."""
        if self._undeleted and self._kept is not None:
            try:
                await self._kept.delete(self._learner)
            except CotideError as error:
                if str(error) != self._last_warning:
                    _LOG.warning("what was learned in namespace %s can't be deleted yet: %s", self._learner, error)
                self._last_warning = str(error)
                return False
            self._undeleted = False
        return True

    def put_aside(self) -> None:
        """Let the heuristic decide: others learn in its place, and its forecasts are no longer scored."""
        for service in self.trust.services():
            self._metrics.forget_service(service)
        self._store.decide_for(self._learner, ())

    async def restore(self) -> None:
        """Load the kept data of an earlier process or replica; once it is available, before anything is kept."""
        async with self._restoring:
            if not self._restored:
                await self._restore()

    async def _restore(self) -> None:
        if self._kept is None:
            self._restored = True
            return
        from cotide_predictors.learning import kept_state

        try:
            files = await self._kept.load(SAMPLES, self._learner)
            await self._take_up_model(self._kept)
            # Only now: a process that ends during the request must not overwrite the store.
            self._restored = True
            if files is None:
                return
            samples, windows, model_id = kept_state.from_files(files)
        except CotideError as error:
            self._restored = not isinstance(error, StoreSilent)  # otherwise the next look tries again
            self._metrics.learned_store.labels("refused").inc()
            if str(error) != self._last_warning:
                yet = "" if self._restored else " yet"
                _LOG.warning("what was learned before is not loaded%s: %s", yet, error)
            self._last_warning = str(error)
            return
        gone = {text for text in {*windows, *(sample.service for sample in samples)} if not self._is_there(text)}
        gone |= self._gone
        self._gone = set()
        if gone:
            self._unsaved += 1  # the kept data must not contain them either
        self.reservoir.restore([measured_mix for measured_mix in samples if measured_mix.service not in gone])
        in_use = self._model_id()
        if in_use and in_use == model_id:
            self.trust.restore({service: window for service, window in windows.items() if service not in gone})
            self._judged = model_id
            self._decide()
        self._metrics.learned_store.labels("restored").inc()
        taken = len(samples), len(self.trust.trusted()), self._learner or "all"
        _LOG.info("loaded %d samples and the trust of %d services, learner %s", *taken)

    async def _take_up_model(self, kept: LearnedStore) -> None:
        """Put the kept model back into the models directory; a fault of the model costs no samples."""
        try:
            model = await kept.load(MODEL, self._learner)
            if model is not None and self._own() is None:
                await asyncio.to_thread(self._store.save, model, self._learner)
                await self._store.look()
        except StoreSilent:
            raise
        except CotideError as error:
            _LOG.warning("the model that was kept is not loaded: %s", error)

    def score(self) -> None:
        """Score the measurements since the last call, then keep them for learning."""
        pending, self._pending = list(self._pending), deque(maxlen=PENDING)
        if not pending:
            return
        measured = [measured_mix for _, measured_mix in pending]
        current = self._current()
        if current is not None:
            self._note_model(current.model_id)
            columns = qos_samples(measured)
            model = self._store.qos(current.model_id).violation_probability(columns.mixes)
            heuristic = HeuristicQos().violation_probability(columns.mixes)
            before = self._store.previous_qos(self._learner)
            said_before = None if before is None else before.violation_probability(columns.mixes)
            broken = columns.latency_milliseconds > columns.mixes.limit_milliseconds
            times = np.array([now for now, _ in pending])
            slots = (times // self._slot_seconds).astype(np.int64)
            changed = set()
            for slot in np.unique(slots).tolist():
                rows = np.flatnonzero(slots == slot)
                names = [measured[row].service for row in rows.tolist()]
                changed |= self.trust.score(names, model[rows], heuristic[rows], broken[rows], slot)
                if self._probation is not None and said_before is not None:
                    self._probation.score(model[rows], said_before[rows], broken[rows], slot)
            self._leads.follow(times, measured, model > self._threshold, broken)
            if changed:
                for service in sorted(changed):
                    _LOG.info("forecasts of %s: %s", service, self.trust.state(service))
                self._decide()
                self._trusts_others = True
            self._show({measured_mix.service for measured_mix in measured})
        self.reservoir.add(measured)
        self._unsaved += len(measured)

    async def look(self) -> None:
        """Score, and roll back a wrong promotion; the new set of trusted services is kept over restarts."""
        await self.restore()
        self.score()
        if self._trusts_others:
            await self.keep()
        probation = self._probation
        if probation is None:
            return
        why = probation.why_back()
        if why:
            self._probation = None
            await self._roll_back(why)
        elif probation.over:
            self._probation = None

    async def renew(self) -> None:
        """Train a challenger and promote it if it wins.

        Raises
        ------
        CotideError
            When none is promoted: one sentence.
        """
        current = self._current()
        older, latest = self.reservoir.older(), self.reservoir.latest()
        files = None if current is None else current.files
        renewal = await self._renew_with(older, latest, files, self._seed)
        if renewal.older_contradict:
            self.reservoir.clear_older()
            self._metrics.learned_store.labels("contradicted").inc()
            _LOG.warning("%d kept samples contradict the present measurements and are dropped", len(older))
        if renewal.files is None:
            raise ModelError(renewal.why_not)
        own = self._own()
        await asyncio.to_thread(self._store.save, renewal.files, self._learner)
        await self._store.look()
        promoted = self._model_id()
        if current is not None and promoted not in ("", current.model_id):
            self._judged = promoted  # the challenge judged it: no service got worse, so trust stays
            self._unsaved += 1  # the trust refers to this model from now on
            await self.keep()
            if own is not None:
                from cotide_predictors.learning.probation import Probation

                self._probation = Probation(self._threshold)

    async def keep(self) -> None:
        """Write samples, trust and the model in use into the store, if they changed and the store was read."""
        if not await self._deleted() or self._kept is None or not self._unsaved or not self._restored:
            return
        news, trusts_others = self._unsaved, self._trusts_others
        self._trusts_others = False
        try:
            await self._write(self._kept)
        except CotideError as error:
            self._metrics.learned_store.labels("failed").inc()
            if str(error) != self._last_warning:
                _LOG.warning("what was learned is not kept, and lasts as long as this process: %s", error)
            self._last_warning = str(error)
            self._trusts_others |= trusts_others
            return
        self._unsaved -= news  # a Workload that was deleted meanwhile still needs a write
        self._last_warning = ""
        self._metrics.learned_store.labels("kept").inc()

    async def _write(self, kept: LearnedStore) -> None:
        """Write samples and trust even if the model can't be written, and fewer samples when all are too large."""
        from cotide_predictors.learning import kept_state
        from cotide_predictors.learning.service_trust import LATEST_KEPT

        own, fault = self._own(), None
        if own is not None:
            try:
                await kept.save(MODEL, self._learner, own.files)
            except CotideError as error:
                fault = error
        windows, most = self.trust.windows(LATEST_KEPT), kept.most_samples or len(self.reservoir)
        while True:
            samples = self.reservoir.digest(most)
            files = await asyncio.to_thread(kept_state.to_files, samples, windows, self._model_id())
            try:
                await kept.save(SAMPLES, self._learner, files)
                break
            except TooLarge:
                if most <= LEAST_SAMPLES:
                    raise
                most //= 2
        if fault is not None:
            raise fault

    async def _roll_back(self, why: str) -> None:
        before = self._model_id()
        await self._store.roll_back(QOS, self._learner)
        self._judged = self._model_id()
        # The removed model lost the trust; the one before had earned it, and is judged from here on.
        self._metrics.model_rollbacks.labels(QOS).inc()
        _LOG.warning("the qos model %s is rolled back: %s", before[:12], why)
        self._decide()
        self._unsaved += 1  # otherwise the next process would restore the removed model
        await self.keep()

    def _note_model(self, model_id: str) -> None:
        """Start again when a model came without a judgement, for example from a mounted directory."""
        if model_id == self._judged:
            return
        if self._judged:
            self.trust.begin_anew()
            self._decide()
        self._judged = model_id

    def _decide(self) -> None:
        if self._settings.promotion == "whenTrusted":
            self._store.decide_for(self._learner, self.trust.trusted())

    def _own(self) -> Loaded | None:
        """Return the model that was trained on this learner's samples."""
        return self._store.current_of(QOS, self._learner)

    def _current(self) -> Loaded | None:
        """Return the model of this learner's services: its own, otherwise that of the pool."""
        return self._own() or self._store.current_of(QOS)

    def _model_id(self) -> str:
        current = self._current()
        return "" if current is None else current.model_id

    def _show(self, services: set[str]) -> None:
        for service in services:
            scores, state = self.trust.scores(service), str(self.trust.state(service))
            if scores.records:
                self._metrics.show_service(
                    service, state, scores.precision, scores.recall, scores.brier, scores.heuristic_brier
                )
