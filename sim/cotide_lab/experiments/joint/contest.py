"""Experiment joint: forecast slack, latency guard and predicted order together, against each alone and static reserves.

Called by ``cotide experiment joint``. Every contender meets the same services, arrivals, machines and models of a seed,
in virtual time through the real engine. With a data directory, arrivals are Alibaba's and Google's, rates follow
WorldCup98's sizes, use of cpu is Azure's, and interference is as measured. A static reserve plans with the present use
of online pods plus a fixed share of the node, without a forecast. Invariant: same seed, files and settings, same rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from cotide_core.config import SchedulerConfig
from cotide_predictors.request_rates.service_rates import ServiceRates
from cotide_sim.cluster.comparison import TrainedModels, config_of, prepare
from cotide_sim.cluster.slot_forecasts import AHEAD_SLOTS, PeakRule
from cotide_sim.cluster.world import World
from cotide_sim.interference.model import Interference
from cotide_sim.workloads.plan import Plan
from cotide_sim.workloads.scenarios import SLOT_SECONDS, Scenario, plan_of

OURS: Final = "predictive"
ALWAYS_SLOTS: Final = 8
"""200 s: about the 90th percentile of those run times."""
FORECAST: Final = PeakRule()
AHEAD: Final = PeakRule(ahead_slots=AHEAD_SLOTS)


class Contender(NamedTuple):
    """A policy and the input of its plans.

    Attributes
    ----------
    peak : of the online pods' use.
    rates : quantile of the forecast rates that the guard asks about; None for the rates that were measured last.
    knobs : of `HierarchicalConfig` that differ from the scenario's.
    """

    policy: str
    peak: PeakRule
    rates: float | None = None
    knobs: Mapping[str, Any] = {}


CONTENDERS: Final[Mapping[str, Contender]] = {
    OURS: Contender("predictive", AHEAD),
    "predictive, batch first": Contender(
        "predictive", AHEAD, None, {"victims": "cheapest", "gratis_subtracts": "highest"}
    ),
    **{f"predictive, rates p{level:.0%}"[:-1]: Contender("predictive", AHEAD, level) for level in (0.5, 0.6, 0.75)},
    "predictive, relief of trends": Contender("predictive", AHEAD, None, {"relieves_trend": True}),
    "predictive, one slot": Contender("predictive", FORECAST),
    "predictive, 8 slots": Contender("predictive", PeakRule(horizon_slots=ALWAYS_SLOTS)),
    "qpsm": Contender("qpsm", FORECAST),
    "hierarchical": Contender("hierarchical", FORECAST),
    "fifo-guarded": Contender("fifo-guarded", FORECAST),
    "random-guarded": Contender("random-guarded", FORECAST),
    "fifo": Contender("fifo", FORECAST),
    **{
        f"reserve {share:.0%}": Contender("hierarchical", PeakRule(reserve_share=share))
        for share in (0.05, 0.1, 0.15, 0.2)
    },
    **{
        f"guarded reserve {share:.0%}": Contender("predictive", PeakRule(reserve_share=share))
        for share in (0.05, 0.1, 0.15, 0.2)
    },
}
"""Name of a row: policy and the input of its plans. The guarded reserves differ from `predictive` by the forecast
alone."""
FIGURES: Final = (
    "qos_violation_ratio", "overload_slots", "evictions", "waiting_seconds_mean", "jobs_finished", "cpu_utilisation",
)  # fmt: skip
T_95: Final = (math.nan, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Student's t, 97.5 %, by degrees of freedom; beyond these it is calculated."""


@dataclass(frozen=True, slots=True)
class Row:
    """One contender: means over seeds and half the width of their 95 % intervals, by figure; each seed's figures."""

    name: str
    policy: str
    means: dict[str, float]
    intervals: dict[str, float]
    by_seed: tuple[dict[str, float], ...]


@dataclass(frozen=True, slots=True)
class Report:
    """All rows, and the missed bars in words."""

    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    missed: tuple[str, ...]


Figures = dict[str, float]
"""One run's figures, by name."""


