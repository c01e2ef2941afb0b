"""The placement experiment: every policy in every week and seed, what it cost and whom it failed, and the bars.

Called by `cotide experiment placement`. Each policy runs with the knob that cost least on a day of other seeds
(`contenders`). Invariant: the same data and seeds give the same report, but for the seconds that decisions took; a
rival that wins is named as winning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_sim.experiments.capacity.experiment import Spread
from cotide_sim.experiments.like_for_like import TUNING_SEEDS, best_knob, reported
from cotide_sim.experiments.placement.contenders import (
    CONTENDERS,
    GREEDY,
    INACTIVE,
    ORACLE,
    OWN,
    SHOWN,
    TUNING_STEPS,
    Knob,
)
from cotide_sim.experiments.placement.controllers import PlacementController
from cotide_sim.experiments.placement.integral import placement_gap
from cotide_sim.experiments.placement.scenarios import DAY_STEPS, PlacementScenario, placement_scenario

Floats = NDArray[np.float64]

COST_BAR: Final = 0.9
ORACLE_BAR: Final = 1.1
RECONFIGURATION_BAR: Final = 0.5


@dataclass(frozen=True, slots=True)
class WeekOutcome:
    """What a policy came to in a week.

    Attributes
    ----------
    cost : all money; ``servers_cost``, ``reconfiguration_cost``, ``egress_cost``, ``penalty`` are its parts.
    reconfigurations : servers added or removed.
    unserved : share of the requests that found no server fast enough.
    violations : share of the steps in which more than one in a thousand did.
    servers : (steps, L), for the figures.
    decision_seconds : median.
    """

    policy: str
    cost: float
    servers_cost: float
    reconfiguration_cost: float
    egress_cost: float
    penalty: float
    reconfigurations: float
    unserved: float
    violations: float
    servers: tuple[tuple[float, ...], ...]
    decision_seconds: float


@dataclass(frozen=True, slots=True)
class PolicyWeek:
    """A policy in a week, over the seeds; ratios are by seed."""

    policy: str
    cost: Spread
    servers_cost: Spread
    reconfiguration_cost: Spread
    egress_cost: Spread
    reconfigurations: Spread
    unserved: Spread
    violations: Spread
    own_cost_over_it: Spread
    decision_seconds: Spread
    knob: str


@dataclass(frozen=True, slots=True)
class WeekReport:
    """One week at one factor of reconfiguration costs.

    ``greedy_unmoved``: greedy's cost without its reconfigurations, over its cost. Greedy takes in each step the
    cheapest servers for what is foreseen, so that no controller which provides for the same can cost less, but for
    what rounding up leaves open. ``oracle_over_greedy``: what knowing the future would reach. ``inactive``: bars that
    each contender misses which moves nothing, or serves nothing.
    """

    week: str
    reading: str
    reconfiguration: float
    policies: tuple[PolicyWeek, ...]
    own_reconfigurations_over_greedy: Spread
    greedy_unmoved: Spread
    oracle_over_greedy: Spread
    centres: tuple[str, ...]
    demand: tuple[float, ...]
    prices: tuple[tuple[float, ...], ...]
    shown: dict[str, tuple[tuple[float, ...], ...]]
    inactive: dict[str, int]


@dataclass(frozen=True, slots=True)
class PlacementReport:
    """All weeks; ``rounded_over_integral``: cost of rounding up over the integral optimum on small instances."""

    seeds: tuple[int, ...]
    weeks: tuple[WeekReport, ...]
    rounded_over_integral: Spread
    missed: tuple[str, ...]


def run_week(scene: PlacementScenario, controller: PlacementController, policy: str, steps: int) -> WeekOutcome:
    """Run a controller through the first ``steps`` of a week."""
    model = scene.model
    level = model.services[0]
    per_rate = level.servers_per_rate(model.delays)
    servers = np.zeros(len(model.centres))
    on = np.array([centre.on_cost for centre in model.centres])
    off = np.array([centre.off_cost for centre in model.centres])
    hours = model.step_seconds / 3600.0
    parts, table, took = np.zeros(4), [], []
    moved = missed = asked = 0.0
    failed = 0
    for step in range(steps):
        begun = time.perf_counter()
        wanted, split = controller.decide(step, servers)
        took.append(time.perf_counter() - begun)
        change = wanted - servers
        if step:  # how the first servers came there is no policy's merit
            parts[1] += float(np.maximum(change, 0.0) @ on + np.maximum(-change, 0.0) @ off)
            moved += float(np.abs(change).sum())
        servers = wanted
        demand = scene.demand[step]
        rates = route(split, servers, per_rate, demand)
        lost = max(float(demand.sum() - rates.sum()), 0.0)
        parts[0] += hours * float(servers @ scene.price[step])
        parts[2] += model.step_seconds * float((rates * model.egress).sum())
        parts[3] += model.step_seconds * lost * level.penalty
        missed, asked = missed + lost, asked + float(demand.sum())
        failed += lost > 1e-3 * demand.sum()
        table.append(tuple(servers))
    running, moving, crossing, penalty = (float(part) for part in parts)
    return WeekOutcome(
        policy=policy,
        cost=running + moving + crossing + penalty,
        servers_cost=running,
        reconfiguration_cost=moving,
        egress_cost=crossing,
        penalty=penalty,
        reconfigurations=moved,
        unserved=missed / max(asked, 1e-9),
        violations=failed / steps,
        servers=tuple(table),
        decision_seconds=float(np.median(took)),
    )


def route(split: Floats, servers: Floats, per_rate: Floats, demand: Floats) -> Floats:
    """Return (L, V) requests per second that are served: by the split, and what finds no room where there is some.

    A data centre that is asked for too much serves every network the same share of it; what is left goes where a
    server handles most of it, as far as servers are free.
    """
    need = np.where(np.isfinite(per_rate), per_rate, 0.0)
    rates: Floats = split * demand[None] * np.isfinite(per_rate)
    load = (rates * need).sum(axis=1)
    fits = np.minimum(1.0, np.divide(servers, load, out=np.ones_like(load), where=load > 0))
    rates = rates * fits[:, None]
    free = np.maximum(servers - (rates * need).sum(axis=1), 0.0)
    left = np.maximum(demand - rates.sum(axis=0), 0.0)
    for centre, network in zip(*np.unravel_index(np.argsort(per_rate, axis=None), per_rate.shape), strict=True):
        if left[network] > 1e-9 and free[centre] > 1e-9 and np.isfinite(per_rate[centre, network]):
            more = min(left[network], free[centre] / need[centre, network])
            rates[centre, network] += more
            left[network] -= more
            free[centre] -= more * need[centre, network]
    return rates


def run(
    weeks: Sequence[str],
    seeds: Sequence[int],
    *,
    data: Path | None,
    days: int = 7,
    reconfigurations: Sequence[float] = (1.0,),
    workers: int = 1,
    progress: Callable[[str, float], object] = lambda _what, _share: None,
) -> PlacementReport:
    """Run the experiment; without ``data`` on generated requests and prices.

    Raises
    ------
    InputError
        When the data are missing or broken, or a seed is one on which knobs are chosen.
    """
    seeds = reported(seeds)
    tuning = [(week, data, factor) for week in weeks for factor in reconfigurations]
    cells = [(week, data, seed, factor, days) for week in weeks for factor in reconfigurations for seed in seeds]
    done: dict[tuple[str, float, int], tuple[PlacementScenario, list[WeekOutcome]]] = {}
    with ProcessPoolExecutor(workers) as pool:
        each = pool.map if workers > 1 else map
        knobs: dict[tuple[str, float], dict[str, Knob]] = {}
        for index, (one, found) in enumerate(zip(tuning, each(_tuned, tuning), strict=True), start=1):
            knobs[one[0], one[2]] = found
            progress(f"{one[0]}, settings", 0.5 * index / len(tuning))
        answers = each(_one, [(*cell, knobs[cell[0], cell[3]]) for cell in cells])
        for index, (cell, answer) in enumerate(zip(cells, answers, strict=True), start=1):
            done[(cell[0], cell[3], cell[2])] = answer
            progress(f"{cell[0]}, seed {cell[2]}", 0.5 + 0.5 * index / len(cells))
    reports = tuple(
        _week_report(factor, [done[(week, factor, seed)] for seed in seeds], knobs[week, factor])
        for week in weeks
        for factor in reconfigurations
    )
    missed = tuple(sentence for report in reports for sentence in _missed(report))
    return PlacementReport(tuple(seeds), reports, Spread.of(placement_gap(seeds)), missed)


def _tuned(cell: tuple[str, Path | None, float]) -> dict[str, Knob]:
    """Return the knob of each policy that costs least on a day of each tuning seed."""
    week, data, factor = cell
    scenes = [placement_scenario(week, data, seed, reconfiguration=factor) for seed in TUNING_SEEDS]

    def cost(policy: str, knob: Knob) -> float:
        return sum(run_week(scene, knob.make(scene), policy, TUNING_STEPS).cost for scene in scenes)

    return {
        policy: best_knob(knobs, lambda knob, policy=policy: cost(policy, knob))  # type: ignore[misc]
        if len(knobs) > 1
        else knobs[0]
        for policy, knobs in CONTENDERS.items()
    }


def _one(
    cell: tuple[str, Path | None, int, float, int, dict[str, Knob]],
) -> tuple[PlacementScenario, list[WeekOutcome]]:
    week, data, seed, factor, days, knobs = cell
    scene = placement_scenario(week, data, seed, reconfiguration=factor)
    return scene, [run_week(scene, knob.make(scene), name, days * DAY_STEPS) for name, knob in knobs.items()]


def _week_report(
    factor: float, runs: Sequence[tuple[PlacementScenario, list[WeekOutcome]]], knobs: dict[str, Knob]
) -> WeekReport:
    by_seed = [{outcome.policy: outcome for outcome in outcomes} for _, outcomes in runs]
    scene = runs[0][0]
    rows = []
    for name, knob in knobs.items():
        found = [outcomes[name] for outcomes in by_seed]
        ratio = Spread.of([outcomes[OWN].cost / outcomes[name].cost for outcomes in by_seed])

        def over(measure: str, found: Sequence[WeekOutcome] = found) -> Spread:
            return Spread.of([getattr(outcome, measure) for outcome in found])

        rows.append(
            PolicyWeek(
                policy=name,
                cost=over("cost"),
                servers_cost=over("servers_cost"),
                reconfiguration_cost=over("reconfiguration_cost"),
                egress_cost=over("egress_cost"),
                reconfigurations=over("reconfigurations"),
                unserved=over("unserved"),
                violations=over("violations"),
                own_cost_over_it=ratio,
                decision_seconds=over("decision_seconds"),
                knob=knob.name,
            )
        )
    moved = [outcomes[OWN].reconfigurations / max(outcomes[GREEDY].reconfigurations, 1.0) for outcomes in by_seed]
    greedy = [outcomes[GREEDY] for outcomes in by_seed]
    unmoved = Spread.of([1.0 - one.reconfiguration_cost / one.cost for one in greedy])
    known = Spread.of([outcomes[ORACLE].cost / one.cost for outcomes, one in zip(by_seed, greedy, strict=True)])
    shown = {name: by_seed[0][name].servers for name in SHOWN}
    steps = len(shown[OWN])
    return WeekReport(
        scene.name, scene.reading, factor, tuple(rows), Spread.of(moved), unmoved, known,
        tuple(centre.name for centre in scene.model.centres), tuple(scene.demand[:steps].sum(axis=1)),
        tuple(map(tuple, scene.price[:steps])), shown, {name: len(misses_of(rows, name)) for name in INACTIVE},
    )  # fmt: skip


def _missed(report: WeekReport) -> list[str]:
    where = f"{report.week}, reconfiguration x{report.reconfiguration:g}"
    found = misses_of(report.policies, OWN)
    found += [f"{name} misses no bar: the bars are too low" for name, many in report.inactive.items() if not many]
    return [f"{where}: {sentence}" for sentence in found]


def misses_of(policies: Sequence[PolicyWeek], contender: str) -> list[str]:
    """Return the bars that a policy misses in the place of ours, in words."""
    rows = {row.policy: row for row in policies}
    found = []
    greedy, oracle, ours = rows[GREEDY], rows[ORACLE], rows[contender]

    def over(row: PolicyWeek) -> float:
        if contender == OWN:
            return row.own_cost_over_it.mean
        return ours.cost.mean / row.cost.mean

    if over(greedy) > COST_BAR:
        found.append(f"cost is {over(greedy):.3f} of greedy's; bar {COST_BAR}")
    if ours.violations.mean > greedy.violations.mean + 1e-9:
        found.append(f"{ours.violations.mean:.2%} of the steps fail, greedy's {greedy.violations.mean:.2%}")
    if over(oracle) > ORACLE_BAR:
        found.append(f"cost is {over(oracle):.3f} of the oracle's; bar {ORACLE_BAR}")
    moved = ours.reconfigurations.mean / max(greedy.reconfigurations.mean, 1.0)
    if moved > RECONFIGURATION_BAR:
        found.append(f"{moved:.2f} of greedy's reconfigurations; bar {RECONFIGURATION_BAR}")
    found += [
        f"{row.policy} is cheaper at no more failed steps: ours costs {over(row):.3f} of it"
        for row in policies
        if row.policy not in (contender, ORACLE)
        and over(row) > 1.0
        and row.violations.mean <= ours.violations.mean + 1e-9
    ]
    return found
