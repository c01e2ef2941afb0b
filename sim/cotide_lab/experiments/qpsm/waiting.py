"""Experiment qpsm-waiting: total waiting of 64 batch jobs next to a service under QPSM, FIFO and random order (Ou
2024).

Called by ``cotide experiment qpsm-waiting``. Seven request rates, 64 jobs (eight types, 2 to 16 GB), one node with one
service, in virtual time with the real engine, trained models and the interference model. Everything except the strategy
is the same. Invariant: same seed, files and settings, same rows.

Points that the paper leaves open, and the choices here:

- **All three strategies ask the QoS predictor** (the policies `fifo-guarded` and `random-guarded`). The paper does not
state it. But its totals for FIFO and random fall from 220,000 s to 300 s as the rate rises, like those of QPSM: they
too leave jobs out.
- **Waiting counts jobs that were deployed**, from arrival to binding. The waiting of a job that the predictor never
admits has no end; 300 s for 64 jobs, at 200k, can't include such jobs.
- **Rates are shares of the service's capacity**: the paper's service breaks its limit alone above 290k, ours is full at
the interference model's saturation.
- **The limit is `LIMIT_MILLISECONDS`**, not 10 ms: the measured service answers in 0.05 to 0.2 ms alone. At this limit
the highest rate leaves some jobs out, and two jobs at once are too many at the second highest. With the measured
interference the highest rate leaves all jobs out: any job on its core then takes p95 to a third of a second.
- **A job asks for half of the cpu that the service leaves**, so that one or two run at once. It arrives at random
within a minute, in random order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.events import Event, PodPhase, PodUpserted
from cotide_core.forecasts import MixBatch
from cotide_core.instructions import Bind, Instruction
from cotide_lab.experiments.qpsm.misled import MISLED, Misjudged, misjudged, with_qos
from cotide_sim.cluster.comparison import TrainedModels
from cotide_sim.cluster.world import NODE_MILLICORES, World
from cotide_sim.interference.model import Interference
from cotide_sim.workloads import sizing
from cotide_sim.workloads.plan import Plan, PlannedJob, PlannedService

RATES: Final = (1_000, 5_000, 10_000, 50_000, 100_000, 150_000, 200_000)
"""Requests/s of the paper's service (section 5.4)."""
PAPER_LIMIT_RATE: Final = 290_000
"""Requests/s above which the paper's service breaks its limit alone (section 5.2.1)."""
GIGABYTES: Final = (2, 4, 6, 8, 10, 12, 14, 16)
GIGABYTE: Final = 1_000_000_000
PAPER: Final[dict[str, tuple[float, ...]]] = {
    "fifo": (224_017, 223_638, 220_492, 5_977, 2_141, 337, 300),
    "random": (273_878, 256_348, 265_899, 10_812, 3_244, 295, 253),
    "qpsm": (164_616, 177_731, 175_707, 5_438, 1_841, 217, 197),
}
"""Table 4, seconds, in the order of `RATES`."""
ALONE: Final = "service alone"
POLICIES: Final = {"fifo": "fifo-guarded", "random": "random-guarded", "qpsm": "qpsm"}
"""The policy of the engine that plays each strategy."""
BASELINES: Final = ("fifo", "random")
OWN: Final = "qpsm"
INACTIVE: Final = ("fifo", "fifo, no guard", ALONE)
"""Contenders that must miss a bar in the place of ours: one that changes nothing, one that accepts each job, and one
that refuses each."""
UNGUARDED: Final = {"fifo, no guard": "fifo", "random, no guard": "random", ALONE: "qpsm"}
"""Rows without a judgement: the orders without the QoS predictor, and the service without any job."""

LIMIT_MILLISECONDS: Final = 2.0
SERVICE_MILLICORES: Final = 2000
SERVICE_MEMORY_BYTES: Final = 4 * sizing.GIBIBYTE
JOB_MILLICORES: Final = (NODE_MILLICORES - SERVICE_MILLICORES) // 2
JOB_MEMORY_BYTES: Final = 4 * sizing.GIBIBYTE
ARRIVALS_SECONDS: Final = 60.0
DURATION_FACTOR: Final = 2.0
"""Length of a run, in multiples of all jobs run alone one after another. Chosen so that no job that may start is cut
off."""
RATE_STEP_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Row:
    """One strategy at one rate.

    Attributes
    ----------
    rate : requests/s of the paper's service.
    waiting_seconds : total waiting of the deployed jobs, mean over repeats.
    deviation : its standard deviation over repeats.
    deployed : jobs that were deployed, mean over repeats.
    violations : share of time in which the service was over its limit, mean over repeats.
    paper_seconds : Table 4; None where the paper has no such row.
    utilisation : share of the node's cpu in use over the run, mean over repeats (the paper's Fig. 11 compares it with
    the service alone).
    """

    rate: int
    strategy: str
    waiting_seconds: float
    deviation: float
    deployed: float
    violations: float
    paper_seconds: float | None
    utilisation: float = 0.0


