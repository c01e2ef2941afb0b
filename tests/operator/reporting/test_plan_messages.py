"""What is planned for a pod, in words: with the wall's time, and not new for every second that a plan moves."""

from __future__ import annotations

from cotide_core.planning.planner import PlannedStart
from cotide_operator.cache.decision_store import Decision
from cotide_operator.reporting.plan_messages import PlanMessages

NOW = 43_200.0
"""Noon of 1970-01-01."""


def decision(reason: str = "WaitingForTurn") -> Decision:
    return Decision("d/p", "u", NOW, None, reason, "reserved on a")


def plan(start: float, *, node: str = "a", ends: int = 2, reserved: bool = True) -> PlannedStart:
    return PlannedStart(node, NOW + start, NOW + start + 60, ends, reserved)


def test_a_plan_is_told_with_node_time_and_what_it_waits_for() -> None:
    words = PlanMessages(lambda seconds: seconds)
    message = words.of(decision(), plan(190), NOW)
    assert message == "reserved on a at 12:03:10 UTC, when 2 pods there are expected to end"
    message = words.of(decision(), plan(190, node="b", ends=1, reserved=False), NOW)
    assert message == "planned on b at 12:03:10 UTC, when 1 pod there is expected to end"
    message = words.of(decision(), plan(86_400, ends=0), NOW)
    assert message == "reserved on a at 1970-01-02 12:00:00 UTC, after pods that are planned there before it"


def test_a_promise_with_slack_says_when_it_starts_at_the_latest() -> None:
    promised = PlannedStart("a", NOW + 190, NOW + 250, 1, reserved=True, latest_seconds=NOW + 250)
    message = PlanMessages(lambda seconds: seconds).of(decision(), promised, NOW)
    assert message == "reserved on a at 12:03:10 UTC, at the latest 12:04:10, when 1 pod there is expected to end"


def test_the_time_is_the_wall_s_where_the_clock_runs_faster() -> None:
    words = PlanMessages(lambda seconds: NOW + (seconds - NOW) / 10)
    assert words.of(decision(), plan(190), NOW).startswith("reserved on a at 12:00:19 UTC")


def test_a_sentence_stays_while_the_start_moves_by_little() -> None:
    words = PlanMessages(lambda seconds: seconds)
    first = words.of(decision(), plan(190), NOW)
    assert words.of(decision(), plan(205), NOW) == first, "15 s are less than a tenth of 205"
    assert "12:04:00" in words.of(decision(), plan(240), NOW), "50 s are more than a tenth of 240"
    assert "on b at 12:04:00" in words.of(decision(), plan(240, node="b"), NOW)


def test_what_can_t_be_planned_is_told_as_decided() -> None:
    words = PlanMessages(lambda seconds: seconds)
    assert words.of(decision(), None, NOW) == "reserved on a"
    assert words.of(decision("NoMatchingNode"), plan(10), NOW) == "reserved on a"
