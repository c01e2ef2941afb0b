"""What the demo says at its end: who won and by how much, a tie, a loss, or that the machine was too busy to tell."""

from __future__ import annotations

import pytest

from cotide_sim.cluster.scorecard import Summary
from cotide_sim.demo.verdict import LATE_SHARE, Verdict, verdict_of
from cotide_sim.workloads.scenarios import Scenario


def figures(waiting: float, over: float, slots: int = 0, never_ran: tuple[str, ...] = ()) -> Summary:
    return Summary(
        pods_bound=100,
        jobs_finished=50,
        waiting_seconds_total=waiting,
        waiting_seconds_mean=waiting / 100,
        qos_violation_ratio=over,
        cpu_utilisation=0.5,
        evictions=0,
        overload_slots=slots,
        online_evictions=0,
        services_never_ran=list(never_ran),
        online_pods_waiting=len(never_ran),
    )


def said(given: dict[str, Summary], *, late: float = 0.0, scenario: Scenario = "latency") -> Verdict:
    return verdict_of(given, dict.fromkeys(given, late), scenario, 20.0)


def test_of_those_that_keep_the_limits_the_one_that_waits_least_wins() -> None:
    """fifo waits least and breaks limits for .4 of the time; .1, a quarter of it, is the most that keeps them."""
    found = said({"fifo": figures(100, 0.4), "qpsm": figures(800, 0.02), "random-guarded": figures(1000, 0.1)})
    assert (found.kind, found.winner) == ("won", "qpsm")
    assert "waited least, 20% less than under random-guarded" in found.sentence
    assert "over their limits for 2.0% of the time, where fifo was for 40.0%" in found.sentence
    assert found.missed == ()


def test_a_loss_of_our_own_is_said_and_its_objective_is_missed() -> None:
    found = said({"fifo": figures(100, 0.4), "qpsm": figures(1100, 0.02), "random-guarded": figures(1000, 0.02)})
    assert found.winner == "random-guarded"
    assert "9% less than under qpsm" in found.sentence
    assert found.missed == ("waiting of qpsm not below random-guarded",)


def test_less_than_three_percent_apart_is_a_tie() -> None:
    found = said({"fifo": figures(100, 0.4), "qpsm": figures(980, 0.02), "random-guarded": figures(1000, 0.02)})
    assert (found.kind, found.winner) == ("tie", None)
    assert found.sentence.startswith("A tie: of the policies that kept the services' limits, qpsm and random-guarded")


def test_who_alone_keeps_the_limits_wins() -> None:
    found = said({"qpsm": figures(900, 0.01), "fifo": figures(100, 0.4)})
    assert found.sentence.startswith("qpsm won: the only policy that kept the services' limits, over them for 1.0%")
    assert found.sentence.endswith("of the time where fifo was for 40.0%.")


def test_where_nobody_breaks_a_limit_waiting_decides_among_all() -> None:
    found = said({"fifo": figures(100, 0.0), "random": figures(200, 0.0)})
    assert found.winner == "fifo"
    assert found.sentence.startswith("fifo won: of all policies its jobs waited least, 50% less than under random")


def test_one_policy_has_no_rival() -> None:
    assert said({"qpsm": figures(100, 0.0)}).sentence == "Only qpsm ran: there is nothing to compare it with."


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        ((100, 2), (50, 9), "hierarchical won: nodes were overloaded in fewer slots than under fifo, 2 against 9."),
        ((40, 3), (80, 3), "hierarchical won: as many overload slots as fifo, 3 against 3, and 50% less waiting."),
        ((99, 3), (100, 3), "A tie: hierarchical and fifo overloaded nodes in as many slots, 3 against 3"),
        ((100, 9), (100, 2), "fifo won: nodes were overloaded in fewer slots than under hierarchical, 2 against 9."),
    ],
)
def test_by_slack_the_overload_slots_decide(ours: tuple[int, int], theirs: tuple[int, int], words: str) -> None:
    given = {"hierarchical": figures(ours[0], 0.0, ours[1]), "fifo": figures(theirs[0], 0.0, theirs[1])}
    assert words in said(given, scenario="slack").sentence


def test_by_slack_only_who_keeps_the_limits_can_win() -> None:
    """hierarchical overloads least, and is over the limit for .32 of the time; a quarter of fifo's .4 is .1."""
    broken = {"hierarchical": figures(50, 0.32, 0), "fifo": figures(40, 0.4, 9)}
    found = said({**broken, "predictive": figures(70, 0.01, 1), "qpsm": figures(60, 0.03, 5)}, scenario="slack")
    assert found.sentence == (
        "predictive won: of the policies that kept the services' limits, nodes were overloaded in fewer slots than "
        "under qpsm, 1 against 5. Services were over their limits for 1.0% of the time, where fifo was for 40.0%."
    )
    alone = said({**broken, "predictive": figures(70, 0.01, 1)}, scenario="slack")
    assert alone.sentence.startswith(
        "predictive won: the only policy that kept the services' limits, over them for 1.0%"
    )


def test_nobody_is_judged_where_the_machine_made_more_than_a_tenth_of_a_policys_waiting() -> None:
    given = {"qpsm": figures(1000, 0.01), "fifo": figures(2000, 0.4)}
    assert said(given, late=LATE_SHARE * 1000).kind == "won"
    found = said(given, late=LATE_SHARE * 1000 + 10)
    assert (found.kind, found.winner, found.missed) == ("too busy", None, None)
    assert "Under qpsm 11% of the waiting was the machine's own" in found.sentence
    assert "or with --speed 10" in found.sentence


def test_a_policy_that_was_never_asked_does_not_win_for_having_no_waiting() -> None:
    found = verdict_of({"qpsm": figures(0, 0.0), "fifo": figures(9, 0.4)}, {"qpsm": 50.0, "fifo": 0.0}, "latency", 20.0)
    assert found.kind == "too busy"


def test_a_lead_no_larger_than_what_the_machine_added_to_the_second_is_not_judged() -> None:
    """fifo-guarded leads by 300 s; 590 s of qpsm's waiting were late jobs and pods, 8.9 % of it."""
    given = {"qpsm": figures(6660, 0.002), "fifo-guarded": figures(6360, 0.002), "fifo": figures(2000, 0.38)}
    found = verdict_of(given, {"qpsm": 590.0, "fifo-guarded": 140.0, "fifo": 90.0}, "latency", 6.0)
    assert (found.kind, found.missed) == ("too busy", None)
    assert "fifo-guarded made jobs wait 5% less than qpsm; 9m 50s of qpsm's waiting" in found.sentence
    assert verdict_of(given, {"qpsm": 290.0, "fifo-guarded": 140.0, "fifo": 90.0}, "latency", 6.0).kind == "won"


def test_a_policy_whose_services_do_not_run_does_not_win() -> None:
    """It breaks no measured limit and lets nothing wait."""
    given = {"predictive": figures(1.0, 0.0, never_ran=("demo/web",)), "fifo": figures(900.0, 0.4, slots=9)}
    found = said(given, scenario="slack")
    assert (found.kind, found.winner) == ("won", "fifo")
    assert "the only policy that ran every service" in found.sentence
    assert found.missed is not None
    assert "1 service never ran under predictive" in found.missed
