"""The placement experiment: every policy in every week and seed, what it cost and whom it failed, and the bars.

Called by `cotide experiment placement`. Invariant: the same data and seeds give the same report, but for the seconds
that decisions took; a rival that wins is named as winning.
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

from cotide_sim.experiments.like_for_like import Spread
from cotide_sim.experiments.placement.controllers import Nearest, PlacementController, PredictiveControl
from cotide_sim.experiments.placement.integral import placement_gap
from cotide_sim.experiments.placement.scenarios import DAY_STEPS, PlacementScenario, placement_scenario

Floats = NDArray[np.float64]

OWN: Final = "mpc"
GREEDY: Final = "greedy"
ORACLE: Final = "oracle"
COST_BAR: Final = 0.9
ORACLE_BAR: Final = 1.1
RECONFIGURATION_BAR: Final = 0.5
QUANTILE: Final = 0.95
"""Of demand (chosen on seeds 101 and 102)."""
BAND: Final = 0.08
"""Changes of servers below this share are left alone (chosen on the same seeds)."""

Make = Callable[[PlacementScenario], PlacementController]
POLICIES: Final[dict[str, Make]] = {
    OWN: lambda scene: PredictiveControl(scene, quantile=QUANTILE, band=BAND),
    "mpc, no hysteresis": lambda scene: PredictiveControl(scene, quantile=QUANTILE),
    GREEDY: lambda scene: PredictiveControl(scene, quantile=QUANTILE, horizon=1, reconfiguring=False),
    "last value": lambda scene: PredictiveControl(scene, source="last value", reserve=1.1),
    "yesterday": lambda scene: PredictiveControl(scene, source="yesterday", reserve=1.2),
    "nearest": lambda scene: Nearest(scene, reserve=1.1),
    ORACLE: lambda scene: PredictiveControl(scene, source="oracle", horizon=DAY_STEPS // 2),
}
"""``greedy`` has the same forecast and plans one step without reconfiguration costs; ``nearest`` are thresholds; the
oracle has the true requests and prices of the next twelve hours."""
SHOWN: Final = (OWN, GREEDY)


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


@dataclass(frozen=True, slots=True)
class WeekReport:
    """One week at one factor of reconfiguration costs.

    ``greedy_unmoved``: greedy's cost without its reconfigurations, over its cost. Greedy takes in each step the
    cheapest servers for what is foreseen, so that no controller which provides for the same can cost less, but for
    what rounding up leaves open. ``oracle_over_greedy``: what knowing the future would reach.
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
        When the data are missing or broken.
    """
    cells = [(week, data, seed, factor, days) for week in weeks for factor in reconfigurations for seed in seeds]
    done: dict[tuple[str, float, int], tuple[PlacementScenario, list[WeekOutcome]]] = {}
    with ProcessPoolExecutor(workers) as pool:
        answers = pool.map(_one, cells) if workers > 1 else map(_one, cells)
        for index, (cell, answer) in enumerate(zip(cells, answers, strict=True), start=1):
            done[(cell[0], cell[3], cell[2])] = answer
            progress(f"{cell[0]}, seed {cell[2]}", index / len(cells))
    reports = tuple(
        _week_report(factor, [done[(week, factor, seed)] for seed in seeds])
        for week in weeks
        for factor in reconfigurations
    )
    missed = tuple(sentence for report in reports for sentence in _missed(report))
    return PlacementReport(tuple(seeds), reports, Spread.of(placement_gap(seeds)), missed)


def _one(cell: tuple[str, Path | None, int, float, int]) -> tuple[PlacementScenario, list[WeekOutcome]]:
    week, data, seed, factor, days = cell
    scene = placement_scenario(week, data, seed, reconfiguration=factor)
    return scene, [run_week(scene, make(scene), name, days * DAY_STEPS) for name, make in POLICIES.items()]


def _week_report(factor: float, runs: Sequence[tuple[PlacementScenario, list[WeekOutcome]]]) -> WeekReport:
    by_seed = [{outcome.policy: outcome for outcome in outcomes} for _, outcomes in runs]
    scene = runs[0][0]
    rows = []
    for name in POLICIES:
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
        tuple(map(tuple, scene.price[:steps])), shown,
    )  # fmt: skip


def _missed(report: WeekReport) -> list[str]:
    rows = {row.policy: row for row in report.policies}
    where = f"{report.week}, reconfiguration x{report.reconfiguration:g}"
    found = []
    greedy, oracle, ours = rows[GREEDY], rows[ORACLE], rows[OWN]
    if greedy.own_cost_over_it.mean > COST_BAR:
        found.append(f"{where}: cost is {greedy.own_cost_over_it.mean:.3f} of greedy's; bar {COST_BAR}")
    if ours.violations.mean > greedy.violations.mean + 1e-9:
        found.append(f"{where}: {ours.violations.mean:.2%} of the steps fail, greedy's {greedy.violations.mean:.2%}")
    if oracle.own_cost_over_it.mean > ORACLE_BAR:
        found.append(f"{where}: cost is {oracle.own_cost_over_it.mean:.3f} of the oracle's; bar {ORACLE_BAR}")
    if report.own_reconfigurations_over_greedy.mean > RECONFIGURATION_BAR:
        share = report.own_reconfigurations_over_greedy.mean
        found.append(f"{where}: {share:.2f} of greedy's reconfigurations; bar {RECONFIGURATION_BAR}")
    found += [
        f"{where}: {row.policy} is cheaper at no more failed steps: ours costs {row.own_cost_over_it.mean:.3f} of it"
        for row in report.policies
        if row.policy not in (OWN, ORACLE, "mpc, no hysteresis")
        and row.own_cost_over_it.mean > 1.0
        and row.violations.mean <= ours.violations.mean + 1e-9
    ]
    return found