def run(
    data: Path | None,
    *,
    seeds: Sequence[int],
    nodes: int = 40,
    seconds: float = 900.0,
    scenario: Scenario = "slack",
    contenders: Mapping[str, Contender] = CONTENDERS,
    kept: MutableMapping[tuple[int, str], Figures] | None = None,
    progress: Callable[[str, float], object] = lambda _what, _share: None,
) -> Report:
    """Play every contender with every seed.

    Parameters
    ----------
    data : the public traces; None for generated services, jobs and interference.
    seconds : simulated, of each run.
    kept : figures by seed and name. Present ones are not played again, and played ones are added.
    """
    kept = {} if kept is None else kept
    for index, seed in enumerate(seeds):
        missing = [name for name in contenders if (seed, name) not in kept]
        if not missing:
            continue
        progress(f"seed {seed}, models", index / len(seeds))
        interference, models = prepare(data, seed)
        plan = plan_of(scenario, seed, nodes, seconds, data=data, interference=interference)
        for step, name in enumerate(missing):
            progress(f"seed {seed}, {name}", (index + step / len(missing)) / len(seeds))
            kept[seed, name] = _play(contenders[name], seed, nodes, plan, interference, models)
    rows = tuple(
        _row(name, contender.policy, [kept[seed, name] for seed in seeds]) for name, contender in contenders.items()
    )
    return Report(rows, tuple(seeds), tuple(missed(rows)))


def _play(
    one: Contender, seed: int, nodes: int, plan: Plan, interference: Interference, models: TrainedModels
) -> Figures:
    """Return the figures of one run."""
    config = config_of(one.policy, SchedulerConfig(seed=seed))
    if config.hierarchical is not None:
        config = replace(config, hierarchical=replace(config.hierarchical, **one.knobs))
    world = World(
        plan,
        interference,
        config,
        models,
        models=models.event,
        nodes=nodes,
        slot_seconds=SLOT_SECONDS,
        peak=one.peak,
        rates=None if one.rates is None else ServiceRates(SLOT_SECONDS, AHEAD_SLOTS, one.rates),
    )
    summary = world.run().summary
    return {figure: float(summary[figure]) for figure in FIGURES}


def _row(name: str, policy: str, by_seed: Sequence[Figures]) -> Row:
    means, intervals = {}, {}
    for figure in FIGURES:
        values = np.array([item[figure] for item in by_seed])
        means[figure] = float(values.mean())
        freedom = len(values) - 1
        deviation = float(values.std(ddof=1)) if freedom else math.nan
        intervals[figure] = _student(freedom) * deviation / math.sqrt(len(values))
    return Row(name, policy, means, intervals, tuple(by_seed))


def _student(freedom: int) -> float:
    if freedom < len(T_95):
        return T_95[freedom]
    from scipy.stats import t  # heavy, and most runs have fewer seeds

    return float(t.ppf(0.975, freedom))


def missed(rows: Sequence[Row]) -> list[str]:
    """Return the bars that `predictive` missed, in words: all are about means over seeds.

    At most half of qpsm's time over the limit; no more overload slots than hierarchical. At least as many jobs as the
    better of the two; more jobs than any static reserve that is over the limit for no longer.
    """
    by_name = {row.name: row.means for row in rows}
    if not {OURS, "qpsm", "hierarchical"} <= set(by_name):
        return []
    ours, qpsm, hierarchical = by_name[OURS], by_name["qpsm"], by_name["hierarchical"]
    out = []
    over, jobs = ours["qos_violation_ratio"], ours["jobs_finished"]
    if over > 0.5 * qpsm["qos_violation_ratio"]:
        out.append(f"{over:.2%} over the limit, more than half of qpsm's {qpsm['qos_violation_ratio']:.2%}")
    if ours["overload_slots"] > hierarchical["overload_slots"]:
        out.append(f"{ours['overload_slots']:.1f} overload slots, hierarchical {hierarchical['overload_slots']:.1f}")
    best = max(qpsm["jobs_finished"], hierarchical["jobs_finished"])
    if jobs < best:
        out.append(f"{jobs:.0f} jobs finished, the better of qpsm and hierarchical {best:.0f}")
    for name, means in by_name.items():
        if "reserve" in name and means["qos_violation_ratio"] <= over and means["jobs_finished"] >= jobs:
            figures = f"{means['jobs_finished']:.0f} jobs at {means['qos_violation_ratio']:.2%} over the limit"
            out.append(f"{name} finishes {figures}, predictive {jobs:.0f} at {over:.2%}")
    return out
