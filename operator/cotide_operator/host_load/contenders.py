"""Champion and challenger: the forecaster of the usage of online pods, and a second one in shadow.

Called by `forecasters`. Both learn from the same records and are scored on the same slots; only the champion's
forecasts leave this module. A challenger that wins a day of slots (`cotide_predictors.learning.peak_challenge`) takes
over with its earned scores. The former champion continues in shadow and can return by the same rule. Invariants: a slot
is scored before either learns from it; without a challenger there is no shadow work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from cotide_core.forecasts import HostLoadForecast
from cotide_core.kernels.array_types import Floats
from cotide_predictors.host_load.arma import ArmaParameters
from cotide_predictors.host_load.forecaster import HostLoadModel
from cotide_predictors.host_load.peak_rule import PeakRule
from cotide_predictors.host_load.peak_scoring import PeakScorer
from cotide_predictors.host_load.scoring import LoadScorer, LoadScores
from cotide_predictors.host_load.slot_ring import DAY_SLOTS
from cotide_predictors.learning.peak_challenge import SLOTS, PeakChallenge, PeakVerdict, pinball

Predictor = Literal["mixture", "sigma-percentile"]
DEFAULT: Final[Predictor] = "mixture"
RESOURCES: Final = 2
LEVELS: Final = {0.5: "p50", 0.9: "p90", 0.99: "p99"}
"""Name in `HostLoadForecast` of each quantile that plans can use."""


@dataclass(frozen=True, slots=True)
class Contest:
    """State of the challenge.

    Attributes
    ----------
    champion, challenger : names; the challenger may be None. slots : scored so far in the present challenge.
    losses : (2, 2) mean pinball losses in it, of both for cpu and memory, in shares of the node; nan before the first.
    """

    champion: Predictor
    challenger: Predictor | None
    slots: int
    losses: Floats

    def sentence(self) -> str:
        """Return a sentence with the champion and the challenger; an empty string for the default alone."""
        if self.challenger is None:
            return "" if self.champion == DEFAULT else f" Forecast by {self.champion}."
        text = f" Forecast by {self.champion}; {self.challenger} runs in shadow"
        champion, challenger = self.losses.sum(axis=1).tolist()
        if not self.slots or champion <= 0:
            return f"{text}."
        share = 100 * (challenger / champion - 1)
        compared = f"{abs(share):.0f} % {'higher' if share > 0 else 'lower'}"
        return f"{text}, with a loss {compared} over {self.slots} slots."


@dataclass(slots=True, eq=False)
class _Contender:
    """One predictor's models and scores, for cpu and memory."""

    name: Predictor
    models: list[HostLoadModel | PeakRule]
    scorers: list[LoadScorer]

    @classmethod
    def of(cls, name: Predictor, rows: int, ahead_slots: tuple[int, ...], day_slots: int | None) -> _Contender:
        models: list[HostLoadModel | PeakRule] = [
            PeakRule(rows)
            if name == "sigma-percentile"
            else HostLoadModel(rows, horizons=(1, *ahead_slots), day_slots=day_slots)
            for _ in range(RESOURCES)
        ]
        return cls(name, models, [LoadScorer(rows) for _ in range(RESOURCES)])

    def grow(self, rows: int) -> None:
        # One at a time: only one exists twice at any moment.
        for resource in range(RESOURCES):
            self.models[resource] = self.models[resource].grown(rows)
            self.scorers[resource] = self.scorers[resource].grown(rows)