@dataclass(frozen=True, slots=True)
class Gain:
    """Relative reduction of waiting by QPSM compared with a rival: the mean over rates, and the paper's."""

    rival: str
    ours: float
    paper: float


@dataclass(frozen=True, slots=True)
class Report:
    """All rows, the mean gain of QPSM, and the missed bars in words.

    ``unjudged`` holds the rates without a deployed job under any strategy, so that no job waited; ``misjudged`` how
    often each model is wrong about one job next to the service (Ou 2024, section 5.4: 19 of 448). ``inactive``: bars
    missed by each contender that does nothing for the service or for the jobs.
    """

    rows: tuple[Row, ...]
    gains: tuple[Gain, ...]
    missed: tuple[str, ...]
    unjudged: tuple[int, ...] = ()
    misjudged: tuple[Misjudged, ...] = ()
    inactive: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Waits:
    """When jobs arrived and were bound, by the engine's events and decisions."""

    arrived: dict[str, float]
    waited: dict[str, float]

    def hear(self, now: float, events: Sequence[Event], instructions: Sequence[Instruction]) -> None:
        """Record one cycle."""
        for event in events:
            if isinstance(event, PodUpserted) and event.pod.phase is PodPhase.PENDING and event.pod.job is not None:
                self.arrived.setdefault(event.pod.key, event.pod.created_seconds)
        for instruction in instructions:
            if isinstance(instruction, Bind) and instruction.key in self.arrived:
                self.waited.setdefault(instruction.key, now - self.arrived[instruction.key])


def plan_of(rate: int, seed: int, interference: Interference) -> Plan:
    """Return the service at a constant rate and the 64 jobs in an order drawn by the seed."""
    generator = np.random.default_rng(seed)
    kinds = [(name, gigabytes * GIGABYTE) for name in sizing.JOB_TYPES for gigabytes in GIGABYTES]
    lone = interference.isolated_seconds([name for name, _ in kinds], np.array([size for _, size in kinds], np.float64))
    at = generator.uniform(0.0, ARRIVALS_SECONDS, len(kinds)).round(3)
    jobs = [
        PlannedJob(
            name="",
            at_seconds=float(moment),
            workload_class=WorkloadClass.BATCH,
            type=name,
            input_bytes=size,
            priority=sizing.DEFAULT_PRIORITY,
            completions=1,
            millicores=JOB_MILLICORES,
            memory_bytes=JOB_MEMORY_BYTES,
            isolated_seconds=float(seconds),
            requested_seconds=None,
        )
        for (name, size), seconds, moment in zip(kinds, lone, at, strict=True)
    ]
    ours = rate / PAPER_LIMIT_RATE * interference.saturation_requests_per_second
    service = PlannedService(
        name="cache",
        replicas=1,
        millicores=SERVICE_MILLICORES,
        memory_bytes=SERVICE_MEMORY_BYTES,
        limit_milliseconds=LIMIT_MILLISECONDS,
        rates=(ours,),
        rates_step_seconds=RATE_STEP_SECONDS,
        exclusive=True,
    )
    return Plan((service,), sizing.named(jobs), ARRIVALS_SECONDS + DURATION_FACTOR * float(lone.sum()))


def run(
    interference: Interference,
    models: TrainedModels,
    *,
    seed: int = 0,
    repeats: int = 10,
    rates: Sequence[int] = RATES,
    progress: Callable[[str, float], object] = lambda _what, _share: None,
) -> Report:
    """Play every rate and strategy ``repeats`` times.

    Parameters
    ----------
    models : the models of all strategies; trained on this interference.
    rates : of `RATES`.
    progress : called with each rate and the share that is done.
    """
    rows = []
    for index, rate in enumerate(rates):
        strategies = {**POLICIES, **UNGUARDED}
        for step, (strategy, policy) in enumerate(strategies.items()):
            progress(f"{rate:,} requests/s, {strategy}", (index + step / len(strategies)) / len(rates))
            rows.append(_row(rate, strategy, policy, interference, models, range(seed, seed + repeats)))
        for strategy, spoil in MISLED.items():
            progress(f"{rate:,} requests/s, {strategy}", (index + 1) / len(rates))
            spoilt = with_qos(models, spoil(models.qos_model))
            rows.append(_row(rate, strategy, "qpsm", interference, spoilt, range(seed, seed + repeats)))
    named = [row for row in rows if row.strategy in POLICIES]
    unjudged = tuple(rate for rate in rates if not any(row.deployed for row in named if row.rate == rate))
    judged = [row for row in rows if row.rate not in unjudged]
    gains = tuple(_gain(judged, OWN, rival) for rival in BASELINES)
    mixes, threshold = verdict_mixes(rates, interference), SchedulerConfig().qos_risk_threshold
    asked = {"qpsm": models.qos_model, **{name: spoil(models.qos_model) for name, spoil in MISLED.items()}}
    wrong = tuple(misjudged(name, qos, mixes, interference, threshold) for name, qos in asked.items())
    inactive = {contender: len(misses_of(judged, contender)) for contender in INACTIVE} if judged else {}
    missed = misses_of(judged, OWN)
    missed += [f"{contender} misses no bar: the bars are too low" for contender, many in inactive.items() if not many]
    return Report(tuple(rows), gains, tuple(missed), unjudged, wrong, inactive)


