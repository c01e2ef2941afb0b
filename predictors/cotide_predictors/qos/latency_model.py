"""What both latency models answer alike: their id, the types they know, the probability alone, and even odds.

Base of `qos_model.QosModel` and `services_model.ServicesQosModel`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cotide_core.forecasts import MixBatch, QosAnswers
from cotide_core.kernels.array_types import Floats
from cotide_predictors.estimator import Estimator
from cotide_predictors.persistence import model_files
from cotide_predictors.qos.type_contention import TypeContention


class LatencyModel(Estimator):
    """A forecaster of broken limits."""

    contention_: TypeContention
    _model_id: str

    def to_files(self) -> dict[str, bytes]:
        """Return the model as files."""
        raise NotImplementedError

    def answer(self, mixes: MixBatch) -> QosAnswers:
        """Return the probabilities, with whether each mix lies inside the training range, and the evidence."""
        raise NotImplementedError

    @property
    def model_id(self) -> str:
        """The sha256 of the model's manifest."""
        if not self._model_id:
            self._model_id = model_files.fingerprint(self.to_files())
        return self._model_id

    def knows(self, job_type: str) -> bool:
        """Whether the type was seen in training; an unknown one is treated as the worst known."""
        return job_type in self.contention_.types

    def violation_probability(self, mixes: MixBatch) -> Floats:
        """Return (n,) probabilities in [0, 1] that each mix breaks its limit; one call for all rows."""
        return self.answer(mixes).probability

    def predict(self, mixes: MixBatch) -> NDArray[np.bool_]:
        """Return (n,) whether the limit is broken, at even odds."""
        return np.asarray(self.violation_probability(mixes) > 0.5)
