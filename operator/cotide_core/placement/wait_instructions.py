"""The instructions for a pod that stays in the queue: one `Wait` when the message changes, none otherwise.

Called by `cycle` after each failed attempt. Invariant: two consecutive Waits of one pod differ, so that a reader sees
changes and not attempts.
"""

from __future__ import annotations

from dataclasses import dataclass

from cotide_core.instructions import NO_FORECAST, Evict, Forecast, Wait, WaitReason
from cotide_core.placement.placer import Placement
from cotide_core.placement.refusal_messages import overall, sentence
from cotide_core.qos.applicability import evidence_of, names_of, outside_of
from cotide_core.queueing.queued_pod import QueuedPod


@dataclass(frozen=True, slots=True)
class Room:
    """Room that is being made for a pod on a node."""

    node: str
    message: str
    victims: tuple[str, ...]
    """Keys of the pods that leave for it."""
    evictions: tuple[Evict, ...] = ()


def wait(
    entry: QueuedPod,
    reason: WaitReason,
    message: str,
    *,
    placement: Placement | None = None,
    forecast: Forecast = NO_FORECAST,
    retry_at: float | None = None,
    room: Room | None = None,
    cap: str = "",
) -> Wait | None:
    """Return the Wait to emit, or None if the same was emitted before.

    Parameters
    ----------
    placement : the attempt that failed, for its verdicts.
    room : the room that is being made for the pod.
    cap : the limit of its namespace that it waits for.
    """
    node = "" if room is None else room.node
    if entry.last_reason == (reason, message, node):
        return None
    entry.last_reason = (reason, message, node)
    return Wait(
        key=entry.pod.key,
        uid=entry.pod.uid,
        reason=reason,
        message=message,
        refused=() if placement is None else placement.refused,
        forecast=forecast,
        attempts=entry.attempts,
        demotions=entry.demotions,
        retry_at_seconds=retry_at,
        nominated_node=node,
        victims=() if room is None else room.victims,
        cap=cap,
    )


def risk_of(probability: float, basis: int, qos_model: str) -> Forecast:
    """Return the forecast of a pod with a latency risk only, and the basis of the risk."""
    return Forecast(
        probability,
        qos_model=qos_model,
        qos_outside=names_of(outside_of(basis)),
        qos_evidence=evidence_of(basis),
    )


def refusal(entry: QueuedPod, placement: Placement, nodes: int, qos_model: str) -> Wait | None:
    """Return the Wait for an attempt that found no node among ``nodes``, or None if the same was emitted before."""
    message = sentence(placement.refused, nodes)
    forecast = NO_FORECAST
    if placement.probability is not None:
        forecast = risk_of(placement.probability, placement.basis, qos_model)
    return wait(entry, overall(placement.refused), message, placement=placement, forecast=forecast)
