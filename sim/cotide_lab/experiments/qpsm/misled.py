"""Models that are wrong on purpose, and how often a model is wrong about a job next to the service.

Called by `waiting`. They show the effect of the guard on the service when its model is of another service. Invariant:
run times stay correct; only the answers about latency are wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import numpy as np

from cotide_core.forecasts import MixBatch, QosAnswers, QosForecaster
from cotide_core.kernels.array_types import Floats
from cotide_sim.cluster.comparison import TrainedModels
from cotide_sim.interference.model import Interference

RATE_SHARE: Final = 0.5
"""Share of the rate that the shifted model believes: as if the service had become half as fast since (chosen)."""


class Shifted:
    """Answers for half of the rate: a model of the service as it was."""

    model_id = "shifted"

    def __init__(self, model: QosForecaster) -> None:
        self._model = model

    def violation_probability(self, mixes: MixBatch) -> Floats:
        """Return (n,) the model's answers for the mixes at `RATE_SHARE` of their rate."""
        return self._model.violation_probability(_slower(mixes))

    def answer(self, mixes: MixBatch) -> QosAnswers:
        """Return the same; the model itself decides what is inside its learned range."""
        return self._model.answer(_slower(mixes))


class Opposite:
    """Answers the opposite: the worst possible model of the right form."""

    model_id = "opposite"

    def __init__(self, model: QosForecaster) -> None:
        self._model = model

    def violation_probability(self, mixes: MixBatch) -> Floats:
        """Return (n,) one minus the model's answers."""
        return np.asarray(1.0 - self._model.violation_probability(mixes))

    def answer(self, mixes: MixBatch) -> QosAnswers:
        """Return the same as an answer inside the learned range, so that the error stays unnoticed."""
        return QosAnswers.within(self.violation_probability(mixes))


MISLED: Final[Mapping[str, type[Shifted | Opposite]]] = MappingProxyType(
    {"qpsm, shifted model": Shifted, "qpsm, opposite model": Opposite}
)
"""Rows without a judgement, with the model of each."""


@dataclass(frozen=True, slots=True)
class Misjudged:
    """Verdicts on one job next to the service: their number, and the wrong ones by kind."""

    model: str
    verdicts: int
    broke_though_accepted: int
    held_though_refused: int


def with_qos(models: TrainedModels, qos: QosForecaster) -> TrainedModels:
    """Return the same models with another latency model."""
    return TrainedModels(qos, models.completion_model)


def misjudged(name: str, qos: QosForecaster, mixes: MixBatch, truth: Interference, threshold: float) -> Misjudged:
    """Compare the verdicts on (n,) mixes with the physics, without its noise.

    Parameters
    ----------
    threshold : highest accepted probability.
    """
    accepted = qos.answer(mixes).probability <= threshold
    broken = truth.p95_milliseconds(mixes) > mixes.limit_milliseconds
    return Misjudged(name, len(mixes), int((accepted & broken).sum()), int((~accepted & ~broken).sum()))


def _slower(mixes: MixBatch) -> MixBatch:
    return replace(mixes, requests_per_second=RATE_SHARE * mixes.requests_per_second)
