"""What both latency models share: their id, the types they know, the probability alone, and even odds.

Base of `qos_model.QosModel` and `services_model.ServicesQosModel`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cotide_core.forecasts import MixBatch, QosAnswers
from cotide_core.kernels.array_types import Floats
from cotide_predictors.estimator import Estimator
from cotide_predictors.persistence.model_files import FiledModel
from cotide_predictors.qos.type_contention import TypeContention


def measured_latencies(mixes: MixBatch, milliseconds: Floats) -> Floats:
    """Return (n,) latencies to learn from; raise ValueError unless there is one for each of n mixes, finite and above
    0.
    """
    latency = np.asarray(milliseconds, dtype=np.float64)
    if len(latency) != len(mixes) or not len(latency):
        raise ValueError(f"{len(latency)} latencies for {len(mixes)} mixes; at least one of each is needed")
    if not (np.isfinite(latency) & (latency > 0)).all():
        raise ValueError("every latency must be a finite number of milliseconds > 0")
    return latency


class LatencyModel(Estimator, FiledModel):
    """A forecaster of broken limits."""

    contention_: TypeContention

    def answer(self, mixes: MixBatch) -> QosAnswers:
        """Return the probabilities, with whether each mix lies inside the training range, and the evidence."""
        raise NotImplementedError

    def knows(self, job_type: str) -> bool:
        """Whether the type was seen in training; an unknown one is treated as the worst known."""
        return job_type in self.contention_.types

    def violation_probability(self, mixes: MixBatch) -> Floats:
        """Return (n,) probabilities in [0, 1] that each mix breaks its limit; one call for all rows."""
        return self.answer(mixes).probability

    def predict(self, mixes: MixBatch) -> NDArray[np.bool_]:
        """Return (n,) whether the limit is broken, at even odds."""
        return np.asarray(self.violation_probability(mixes) > 0.5)
