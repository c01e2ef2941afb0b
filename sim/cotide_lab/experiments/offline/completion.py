"""Experiment offline: the simulations of Naghshnejad 2019, section 3.4, compared with the printed figures.

Called by `experiment_command`. Figures 3.3 to 3.9 are mean completion times (and run times) by number of jobs or of
machines, Table 3.2 is stretch, Table 3.1 the worst cases. Each schedule passes the feasibility judge, or the experiment
stops. Invariant: same settings, same numbers; ``seconds`` alone are measured and differ from run to run.

The paper leaves some settings open, or contradicts itself: Table 3.2 is SYNTH1's in its text and SYNTH2's in section
3.4.1 (both are run). The machines of Fig. 3.5 and the jobs of Fig. 3.7 are not named (see `Settings`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cotide_core.errors import CotideError
from cotide_core.kernels.array_types import Integers
from cotide_lab.experiments.offline.claims import Bound, BoundCheck, Claim, claims
from cotide_lab.job_logs.synthetic import Synthetic, sampled_jobs, synthetic_jobs
from cotide_lab.offline.algorithms import ALGORITHMS
from cotide_lab.offline.job_list import JobList
from cotide_lab.offline.schedule import Schedule, first_fault, stretches, total_completion
from cotide_lab.offline.worst_cases import sdf_worst_case, sjf_worst_case, svf_worst_case

Progress = Callable[[str, float], object]

SYNTHETIC: Final[tuple[Synthetic, ...]] = ("synth1", "synth2")
LISTS: Final = tuple(f"{order}-{rule}" for order in ("sjf", "sdf", "svf", "random") for rule in ("ef", "lw", "random"))
GUARANTEED: Final = (
    "hybrid", "hybrid-relisted", "block", "block-trimmed", "block-spread", "block-spread-trimmed",
)  # fmt: skip
STRETCHED: Final = tuple(name for name in LISTS if not name.startswith("sdf"))


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run; defaults are the paper's where it names them.

    Attributes
    ----------
    counts, machines, repeats : Figs. 3.3, 3.4 and 3.6: numbers of jobs, number of machines, repeats.
    machine_counts, machine_jobs : Fig. 3.7; the jobs are chosen.
    stretch_jobs, stretch_machines : Table 3.2.
    log_jobs, log_machines : Fig. 3.5; the machines are chosen such that jobs wait.
    timed_counts, block_counts : Figs. 3.8 and 3.9.
    seed : of all draws.
    """

    counts: tuple[int, ...] = tuple(range(3000, 16001, 1000))
    machines: int = 50
    repeats: int = 10
    machine_counts: tuple[int, ...] = tuple(range(10, 101, 10))
    machine_jobs: int = 5000
    stretch_jobs: int = 5000
    stretch_machines: int = 10
    log_jobs: int = 800
    log_machines: int = 2
    timed_counts: tuple[int, ...] = tuple(range(1000, 8001, 1000))
    block_counts: tuple[int, ...] = tuple(range(1000, 37001, 4000))
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """Mean completion time of an algorithm at one point of a figure: mean and deviation over the repeats, in slots."""

    at: int
    algorithm: str
    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class StretchRow:
    """A line of Table 3.2: over all jobs of all repeats, except ``largest``, the mean of each repeat's largest."""

    workload: str
    algorithm: str
    average: float
    largest: float
    deviation: float


@dataclass(frozen=True, slots=True)
class WorstRow:
    """A worst case of Table 3.1: the order's cost over that of the paper's schedule, which the paper bounds below."""

    order: str
    jobs: int
    ratio: float
    least_ratio: float


@dataclass(slots=True)
class Report:
    """All measurements; keys of ``figures`` and ``seconds`` are the paper's numbers of its figures."""

    settings: Settings
    figures: dict[str, list[Row]] = field(default_factory=dict)
    stretch: list[StretchRow] = field(default_factory=list)
    worst: list[WorstRow] = field(default_factory=list)
    seconds: dict[str, list[Row]] = field(default_factory=dict)
    bounds: list[BoundCheck] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    log_jobs_too_large: int = 0

    @property
    def missed(self) -> list[str]:
        """Return the paper's statements that this run does not confirm, one sentence each."""
        broken = [
            f"{check.theorem}: {check.broken} of {check.instances} above" for check in self.bounds if check.broken
        ]
        return [
            f"{claim.text}: {claim.ours} (paper: {claim.paper})" for claim in self.claims if not claim.held
        ] + broken


