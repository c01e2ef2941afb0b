"""Turns the placements of one cycle into Bind instructions with their forecasts.

Called by `cycle.Scheduler` once per cycle, so that the slowdowns of all its binds are predicted in one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cotide_core.forecasting.own_models import type_for
from cotide_core.forecasts import HABITS, CompletionForecaster
from cotide_core.instructions import NO_FORECAST, Bind, Forecast
from cotide_core.placement.placer import Placement
from cotide_core.qos.applicability import evidence_of, names_of, outside_of
from cotide_core.queueing.queued_pod import QueuedPod


@dataclass(slots=True)
class DecidedBind:
    """A placement that was assumed, with the contention on its node right after."""

    entry: QueuedPod
    node: str
    placement: Placement
    queued_seconds: float
    service_rate: float
    """Summed requests per second of the online services on the node."""
    cpu_pressure: float
    """See `forecasts.MixBatch`; the pod itself included."""


def bind_instructions(
    decided: Sequence[DecidedBind], forecaster: CompletionForecaster, qos_model: str, policy: str, threshold: float
) -> list[Bind]:
    """Return the Binds, each with its predicted completion: lone run time times the slowdown on the chosen node."""
    jobs = [bind for bind in decided if not bind.entry.shape.online]
    slowdowns: dict[int, float] = {}
    if jobs:
        rates = np.array([bind.service_rate for bind in jobs], np.float64)
        pressures = np.array([bind.cpu_pressure for bind in jobs], np.float64)
        factors = forecaster.slowdown([type_for(forecaster, bind.entry.pod) for bind in jobs], rates, pressures)
        slowdowns = {id(bind): factor for bind, factor in zip(jobs, factors.tolist(), strict=True)}
    out = []
    for bind in decided:
        entry, probability = bind.entry, bind.placement.probability
        factor = slowdowns.get(id(bind))
        forecast = NO_FORECAST
        if factor is not None or probability is not None:
            forecast = Forecast(
                qos_violation_probability=probability,
                seconds_p50=None if factor is None else entry.seconds_p50 * factor,
                seconds_p90=None if factor is None else entry.seconds_p90 * factor,
                qos_model="" if probability is None else qos_model,
                completion_model="" if factor is None else HABITS if entry.from_habits else forecaster.model_id,
                qos_outside=() if probability is None else names_of(outside_of(bind.placement.basis)),
                qos_evidence=None if probability is None else evidence_of(bind.placement.basis),
            )
        out.append(
            Bind(
                key=entry.pod.key,
                uid=entry.pod.uid,
                node=bind.node,
                reason=reason_of(bind.placement, policy, threshold),
                forecast=forecast,
                refused=bind.placement.refused,
                attempts=entry.attempts,
                queued_seconds=bind.queued_seconds,
            )
        )
    return out


def reason_of(placement: Placement, policy: str, threshold: float) -> str:
    """Return why a node was chosen, in one sentence."""
    probability = placement.probability
    if placement.why:
        return f"{policy}: {placement.why}"
    if probability is not None:
        risk = f"a latency limit breaks there with p={probability:.2f}, at most {threshold:.2f} is accepted"
        return f"{policy}: {risk}"
    if placement.guarded:
        return f"{policy}: no online service is put at risk there"
    return f"{policy}: best-ranked node that fits; latency limits are not looked at"
