"""The QoS model decides for its enabled services, and the heuristic for all others.

Made by the engine when a `ModelsChanged` event names the services of the model. A model that is still scored in shadow,
or that has fallen back, must not refuse or accept anything. Invariant: only one of the two answers each row, so that
the answer about a service stays monotone.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from cotide_core.forecasting.heuristics import HEURISTIC, HeuristicQos
from cotide_core.forecasts import MixBatch, QosAnswers, QosForecaster
from cotide_core.kernels.array_types import Booleans, Floats


class SharedDecision:
    """A QoS forecaster that asks the model about some services and the heuristic about the rest.

    Parameters
    ----------
    model : the trained model.
    services : keys of the Workloads that use the model.
    """

    def __init__(self, model: QosForecaster, services: Collection[str]) -> None:
        self._model = model
        self._heuristic = HeuristicQos()
        self._services = frozenset(services)
        self._names: tuple[str, ...] | None = None
        self._by_name: Booleans = np.zeros(0, np.bool_)

    @property
    def model_id(self) -> str:
        """The model's id if it decides for any service, otherwise ``heuristic``."""
        return self._model.model_id if self._services else HEURISTIC

    def violation_probability(self, mixes: MixBatch) -> Floats:
        """Return (n,) probabilities in [0, 1]."""
        return self.answer(mixes).probability

    def answer(self, mixes: MixBatch) -> QosAnswers:
        """Return each row's answer from the forecaster of its service."""
        decided = self._decided(mixes)
        if decided.all():
            return self._model.answer(mixes)
        heuristic = self._heuristic.answer(mixes)
        if not decided.any():
            return heuristic
        model = self._model.answer(mixes)
        return QosAnswers(
            np.where(decided, model.probability, heuristic.probability),
            np.where(decided, model.outside, heuristic.outside),
            np.where(decided, model.evidence, heuristic.evidence),
        )

    def _decided(self, mixes: MixBatch) -> Booleans:
        if mixes.services is not self._names:
            self._by_name = np.array([name in self._services for name in mixes.services], np.bool_)
            self._names = mixes.services
        if mixes.service is None:
            return np.full(len(mixes), self._by_name[0])
        return np.asarray(self._by_name[mixes.service])
