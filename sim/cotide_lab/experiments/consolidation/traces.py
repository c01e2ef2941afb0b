"""Consolidation over days of recorded loads: hosts used, machines moved, and overloads at the measured use.

Called by ``cotide experiment consolidation-traces``. The same machines come and go under every rule, placed by best fit
on the rule's own sizes. A rule decides on earlier measurements, and pays for the later ones. A violation is a host in
use with more cpu used in a slot than it has. Every contender has ten settings of its knob, and halves its step three
times. Of those that keep a goal of violations on the tuning seeds, the one with the fewest node-hours is judged on the
reported seeds (`like_for_like`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_lab.consolidation.energy import PowerModel
from cotide_lab.experiments.consolidation.joint_peaks import JointPeaks
from cotide_lab.experiments.consolidation.recorded_loads import RecordedLoad
from cotide_lab.experiments.consolidation.rules import (
    Cluster,
    LastUse,
    Requests,
    Rule,
    Still,
    Thresholds,
    best_host,
    loads_of,
)
from cotide_lab.experiments.like_for_like import REFINEMENTS, Ratio, Spread, chosen, halfway

OURS: Final = "ours"
BASE: Final = "DMNS on requests"
ANEW: Final = "BFD each time"
OPTIMUM: Final = "optimum"
GOALS: Final = (0.005, 0.001)
"""Shares of the slots of hosts in use that may be above capacity (the first is the bar; the second one chosen)."""
MARGINS: Final = (-0.2, -0.1, 0.0, 0.15, 0.25, 0.4, 0.5, 0.65, 1.0, 1.5)
"""Settings of rules on the last use; at the first one they keep no goal on Azure."""


@dataclass(frozen=True, slots=True)
class Contender:
    """The factory of a rule at a setting, and the tried settings; only one where a rule has no knob."""

    make: Callable[[float], Rule]
    knob: str
    settings: tuple[float, ...]


CONTENDERS: Final = {
    "none": Contender(lambda _setting: Still(), "", (0.0,)),
    BASE: Contender(lambda _setting: Requests(), "", (0.0,)),
    "DMNS on requests, our actions": Contender(lambda _setting: Requests(acting=True), "", (0.0,)),
    "last use": Contender(lambda margin: LastUse(margin=margin), "margin", MARGINS),
    "last use, our actions": Contender(lambda margin: LastUse(margin=margin, acting=True), "margin", MARGINS),
    ANEW: Contender(lambda margin: LastUse(margin=margin, anew=True), "margin", MARGINS),
    "BFD each time, our actions": Contender(
        lambda margin: LastUse(margin=margin, anew=True, acting=True), "margin", MARGINS
    ),
    "thresholds": Contender(
        lambda threshold: Thresholds(threshold=threshold),
        "threshold",
        (0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9),
    ),
    OURS: Contender(
        lambda factor: JointPeaks(factor=factor), "factor", (0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0)
    ),
}
"""``none`` does nothing: it has no violation, and the most hosts."""


@dataclass(frozen=True, slots=True)
class Played:
    """One rule on one load.

    Attributes
    ----------
    node_hours, moves : in all.
    violations : share of the slots of hosts in use.
    kilowatt_hours : of hosts in use, by the linear model.
    """

    rule: str
    node_hours: float
    moves: int
    violations: float
    kilowatt_hours: float


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One contender on one set at the setting that was chosen for a goal, over the reported seeds.

    Attributes
    ----------
    goal : share of violations that the setting keeps on the tuning seeds, where ``tuned``; nan for the optimum.
    kept : reported seeds that keep the goal.
    saved : node-hours below those of DMNS on requests, as a share.
    own_hours_over_it : node-hours of ours over those of the rule, by seed.
    """

    load: str
    goal: float
    rule: str
    setting: str
    tuned: bool
    kept: int
    node_hours: Spread
    moves: Spread
    violations: Spread
    kilowatt_hours: float
    saved: float
    own_hours_over_it: Ratio


Plays = dict[tuple[str, float], list[Played]]
"""By contender and setting, one of each seed."""


