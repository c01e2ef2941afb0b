"""The scheduling condition of a PodGroup of ``scheduling.k8s.io``, as a value: kube-scheduler's condition.

Called by `pod_group_reporter`; pure. The type of the condition, its reasons, and when it is written are those of
k8s.io/api and kube-scheduler 1.36.3 and 1.37.2 (``schedule_one_podgroup.go``). Invariants: a scheduled group stays
scheduled, although pods beyond the minimum may come and go. A group becomes unschedulable only after one of its pods
did. A pod that waits for the others, for a turn or for a gate does not count, because no node would help it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from cotide_core.instructions import WaitReason
from cotide_core.units import counted
from cotide_operator.cache.decision_store import Decision

TYPES: Final = {
    "v1alpha2": "PodGroupScheduled",
    "v1alpha3": "PodGroupInitiallyScheduled",
    "v1beta1": "PodGroupInitiallyScheduled",
}
"""Type of the condition by version of the API: 1.36 serves the first, 1.37 the others."""
SCHEDULED: Final = "Scheduled"
UNSCHEDULABLE: Final = "Unschedulable"
ERROR: Final = "SchedulerError"
"""A pod's request is invalid: no node would change that."""
_NO_FINDING: Final = frozenset({WaitReason.WAITING_FOR_TURN.value, WaitReason.WAITING_FOR_GANG.value})


class Finding(NamedTuple):
    """The result for a group."""

    scheduled: bool
    reason: str
    decision: Decision | None = None
    """The decision with the reason; None when the group is scheduled."""


def finding(minimum: int | None, placed: int, waiting: Sequence[Decision], *, refresh: bool) -> Finding | None:
    """Return the result for a group; None when there is none.

    Parameters
    ----------
    minimum : pods that must have a node together; 0 when that can't be read, None when one is enough.
    placed : its pods that have a node, or have succeeded.
    waiting : the latest decision about each pod without a node.
    refresh : whether the group is marked unschedulable already: then the reason is kept up to date.
    """
    needed = 1 if minimum is None else minimum
    if 0 < needed <= placed:
        return Finding(True, SCHEDULED)
    found = [decision for decision in waiting if decision.cap or decision.reason not in _NO_FINDING]
    if not found and refresh:
        found = [decision for decision in waiting if decision.reason == WaitReason.WAITING_FOR_GANG]
    if not found:
        return None
    newest = max(found, key=lambda decision: decision.decided_seconds)
    return Finding(False, ERROR if newest.reason == WaitReason.MISCONFIGURED else UNSCHEDULABLE, newest)


def sentence(minimum: int | None) -> str:
    """Return the message for a scheduled group."""
    return f"{counted(minimum, 'pod')} that must run together have a node" if minimum else "one of its pods has a node"


def standing(status: Mapping[str, Any], kind: str) -> tuple[dict[str, Any], list[Any]]:
    """Return a status's condition of a type, empty when it has none, and all others."""
    listed = status.get("conditions")
    conditions = listed if isinstance(listed, list) else []
    of_it = [condition for condition in conditions if isinstance(condition, dict) and condition.get("type") == kind]
    return (of_it[0] if of_it else {}), [condition for condition in conditions if condition not in of_it]


def replaced(
    before: Mapping[str, Any], kind: str, found: Finding, message: str, generation: int, now: str
) -> dict[str, Any] | None:
    """Return the condition that replaces the present one; None when that may stay.

    Parameters
    ----------
    before : the present one of this type; empty for none.
    generation : of the group for which the result was computed.
    now : the time as text.
    """
    was, status = before.get("status"), "True" if found.scheduled else "False"
    is_seen = before.get("observedGeneration", 0) == generation
    if was == "True" and (not found.scheduled or is_seen):
        return None
    if is_seen and (was, before.get("reason"), before.get("message")) == (status, found.reason, message):
        return None
    return {
        "type": kind,
        "status": status,
        "observedGeneration": generation,
        "reason": found.reason,
        "message": message,
        "lastTransitionTime": (before.get("lastTransitionTime") if was == status else None) or now,
    }
