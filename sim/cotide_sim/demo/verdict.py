"""The winner, its lead, and whether the machine kept up with the demo's clock so that a judgement is possible.

Called by `demo_command` after the last policy. Pure: figures to words. Invariant: the verdict follows from the printed
figures by the rules below; a tie or a loss of Cotide's own policies is reported like any other result.

- A service without a ready pod counts as over its limit. A policy that leaves a service without pods can't win when
another policy runs every service.
- A policy *keeps the limits* when its services were over their limit for at most a quarter of the share of time of the
  worst policy (`comparison.VIOLATIONS_SHARE`). When some do, only they can win.
- Scenario ``latency``: the policy with the least waiting of batch and gratis pods wins.
- Scenario ``slack``: the policy with the fewest overload slots wins; among equals the one with the least waiting.
- Less than `TIE_SHARE` apart is a tie.
- The clock: a job is made late when the machine is busy, and a bound pod starts late. Both count as waiting although no
policy chose them. There is no verdict when their share of any policy's waiting is above `LATE_SHARE`, or when their
part of the second's waiting is as large as the first one's lead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from cotide_core.units import format_seconds
from cotide_sim.cluster.comparison import VIOLATIONS_SHARE, missed
from cotide_sim.cluster.scorecard import Summary
from cotide_sim.workloads.scenarios import Scenario

TIE_SHARE: Final = 0.03
"""Chosen: two runs of one policy on the same arrivals differed by up to this share of their waiting."""
LATE_SHARE: Final = 0.1
"""Chosen: about the smallest lead of a policy that the docs claim; above it the machine could decide who wins."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The demo's last sentence.

    Attributes
    ----------
    kind : ``won``, ``tie``, ``alone`` (one policy has no rival) or ``too busy``.
    winner : the policy, None unless one won.
    sentence : all of it, for people.
    missed : the demo's own objectives that were missed, in words; None without a verdict.
    """

    kind: Literal["won", "tie", "alone", "too busy"]
    winner: str | None
    sentence: str
    missed: tuple[str, ...] | None


def verdict_of(figures: Mapping[str, Summary], late: Mapping[str, float], scenario: Scenario, speed: float) -> Verdict:
    """Return the verdict on all policies.

    Parameters
    ----------
    figures : by policy.
    late : total waiting that the machine itself added to each policy, in simulated seconds.
    speed : of the demo's clock, simulated seconds a second.
    """
    shares = {name: late_share(late[name], figure["waiting_seconds_total"]) for name, figure in figures.items()}
    busiest = max(shares, key=lambda name: shares[name])
    if shares[busiest] > LATE_SHARE:
        return Verdict(
            "too busy",
            None,
            f"There is no verdict: this machine was too busy for a clock {speed:g} times as fast. Under {busiest} "
            f"{shares[busiest]:.0%} of the waiting was the machine's own, and policies can be compared up to "
            f"{LATE_SHARE:.0%}; try again when it is idle, or with --speed {max(1.0, speed / 2):g}.",
            None,
        )
    faults = tuple(missed(dict(figures), scenario))
    if len(figures) == 1:
        return Verdict("alone", None, f"Only {busiest} ran: there is nothing to compare it with.", faults)
    keeping, running = _keeping(figures), _running(figures)
    among = keeping or running or figures
    if len(among) == 1:
        only = next(iter(among))
        return _alone_in_keeping(only, figures, faults) if keeping else _alone_in_running(only, figures, faults)
    return _by_slots(among, figures, faults) if scenario == "slack" else _by_waiting(among, figures, late, faults)


def late_share(late_seconds: float, waiting_seconds: float) -> float:
    """Return the machine's own share of the waiting, 0 to 1; 1 when pods were not made at all."""
    return min(1.0, late_seconds / max(waiting_seconds, late_seconds)) if late_seconds > 0 else 0.0


def _keeping(figures: Mapping[str, Summary]) -> dict[str, Summary]:
    """Return the policies that ran every service and kept the services' limits; empty when there is none."""
    most = VIOLATIONS_SHARE * max(figure["qos_violation_ratio"] for figure in figures.values())
    return {name: one for name, one in _running(figures).items() if one["qos_violation_ratio"] <= most}


def _running(figures: Mapping[str, Summary]) -> dict[str, Summary]:
    """Return the policies that ran every service."""
    return {name: figure for name, figure in figures.items() if not figure["services_never_ran"]}


