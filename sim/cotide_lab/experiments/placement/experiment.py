"""The placement experiment: cost and failures of every contender in every week and seed, and the bars.

Called by `cotide experiment placement`. Each contender runs at the setting that costs least on the tuning seeds
(`like_for_like`); lost requests are part of the cost. Invariant: the same data and seeds give the same report, except
the seconds of decisions; a rival that wins is named.
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

from cotide_lab.experiments.like_for_like import TUNING_SEEDS, Ratio, Spread, chosen, reported
from cotide_lab.experiments.placement.contenders import CONTENDERS, GREEDY, ORACLE, OWN, Setting
from cotide_lab.experiments.placement.controllers import PlacementController
from cotide_lab.experiments.placement.integral import placement_gap
from cotide_lab.experiments.placement.scenarios import DAY_STEPS, PlacementScenario, placement_scenario

Floats = NDArray[np.float64]

COST_BAR: Final = 0.9
ORACLE_BAR: Final = 1.1
RECONFIGURATION_BAR: Final = 0.5
SHOWN: Final = (OWN, GREEDY)


@dataclass(frozen=True, slots=True)
class WeekOutcome:
    """The outcome of a policy in a week.

    Attributes
    ----------
    cost : all money; ``servers_cost``, ``reconfiguration_cost``, ``egress_cost``, ``penalty`` are its parts.
    reconfigurations : servers added or removed.
    unserved : share of the requests that found no server fast enough.
    violations : share of the steps with more than one such request in a thousand.
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
    """A contender in a week, at its setting, over the reported seeds; the ratio is by seed."""

    policy: str
    knob: str
    setting: tuple[float, float]
    cost: Spread
    servers_cost: Spread
    reconfiguration_cost: Spread
    egress_cost: Spread
    reconfigurations: Spread
    unserved: Spread
    violations: Spread
    own_cost_over_it: Ratio
    decision_seconds: Spread


@dataclass(frozen=True, slots=True)
class WeekReport:
    """One week at one factor of reconfiguration costs; ``oracle_over_greedy``: the result with the future known."""

    week: str
    reading: str
    reconfiguration: float
    policies: tuple[PolicyWeek, ...]
    own_reconfigurations_over_greedy: Spread
    oracle_over_greedy: Ratio
    centres: tuple[str, ...]
    demand: tuple[float, ...]
    prices: tuple[tuple[float, ...], ...]
    shown: dict[str, tuple[tuple[float, ...], ...]]