def verdict_mixes(rates: Sequence[int], interference: Interference) -> MixBatch:
    """Return each of the 64 jobs next to the service at each rate: the cases of the paper's misjudgements."""
    kinds = [(name, gigabytes * GIGABYTE) for name in sizing.JOB_TYPES for gigabytes in GIGABYTES]
    types = tuple(sorted(sizing.JOB_TYPES))
    counts = np.array([[name == column for column in types] for name, _ in kinds], np.float64)
    counts, rows = np.tile(counts, (len(rates), 1)), len(rates) * len(kinds)
    size = np.tile([float(size) for _, size in kinds], len(rates))
    ours = np.repeat(rates, len(kinds)) / PAPER_LIMIT_RATE * interference.saturation_requests_per_second
    return MixBatch(
        requests_per_second=ours,
        other_requests_per_second=np.zeros(rows),
        limit_milliseconds=np.full(rows, LIMIT_MILLISECONDS),
        cpu_pressure=np.full(rows, JOB_MILLICORES / NODE_MILLICORES),
        types=types,
        counts=counts,
        input_bytes=counts * size[:, None],
    )


def _row(rate: int, strategy: str, policy: str, interference: Interference, models: TrainedModels, seeds: range) -> Row:
    totals, deployed, violations, used = [], [], [], []
    for seed in seeds:
        waits = _Waits({}, {})
        config = SchedulerConfig(policy=policy, seed=seed)
        plan = plan_of(rate, seed, interference)
        if strategy == ALONE:
            plan = replace(plan, jobs=())
        world = World(plan, interference, config, models, models=models.event, nodes=1, listener=waits.hear)
        summary = world.run().summary
        violations.append(summary["qos_violation_ratio"])
        used.append(summary["cpu_utilisation"])
        totals.append(sum(waits.waited.values()))
        deployed.append(len(waits.waited))
    return Row(
        rate,
        strategy,
        float(np.mean(totals)),
        float(np.std(totals)),
        float(np.mean(deployed)),
        float(np.mean(violations)),
        PAPER[strategy][RATES.index(rate)] if strategy in PAPER else None,
        float(np.mean(used)),
    )


def _gain(rows: Sequence[Row], contender: str, rival: str) -> Gain:
    own = {row.rate: row for row in rows if row.strategy == contender}
    others = [row for row in rows if row.strategy == rival]
    ours = [1.0 - own[row.rate].waiting_seconds / row.waiting_seconds for row in others if row.waiting_seconds > 0]
    paper = [1.0 - PAPER[OWN][RATES.index(row.rate)] / row.paper_seconds for row in others if row.paper_seconds]
    return Gain(rival, float(np.mean(ours)) if ours else 0.0, float(np.mean(paper)))


def misses_of(rows: Sequence[Row], contender: str) -> list[str]:
    """Return the bars that a strategy misses in the place of ours, in words.

    At each rate it waits less than either rival, leaves out no job that the rival deploys, and breaks the service's
    limit no more often. On average over rates it is below each by at least the paper's share.
    """
    out = []
    for row in rows:
        if row.strategy not in BASELINES:
            continue
        own = next(other for other in rows if other.rate == row.rate and other.strategy == contender)
        where = f"at {row.rate:,} requests/s"
        if own.waiting_seconds >= row.waiting_seconds:
            theirs = f"{row.strategy} {row.waiting_seconds:,.0f} s"
            out.append(f"{where} {contender} waits {own.waiting_seconds:,.0f} s, {theirs}")
        if own.deployed < row.deployed:
            out.append(f"{where} {contender} deploys {own.deployed:g} jobs, {row.strategy} {row.deployed:g}")
        if own.violations > row.violations:
            over = f"{own.violations:.1%} of the time, {row.strategy} {row.violations:.1%}"
            out.append(f"{where} {contender} is over the limit {over}")
    for gain in (_gain(rows, contender, rival) for rival in BASELINES):
        if gain.ours < gain.paper:
            below = f"by {gain.ours:.1%} on average, the paper by {gain.paper:.1%}"
            out.append(f"{contender} is below {gain.rival} {below}")
    return out
