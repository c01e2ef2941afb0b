"""Experiment hierarchical: Jiang et al.'s scheduling with and without prediction, beside the paper's figures.

Called by ``cotide experiment hierarchical``. Without prediction a node's next slot is taken to be as it is now; with
it, what production will use and what batch and gratis tasks will hold is forecast. Everything else is the same engine,
policy and days, and figures are means over the days of several seeds: one day's delay hangs on a few tasks that run for
hours. Invariant: same seeds and files, same rows, however many processes play them.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields, replace
from typing import Final, Literal

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig, SchedulerConfig
from cotide_core.kernels.array_types import Floats
from cotide_sim.experiments.hierarchical.data_center import (
    SAMPLE_SECONDS,
    Task,
    draw_tasks,
    draw_usage,
    usage_from_series,
)
from cotide_sim.experiments.hierarchical.engine_run import Drive, Forecaster, Outcome
from cotide_sim.experiments.hierarchical.forecasters import Known, Point, Predicted, Present, Reserve, slot_maxima
from cotide_sim.traces.load.load_series import LoadSeries

SLOT_SIZES: Final = (100.0, 200.0, 300.0, 400.0, 500.0)
PAPER_SLOT: Final = 300.0
SEEDS: Final = tuple(range(10))
DEFAULT_LOAD: Final = 0.62
"""Scale of what tasks ask for. Calibrated on the runs without prediction alone, whose mean delay over the seeds it
brings near the paper's 573 s."""
PLAIN: Final = HierarchicalConfig(
    victims="random",
    capacity_share=1.0,
    usage_stale_seconds=10 * SAMPLE_SECONDS,
    relieved_share=1.0,
    overload_observation_seconds=0.0,
    overload_pause_seconds=0.0,
    overload_evictions=10_000,
    flap_episodes=1_000_000,
)
"""Random hosts and victims, all capacity, kills at once until the overload is over (Jiang et al., Algorithm 1 and
V)."""
LITERAL: Final = replace(PLAIN, gratis_subtracts="both")
"""Gratis tasks leave room for the predicted batch and gratis load beside what is held: Algorithm 1 to the letter."""
DEFAULTS: Final = replace(PLAIN, victims="cheapest")
"""Our choice of victims, and our reading: the predicted load takes the place of what is held."""
BARS: Final = (("overloads", 0.85), ("kills and evictions", 0.60), ("mean delay", 0.40))
"""How far prediction must bring each down, at slots of 300 s (the paper's abstract)."""
WITHOUT: Final = "without prediction"
JUDGED: Final = "ours"
RESERVE: Final = "static reserve"
RESERVES: Final = (0.05, 0.10, 0.15, 0.20)
"""Shares of a machine kept free without any forecast: the rival that is cheapest to have."""


@dataclass(frozen=True, slots=True)
class Row:
    """The means of one way over its days, or one of the paper's; None where there is no figure. Delays in seconds.

    Attributes
    ----------
    undelayed : tasks that started within a second and were never taken off.
    batch_delay, gratis_delay : mean delay by class.
    first_delay : mean from submission to the first start; lost : mean run time thrown away by kills and evictions. What
        is left of the mean delay is waiting in the queue again.
    """

    name: str
    source: str
    slot_seconds: float
    overloads: float | None
    kills: float | None
    evictions: float | None
    undelayed: float
    mean_delay: float
    max_delay: float
    unfinished: float = 0
    batch_delay: float | None = None
    gratis_delay: float | None = None
    first_delay: float | None = None
    lost: float | None = None


PAPER: Final = (
    Row(WITHOUT, "paper", 300, 116, 132, 404, 1826, 573.0, 50_000.0),
    Row("with prediction", "paper", 100, None, None, None, 1715, 777.07, 30_777.0),
    Row("with prediction", "paper", 200, None, None, None, 1964, 399.0, 34_588.0),
    Row("with prediction", "paper", 300, 14, 15, 128, 1995, 333.0, 24_619.0),
    Row("with prediction", "paper", 400, None, None, None, 1984, 406.0, 33_473.0),
    Row("with prediction", "paper", 500, None, None, None, 1988, 334.0, 32_216.0),
)
"""Section VI.C and Table III; the longest delay without prediction is "more than 50000 s" there."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to schedule the days: what is planned with, for slots of which length, and the policy's knobs."""

    name: str
    slot_seconds: float
    sees: Literal["present", "reserve", "forecast", "truth"]
    knobs: HierarchicalConfig
    online: Point = "point"
    batch: Point = "point"
    reserve: float = 0.0

    def forecaster(self, usage: Floats) -> Forecaster:
        """Return what it plans with, fitted on the first day."""
        if self.sees == "present":
            return Present()
        if self.sees == "reserve":
            return Reserve(self.reserve)
        if self.sees == "truth":
            return Known(usage, self.slot_seconds)
        return Predicted(slot_maxima(usage, self.slot_seconds), online=self.online, batch=self.batch)


def ways(slot_sizes: Sequence[float] = SLOT_SIZES) -> list[Way]:
    """Return the ways that are compared; ours for each slot size, the others at the paper's."""
    sizes = sorted({PAPER_SLOT, *slot_sizes})
    return [
        Way(WITHOUT, PAPER_SLOT, "present", PLAIN),
        *(Way(f"{RESERVE} {share:.0%}", PAPER_SLOT, "reserve", DEFAULTS, reserve=share) for share in RESERVES),
        Way("as printed, to the letter", PAPER_SLOT, "forecast", LITERAL),
        Way("the paper's points", PAPER_SLOT, "forecast", DEFAULTS),
        Way("p90 of production", PAPER_SLOT, "forecast", DEFAULTS, online="p90"),
        *(Way(JUDGED, size, "forecast", DEFAULTS, online="p90", batch="p90") for size in sizes),
        Way("production known", PAPER_SLOT, "truth", DEFAULTS),
    ]


