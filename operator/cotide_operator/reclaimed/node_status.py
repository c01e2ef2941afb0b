"""The reclaimed capacity that a Node shows, what it should show, and the patch between both.

Called by `publisher`; pure. A node shows four things. Two are the extended resources: in ``capacity``, where Kubernetes
wants them patched, and in ``allocatable``, where a real kubelet copies them. The others are the condition
``cotide.dev/ForecastTrusted`` and a short annotation. One strategic merge patch of ``status`` writes all of them. An
API server takes annotations with it, so that no other part of a Node need be writable.

Changes that are worth a patch, with s the configured share of the physical amount::

    missing, or capacity and allocatable differ     due
    a change of s or more, up or down               due
    trust regained, or another reason               due
    no patch for `REFRESH_SECONDS`                  due
    trust lost                                      at once
    room is shown where none should be left         at once    (shown > in use >= wanted)

Source: https://kubernetes.io/docs/tasks/administer-cluster/extended-resource-node/
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final

from cotide_core.errors import InputError
from cotide_core.state.reclaimed import Amounts, Holdings, beside_requests, publishable
from cotide_core.units import RECLAIMED_CPU, RECLAIMED_MEMORY, resource_amount
from cotide_kube.objects import Condition, NodeObject, Quantity
from cotide_kube.timestamps import format_timestamp, parse_timestamp
from cotide_operator.reclaimed.node_outlook import NO_FORECAST, NodeOutlook

Json = dict[str, Any]

ANNOTATION: Final = "cotide.dev/forecast"
CONDITION: Final = "cotide.dev/ForecastTrusted"
RESOURCES: Final = (RECLAIMED_CPU, RECLAIMED_MEMORY)
REFRESH_SECONDS: Final = 900.0
"""Wall seconds after which a node's values are written again although they hardly changed, so that the figures are
recent. Chosen: 5,000 nodes take 5.6 patches/s."""
STALE_FORECAST: Final = "StaleForecast"
IMPOSSIBLE_FORECAST: Final = "ImpossibleForecast"
"""Further reasons of our own, in addition to those of an outlook."""
MEMORY_STEP: Final = 2**20
"""Memory is published in whole MiB, rounded down; chosen: single bytes would distract a reader."""
MESSAGE_LIMIT: Final = 512
"""Characters of a condition's message; chosen."""


class Urgency(IntEnum):
    """Whether a change is worth a patch, and whether it may wait for the node's turn."""

    NONE = 0
    DUE = 1
    AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Shown:
    """The values that a Node shows now; None for a missing one."""

    capacity: tuple[int | None, int | None] = (None, None)
    allocatable: tuple[int | None, int | None] = (None, None)
    trusted: bool | None = None
    reason: str = ""
    changed: str | None = None
    """Timestamp of the last change of trust."""
    wall_seconds: float | None = None
    """Time of the last write."""
    noted: bool = False
    """Whether the annotation exists."""

    @property
    def anything(self) -> bool:
        """Whether the node has any Cotide field to remove."""
        amounts = (*self.capacity, *self.allocatable)
        return self.noted or self.trusted is not None or any(amount is not None for amount in amounts)


NOTHING: Final = Shown()


@dataclass(frozen=True, slots=True)
class Wanted:
    """The values that a Node should show."""

    amounts: Amounts
    trusted: bool
    reason: str
    message: str
    note: str


def shown(node: NodeObject) -> Shown:
    """Read a Node."""
    status = node.status
    condition = next((condition for condition in status.conditions if condition.type == CONDITION), None)
    return Shown(
        capacity=_amounts(status.capacity),
        allocatable=_amounts(status.allocatable),
        trusted=_trust(condition),
        reason=condition.reason if condition is not None else "",
        changed=condition.last_transition_time if condition is not None else None,
        wall_seconds=_seconds(condition.last_heartbeat_time) if condition is not None else None,
        noted=ANNOTATION in node.metadata.annotations,
    )