def _worst(figures: Mapping[str, Summary]) -> tuple[str, str]:
    """Return the policy with the longest time of services over their limits, and the share of time in words."""
    worst = max(figures, key=lambda name: figures[name]["qos_violation_ratio"])
    return worst, f"{figures[worst]['qos_violation_ratio']:.1%}"


def _alone_in_keeping(only: str, figures: Mapping[str, Summary], faults: tuple[str, ...]) -> Verdict:
    worst, most = _worst(figures)
    sentence = (
        f"{only} won: the only policy that kept the services' limits, over them for "
        f"{figures[only]['qos_violation_ratio']:.1%} of the time where {worst} was for {most}."
    )
    return Verdict("won", only, sentence, faults)


def _alone_in_running(only: str, figures: Mapping[str, Summary], faults: tuple[str, ...]) -> Verdict:
    sentence = (
        f"{only} won: the only policy that ran every service; services were over their limits for "
        f"{figures[only]['qos_violation_ratio']:.1%} of the time."
    )
    return Verdict("won", only, sentence, faults)


def _by_waiting(
    among: Mapping[str, Summary], figures: Mapping[str, Summary], late: Mapping[str, float], faults: tuple[str, ...]
) -> Verdict:
    worst, most = _worst(figures)
    first, second = sorted(among, key=lambda name: among[name]["waiting_seconds_total"])[:2]
    over = f"{among[first]['qos_violation_ratio']:.1%}"
    mine, theirs = among[first]["waiting_seconds_total"], among[second]["waiting_seconds_total"]
    less = 1 - mine / theirs if theirs > 0 else 0.0
    kept = "of the policies that kept the services' limits" if len(among) < len(figures) else "of all policies"
    if less < TIE_SHARE:
        sentence = (
            f"A tie: {kept}, {first} and {second} let jobs wait least, {format_seconds(mine)} and "
            f"{format_seconds(theirs)} in all, less than {TIE_SHARE:.0%} apart."
        )
        return Verdict("tie", None, sentence, faults)
    if late[second] >= theirs - mine:
        sentence = (
            f"There is no verdict: {first} made jobs wait {less:.0%} less than {second}; {format_seconds(late[second])}"
            f" of {second}'s waiting, as much as that lead, was this machine's own; try again when it is idle, or with"
            " a slower clock (--speed)."
        )
        return Verdict("too busy", None, sentence, None)
    against = f", where {worst} was for {most}" if worst != first else ""
    sentence = (
        f"{first} won: {kept} its jobs waited least, {less:.0%} less than under {second}, and services were over "
        f"their limits for {over} of the time{against}."
    )
    return Verdict("won", first, sentence, faults)


def _by_slots(among: Mapping[str, Summary], figures: Mapping[str, Summary], faults: tuple[str, ...]) -> Verdict:
    worst, most = _worst(figures)
    ranked = sorted(among, key=lambda name: (among[name]["overload_slots"], among[name]["waiting_seconds_total"]))
    first, second = ranked[:2]
    mine, theirs = figures[first], figures[second]
    slots = f"{mine['overload_slots']} against {theirs['overload_slots']}"
    kept = "of the policies that kept the services' limits, " if len(among) < len(figures) else ""
    over = f" Services were over their limits for {mine['qos_violation_ratio']:.1%} of the time" + (
        f", where {worst} was for {most}." if worst != first else "."
    )
    if mine["overload_slots"] < theirs["overload_slots"]:
        sentence = f"{first} won: {kept}nodes were overloaded in fewer slots than under {second}, {slots}.{over}"
        return Verdict("won", first, sentence, faults)
    waited, longer = mine["waiting_seconds_total"], theirs["waiting_seconds_total"]
    less = 1 - waited / longer if longer > 0 else 0.0
    if less < TIE_SHARE:
        sentence = (
            f"A tie: {kept}{first} and {second} overloaded nodes in as many slots, {slots}, and let jobs wait as long, "
            f"less than {TIE_SHARE:.0%} apart."
        )
        return Verdict("tie", None, sentence, faults)
    sentence = f"{first} won: {kept}as many overload slots as {second}, {slots}, and {less:.0%} less waiting.{over}"
    return Verdict("won", first, sentence, faults)