@dataclass(frozen=True, slots=True)
class PlacementReport:
    """All weeks; ``rounded_over_integral``: cost of rounding up over the integral optimum on small instances."""

    seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]
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
        started = time.perf_counter()
        wanted, split = controller.decide(step, servers)
        took.append(time.perf_counter() - started)
        change = wanted - servers
        if step:  # the initial servers are no policy's merit
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
    """Return (L, V) served requests per second: by the split, with the excess sent to centres with free servers.

    An overloaded data centre serves the same share of every network's requests. The rest goes to the free servers that
    handle most of it.
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


Settings = dict[str, tuple[Setting, ...]]
Played = tuple[PlacementScenario, dict[tuple[str, Setting], WeekOutcome]]


@dataclass(frozen=True, slots=True)
class _Cell:
    """A week, factor and seed, and the settings of each contender that run on it."""

    week: str
    data: Path | None
    seed: int
    factor: float
    days: int
    settings: Settings


def run(
    weeks: Sequence[str],
    seeds: Sequence[int],
    *,
    data: Path | None,
    tuning_seeds: Sequence[int] = TUNING_SEEDS,
    days: int = 7,
    reconfigurations: Sequence[float] = (1.0,),
    workers: int = 1,
    progress: Callable[[str, float], object] = lambda _what, _share: None,
) -> PlacementReport:
    """Run the experiment; without ``data`` on generated requests and prices.

    Raises
    ------
    InputError
        When the data are missing or broken, or a seed is a tuning seed.
    """
    seeds = reported(seeds, tuning_seeds)
    every = {name: contender.settings for name, contender in CONTENDERS.items()}
    kinds = [(week, factor) for week in weeks for factor in reconfigurations]

    def played(on: Sequence[int], settings: dict[tuple[str, float], Settings], first: float) -> list[Played]:
        cells = [_Cell(kind[0], data, seed, kind[1], days, settings[kind]) for kind in kinds for seed in on]
        return _play(cells, workers, lambda what, share: progress(what, first + share / 2.0))

    tuned = played(tuning_seeds, dict.fromkeys(kinds, every), 0.0)
    count = len(tuning_seeds)
    settings = {kind: _choice(tuned[at * count : (at + 1) * count]) for at, kind in enumerate(kinds)}
    judged = played(seeds, settings, 0.5)
    reports = tuple(
        _week_report(factor, judged[at * len(seeds) : (at + 1) * len(seeds)]) for at, (_, factor) in enumerate(kinds)
    )
    missed = tuple(sentence for report in reports for sentence in _missed(report))
    return PlacementReport(tuple(seeds), tuple(tuning_seeds), reports, Spread.of(placement_gap(seeds)), missed)


def _play(cells: Sequence[_Cell], workers: int, progress: Callable[[str, float], object]) -> list[Played]:
    done = []
    with ProcessPoolExecutor(workers) as pool:
        answers = pool.map(_one, cells) if workers > 1 else map(_one, cells)
        for index, (cell, answer) in enumerate(zip(cells, answers, strict=True), start=1):
            done.append(answer)
            progress(f"{cell.week}, seed {cell.seed}", index / len(cells))
    return done


def _one(cell: _Cell) -> Played:
    scene = placement_scenario(cell.week, cell.data, cell.seed, reconfiguration=cell.factor)
    steps = cell.days * DAY_STEPS
    outcomes = {
        (name, setting): run_week(scene, CONTENDERS[name].make(scene, setting), name, steps)
        for name, settings in cell.settings.items()
        for setting in settings
    }
    return scene, outcomes


def _choice(tuned: Sequence[Played]) -> Settings:
    """Return the cheapest setting of each contender; the cost includes lost requests."""
    found: Settings = {}
    for name, contender in CONTENDERS.items():
        cost = {
            setting: float(np.mean([of[(name, setting)].cost for _, of in tuned])) for setting in contender.settings
        }
        found[name] = (chosen(cost, dict.fromkeys(cost, 0.0)),)
    return found


def _week_report(factor: float, runs: Sequence[Played]) -> WeekReport:
    setting_of = dict(runs[0][1].keys())
    by_seed = [{name: outcomes[(name, setting)] for name, setting in setting_of.items()} for _, outcomes in runs]
    scene = runs[0][0]
    ours = [outcomes[OWN] for outcomes in by_seed]
    rows = [_row(name, setting, [item[name] for item in by_seed], ours) for name, setting in setting_of.items()]
    greedy = [outcomes[GREEDY] for outcomes in by_seed]
    moved = [mine.reconfigurations / max(its.reconfigurations, 1.0) for mine, its in zip(ours, greedy, strict=True)]
    known = Ratio.of([outcomes[ORACLE].cost for outcomes in by_seed], [week_outcome.cost for week_outcome in greedy])
    shown = {name: by_seed[0][name].servers for name in SHOWN}
    steps = len(shown[OWN])
    return WeekReport(
        scene.name, scene.reading, factor, tuple(rows), Spread.of(moved), known,
        tuple(centre.name for centre in scene.model.centres), tuple(scene.demand[:steps].sum(axis=1)),
        tuple(map(tuple, scene.price[:steps])), shown,
    )  # fmt: skip


def _row(name: str, setting: Setting, found: Sequence[WeekOutcome], ours: Sequence[WeekOutcome]) -> PolicyWeek:
    def over(measure: str) -> Spread:
        return Spread.of([getattr(outcome, measure) for outcome in found])

    return PolicyWeek(
        policy=name,
        knob=CONTENDERS[name].knob,
        setting=setting,
        cost=over("cost"),
        servers_cost=over("servers_cost"),
        reconfiguration_cost=over("reconfiguration_cost"),
        egress_cost=over("egress_cost"),
        reconfigurations=over("reconfigurations"),
        unserved=over("unserved"),
        violations=over("violations"),
        own_cost_over_it=Ratio.of([our.cost for our in ours], [week_outcome.cost for week_outcome in found]),
        decision_seconds=over("decision_seconds"),
    )


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
    for row in report.policies:
        ratio = row.own_cost_over_it
        if row.policy not in (OWN, ORACLE) and ratio.mean > 1.0:
            noise = "" if ratio.beyond_noise else ", within noise"
            found.append(f"{where}: {row.policy} wins: ours costs {ratio.mean:.3f} of it{noise}")
    return found
