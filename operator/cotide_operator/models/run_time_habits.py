"""Run times from owners' past runs in the live operator: passed to the engine, scored, kept over restarts.

The loop calls it before and after each call of the engine; `cotide_predictors.run_time.habits` makes the forecasts, as
in virtual time. A configured challenger forecasts the same pods in shadow and takes over when
`cotide_predictors.learning.run_time_challenge` finds it better. A restart continues with the champion, as long as the
same two are configured. Invariants: kept data is loaded before the first decision. A fault of the store leaves
forecasts and decisions unchanged, and costs at most the data learned before.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

from cotide_core.errors import CotideError
from cotide_core.events import Event
from cotide_core.forecasts import CompletionForecaster
from cotide_core.instructions import Instruction
from cotide_core.units import counted
from cotide_operator.config.settings import RunTimePredictor
from cotide_operator.models.forecast_scores import ForecastScores
from cotide_operator.models.learned_store import RUN_TIMES, Files, LearnedStore, StoreSilent, TooLarge
from cotide_operator.observability.metrics import Metrics

if TYPE_CHECKING:
    from cotide_predictors.learning.run_time_challenge import RunTimeChallenge, RunTimeVerdict
    from cotide_predictors.persistence.model_files import Document
    from cotide_predictors.run_time.habits.live_catalogue import LivePredictor

_LOG = logging.getLogger(__name__)

PART: Final = "run times"
"""Name of this part in the metric of measurements that raised errors."""
CHALLENGE: Final = "challenge.npz"
"""File next to those of the forecasters: the hours of the present challenge."""
DIGEST_NAMESPACES: Final = 100
"""Namespaces of a challenge in a digest (chosen: 40 KB)."""
HALVINGS: Final = 4
"""Halvings of a digest that is too large for its store; when a sixteenth is still too large, a log line reports it and
nothing is kept (chosen)."""
CONFIGURED: Final = "configured"
CHAMPION: Final = "champion"
"""Keys of the manifest: names of champion and challenger as configured, and the one in force."""


class RunTimeHabits:
    """Learns the run times of each owner's pods.

    Parameters
    ----------
    scores : receives each ended run, for the scores of the habits and of the completion model.
    kept : store that outlives the pod; None keeps the data in memory.
    keep_seconds : wall seconds between two writes.
    namespaces : the existing ones; learned data of others is dropped.
    uid_of : of a namespace; another one of the same name starts without learned data.
    now : the operator's clock, seconds.
    predictor, challenger : names of the forecasters, as configured.
    """

    def __init__(
        self,
        scores: ForecastScores,
        metrics: Metrics,
        *,
        kept: LearnedStore | None,
        keep_seconds: float,
        namespaces: Callable[[], Collection[str]],
        now: Callable[[], float],
        predictor: RunTimePredictor = "habits",
        challenger: RunTimePredictor | None = None,
        uid_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        from cotide_predictors.learning.run_time_challenge import RunTimeChallenge
        from cotide_predictors.run_time.habits.live_catalogue import compile_kernels  # only where it learns
        from cotide_predictors.run_time.habits.pod_run_times import PodRunTimes

        configured: tuple[LivePredictor, ...] = (predictor,) if challenger is None else (predictor, challenger)
        compile_kernels(configured)
        self.run_times = PodRunTimes(predictor, challenger)
        self.challenge = RunTimeChallenge()
        self._configured = list(configured)
        self._scores = scores
        self._metrics = metrics
        self._kept = kept
        self._keep_seconds = keep_seconds
        self._namespaces = namespaces
        self._uid_of = uid_of
        self._now = now
        self._seen: dict[str, str] | None = None
        """The existing namespaces at the last look, with their uids."""
        self._learned_kept = 0
        self._unread = False
        """Whether the store has not answered yet: its contents must not be overwritten."""
        self._last_warning = ""
        self._show()

    def ahead(self, events: Sequence[Event], forecaster: CompletionForecaster) -> list[Event]:
        """Return the events that the engine should receive after these events."""
        try:
            forecast = self.run_times.arrived(events, forecaster)
        except Exception:  # noqa: BLE001 - what trips us here leaves the completion model's forecast in force
            self._metrics.measurement_faults.labels(PART).inc()
            _LOG.exception("run times are left to the completion model for %d events", len(events))
            return []
        for score in self.run_times.take_scores():
            self._scores.run_time(score.source, score.seconds, score.p50, score.p90)
        for duel in self.run_times.take_duels():
            hours = len(self.challenge.closed)
            verdict = self.challenge.score(*duel, self._now())
            if verdict is not None:
                self._judged(verdict)
            if len(self.challenge.closed) != hours:
                self._show()
        return [] if forecast is None else [forecast]

    def decided(self, instructions: Sequence[Instruction]) -> None:
        """Follow the decisions of a cycle."""
        self.run_times.decided(instructions)

    def begin_anew(self) -> None:
        """Pass all forecasts to a new engine."""
        self.run_times.begin_anew()

    async def restore(self) -> None:
        """Load the kept data of an earlier process or replica, before anything is decided.

        When the store gives no answer then, `keep` tries again: the little data learned meanwhile is replaced.
        """
        if self._kept is None:
            return
        self._unread = True  # until it has answered, also when the process ends before
        from cotide_predictors.persistence.model_files import unpack
        from cotide_predictors.run_time.habits import kept_habits

        try:
            files = await self._kept.load(RUN_TIMES, "")
            self._unread = False
            if files is None:
                return
            words = unpack(files)
            challenge = self._kept_challenge(words, files)
            kept_habits.restore(self.run_times, files)
        except CotideError as error:
            self._unread = isinstance(error, StoreSilent)
            self._metrics.learned_store.labels("refused").inc()
            yet = " yet" if self._unread else ""
            _LOG.warning("run times that were learned before are not loaded%s: %s", yet, error)
            return
        self._metrics.learned_store.labels("restored").inc()
        if challenge is not None:
            self.challenge = challenge
            champion = self.run_times.contenders[0].name
            if words.get(CHAMPION) == self._configured[1] and champion == self._configured[0]:
                self.run_times.promote()  # once, also when the store is read twice
        self._show()
        _LOG.info("loaded the run times of %d series of pods", len(self.run_times.forecaster))

    async def run(self) -> None:
        """Keep learned data from time to time, until cancelled."""
        while True:
            await asyncio.sleep(self._keep_seconds)
            await self.keep()

    async def keep(self) -> None:
        """Write learned data into the store, if it changed; drop the data of deleted namespaces."""
        if self._unread:
            await self.restore()
            self._seen = None  # the loaded data may contain deleted namespaces
        there = {name: self._uid_of(name) for name in self._namespaces()}
        before = there if self._seen is None else self._seen
        if self._seen is None or any(there.get(name) != uid for name, uid in before.items()):
            self.run_times.retain([name for name, uid in there.items() if before.get(name, uid) == uid])
        self._seen = there
        if self._kept is None or self._unread or self.run_times.learned == self._learned_kept:
            return
        learned = self.run_times.learned
        try:
            await self._write(self._kept)
        except CotideError as error:
            self._metrics.learned_store.labels("failed").inc()
            if str(error) != self._last_warning:
                _LOG.warning("run times that were learned are not kept, and last as long as this process: %s", error)
            self._last_warning = str(error)
            return
        self._learned_kept, self._last_warning = learned, ""
        self._metrics.learned_store.labels("kept").inc()

    async def _write(self, kept: LearnedStore) -> None:
        """Write learned data, or less of it when all is too large."""
        from cotide_predictors.run_time.habits import kept_habits

        digest = kept.most_samples
        for halvings in range(HALVINGS + 1):
            arrays = kept_habits.kept(self.run_times, digest, halvings)
            if len(self._configured) > 1:
                arrays[CHALLENGE] = self.challenge.arrays(*(() if digest is None else (DIGEST_NAMESPACES,)))
            words = {CONFIGURED: self._configured, CHAMPION: self.run_times.contenders[0].name}
            try:
                await kept.save(RUN_TIMES, "", await asyncio.to_thread(kept_habits.to_files, arrays, words))
                return
            except TooLarge:
                if halvings == HALVINGS or digest is None:
                    raise

    def _kept_challenge(self, words: Document, files: Files) -> RunTimeChallenge | None:
        """Return the challenge to continue; None when other forecasters were configured."""
        from cotide_predictors.learning.run_time_challenge import RunTimeChallenge
        from cotide_predictors.persistence.model_files import read_arrays

        if words.get(CONFIGURED) != self._configured or CHALLENGE not in words["files"]:
            return None
        challenge = RunTimeChallenge()
        challenge.restore(read_arrays(files[CHALLENGE], CHALLENGE))
        return challenge

    def _judged(self, verdict: RunTimeVerdict) -> None:
        """Carry out a verdict, and log it."""
        challenger = self.run_times.contenders[1].name
        _LOG.info("run times: %s", sentence_of(challenger, verdict))
        self._metrics.run_time_challenges.labels("promoted" if verdict.promoted else "kept").inc()
        if verdict.promoted:
            self.run_times.promote()

    def _show(self) -> None:
        """Show champion, challenger and their scores."""
        self._metrics.run_time_predictors.clear()
        self._metrics.run_time_loss.clear()
        losses = self.challenge.losses().tolist()
        for contender, role, loss in zip(self.run_times.contenders, (CHAMPION, "challenger"), losses, strict=False):
            self._metrics.run_time_predictors.labels(contender.name, role).set(1)
            if math.isfinite(loss):
                self._metrics.run_time_loss.labels(contender.name).set(loss)


def sentence_of(name: str, verdict: RunTimeVerdict) -> str:
    """Return a sentence with the outcome of a challenge by ``name``."""
    from cotide_predictors.learning.run_time_challenge import HOURS

    relation = "higher" if verdict.gain > 0 else "lower"
    compared = f"its accuracy over the last {HOURS} hours with runs was {abs(verdict.gain):.3f} {relation}"
    if verdict.promoted:
        return f"{name} takes over, {compared}"
    if verdict.worse:
        return f"{name} stays in shadow, it was worse in {counted(verdict.worse, 'namespace')}; {compared}"
    return f"{name} stays in shadow, it was not better beyond noise; {compared}"
