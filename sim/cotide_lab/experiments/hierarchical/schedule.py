"""Experiment hierarchical: Jiang et al.'s scheduling with and without prediction, with the paper's figures.

Called by ``cotide experiment hierarchical``. Without prediction, a node's next slot is assumed to equal its present
state. With prediction, the use of production and the holdings of batch and gratis tasks are forecast. Everything else
is the same engine, policy, days and choice of victims. Our quantiles and the static reserve's two shares are chosen
from equally many pairs, on separate days (`like_for_like`). Figures are means over the days of several seeds. One day's
delay depends on a few tasks that run for hours, so the report adds the change by day: its median, its interval, and the
change of the mean without the worst day. Invariant: same seeds and files, same rows, with any number of processes.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Final, Literal

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig, SchedulerConfig
from cotide_core.kernels.array_types import Floats
from cotide_lab.experiments.hierarchical.data_center import (
    DAY_SECONDS,
    SAMPLE_SECONDS,
    Task,
    draw_tasks,
    draw_usage,
    usage_from_series,
)
from cotide_lab.experiments.hierarchical.engine_run import DRAIN_SECONDS, Drive, Forecaster, Outcome
from cotide_lab.experiments.hierarchical.forecasters import Known, Point, Predicted, Present, Reserve, slot_maxima
from cotide_lab.experiments.like_for_like import TUNING_SEEDS, Interval, Setting, chosen, reported
from cotide_sim.traces.load.load_series import LoadSeries

SLOT_SIZES: Final = (100.0, 200.0, 300.0, 400.0, 500.0)
PAPER_SLOT: Final = 300.0
SEEDS: Final = tuple(range(10))
DEFAULT_LOAD: Final = 0.62
"""Scale of the requests of tasks. Calibrated on the runs without prediction alone: their mean delay over the seeds
comes near the paper's 573 s."""
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
"""Gratis tasks leave room for the predicted batch and gratis load in addition to the held load: Algorithm 1 to the
letter."""
DEFAULTS: Final = replace(PLAIN, victims="cheapest")
"""Our choice of victims, and our reading: the predicted load replaces the held load."""
BARS: Final = (("overloads", 0.85), ("kills and evictions", 0.60), ("mean delay", 0.40))
"""Required reductions by prediction, at slots of 300 s (the paper's abstract)."""
WITHOUT: Final = "without prediction"
JUDGED: Final = "ours"
RANDOM: Final = ", random victims"
REFUSE_ALL: Final = "refuse all"
RESERVE: Final = "static reserve"
Reserves = tuple[float, float]
RESERVES: Final = ((0.05, 0.0), (0.1, 0.0), (0.05, 0.025), (0.05, 0.05), (0.075, 0.05), (0.1, 0.05), (0.075, 0.1))
"""Shares of a machine to keep free without any forecast, as candidates: above the use of production, and above the
holdings of batch and gratis tasks. This is the cheapest rival."""
Quantiles = tuple[Point, Point]
QUANTILES: Final[tuple[Quantiles, ...]] = (
    ("point", "point"),
    ("p90", "point"),
    ("point", "p90"),
    ("p90", "p90"),
    ("p99", "p90"),
    ("p90", "p99"),
    ("p99", "p99"),
)
"""Candidate quantiles: of the use of production, and of the future holdings of batch and gratis tasks."""


@dataclass(frozen=True, slots=True)
class Row:
    """The means of one way over its days, or one of the paper's; None where there is no figure. Delays in seconds.

    Attributes
    ----------
    undelayed : tasks that started within a second and were never taken off.
    mean_delay, delay_p95, delay_p99, max_delay : seconds.
    batch_delay, gratis_delay : mean delay by class.
    first_delay : mean from submission to the first start; lost : mean run time thrown away by kills and evictions. The
    rest of the mean delay is waiting in the queue again.
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
    delay_p95: float | None = None
    delay_p99: float | None = None


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
    """One way to schedule the days: the forecast of the plans, the slot length, and the policy's knobs."""

    name: str
    slot_seconds: float
    sees: Literal["present", "reserve", "forecast", "truth"]
    knobs: HierarchicalConfig
    online: Point = "point"
    batch: Point = "point"
    reserves: Reserves = (0.0, 0.0)

    def forecaster(self, usage: Floats) -> Forecaster:
        """Return the forecaster of its plans, fitted on the first day."""
        if self.sees == "present":
            return Present()
        if self.sees == "reserve":
            return Reserve(*self.reserves)
        if self.sees == "truth":
            return Known(usage, self.slot_seconds)
        return Predicted(slot_maxima(usage, self.slot_seconds), online=self.online, batch=self.batch)


