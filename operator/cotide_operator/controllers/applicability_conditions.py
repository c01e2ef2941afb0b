"""The conditions ``RateUnknown`` and ``OutsideTraining`` of a Workload, from what the QoS model in use knows of it.

Called by `workload_controller` after the rest of the status was made. Invariant: a sentence changes only with what it
is about, never with a measured number, so that a status is not written for nothing.
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


def with_applicability(
    conditions: Sequence[Mapping[str, Any]], known: ServiceApplicability, look: ReconcileContext
) -> list[Status]:
    """Return the conditions with both of them set."""
    measured = _UNKNOWN not in known.outside
    outside = [name for name in known.outside if name != _UNKNOWN]
    rate: Status = {"type": CONDITION_RATE_UNKNOWN, "status": "False" if measured else "True"}
    rate["reason"] = "Measured" if measured else "NotMeasured"
    rate["message"] = (
        "its request rate is measured"
        if measured
        else f"nobody measures its request rate, which is no rate of 0: {_LARGER}"
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
    for condition in (rate, training):
        found = with_condition(found, condition, look)
    return [dict(one) for one in found]
