"""What a PodGroup of ``scheduling.k8s.io`` says of its scheduling, as a value: kube-scheduler's condition.

Called by `pod_group_reporter`; pure. The type of the condition, its reasons, and when it is written are those of
k8s.io/api and kube-scheduler 1.36.3 and 1.37.2 (``schedule_one_podgroup.go``). Invariants: what is said to be
scheduled is never said not to be again, as pods beyond the minimum may come and go; a group is not said to be
unschedulable before a pod of it was found to be: no node would help who waits for the others, for a turn or a gate.
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
"""A pod asks for something that can't be followed: no node would change that."""
_NO_FINDING: Final = frozenset({WaitReason.WAITING_FOR_TURN.value, WaitReason.WAITING_FOR_GANG.value})


class Finding(NamedTuple):
    """What is to be said of a group."""

    scheduled: bool
    reason: str
    decision: Decision | None = None
    """Whose sentence says why; None where it is scheduled."""


def finding(minimum: int | None, placed: int, waiting: Sequence[Decision], *, refresh: bool) -> Finding | None:
    """Return what is to be said of a group; None where that is nothing.

    Parameters
    ----------
    minimum : pods that must have a node together; 0 where that can't be read, None where one is enough.
    placed : pods of it that have a node, or have succeeded.
    waiting : the latest decision about each pod that has none.
    refresh : whether it is said to be unschedulable already: then why is kept up to date.
    """
    needed = 1 if minimum is None else minimum
    if 0 < needed <= placed:
        return Finding(True, SCHEDULED)
    found = [decision for decision in waiting if decision.cap or decision.reason not in _NO_FINDING]
    if not found and refresh:
        found = [decision for decision in waiting if decision.reason == WaitReason.WAITING_FOR_GANG]
    if not found:
        return None
    newest = max(found, key=lambda one: one.decided_seconds)
    return Finding(False, ERROR if newest.reason == WaitReason.MISCONFIGURED else UNSCHEDULABLE, newest)


def sentence(minimum: int | None) -> str:
    """Return what is said of a group that is scheduled."""
    return f"{counted(minimum, 'pod')} that must run together have a node" if minimum else "a pod of it has a node"


def standing(status: Mapping[str, Any], kind: str) -> tuple[dict[str, Any], list[Any]]:
    """Return the condition of a type as a status has it, empty where it has none, and all others."""
    listed = status.get("conditions")
    conditions = listed if isinstance(listed, list) else []
    of_it = [condition for condition in conditions if isinstance(condition, dict) and condition.get("type") == kind]
    return (of_it[0] if of_it else {}), [condition for condition in conditions if condition not in of_it]


def replaced(
    before: Mapping[str, Any], kind: str, found: Finding, message: str, generation: int, now: str
) -> dict[str, Any] | None:
    """Return the condition that takes the place of another; None where that may stay.

    Parameters
    ----------
    before : the one of this type that stands; empty for none.
    generation : of the object that was looked at.
    now : the time, as it is written.
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
