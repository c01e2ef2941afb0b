"""Phases beside task level and slots on mixes of benchmarks and on Facebook's logs (Zhang and Boutaba 2014, sec. IV).

Called by `cotide experiment phases`. Each workload runs under each rule on several seeds; figures are means with 95 %
intervals (Student's t), and ratios are taken seed by seed. Invariant: the same seeds give the same report.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from scipy import stats

from cotide_sim.phases.mixes import mix
from cotide_sim.phases.rules import PHASES, RULES, TASK
from cotide_sim.phases.swim_model import facebook_day
from cotide_sim.phases.world import Outcome, bound, run
from cotide_sim.traces.mapreduce.swim import FILES, read_swim

MULTIPLES: Final = (2, 4, 6, 8, 10)
BAR: Final = 0.76
"""Job time over task level: the paper's best is 24 % less."""
FASTER_BAR: Final = 1.3
MISSTATED: Final = 0.5
MISSTATED_BAR: Final = 1.02
ProgressReport = Callable[[str, float], object]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over seeds and its 95 % interval; both ends are the mean where there is one seed."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Row:
    """A rule on a workload; seconds. ``over_task`` is job time over that of task level, seed by seed.

    ``slowed`` is the share of jobs that took over a tenth longer than on a fair share of their own, ``wait_p95`` that
    of waits to the first start, ``longest_pause`` the longest over all seeds.
    """

    rule: str
    job_time: Interval
    over_task: Interval
    utilisation_cpu: Interval
    utilisation_memory: Interval
    slowed: Interval
    wait: Interval
    wait_p95: Interval
    pause: Interval
    longest_pause: float
    makespan: Interval


@dataclass(frozen=True, slots=True)
class Setting:
    """A workload: its family (``puma``, ``gridmix``, ``facebook``), multiple (0 for logs) and rows."""

    workload: str
    family: str
    multiple: int
    misstated: float
    jobs: int
    tasks: int
    nodes: int
    rows: tuple[Row, ...]
    bound: Interval


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured, and the bars that were missed, in words.

    ``puma_over_task``: of the mean over multiples, seed by seed. ``best_over_task``: of the best multiple.
    """

    seeds: tuple[int, ...]
    settings: tuple[Setting, ...]
    puma_over_task: Interval
    best_over_task: Interval
    missed: tuple[str, ...]


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of some values with its interval."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return Interval(mean, mean, mean)
    half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return Interval(mean, mean - half, mean + half)


def run_experiment(
    seeds: Sequence[int],
    *,
    multiples: Sequence[int] = MULTIPLES,
    data: Path | None = None,
    hours: float | None = None,
    rules: Sequence[str] = RULES,
    progress: ProgressReport = lambda _what, _share: None,
) -> Report:
    """Run the rules on all workloads.

    Parameters
    ----------
    rules : of `RULES`; ours and task level, which all are measured against, run in any case.
    data : directory of SWIM's logs; without it only the mixes run.
    hours : of the logs, from their start.

    Raises
    ------
    InputError
        When a log is missing or broken.
    """
    rules = [rule for rule in RULES if rule in {*rules, PHASES, TASK}]
    logs = [] if data is None else [read_swim(_found(data, file), name) for name, file in FILES.items()]
    kinds: list[tuple[str, int, float]] = [
        (family, multiple, wrong)
        for family in ("puma", "gridmix")
        for wrong in (0.0, MISSTATED)
        for multiple in multiples
    ]
    count = (len(kinds) + len(logs)) * len(seeds)
    settings, ratios, done = [], {}, 0
    for family, multiple, wrong in [*kinds, *((log.name, 0, 0.0) for log in logs)]:
        outcomes: list[dict[str, Outcome]] = []
        least, size = [], (0, 0, 0)
        for seed in seeds:
            progress(f"{family} {multiple or ''} seed {seed}", done / count)
            if multiple:
                workload = mix(family, multiple, seed)
                workload = workload.misstated(wrong, seed) if wrong else workload
            else:
                workload = facebook_day(next(log for log in logs if log.name == family), seed, hours=hours)
            outcomes.append({rule: run(workload, rule) for rule in rules})
            least.append(bound(workload))
            size = (len(workload.submitted), workload.tasks, len(workload.capacity))
            done += 1
        name = f"{family} {multiple}x" if multiple else family
        settings.append(
            Setting(
                workload=f"{name}, stated {wrong:.0%} wrong" if wrong else name,
                family=family if multiple else "facebook",
                multiple=multiple,
                misstated=wrong,
                jobs=size[0],
                tasks=size[1],
                nodes=size[2],
                rows=tuple(_row(rule, outcomes) for rule in rules),
                bound=interval(least),
            )
        )
        ratios[family, multiple, wrong] = [_over_task(PHASES, one) for one in outcomes]
    of_puma = [ratios["puma", multiple, 0.0] for multiple in multiples]
    puma, best = interval(np.mean(of_puma, axis=0).tolist()), interval(min(of_puma, key=np.mean))
    return Report(tuple(seeds), tuple(settings), puma, best, tuple(_missed(settings, puma)))


def _found(data: Path, file: str) -> Path:
    below = data / "mapreduce" / file
    return below if below.is_file() else data / file


def _over_task(rule: str, outcomes: dict[str, Outcome]) -> float:
    return float(outcomes[rule].job_seconds.mean() / outcomes[TASK].job_seconds.mean())


def _row(rule: str, outcomes: Sequence[dict[str, Outcome]]) -> Row:
    own = [one[rule] for one in outcomes]
    return Row(
        rule=rule,
        job_time=interval([float(one.job_seconds.mean()) for one in own]),
        over_task=interval([_over_task(rule, one) for one in outcomes]),
        utilisation_cpu=interval([float(one.utilisation[0]) for one in own]),
        utilisation_memory=interval([float(one.utilisation[1]) for one in own]),
        slowed=interval([one.slowed for one in own]),
        wait=interval([float(one.wait_seconds.mean()) for one in own]),
        wait_p95=interval([float(np.quantile(one.wait_seconds, 0.95)) for one in own]),
        pause=interval([float(one.paused_seconds.mean()) for one in own]),
        longest_pause=max(one.longest_pause_seconds for one in own),
        makespan=interval([one.makespan_seconds for one in own]),
    )


def row_of(setting: Setting, rule: str) -> Row:
    """Return a rule's row."""
    return next(row for row in setting.rows if row.rule == rule)


def _missed(settings: Sequence[Setting], puma: Interval) -> list[str]:
    missed = []
    if puma.mean > BAR:
        missed.append(f"job time on the PUMA-like mixes is {puma.mean:.3f} of task level, above {BAR}")
    if 1 / puma.mean < FASTER_BAR:
        missed.append(f"jobs of the PUMA-like mixes are {1 / puma.mean:.2f} times as fast, below {FASTER_BAR}")
    for setting in settings:
        ours, theirs = row_of(setting, PHASES), row_of(setting, TASK)
        if setting.misstated and ours.over_task.mean > MISSTATED_BAR:
            missed.append(f"{setting.workload}: {ours.over_task.mean:.3f} of task level, above {MISSTATED_BAR}")
        if not setting.misstated and setting.multiple and ours.utilisation_cpu.mean < theirs.utilisation_cpu.mean:
            missed.append(
                f"{setting.workload}: cpu in use is {ours.utilisation_cpu.mean:.3f},"
                f" {theirs.utilisation_cpu.mean:.3f} at task level"
            )
    return missed
