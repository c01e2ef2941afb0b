"""Scores on measurements of another kind than the training ones: a table without any overlap with them.

Called by `cotide evaluate --unseen`. Random splits hold out rows of the same campaign, with the same jobs on the same
machine. Here all of that is new, types of jobs included. Invariant: nothing of the test samples is used for training or
tuning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.forecasts import MixBatch, QosSamples
from cotide_core.kernels.array_types import Floats
from cotide_lab.predictors.evaluation.baselines import QOS_BASELINES, QosBaseline
from cotide_lab.predictors.evaluation.held_out import OURS, QosContender, Score, Watch, chosen_model, score_qos
from cotide_predictors.one_thread import on_one_thread
from cotide_predictors.qos.mixes import with_limit
from cotide_predictors.qos.qos_model import QosModel

UNBOUNDED: Final = "cotide, unbounded"


class Unbounded:
    """The forecast of our trees and their base everywhere. On unseen mixes the model itself takes the larger of that
    and the rule by requests.
    """

    def __init__(self, model: QosModel) -> None:
        self._model = model

    def violation_probability(self, mixes: MixBatch) -> Floats:
        """Return (n,) probabilities."""
        return self._model.unbounded_probability(mixes)

    def predict(self, mixes: MixBatch) -> NDArray[np.bool_]:
        """Return (n,) decisions at even odds."""
        return self.violation_probability(mixes) > 0.5


@on_one_thread
def evaluate_unseen(
    learned: QosSamples,
    asked: QosSamples,
    *,
    limits_milliseconds: Sequence[float],
    random_state: int = 0,
    watch: Watch | None = None,
) -> list[Score]:
    """Return scores of our model, as it is and `UNBOUNDED`, and of each baseline, one entry each.

    Parameters
    ----------
    learned, asked : samples to train on and to score, over the same types of jobs in the same order.
    watch : called with each contender's probabilities and their rows.
    """
    ours = chosen_model(learned, limits_milliseconds, random_state)
    found = []
    for limit in limits_milliseconds:
        mixes, violated = with_limit(asked.mixes, limit), asked.latency_milliseconds > limit
        contenders: dict[str, QosContender] = {OURS: ours, UNBOUNDED: Unbounded(ours)}
        for method in QOS_BASELINES:
            rival = QosBaseline(method=method, limit_milliseconds=limit, random_state=random_state)
            contenders[method] = rival.fit(learned.mixes, learned.latency_milliseconds)
        for name, contender in contenders.items():
            scores = score_qos(contender, mixes, violated)
            found.append(Score(name, limit, {key: np.array([value]) for key, value in scores.items()}))
            if watch is not None:
                watch(name, limit, contender.violation_probability(mixes), violated)
    return found
