"""The plan for a waiting pod, in a sentence with the wall's time.

`decision_reporter` calls it about once a second. Plans move by seconds all the time, and each new sentence is written
to the API. So a sentence stays while the node stays and the start moves by little. Invariant: the start in a sentence
differs from the planned one by at most `SETTLED_SECONDS`, or a tenth of the remaining time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cotide_core.instructions import WaitReason
from cotide_core.planning.planner import PlannedStart
from cotide_core.units import counted
from cotide_kube.timestamps import format_timestamp
from cotide_operator.cache.decision_store import Decision

SETTLED_SECONDS: Final = 10.0
"""Seconds of the operator's clock (chosen: as the predicted times of a Job's status)."""


class PlanMessages:
    """Sentences about plans, by pod.

    Parameters
    ----------
    to_wall : maps a second of the operator's clock to an epoch second of the wall.
    """

    def __init__(self, to_wall: Callable[[float], float]) -> None:
        self._to_wall = to_wall
        self._last: dict[str, tuple[str, float, str]] = {}

    def of(self, decision: Decision, plan: PlannedStart | None, now: float) -> str:
        """Return the message about a waiting pod: its plan, or without a plan the message of its decision."""
        if plan is None or decision.reason != WaitReason.WAITING_FOR_TURN.value:
            self._last.pop(decision.key, None)
            return decision.message
        node, start, sentence = self._last.get(decision.key, ("", 0.0, ""))
        moved = abs(start - plan.start_seconds)
        if node != plan.node or moved > max(SETTLED_SECONDS, 0.1 * (plan.start_seconds - now)):
            sentence = self._sentence(plan, now)
            self._last[decision.key] = (plan.node, plan.start_seconds, sentence)
        return sentence

    def forget(self, key: str) -> None:
        """Drop a deleted pod."""
        self._last.pop(key, None)

    def _sentence(self, plan: PlannedStart, now: float) -> str:
        today = format_timestamp(self._to_wall(now))
        at = f"{self._moment(plan.start_seconds, today)} UTC"
        if plan.latest_seconds is not None and plan.latest_seconds > plan.start_seconds:
            at += f", at the latest {self._moment(plan.latest_seconds, today)}"
        verb = "reserved" if plan.reserved else "planned"
        if plan.ends == 0:
            return f"{verb} on {plan.node} at {at}, after pods that are planned there before it"
        pods = counted(plan.ends, "pod there is", "pods there are")
        return f"{verb} on {plan.node} at {at}, when {pods} expected to end"

    def _moment(self, seconds: float, today: str) -> str:
        moment = format_timestamp(self._to_wall(seconds))
        return moment[11:19] if moment[:10] == today[:10] else f"{moment[:10]} {moment[11:19]}"
