"""Forecasts the run time of each pod of a job when it comes, and learns from each that succeeds.

A driver calls it before each call of the engine, live and in virtual time::

    events -> arrived -> RunTimesForecasted -> Scheduler.handle -> instructions -> decided
                ^ completions teach the mixture                                     | slowdowns of the nodes chosen

Run times are isolated ones, as those of the completion model: the time that a job took, divided by the slowdown that
was predicted where it was bound. One forecaster is the champion; another may run in shadow. Both forecast every pod and
learn from every run, but only the champion's forecasts are sent. Each run scores both and the completion model, by
namespace. The engine receives the champion's forecasts only in namespaces where they were at least as accurate as the
model's. A tenant with irregular runs therefore loses nothing. `cotide_predictors.learning.run_time_challenge` decides
the promotion, from the duels that this module returns. Invariants: a pod is forecast once, at its arrival; one that
fails, is evicted or deleted teaches nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.events import Event, Pod, PodDeleted, PodPhase, PodUpserted, RunTimeForecast, RunTimesForecasted
from cotide_core.forecasting.own_models import type_for
from cotide_core.forecasts import CompletionForecaster
from cotide_core.instructions import Bind, Instruction
from cotide_core.units import CPU, RECLAIMED_CPU
from cotide_predictors.run_time.habits.likeness import Likeness, likeness_of, namespace_key
from cotide_predictors.run_time.habits.live_catalogue import HABITS, LivePredictor, live_forecaster
from cotide_predictors.run_time.habits.live_forecaster import LiveForecast, LiveForecaster

FROM_MODEL: Final = "completion-model"
HOUR_SECONDS: Final = 3600.0
LEAST_RUNS: Final = 10
"""Runs of a namespace before its habits are trusted (chosen)."""
REMEMBERED_RUNS: Final = 200.0
"""Runs over which accuracies are averaged, the latest weighing most (chosen)."""
MOST_NAMESPACES: Final = 10_000
"""Namespaces with accuracies, the last scored (chosen: 3 MB)."""


class Accuracies(NamedTuple):
    """How good forecasts of a namespace's runs were: the mean of the shorter over the longer of forecast and truth.

    ``runs`` counts up to `REMEMBERED_RUNS`; ``habits`` belongs to the forecaster of these scores.
    """

    runs: float
    habits: float
    model: float

    @property
    def believes_habits(self) -> bool:
        """Whether the forecaster was at least as accurate as the model, over enough runs."""
        return self.runs >= LEAST_RUNS and self.habits >= self.model


class ScoredRun(NamedTuple):
    """A run that is over, and one forecast of it; seconds on the node where it ran."""

    source: str
    seconds: float
    p50: float
    p90: float


class Duel(NamedTuple):
    """A completed run that both champion and challenger had forecast, with both accuracies.

    ``series`` is the key of its owner.
    """

    namespace: bytes
    series: bytes
    champion: float
    challenger: float


@dataclass(slots=True)
class Contender:
    """A forecaster, and how good it was in each namespace, by `likeness.namespace_key`, the last scored at the end."""

    name: LivePredictor
    forecaster: LiveForecaster
    accuracies: dict[bytes, Accuracies]

    def score(self, namespace: bytes, own: float, model: float) -> None:
        """Take in the accuracies of this forecaster and of the completion model."""
        before = self.accuracies.pop(namespace, Accuracies(0.0, 0.0, 0.0))
        runs = min(before.runs + 1.0, REMEMBERED_RUNS)
        if len(self.accuracies) >= MOST_NAMESPACES:
            del self.accuracies[next(iter(self.accuracies))]
        self.accuracies[namespace] = Accuracies(
            runs, before.habits + (own - before.habits) / runs, before.model + (model - before.model) / runs
        )


@dataclass(slots=True)
class _Followed:
    uid: str
    likeness: Likeness
    namespace: bytes
    made: dict[str, LiveForecast]
    """By forecaster."""
    model: tuple[float, float]
    chosen: LiveForecast | None
    """The forecast for the engine; None leaves it to the completion model."""
    is_published: bool = False
    slowdown: float = 1.0


class PodRunTimes:
    """Follows the pods of one engine.

    Parameters
    ----------
    champion, challenger : names; no challenger, no shadow.
    """

    def __init__(self, champion: LivePredictor = HABITS, challenger: LivePredictor | None = None) -> None:
        names = (champion,) if challenger is None else (champion, challenger)
        self.contenders = [Contender(name, live_forecaster(name), {}) for name in names]
        """The champion first."""
        self.learned = 0
        """Runs so far."""
        self._followed: dict[str, _Followed] = {}
        self._scores: list[ScoredRun] = []
        self._duels: list[Duel] = []

    @property
    def forecaster(self) -> LiveForecaster:
        """Return the champion's."""
        return self.contenders[0].forecaster

    @property
    def accuracies(self) -> dict[bytes, Accuracies]:
        """Return the champion's, by `likeness.namespace_key`."""
        return self.contenders[0].accuracies

    def arrived(self, events: Iterable[Event], forecaster: CompletionForecaster) -> RunTimesForecasted | None:
        """Learn from ended runs and forecast new ones; None where there is no news for the engine."""
        fresh: dict[str, Pod] = {}
        again: dict[str, Pod] = {}
        for event in events:
            match event:
                case PodUpserted(pod) if pod.workload_class is not WorkloadClass.ONLINE:
                    self._follow(pod, fresh, again)
                case PodDeleted(key, uid):
                    known = self._followed.get(key)
                    if known is not None and known.uid == uid:
                        del self._followed[key]
                    if key in fresh and fresh[key].uid == uid:
                        del fresh[key]
                    again.pop(key, None)
                case _:
                    pass
        if fresh:
            self._forecast(list(fresh.values()), forecaster)
        forecasts = []
        for key in (*fresh, *again):
            known = self._followed[key]
            known.is_published = True
            if known.chosen is not None:
                seconds, upper = known.chosen.seconds, known.chosen.upper
                forecasts.append(RunTimeForecast(key, known.uid, float(seconds), float(upper)))
        return RunTimesForecasted(tuple(forecasts)) if forecasts else None

    def decided(self, instructions: Sequence[Instruction]) -> None:
        """Note the slowdown of each bound pod on its node."""
        for instruction in instructions:
            if isinstance(instruction, Bind) and instruction.forecast.seconds_p50 is not None:
                known = self._followed.get(instruction.key)
                if known is not None and known.uid == instruction.uid:
                    lone = known.model[0] if known.chosen is None else float(known.chosen.seconds)
                    known.slowdown = max(1.0, instruction.forecast.seconds_p50 / lone)

    def begin_anew(self) -> None:
        """Send everything again: another engine follows, which receives all pods again."""
        for followed in self._followed.values():
            followed.is_published = False

    def take_scores(self) -> list[ScoredRun]:
        """Return the outcomes of forecasts of runs that ended since the last call."""
        scores, self._scores = self._scores, []
        return scores

    def take_duels(self) -> list[Duel]:
        """Return the runs with both forecasts that ended since the last call, in the order of their ends."""
        duels, self._duels = self._duels, []
        return duels

    def promote(self) -> None:
        """Promote the challenger, with the scores that it has earned; the champion goes on in shadow."""
        self.contenders.reverse()

    def retain(self, namespaces: Iterable[str]) -> None:
        """Keep what was learned in these namespaces only: another tenant may get the name of one that is gone."""
        present = {namespace_key(name) for name in namespaces}
        for contender in self.contenders:
            contender.forecaster.retain(present)
            contender.accuracies = {key: found for key, found in contender.accuracies.items() if key in present}

    def _follow(self, pod: Pod, fresh: dict[str, Pod], again: dict[str, Pod]) -> None:
        known = self._followed.get(pod.key)
        if known is not None and known.uid != pod.uid:
            del self._followed[pod.key]
            known = None
        if pod.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED):
            fresh.pop(pod.key, None)
            again.pop(pod.key, None)
            if known is not None:
                del self._followed[pod.key]
                if pod.phase is PodPhase.SUCCEEDED:
                    self._learn(known, pod)
        elif known is None:
            fresh[pod.key] = pod
        elif not known.is_published:
            again[pod.key] = pod

    def _forecast(self, pods: Sequence[Pod], forecaster: CompletionForecaster) -> None:
        kinds = [(type_for(forecaster, pod), pod.input_bytes, pod.requested_seconds) for pod in pods]
        distinct = list(dict.fromkeys(kinds))
        sizes = np.array([size for _, size, _ in distinct], np.float64)
        asked = np.array([np.nan if seconds is None else seconds for _, _, seconds in distinct], np.float64)
        isolated = forecaster.isolated_seconds([kind for kind, _, _ in distinct], sizes, asked)
        model = dict(zip(distinct, zip(isolated.p50.tolist(), isolated.p90.tolist(), strict=True), strict=True))
        answers: dict[_Question, dict[str, LiveForecast]] = {}
        for pod, kind in zip(pods, kinds, strict=True):
            likeness = likeness_of(pod)
            question = _Question(likeness, model[kind][0], cores_of(pod), int(pod.created_seconds // HOUR_SECONDS))
            made = answers.get(question)
            if made is None:
                made = answers[question] = {
                    contender.name: question.asked(contender.forecaster) for contender in self.contenders
                }
            namespace = namespace_key(pod.key.partition("/")[0])
            champion = self.contenders[0]
            own, accuracies = made[champion.name], champion.accuracies.get(namespace)
            believed = own.alike > 0 and accuracies is not None and accuracies.believes_habits
            chosen = own if believed else None
            self._followed[pod.key] = _Followed(pod.uid, likeness, namespace, made, model[kind], chosen)

    def _learn(self, known: _Followed, pod: Pod) -> None:
        if pod.started_seconds is None or pod.finished_seconds is None:
            return
        seconds = pod.finished_seconds - pod.started_seconds
        if not seconds > 0.0:
            return
        factor, model = known.slowdown, known.model
        lone = seconds / factor
        self.learned += 1
        scored = []
        for contender in self.contenders:
            made = known.made.get(contender.name)
            if made is None:
                continue
            contender.forecaster.learn(made, lone)
            scored.append(accuracy(made.seconds, lone))
            contender.score(known.namespace, scored[-1], accuracy(model[0], lone))
            self._scores.append(ScoredRun(contender.name, seconds, made.seconds * factor, made.upper * factor))
        self._scores.append(ScoredRun(FROM_MODEL, seconds, model[0] * factor, model[1] * factor))
        if len(scored) > 1:
            self._duels.append(Duel(known.namespace, known.likeness[1], *scored))


class _Question(NamedTuple):
    """The input of a forecaster; pods of one job share it."""

    likeness: Likeness
    reference_seconds: float
    cores: float
    hour: int

    def asked(self, forecaster: LiveForecaster) -> LiveForecast:
        return forecaster.forecast(self.likeness, self.reference_seconds, cores=self.cores, hour=self.hour)


def cores_of(pod: Pod) -> float:
    """Return the cores that a pod requests, plain and reclaimed."""
    return sum(amount for name, amount in pod.requests if name in (CPU, RECLAIMED_CPU)) / 1000.0


def accuracy(forecast: float, truth: float) -> float:
    """Return the shorter over the longer (Naghshnejad 2019, eq. 4.2), in (0, 1]."""
    return min(forecast, truth) / max(forecast, truth)