def run(settings: Settings, log: tuple[Integers, Integers] | None = None, progress: Progress | None = None) -> Report:
    """Run the experiment.

    Parameters
    ----------
    log : (run seconds, processors) of a log's jobs for Fig. 3.5; without it the figure is left out.
    progress : called with the current task and the finished share.
    """
    report_part = progress or (lambda _what, _share: None)
    report, bound = Report(settings), Bound()
    for index, workload in enumerate(SYNTHETIC):
        cells = [(count, settings.machines, count) for count in settings.counts]
        rows = _curve(settings, workload, cells, (*LISTS, *GUARANTEED), bound, _part(report_part, index * 0.4, 0.4))
        report.figures[("3.3", "3.4")[index]] = [row for row in rows if row.algorithm in LISTS]
        if workload == "synth2":
            chosen = ("random-random", "svf-ef", *GUARANTEED)
            report.figures["3.6"] = [row for row in rows if row.algorithm in chosen]
    cells = [(settings.machine_jobs, machines, machines) for machines in settings.machine_counts]
    report.figures["3.7"] = _curve(
        settings, "synth2", cells, ("svf-ef", *GUARANTEED), bound, _part(report_part, 0.8, 0.08)
    )
    report_part("stretch", 0.88)
    for workload in SYNTHETIC:
        report.stretch += _stretch(settings, workload)
    if log is not None:
        report_part("log", 0.92)
        report.figures["3.5"] = _sampled(settings, *log, report, bound)
    report_part("run times", 0.95)
    report.seconds["3.8"] = _timed(settings, settings.timed_counts, ("svf-ef", "hybrid", "block"))
    report.seconds["3.9"] = _timed(settings, settings.block_counts, ("block",))
    report.worst = _worst()
    report.bounds = bound.checks()
    report.claims = claims(report.figures, report.stretch, report.worst)
    report_part("done", 1.0)
    return report


def scheduled(name: str, jobs: JobList, machines: int, seed: Sequence[int]) -> Schedule:
    """Return an algorithm's schedule after the judge found no fault in it."""
    schedule = ALGORITHMS[name](jobs, machines, np.random.default_rng(seed))
    fault = first_fault(jobs, machines, schedule)
    if fault is not None:
        raise CotideError(f"{name} gave a schedule that can't run: {fault}")
    return schedule


def _part(progress: Progress, begin: float, share: float) -> Progress:
    return lambda what, done: progress(what, begin + share * done)


def _curve(
    settings: Settings,
    workload: Synthetic,
    cells: Sequence[tuple[int, int, int]],
    names: Sequence[str],
    bound: Bound,
    progress: Progress,
) -> list[Row]:
    """Return rows for (jobs, machines, position on the axis); all algorithms see the same instances."""
    rows: list[Row] = []
    for done, (count, machines, at) in enumerate(cells):
        progress(f"{workload}, {count:,} jobs on {machines} machines", done / len(cells))
        found: dict[str, list[float]] = {name: [] for name in names}
        for repeat in range(settings.repeats):
            jobs = synthetic_jobs(workload, count, settings.seed + repeat)
            for name in names:
                schedule = scheduled(name, jobs, machines, (settings.seed, repeat, count))
                cost = total_completion(jobs, schedule)
                found[name].append(cost / count)
                bound.check(name, jobs, machines, cost)
            bound.check_restricted(jobs, machines)
        rows += _rows(at, found)
    return rows


def _rows(at: int, found: dict[str, list[float]]) -> Iterable[Row]:
    return [Row(at, name, float(np.mean(values)), float(np.std(values))) for name, values in found.items()]


def _stretch(settings: Settings, workload: Synthetic) -> list[StretchRow]:
    rows: list[StretchRow] = []
    for name in STRETCHED:
        found = []
        for repeat in range(settings.repeats):
            jobs = synthetic_jobs(workload, settings.stretch_jobs, settings.seed + repeat)
            schedule = scheduled(name, jobs, settings.stretch_machines, (settings.seed, repeat))
            found.append(stretches(jobs, schedule))
        largest = float(np.mean([averages.max() for averages in found]))
        together = np.concatenate(found)
        rows.append(StretchRow(workload, name, float(together.mean()), largest, float(together.std())))
    return rows


def _sampled(settings: Settings, runs: Integers, demands: Integers, report: Report, bound: Bound) -> list[Row]:
    names = (*LISTS, *(GUARANTEED if settings.log_machines > 1 else ()))
    found: dict[str, list[float]] = {name: [] for name in names}
    for repeat in range(settings.repeats):
        jobs, report.log_jobs_too_large = sampled_jobs(runs, demands, settings.log_jobs, settings.seed + repeat)
        for name in names:
            cost = total_completion(jobs, scheduled(name, jobs, settings.log_machines, (settings.seed, repeat)))
            found[name].append(cost / len(jobs))
            bound.check(name, jobs, settings.log_machines, cost)
        bound.check_single(jobs)
    return list(_rows(settings.log_machines, found))


def _timed(settings: Settings, counts: Sequence[int], names: Sequence[str]) -> list[Row]:
    """Return seconds by number of jobs, without compilation: the median of three, and half of their range."""
    rows: list[Row] = []
    for count in counts:
        jobs = synthetic_jobs("synth2", count, settings.seed)
        for name in names:
            taken = []
            for _ in range(3):
                begin = time.perf_counter()
                ALGORITHMS[name](jobs, settings.machines, np.random.default_rng(0))
                taken.append(time.perf_counter() - begin)
            rows.append(Row(count, name, float(np.median(taken)), (max(taken) - min(taken)) / 2))
    return rows


def _worst() -> list[WorstRow]:
    rows = []
    for count in (64, 256, 1024, 4096):
        for case in (sjf_worst_case(count), sdf_worst_case(count), svf_worst_case(count)):
            cost = total_completion(case.jobs, scheduled(f"{case.order}-ef", case.jobs, 1, (0,)))
            ratio = cost / total_completion(case.jobs, case.better)
            rows.append(WorstRow(case.order, count, ratio, case.least_ratio))
    return rows
