"""Applicability of the QoS model in use to one service as it runs now: the forecaster's answer about it alone.

Called by the Workload controller through `store`. The conditions RateUnknown and OutsideTraining show it. Invariant: it
uses the same forecaster as the engine, so that a condition shows the basis of decisions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotide_core.forecasts import MixBatch, QosForecaster
from cotide_core.qos.applicability import RATE_UNKNOWN, names_of


@dataclass(frozen=True, slots=True)
class ServiceApplicability:
    """Relation of a service to the QoS model in use.

    Attributes
    ----------
    outside : words of `applicability.NAMES`: the features outside the learned range, an unmeasured rate included.
    samples : number of its samples that the model learned from; None without a model.
    decides : whether the model decides about it instead of the heuristic.
    trust : ``Learning``, ``Trusted`` or ``FallenBack`` where forecasts are scored by service; otherwise empty.
    """

    outside: tuple[str, ...]
    samples: int | None
    decides: bool = False
    trust: str = ""


def applicability_of(
    forecaster: QosForecaster, service: str, requests_per_second: float | None, limit_milliseconds: float
) -> ServiceApplicability:
    """Query a service alone on a node, at its present rate per pod (None when unmeasured) and its limit."""
    unmeasured = RATE_UNKNOWN if requests_per_second is None else 0
    alone = MixBatch(
        np.array([requests_per_second or 0.0]),
        np.zeros(1),
        np.array([limit_milliseconds]),
        np.zeros(1),
        (),
        np.zeros((1, 0)),
        np.zeros((1, 0)),
        services=(service,),
        service=np.zeros(1, np.int64),
        unmeasured=np.array([unmeasured], np.int64),
    )
    answer = forecaster.answer(alone)
    samples = int(answer.evidence[0])
    return ServiceApplicability(names_of(int(answer.outside[0])), None if samples < 0 else samples)