def ways(slot_sizes: Sequence[float], reserves: Reserves, quantiles: Quantiles) -> list[Way]:
    """Return the ways that are compared; ours for each slot size, the others at the paper's."""
    sizes = sorted({PAPER_SLOT, *slot_sizes})
    online, batch = quantiles
    return [
        Way(WITHOUT, PAPER_SLOT, "present", DEFAULTS),
        Way(WITHOUT + RANDOM, PAPER_SLOT, "present", PLAIN),
        Way(RESERVE, PAPER_SLOT, "reserve", DEFAULTS, reserves=reserves),
        Way("as printed, to the letter", PAPER_SLOT, "forecast", LITERAL),
        Way("the paper's points", PAPER_SLOT, "forecast", DEFAULTS),
        *(Way(JUDGED, size, "forecast", DEFAULTS, online=online, batch=batch) for size in sizes),
        Way(JUDGED + RANDOM, PAPER_SLOT, "forecast", PLAIN, online=online, batch=batch),
        Way("production known", PAPER_SLOT, "truth", DEFAULTS),
        Way(REFUSE_ALL, PAPER_SLOT, "present", DEFAULTS),
    ]


@dataclass(frozen=True, slots=True)
class Change:
    """Relative increase of a way's mean delay over the same days without prediction and with the same victims.

    Attributes
    ----------
    of_means : of the means over all days. by_day : of each day alone; one large day does not move its median.
    without_worst : of the means without the day of the longest mean delay before.
    """

    name: str
    slot_seconds: float
    of_means: float
    by_day: Interval
    without_worst: float


@dataclass(frozen=True, slots=True)
class Report:
    """All rows, the number of days behind each mean, the missed bars in words, and whether the static reserve misses
    none.

    ``reserves`` and ``quantiles`` were chosen on separate days. ``inactive``: bars missed by each contender that
    predicts or starts nothing.
    """

    rows: tuple[Row, ...]
    tasks: int
    days: int
    missed: tuple[str, ...]
    reserves_that_pass: tuple[str, ...] = ()
    reserves: Reserves = (0.0, 0.0)
    quantiles: Quantiles = ("p90", "p90")
    changes: tuple[Change, ...] = ()
    inactive: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Days:
    """The input that all days share, and the processes that play them."""

    series: LoadSeries | None
    load: float
    workers: int
    progress: Callable[[str], None]

    def play(self, compared: Sequence[Way], seeds: Sequence[int]) -> list[list[Row]]:
        """Return a row of each way and day."""
        cells = [(way, seed) for way in compared for seed in seeds]
        found: list[Row] = []
        with ExitStack() as stack:
            answers: Iterable[Row]
            if self.workers <= 1:
                answers = map(self._one, cells)
            else:
                # Spawned, not forked: kernels may be compiling in another thread of this process.
                context = multiprocessing.get_context("spawn")
                pool = stack.enter_context(ProcessPoolExecutor(self.workers, mp_context=context))
                ordered = [pool.submit(play, way, seed, self.series, self.load) for way, seed in cells]
                answers = (future.result() for future in ordered)
            for (way, seed), row in zip(cells, answers, strict=True):
                found.append(row)
                self.progress(f"{len(found)}/{len(cells)}: {way.name}, slots of {way.slot_seconds:.0f} s, seed {seed}")
        return [found[start : start + len(seeds)] for start in range(0, len(found), len(seeds))]

    def _one(self, cell: tuple[Way, int]) -> Row:
        return play(*cell, self.series, self.load)


