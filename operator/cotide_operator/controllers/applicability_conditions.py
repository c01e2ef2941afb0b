"""Conditions of a Workload from the QoS model in use and from the quality of its forecasts.

``RateUnknown`` and ``OutsideTraining`` show how far the model covers the Workload. ``Learning``, ``Trusted`` and
``FallenBack`` show how good its forecasts were. `workload_controller` calls it after the rest of the status was made.
Invariant: a sentence contains no measured number, so that it changes, and is written, only with its subject.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cotide_core.qos.applicability import CONDITION_OUTSIDE, CONDITION_RATE_UNKNOWN, NAMES, RATE_UNKNOWN
from cotide_core.units import counted
from cotide_operator.controllers.status_builder import ReconcileContext, Status, with_condition
from cotide_operator.models.service_applicability import ServiceApplicability

_LARGER: Final = "the larger of model and heuristic counts"
_UNKNOWN: Final = NAMES[RATE_UNKNOWN]
MODEL: Final = "Model"
HEURISTIC: Final = "Heuristic"
_TRUST: Final = {
    "Learning": "its latency forecasts are scored in shadow, the request-based heuristic decides",
    "Trusted": "its latency forecasts were good for as long as it takes to be trusted",
    "FallenBack": "its latency forecasts were worse than promised or than the heuristic's, which decides for now",
}


def with_applicability(
    conditions: Sequence[Mapping[str, Any]], known: ServiceApplicability, context: ReconcileContext
) -> list[Status]:
    """Return the conditions with all of them set."""
    measured = _UNKNOWN not in known.outside
    outside = [name for name in known.outside if name != _UNKNOWN]
    rate: Status = {"type": CONDITION_RATE_UNKNOWN, "status": "False" if measured else "True"}
    rate["reason"] = "Measured" if measured else "NotMeasured"
    rate["message"] = (
        "its request rate is measured"
        if measured
        else f"its request rate is not measured, which differs from a rate of 0: {_LARGER}"
    )
    training: Status = {"type": CONDITION_OUTSIDE, "status": "True"}
    if known.samples is None:
        training["reason"] = "NoModel"
        training["message"] = "no QoS model is in use: the request-based heuristic decides"
    elif outside:
        training["reason"] = "Outside"
        training["message"] = (
            f"outside what was learned by {', '.join(outside)} ({counted(known.samples, 'sample')}): {_LARGER}"
        )
    else:
        training["status"] = "False"
        training["reason"] = "Inside"
        training["message"] = f"alone it lies inside what was learned from {counted(known.samples, 'sample')} of it"
    found: Sequence[Mapping[str, Any]] = conditions
    if not known.trust:  # an operator that scored by service left them
        found = [condition for condition in conditions if condition.get("type") not in _TRUST]
    for condition in (rate, training, *_trust_conditions(known)):
        found = with_condition(found, condition, context)
    return [dict(condition) for condition in found]


def decided_by(known: ServiceApplicability) -> str:
    """Return the text for `kubectl get cwl`: whether the model or the heuristic decides about a service."""
    return MODEL if known.decides else HEURISTIC


def _trust_conditions(known: ServiceApplicability) -> list[Status]:
    """Return one condition for each trust state; none where forecasts are not scored by service."""
    if not known.trust:
        return []
    conditions: list[Status] = []
    for name, message in _TRUST.items():
        holds = name == known.trust
        conditions.append(
            {
                "type": name,
                "status": "True" if holds else "False",
                "reason": "Scored" if holds else "Otherwise",
                "message": message if holds else f"its latency forecasts are {known.trust}",
            }
        )
    return conditions
