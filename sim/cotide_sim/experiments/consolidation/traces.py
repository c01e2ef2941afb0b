"""Consolidation over days of recorded loads: hosts used, machines moved, and overloads at the measured use.

Called by ``cotide experiment consolidation-traces``.
The same machines come and go under every rule, placed by best fit on the rule's own
sizes; a rule decides on what was measured before, and pays for what is measured then. A violation is a host in use with
more cpu used in a slot than it has. Every rule runs on every seed; figures are means with their range over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.consolidation.energy import PowerModel
from cotide_sim.experiments.consolidation.joint_peaks import JointPeaks
from cotide_sim.experiments.consolidation.recorded_loads import RecordedLoad
from cotide_sim.experiments.consolidation.rules import (
    Cluster,
    LastUse,
    Requests,
    Rule,
    Still,
    Thresholds,
    best_host,
    loads_of,
)

MARGINS: Final = (0.0, 0.25, 0.5, 1.0)
"""Of the rule without forecasts: between two of them it is read at our node-hours."""
OURS: Final = "ours"
BASE: Final = "DMNS on requests"
ANEW: Final = "BFD each time"


def rules() -> list[Callable[[], Rule]]:
    """Return what makes each rule anew."""
    by_margin: list[Callable[[], Rule]] = [lambda margin=margin: LastUse(margin=margin) for margin in MARGINS]  # type: ignore[misc]  # bound now
    return [Still, Requests, *by_margin, lambda: LastUse(margin=0.1, anew=True), Thresholds, JointPeaks]


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
    """One rule on one set: means over the seeds, ranges beside them."""

    load: str
    rule: str
    node_hours: float
    node_hours_range: tuple[float, float]
    moves: float
    moves_range: tuple[float, float]
    violations: float
    violations_range: tuple[float, float]
    kilowatt_hours: float
    saved: float
    """Node-hours below those of DMNS on requests, as a share."""


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
    # What has no past counts with its request, under every rule.
    loads = loads_of(cluster, rule.sizes(cluster))
    everywhere = np.ones(len(loads), np.bool_)
    for machine in new[np.argsort(-cluster.asked[new, 0], kind="stable")]:
        host = best_host(loads, cluster.hosts, cluster.asked[machine], everywhere)
        host = int(np.argmin(loads[:, 0])) if host < 0 else host
        loads[host] += cluster.asked[machine]
        cluster.on[machine] = host


def lower_bound(load: RecordedLoad) -> float:
    """Return node-hours that no rule can be below without overload, even one that knows what comes (by volume)."""
    largest = np.cumsum(-np.sort(-load.hosts, axis=0), axis=0)
    hours = 0.0
    for slot in range(load.slots):
        runs = ~np.isnan(load.used[:, slot])
        wanted = (float(load.used[runs, slot].sum()), float(load.asked[runs, 1].sum()))
        if runs.any():
            hours += max(int(np.searchsorted(largest[:, at], one)) + 1 for at, one in enumerate(wanted)) / 12
    return hours


def run_traces(
    loads: Sequence[RecordedLoad], progress: Callable[[str, float], object] = lambda _text, _share: None
) -> list[TraceRow]:
    """Play every rule on the loads of one set, one of each seed."""
    made = rules()
    played: dict[str, list[Played]] = {}
    bounds = [lower_bound(load) for load in loads]
    for at, make in enumerate(made):
        for load in loads:
            rule = make()
            progress(f"{load.name}, {load.note}: {rule.name}", at / len(made))
            played.setdefault(rule.name, []).append(play(load, rule))
    base = np.array([one.node_hours for one in played[BASE]])
    rows = [_row(loads[0].name, name, found, base) for name, found in played.items()]
    low, high = min(bounds), max(bounds)
    saved = float(1 - np.sum(bounds) / base.sum())
    rows.append(TraceRow(loads[0].name, "optimum", float(np.mean(bounds)), (low, high), 0, (0, 0), 0, (0, 0), 0, saved))
    return rows


def _row(load: str, name: str, found: Sequence[Played], base: np.ndarray[tuple[int], np.dtype[np.float64]]) -> TraceRow:
    hours = [one.node_hours for one in found]
    moves = [one.moves for one in found]
    violations = [one.violations for one in found]
    return TraceRow(
        load, name,
        float(np.mean(hours)), (min(hours), max(hours)),
        float(np.mean(moves)), (min(moves), max(moves)),
        float(np.mean(violations)), (min(violations), max(violations)),
        float(np.mean([one.kilowatt_hours for one in found])),
        float(1 - np.sum(hours) / base.sum()),
    )  # fmt: skip


def missed_in_traces(rows: Sequence[TraceRow]) -> list[str]:
    """Return the bars that ours misses on a set."""
    by_rule = {row.rule: row for row in rows}
    ours, anew = by_rule[OURS], by_rule[ANEW]
    missed = []
    if ours.saved < 0.15:
        optimum = by_rule["optimum"].saved
        missed.append(
            f"{ours.load}: {ours.saved:.1%} fewer node-hours than DMNS on requests, wanted 15 %; optimum {optimum:.1%}"
        )
    if ours.violations > 0.005:
        missed.append(f"{ours.load}: {ours.violations:.2%} of node-slots above capacity, wanted 0.5 %")
    if ours.moves > anew.moves / 3:
        missed.append(f"{ours.load}: {ours.moves:.0f} moves, BFD each time {anew.moves:.0f}, wanted a third")
    rival = violations_at(rows, ours.node_hours)
    if rival is not None and ours.violations > rival:
        missed.append(
            f"{ours.load}: {ours.violations:.2%} violations, the rule without forecasts {rival:.2%} at equal node-hours"
        )
    return missed


def violations_at(rows: Sequence[TraceRow], node_hours: float) -> float | None:
    """Return the violations of the rule without forecasts at some node-hours, between two of its margins.

    None where it never has as many node-hours (its violations are then those of its largest margin or fewer), and what
    its least margin has where it never has as few.
    """
    curve = sorted((row.node_hours, row.violations) for row in rows if row.rule.startswith("last use"))
    if node_hours > curve[-1][0]:
        return None
    return float(np.interp(node_hours, [hours for hours, _ in curve], [share for _, share in curve]))