def play(load: RecordedLoad, rule: Rule, power: PowerModel | None = None) -> Played:
    """Play one rule through all slots."""
    power = power or PowerModel()
    cluster = Cluster(load.asked, load.hosts, load.used, np.full(len(load.asked), -1))
    hours = moves = 0.0
    over = seen = 0
    watt_slots = 0.0
    for slot in range(load.slots):
        cluster.slot = slot
        runs = ~np.isnan(load.used[:, slot])
        cluster.on[~runs] = -1
        after = rule.moves(cluster)
        moves += np.count_nonzero((after != cluster.on) & (cluster.on >= 0))
        cluster.on = after.copy()
        _place_new(cluster, rule, runs)
        used = np.zeros(len(load.hosts))
        running = cluster.running
        np.add.at(used, cluster.on[running], load.used[running, slot])
        busy = np.unique(cluster.on[running])
        above = int(np.count_nonzero(used[busy] > load.hosts[busy, 0]))
        over, seen = over + above, seen + len(busy)
        hours += len(busy) / 12
        shares = np.minimum(used[busy] / load.hosts[busy, 0], 1)
        watt_slots += float(power.server_idle * len(busy) + (power.server_peak - power.server_idle) * shares.sum())
        rule.learn(above / max(len(busy), 1))
    return Played(rule.name, hours, int(moves), over / max(seen, 1), watt_slots / 12 / 1000)


