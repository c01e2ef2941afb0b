"""What the QoS model in use knows of one service as it runs now: the answer to a question about it alone.

Called by the Workload controller through `store`. It is what the conditions RateUnknown and OutsideTraining say.
Invariant: it asks the same forecaster as the engine does, so that a condition says what decisions rest on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotide_core.forecasts import MixBatch, QosForecaster
from cotide_core.qos.applicability import RATE_UNKNOWN, names_of


@dataclass(frozen=True, slots=True)
class ServiceApplicability:
    """Where a service stands to the QoS model in use.

    Attributes
    ----------
    outside : words of `applicability.NAMES`: in what it lies outside what was learned, an unmeasured rate included.
    samples : of it that the model learned from; None where there is no model.
    decides : whether the model decides about it, and not the heuristic.
    trust : ``Learning``, ``Trusted`` or ``FallenBack`` where forecasts are scored by service; else empty.
    """

    outside: tuple[str, ...]
    samples: int | None
    decides: bool = False
    trust: str = ""


def applicability_of(
    forecaster: QosForecaster, service: str, requests_per_second: float | None, limit_milliseconds: float
) -> ServiceApplicability:
    """Ask about a service alone on a node, at its present rate by pod (None where nobody measured it) and its limit."""
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