def run(
    *,
    seeds: Sequence[int] = SEEDS,
    series: LoadSeries | None = None,
    slot_sizes: Sequence[float] = SLOT_SIZES,
    load: float = DEFAULT_LOAD,
    workers: int = 1,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Choose the settings, play each seed's day in every way and return the means.

    Parameters
    ----------
    seeds : none of `like_for_like.TUNING_SEEDS`.
    series : real production usage; None for generated.
    load : scales the requests of tasks.
    workers : processes; 1 plays all in this one.
    progress : called with each day after it was played.

    Raises
    ------
    InputError
        When a seed is a tuning seed.
    """
    seeds = reported(seeds)
    days = _Days(series, load, workers, progress)
    reserves, quantiles = _chosen(days)
    compared = ways(slot_sizes, reserves, quantiles)
    played = days.play(compared, seeds)
    rows = [_mean(group) for group in played]
    changes = [
        _change_by_day(by_day, played[1 if way.knobs.victims == "random" else 0])
        for way, by_day in zip(compared, played, strict=True)
    ]
    before, ours, still = rows[0], _judged_row(rows), next(row for row in rows if row.name == REFUSE_ALL)
    inactive = {row.name: len(misses_of(rows, row)) for row in (before, still)}
    found = missed(rows) + worse_than_reserve(rows, ours)
    found += [f"{name} misses no bar: the bars are too low" for name, many in inactive.items() if not many]
    return Report(
        (*PAPER, *rows), len(draw_tasks(seeds[0], load=load)), len(seeds), tuple(found), reserves_that_pass(rows),
        reserves, quantiles, tuple(changes), inactive,
    )  # fmt: skip


def _chosen(days: _Days) -> tuple[Reserves, Quantiles]:
    """Return the best reserves and quantiles on the tuning days, chosen from equally many candidates."""
    before = Way(WITHOUT, PAPER_SLOT, "present", DEFAULTS)
    by_reserve = [Way(RESERVE, PAPER_SLOT, "reserve", DEFAULTS, reserves=shares) for shares in RESERVES]
    by_quantile = [
        Way(JUDGED, PAPER_SLOT, "forecast", DEFAULTS, online=online, batch=batch) for online, batch in QUANTILES
    ]
    base, *others = (_mean(group) for group in days.play([before, *by_reserve, *by_quantile], TUNING_SEEDS))
    count = len(RESERVES)
    return best_of(RESERVES, base, others[:count]), best_of(QUANTILES, base, others[count:])


def best_of(settings: Sequence[Setting], before: Row, after: Sequence[Row]) -> Setting:
    """Return the setting of the least `tuning_score` under which mean, p95 and p99 of the delay don't rise."""
    rows = dict(zip(settings, after, strict=True))
    rise = {
        setting: max(new - old for old, new in zip(_delays(before), _delays(row), strict=True))
        for setting, row in rows.items()
    }
    return chosen({key: tuning_score(before, row) for key, row in rows.items()}, rise)


def _delays(row: Row) -> tuple[float, ...]:
    return row.mean_delay, row.delay_p95 or 0.0, row.delay_p99 or 0.0


def tuning_score(before: Row, after: Row) -> float:
    """Return the mean logarithm of the remaining shares of overloads, kills with evictions, and mean delay; less is
    better."""
    left = [(new + 1.0) / (old + 1.0) for old, new in zip(_judged(before), _judged(after), strict=True)]
    return float(np.log(left).mean())


def _change_by_day(after: Sequence[Row], before: Sequence[Row]) -> Change:
    old, new = (np.array([row.mean_delay for row in rows]) for rows in (before, after))
    left = np.arange(len(old)) != int(old.argmax()) if len(old) > 1 else np.ones(1, np.bool_)
    return Change(
        after[0].name,
        after[0].slot_seconds,
        float(new.mean() / max(old.mean(), 1e-9) - 1),
        Interval.of((new / np.maximum(old, 1e-9) - 1).tolist()),
        float(new[left].mean() / max(old[left].mean(), 1e-9) - 1),
    )


def play(way: Way, seed: int, series: LoadSeries | None = None, load: float = DEFAULT_LOAD) -> Row:
    """Play the day of one seed in one way."""
    usage = draw_usage(seed) if series is None else usage_from_series(series, seed)
    tasks = draw_tasks(seed, load=load)
    if way.name == REFUSE_ALL:
        return _row(way, tasks, refused(tasks))
    config = SchedulerConfig(policy="hierarchical", seed=seed, hierarchical=way.knobs)
    drive = Drive(tasks, usage, way.forecaster(usage), config, slot_seconds=way.slot_seconds)
    return _row(way, tasks, drive.run())


def change(before: Row, after: Row) -> tuple[float, float, float]:
    """Return the relative changes of overloads, kills with evictions, and the mean delay; -0.4 is 40 % less."""
    return tuple(new / old - 1 if old > 0 else 0.0 for old, new in zip(_judged(before), _judged(after), strict=True))  # type: ignore[return-value]  # three of three


def refused(tasks: Sequence[Task]) -> Outcome:
    """Return the outcome of a scheduler that starts nothing: each task waits until the run ends."""
    at = np.array([task.at_seconds for task in sorted(tasks, key=lambda task: task.number)])
    delays = DAY_SECONDS + DRAIN_SECONDS - at
    return Outcome(0, 0, 0, delays, len(tasks), delays, np.zeros(len(tasks)))


def missed(rows: Sequence[Row]) -> list[str]:
    """Return the bars that our way missed against no prediction at slots of 300 s, in words; empty for none."""
    return misses_of(rows, _judged_row(rows))


def _judged_row(rows: Sequence[Row]) -> Row:
    return next(row for row in rows if row.name == JUDGED and row.slot_seconds == PAPER_SLOT)


def reserves_that_pass(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the static reserves that reach every bar without a forecast."""
    return tuple(row.name for row in rows if row.name.startswith(RESERVE) and not misses_of(rows, row))


def misses_of(rows: Sequence[Row], after: Row) -> list[str]:
    """Return the bars that one row misses against no prediction with the same victims, in words."""
    before = next(row for row in rows if row.name == WITHOUT)
    out = []
    for (what, bar), old, new in zip(BARS, _judged(before), _judged(after), strict=True):
        fell = 1 - new / old if old > 0 else 0.0
        if fell < bar:
            out.append(f"{after.name}: {what} fell by {fell:.0%} ({old:.0f} to {new:.0f}), the bar is {bar:.0%}")
    for what, without, own in (
        ("p95 of the delay", before.delay_p95, after.delay_p95),
        ("p99 of the delay", before.delay_p99, after.delay_p99),
        ("tasks that did not end", before.unfinished, after.unfinished),
    ):
        if without is not None and own is not None and own > without:
            out.append(f"{after.name}: {what} rose from {without:.0f} to {own:.0f}")
    return out


def worse_than_reserve(rows: Sequence[Row], ours: Row) -> list[str]:
    """Return the measures where a static reserve does better than ours, in words."""
    reserve = next(row for row in rows if row.name == RESERVE)
    return [
        f"{ours.name}: {what} {new:.0f}, with the static reserve {old:.0f}"
        for (what, _), old, new in zip(BARS, _judged(reserve), _judged(ours), strict=True)
        if new > old
    ]


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
        lost=float(outcome.lost.mean()), delay_p95=float(np.quantile(delays, 0.95)),
        delay_p99=float(np.quantile(delays, 0.99)),
    )  # fmt: skip


def _mean(rows: Sequence[Row]) -> Row:
    """Return the mean of each figure over days of one way; the longest delay is the longest of all."""
    figures = {
        field.name: float(np.mean([getattr(row, field.name) for row in rows]))
        for field in fields(Row)
        if field.name not in ("name", "source", "slot_seconds", "max_delay")
    }
    return Row(**{**asdict(rows[0]), **figures, "max_delay": max(row.max_delay for row in rows)})