def _place_new(cluster: Cluster, rule: Rule, runs: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    new = np.flatnonzero(runs & (cluster.on < 0))
    if not len(new):
        return
    # A machine without a past counts with its request, under every rule.
    loads = loads_of(cluster, rule.sizes(cluster))
    everywhere = np.ones(len(loads), np.bool_)
    for machine in new[np.argsort(-cluster.asked[new, 0], kind="stable")]:
        host = best_host(loads, cluster.hosts, cluster.asked[machine], everywhere)
        host = int(np.argmin(loads[:, 0])) if host < 0 else host
        loads[host] += cluster.asked[machine]
        cluster.on[machine] = host


def lower_bound(load: RecordedLoad) -> float:
    """Return a lower bound of node-hours without overload, even for a rule that knows the future (by volume)."""
    largest = np.cumsum(-np.sort(-load.hosts, axis=0), axis=0)
    hours = 0.0
    for slot in range(load.slots):
        runs = ~np.isnan(load.used[:, slot])
        wanted = (float(load.used[runs, slot].sum()), float(load.asked[runs, 1].sum()))
        if runs.any():
            hours += max(int(np.searchsorted(largest[:, at], value)) + 1 for at, value in enumerate(wanted)) / 12
    return hours


def run_traces(
    tuning: Sequence[RecordedLoad],
    loads: Sequence[RecordedLoad],
    progress: Callable[[str, float], object] = lambda _text, _share: None,
) -> list[TraceRow]:
    """Choose settings on some loads of a set and play them on others, one of each seed."""
    every = [(name, setting) for name, contender in CONTENDERS.items() for setting in contender.settings]
    tuned = _played(every, tuning, lambda text, share: progress(text, share / 4))
    for _ in range(REFINEMENTS):
        finer = {(name, halfway(*_judged(goal, name, tuned))) for goal in GOALS for name in CONTENDERS}
        known = [(name, setting) for name, setting in sorted(finer, key=str) if setting is not None]
        tuned |= _played(known, tuning, lambda text, _share: progress(text, 0.25))
    settings = {(goal, name): _setting(goal, name, tuned) for goal in GOALS for name in CONTENDERS}
    used = sorted({(name, setting) for (_, name), setting in settings.items()})
    played = _played(used, loads, lambda text, share: progress(text, 0.5 + share / 2))
    rows = [_row(loads[0].name, goal, name, settings[(goal, OURS)], settings[(goal, name)], tuned, played)
            for goal, name in settings]  # fmt: skip
    bounds = [lower_bound(load) for load in loads]
    base = np.array([outcome.node_hours for outcome in played[(BASE, 0.0)]])
    none = Spread.of([0.0])
    rows.append(
        TraceRow(
            loads[0].name, float("nan"), OPTIMUM, "", True, len(loads), Spread.of(bounds), none, none, 0.0,
            float(1 - np.sum(bounds) / base.sum()), Ratio.of(bounds, bounds),
        )
    )  # fmt: skip
    return rows


def _played(
    which: Sequence[tuple[str, float]], loads: Sequence[RecordedLoad], progress: Callable[[str, float], object]
) -> Plays:
    found: Plays = {}
    for at, (name, setting) in enumerate(which):
        for load in loads:
            progress(f"{load.name}, {load.note}: {name}", at / len(which))
            found.setdefault((name, setting), []).append(play(load, CONTENDERS[name].make(setting)))
    return found


def _setting(goal: float, name: str, tuned: Plays) -> float:
    return chosen(*_judged(goal, name, tuned))


def _judged(goal: float, name: str, tuned: Plays) -> tuple[dict[float, float], dict[float, float]]:
    """Return node-hours and excess above the goal of each tried setting of a contender."""
    tried = {setting: plays for (tried_name, setting), plays in tuned.items() if tried_name == name}
    hours = {setting: float(np.mean([played.node_hours for played in plays])) for setting, plays in tried.items()}
    return hours, {setting: _excess(goal, plays) for setting, plays in tried.items()}


def _excess(goal: float, found: Sequence[Played]) -> float:
    return float(np.mean([played.violations for played in found])) / goal - 1.0


def _row(load: str, goal: float, name: str, own: float, setting: float, tuned: Plays, played: Plays) -> TraceRow:
    found, ours, knob = played[(name, setting)], played[(OURS, own)], CONTENDERS[name].knob
    hours = [outcome.node_hours for outcome in found]
    base = float(np.sum([outcome.node_hours for outcome in played[(BASE, 0.0)]]))
    return TraceRow(
        load, goal, name, f"{knob} {setting:g}" if knob else "",
        _excess(goal, tuned[(name, setting)]) <= 0,
        sum(outcome.violations <= goal for outcome in found),
        Spread.of(hours),
        Spread.of([outcome.moves for outcome in found]),
        Spread.of([outcome.violations for outcome in found]),
        float(np.mean([outcome.kilowatt_hours for outcome in found])),
        float(1 - np.sum(hours) / base),
        Ratio.of([our.node_hours for our in ours], hours),
    )  # fmt: skip


def missed_in_traces(rows: Sequence[TraceRow]) -> list[str]:
    """Return the bars that ours misses on a set, and the baselines with fewer node-hours at a goal that they keep."""
    missed = []
    optimum = next(row.saved for row in rows if row.rule == OPTIMUM)
    for goal in GOALS:
        by_rule = {row.rule: row for row in rows if row.goal == goal}
        ours, anew = by_rule[OURS], by_rule[ANEW]
        where = f"{ours.load}, {goal:.1%} of overloads"
        if ours.saved < 0.15:
            missed.append(
                f"{where}: {ours.saved:.1%} fewer node-hours than DMNS on requests, wanted 15 %; optimum {optimum:.1%}"
            )
        if ours.violations.mean > goal:
            missed.append(f"{where}: ours has {ours.violations.mean:.2%}")
        if ours.moves.mean > anew.moves.mean / 3:
            missed.append(f"{where}: {ours.moves.mean:.0f} moves, BFD each time {anew.moves.mean:.0f}, wanted a third")
        for row in by_rule.values():
            ratio = row.own_hours_over_it
            if ratio.mean > 1.0 and row.violations.mean <= max(goal, ours.violations.mean):
                noise = "" if ratio.beyond_noise else ", within noise"
                moves = f"{row.moves.mean:.0f} moves, ours {ours.moves.mean:.0f}"
                missed.append(
                    f"{where}: {row.rule} wins: ours needs {ratio.mean:.3f} of its node-hours{noise}; {moves}"
                )
    return missed
