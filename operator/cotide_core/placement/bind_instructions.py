"""Turns the placements of one cycle into Bind instructions with their forecasts.

Called by `cycle.Scheduler` once per cycle, so that the slowdowns of all its binds are predicted in one call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cotide_core.forecasting.own_models import type_for
from cotide_core.forecasts import HABITS, CompletionForecaster
from cotide_core.instructions import NO_FORECAST, Bind, Forecast
from cotide_core.placement.placer import Placement
from cotide_core.placement.wait_instructions import risk_of
from cotide_core.qos.applicability import UNMEASURED, outside_of
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
    """Return the Binds, each with its predicted completion: isolated run time times the slowdown on the chosen node."""
    jobs = [bind for bind in decided if not bind.entry.shape.online]
    factors: Iterator[float] = iter(())
    if jobs:
        rates = np.array([bind.service_rate for bind in jobs], np.float64)
        pressures = np.array([bind.cpu_pressure for bind in jobs], np.float64)
        types = [type_for(forecaster, bind.entry.pod) for bind in jobs]
        factors = iter(forecaster.slowdown(types, rates, pressures).tolist())
    out = []
    for bind in decided:
        entry, placement = bind.entry, bind.placement
        probability = placement.probability
        forecast = NO_FORECAST if probability is None else risk_of(probability, placement.basis, qos_model)
        if not entry.shape.online:
            factor = next(factors)
            model = HABITS if entry.from_habits else forecaster.model_id
            risk, _, _, asked, _, outside, evidence = forecast
            p50, p90 = entry.seconds_p50 * factor, entry.seconds_p90 * factor
            forecast = Forecast(risk, p50, p90, asked, model, outside, evidence)
        pod, reason = entry.pod, reason_of(placement, policy, threshold)
        waited, at_risk = bind.queued_seconds, is_at_risk(bind, threshold)
        out.append(
            Bind(pod.key, pod.uid, bind.node, reason, forecast, placement.refused, entry.attempts, waited, at_risk)
        )
    return out


def is_at_risk(bind: DecidedBind, threshold: float) -> bool:
    """Whether an online pod goes to a node with a predicted break of a latency limit, since no other node is better."""
    probability = bind.placement.probability
    return bind.entry.shape.online and probability is not None and probability > threshold


def reason_of(placement: Placement, policy: str, threshold: float) -> str:
    """Return why a node was chosen, in one sentence."""
    probability = placement.probability
    estimated = " (rate estimated)" if outside_of(placement.basis) & UNMEASURED else ""
    if placement.why:
        return f"{policy}: {placement.why}{estimated}"
    if probability is not None:
        risk = f"a latency limit breaks there with p={probability:.2f}, at most {threshold:.2f} is accepted"
        return f"{policy}: {risk}{estimated}"
    if placement.guarded:
        return f"{policy}: no online service is put at risk there"
    return f"{policy}: best-ranked node that fits; latency limits are not considered"