def wanted(outlook: NodeOutlook, held: Holdings, *, over: bool) -> Wanted:
    """Return the values that a Node should show: the offer, but never less than its pods hold.

    A kubelet that restarts admits its pods again, and kills one that no longer fits. So the amount falls only after
    pods end or are evicted, not before. Meanwhile the node shows no free room.

    Parameters
    ----------
    outlook : the latest one.
    held : the holdings of the node's pods.
    over : whether the outlook's time is over: requests count then, as they do for an impossible outlook.
    """
    outlook = believable(outlook, held, over=over)
    millicores, memory = publishable((outlook.offered_millicores, outlook.offered_memory_bytes), held)
    message = " ".join(outlook.message.split())[:MESSAGE_LIMIT]
    cpu_held, memory_held = held.reclaimed
    amounts = max(millicores, cpu_held), max(memory // MEMORY_STEP * MEMORY_STEP, memory_held)
    return Wanted(amounts, outlook.trusted, outlook.reason, message, note(outlook))


def believable(outlook: NodeOutlook, held: Holdings, *, over: bool) -> NodeOutlook:
    """Return a possible outlook; where no forecast is trusted, it offers at most what pods do not request by now."""
    figures = (
        outlook.online_millicores,
        outlook.online_memory_bytes,
        outlook.offered_millicores,
        outlook.offered_memory_bytes,
    )
    free = beside_requests(held)
    possible = all(math.isfinite(figure) and figure >= 0 for figure in figures)
    if possible and not over:
        if outlook.trusted:
            return outlook
        cpu, memory = min(outlook.offered_millicores, free[0]), min(outlook.offered_memory_bytes, free[1])
        return replace(outlook, offered_millicores=cpu, offered_memory_bytes=memory)
    fault = "no forecast came for a whole slot" if possible else "the forecast held an impossible figure"
    reason = STALE_FORECAST if possible else IMPOSSIBLE_FORECAST
    return NodeOutlook(
        node=outlook.node,
        until_seconds=outlook.until_seconds,
        online_millicores=float(held.online[0]),
        online_memory_bytes=float(held.online[1]),
        offered_millicores=free[0],
        offered_memory_bytes=free[1],
        trusted=False,
        reason=reason,
        message=f"{fault}: the pods' requests count instead",
    )


def note(outlook: NodeOutlook) -> str:
    """Return the annotation: one short line of figures."""
    parts = [f"online peak {outlook.online_millicores:.0f}m cpu, {outlook.online_memory_bytes / 2**20:.0f}Mi memory"]
    if outlook.coverage_p99 is not None:
        parts.append(f"p99 covers {outlook.coverage_p99:.1%}")
    if outlook.absolute_error_share is not None:
        parts.append(f"error {outlook.absolute_error_share:.1%}")
    if outlook.underestimate_share is not None:
        parts.append(f"under-estimates {outlook.underestimate_share:.1%}")
    return "; ".join([*parts, outlook.reason])


def urgency(
    current: Shown, target: Wanted, *, in_use: Amounts, physical: Amounts, share: float, wall_seconds: float
) -> Urgency:
    """Return whether the difference is worth a patch; see the module's table.

    Parameters
    ----------
    in_use : reclaimed capacity that the node's pods ask for.
    physical : allocatable cpu and memory.
    share : of ``physical``; a smaller change waits.
    wall_seconds : now.
    """
    if current.trusted and not target.trusted:
        return Urgency.AT_ONCE
    due = (
        current.trusted is None
        or (current.trusted, current.reason) != (target.trusted, target.reason)
        or not current.noted
    )
    for capacity, amount, new, held, size in zip(
        current.capacity, current.allocatable, target.amounts, in_use, physical, strict=True
    ):
        if amount is None or capacity is None:
            due = True
        elif amount > held >= new:
            return Urgency.AT_ONCE
        elif amount != capacity or (amount != new and abs(amount - new) >= share * size):
            due = True
    # A time ahead of ours comes from a faulty clock: its age would never reach the limit.
    age = wall_seconds - current.wall_seconds if current.wall_seconds is not None else REFRESH_SECONDS
    return Urgency.DUE if due or not -REFRESH_SECONDS < age < REFRESH_SECONDS else Urgency.NONE


def standing(state: Shown | Wanted) -> bool | None:
    """Return whether a node's forecast is trusted (True) or fell back (False); None for a node without a forecast.

    The node or the operator is new, or the next forecast is being made. Such a node has lost no trust, and regains none
    with its next forecast.
    """
    return None if state.trusted is None or state.reason == NO_FORECAST else state.trusted


def publication(node: NodeObject, current: Shown, target: Wanted, wall_seconds: float) -> Json:
    """Return the strategic merge patch of ``status`` that brings a Node to the wanted values."""
    now, written = format_timestamp(wall_seconds), after(current, target, wall_seconds)
    amounts = {name: str(amount) for name, amount in zip(RESOURCES, target.amounts, strict=True)}
    condition = {
        "type": CONDITION,
        "status": "True" if target.trusted else "False",
        "reason": target.reason,
        "message": target.message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": written.changed,
    }
    return {
        # With the uid the server refuses the patch if the node was replaced meanwhile.
        "metadata": {"uid": node.metadata.uid, "annotations": {ANNOTATION: target.note}},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [condition]},
    }


def after(current: Shown, target: Wanted | None, wall_seconds: float) -> Shown:
    """Return what a Node shows after the patch of this second; ``target`` is None for a withdrawal."""
    if target is None:
        return NOTHING
    kept = current.changed if current.changed and current.trusted is target.trusted else None
    return Shown(
        capacity=target.amounts,
        allocatable=target.amounts,
        trusted=target.trusted,
        reason=target.reason,
        changed=kept or format_timestamp(wall_seconds),
        wall_seconds=wall_seconds,
        noted=True,
    )


def withdrawal(node: NodeObject) -> Json:
    """Return the strategic merge patch of ``status`` that removes all Cotide fields."""
    nothing = dict.fromkeys(RESOURCES)
    return {
        "metadata": {"uid": node.metadata.uid, "annotations": {ANNOTATION: None}},
        "status": {
            "capacity": nothing,
            "allocatable": nothing,
            "conditions": [{"$patch": "delete", "type": CONDITION}],
        },
    }


def _amounts(quantities: Mapping[str, Quantity]) -> tuple[int | None, int | None]:
    return _amount(quantities, RECLAIMED_CPU), _amount(quantities, RECLAIMED_MEMORY)


def _amount(quantities: Mapping[str, Quantity], name: str) -> int | None:
    try:
        return resource_amount(name, quantities[name]) if name in quantities else None
    except InputError:  # a foreign value in our field counts as missing, and is replaced
        return None


def _trust(condition: Condition | None) -> bool | None:
    return {"True": True, "False": False}.get(condition.status) if condition is not None else None


def _seconds(text: str | None) -> float | None:
    try:
        return parse_timestamp(text) if text else None
    except InputError:
        return None