@dataclass(frozen=True, slots=True)
class Report:
    """All rows, how many days each is a mean of, the bars that were missed, in words, and the static reserves that miss
    none."""

    rows: tuple[Row, ...]
    tasks: int
    days: int
    missed: tuple[str, ...]
    reserves_that_pass: tuple[str, ...] = ()


def run(
    *,
    seeds: Sequence[int] = SEEDS,
    series: LoadSeries | None = None,
    slot_sizes: Sequence[float] = SLOT_SIZES,
    load: float = DEFAULT_LOAD,
    workers: int = 1,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Play each seed's day in every way and return the means.

    Parameters
    ----------
    series : real production usage; None for generated.
    load : scales what tasks ask for.
    workers : processes; 1 plays all in this one.
    progress : told of each day after it was played.
    """
    compared = ways(slot_sizes)
    found: dict[tuple[int, int], Row] = {}
    left = [(index, seed) for index in range(len(compared)) for seed in seeds]

    def note(index: int, seed: int, row: Row) -> None:
        found[index, seed] = row
        way = compared[index]
        progress(f"{len(found)}/{len(left)}: {way.name}, slots of {way.slot_seconds:.0f} s, seed {seed}")

    if workers <= 1:
        for index, seed in left:
            note(index, seed, play(compared[index], seed, series, load))
    else:
        # Spawned, not forked: kernels may be compiling in another thread of this process.
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            tasks = {pool.submit(play, compared[index], seed, series, load): (index, seed) for index, seed in left}
            for task in as_completed(tasks):
                note(*tasks[task], task.result())
    rows = [_mean([found[index, seed] for seed in seeds]) for index in range(len(compared))]
    return Report(
        (*PAPER, *rows), len(draw_tasks(seeds[0], load=load)), len(seeds), tuple(missed(rows)), reserves_that_pass(rows)
    )


def play(way: Way, seed: int, series: LoadSeries | None = None, load: float = DEFAULT_LOAD) -> Row:
    """Play the day of one seed in one way."""
    usage = draw_usage(seed) if series is None else usage_from_series(series, seed)
    tasks = draw_tasks(seed, load=load)
    config = SchedulerConfig(policy="hierarchical", seed=seed, hierarchical=way.knobs)
    drive = Drive(tasks, usage, way.forecaster(usage), config, slot_seconds=way.slot_seconds)
    return _row(way, tasks, drive.run())


def change(before: Row, after: Row) -> tuple[float, float, float]:
    """Return by which share overloads, kills with evictions, and the mean delay changed; -0.4 is 40 % less."""
    return tuple(new / old - 1 if old > 0 else 0.0 for old, new in zip(_judged(before), _judged(after), strict=True))  # type: ignore[return-value]  # three of three


def missed(rows: Sequence[Row]) -> list[str]:
    """Return which bars our way missed against no prediction at slots of 300 s, in words; empty for none."""
    return misses_of(rows, next(row for row in rows if row.name == JUDGED and row.slot_seconds == PAPER_SLOT))


def reserves_that_pass(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the static reserves that reach every bar without a forecast."""
    return tuple(row.name for row in rows if row.name.startswith(RESERVE) and not misses_of(rows, row))


def misses_of(rows: Sequence[Row], after: Row) -> list[str]:
    """Return which bars one row misses against no prediction, in words."""
    before = next(row for row in rows if row.name == WITHOUT)
    out = []
    for (what, bar), old, new in zip(BARS, _judged(before), _judged(after), strict=True):
        fell = 1 - new / old if old > 0 else 0.0
        if fell < bar:
            out.append(f"{after.name}: {what} fell by {fell:.0%} ({old:.0f} to {new:.0f}), the bar is {bar:.0%}")
    return out


def _judged(row: Row) -> tuple[float, float, float]:
    return row.overloads or 0.0, (row.kills or 0.0) + (row.evictions or 0.0), row.mean_delay


def _row(way: Way, tasks: Sequence[Task], outcome: Outcome) -> Row:
    delays = outcome.delays
    batch = np.zeros(len(tasks), np.bool_)
    for task in tasks:
        batch[task.number] = task.workload_class is WorkloadClass.BATCH
    return Row(
        way.name, "here", way.slot_seconds, outcome.overloads, outcome.kills, outcome.evictions,
        undelayed=int((delays < 1.0).sum()), mean_delay=float(delays.mean()), max_delay=float(delays.max()),
        unfinished=outcome.unfinished, batch_delay=float(delays[batch].mean()),
        gratis_delay=float(delays[~batch].mean()), first_delay=float(outcome.first_delays.mean()),
        lost=float(outcome.lost.mean()),
    )  # fmt: skip


def _mean(rows: Sequence[Row]) -> Row:
    """Return the mean of each figure over days of one way; the longest delay is the longest of all."""
    figures = {
        field.name: float(np.mean([getattr(row, field.name) for row in rows]))
        for field in fields(Row)
        if field.name not in ("name", "source", "slot_seconds", "max_delay")
    }
    return Row(**{**asdict(rows[0]), **figures, "max_delay": max(row.max_delay for row in rows)})