class Contenders:
    """Forecasters of n rows' online usage.

    Parameters
    ----------
    champion, challenger : names; None for no challenger.
    quantile : 0.5, 0.9 or 0.99: used for plans and for the judgement.
    ahead_slots : longer horizons; only the mixture supports them.
    day_slots : slots of a day (`slot_ring.slots_of_day`).
    """

    def __init__(
        self,
        rows: int,
        champion: Predictor,
        challenger: Predictor | None,
        quantile: float,
        ahead_slots: tuple[int, ...] = (),
        day_slots: int | None = DAY_SLOTS,
    ) -> None:
        names = (champion, challenger)
        self._contenders = [_Contender.of(name, rows, ahead_slots, day_slots) for name in names if name is not None]
        self._ahead_slots = ahead_slots
        self._ahead_scorers = [[PeakScorer(rows, slots) for slots in ahead_slots] for _ in range(RESOURCES)]
        self._quantile = quantile
        self._challenge = PeakChallenge()
        self._verdicts: list[tuple[Predictor, PeakVerdict]] = []

    @property
    def models(self) -> Sequence[HostLoadModel | PeakRule]:
        """Return the champion's models, for cpu and memory."""
        return self._contenders[0].models

    @property
    def scorers(self) -> Sequence[LoadScorer]:
        """Return the champion's scorers."""
        return self._contenders[0].scorers

    def grow(self, rows: int) -> None:
        """Make room for more nodes."""
        for contender in self._contenders:
            contender.grow(rows)
        self._ahead_scorers = [[scorer.grown(rows) for scorer in scorers] for scorers in self._ahead_scorers]

    def reset(self, rows: NDArray[np.intp]) -> None:
        """Forget the nodes of these rows."""
        for contender in self._contenders:
            for model, scorer in zip(contender.models, contender.scorers, strict=True):
                model.reset(rows.tolist())
                scorer.reset(rows)
        for scorers in self._ahead_scorers:
            for peaks in scorers:
                peaks.reset(rows)

    def record(self, values: Floats, known: NDArray[np.bool_]) -> None:
        """Score both forecasts of a slot, then learn from it; the challenger may take over afterwards.

        Parameters
        ----------
        values : (2, n) shares of the node, cpu and memory, nan where unknown.
        known : (2, n) where a forecast exists, too: only those are scored.
        """
        losses = np.full((2, RESOURCES), np.nan)
        for row, contender in enumerate(self._contenders):
            for resource, (model, scorer) in enumerate(zip(contender.models, contender.scorers, strict=True)):
                forecast, measured, scored = model.forecast(), values[resource], known[resource]
                scorer.score(forecast, np.where(scored, measured, np.nan))
                losses[row, resource] = pinball(measured[scored], self._asked(forecast)[scored], self._quantile)
                model.record(measured)
        self._score_ahead(values, known)
        verdict = self._challenge.score(losses) if len(self._contenders) > 1 else None
        if verdict is not None:
            self._verdicts.append((self._contenders[1].name, verdict))
            if verdict.promoted:
                self._contenders.reverse()

    def refit(self, resource: int, parameters: ArmaParameters) -> None:
        """Apply fitted parameters of a resource to each model that has parameters; 0 is cpu, 1 is memory."""
        for contender in self._contenders:
            model = contender.models[resource]
            if isinstance(model, HostLoadModel):
                model.refit(parameters)

    def ahead(self) -> tuple[tuple[int, HostLoadForecast, HostLoadForecast], ...]:
        """Return the champion's forecasts of cpu and memory over each longer horizon; empty if it supports none."""
        cpu, memory = self.models
        if not (isinstance(cpu, HostLoadModel) and isinstance(memory, HostLoadModel)):
            return ()
        return tuple((slots, cpu.forecast(slots), memory.forecast(slots)) for slots in self._ahead_slots)

    def ahead_scores(self) -> dict[tuple[int, int], LoadScores]:
        """Return the scores of the longer horizons, by resource (0 cpu, 1 memory) and slots."""
        return {
            (resource, peaks.slots): peaks.scores()
            for resource, scorers in enumerate(self._ahead_scorers)
            for peaks in scorers
        }

    def contest(self) -> Contest:
        """Return the state of the challenge."""
        names = [contender.name for contender in self._contenders]
        challenger = names[1] if len(names) > 1 else None
        return Contest(names[0], challenger, self._challenge.scored, self._challenge.losses())

    def take_verdicts(self) -> list[tuple[Predictor, PeakVerdict]]:
        """Return the challengers that were judged since the last call, with the verdicts."""
        found, self._verdicts = self._verdicts, []
        return found

    def _score_ahead(self, values: Floats, known: NDArray[np.bool_]) -> None:
        """Score the longer horizons of the present champion; a predictor that supports none leaves the scores
        unchanged."""
        for resource, (model, scorers) in enumerate(zip(self.models, self._ahead_scorers, strict=True)):
            if isinstance(model, HostLoadModel):
                recorded = np.where(known[resource], values[resource], np.nan)
                for peaks in scorers:
                    peaks.record(recorded, partial(model.forecast, peaks.slots))

    def _asked(self, forecast: HostLoadForecast) -> Floats:
        found: Floats = getattr(forecast, LEVELS[self._quantile])
        return found


def sentence_of(name: Predictor, verdict: PeakVerdict) -> str:
    """Return a sentence with the outcome of a challenge by ``name``."""
    compared = f"its loss over the last {SLOTS} slots was {abs(100 * verdict.gain):.1f} %"
    compared += " lower" if verdict.gain > 0 else " higher"
    if verdict.promoted:
        return f"{name} takes over, {compared}"
    if verdict.worse:
        return f"{name} stays in shadow, it was worse for {' and '.join(verdict.worse)}; {compared}"
    return f"{name} stays in shadow, it was not better beyond noise; {compared}"
