"""Phases against task level and slots on mixes of benchmarks and on Facebook's logs (Zhang and Boutaba 2014, sec. IV).

Called by `cotide experiment phases`. Each workload runs under each rule on several seeds, each rule with the knob that
was best on tuning seeds (`knobs`). The worth of phases is judged against whole tasks in the same order
(`rules.SAME_ORDER`). Figures are means with 95 % intervals (Student's t), and ratios are taken seed by seed. Two
contenders that must fail are added: whole tasks in place of ours, and a scheduler that starts nothing. Invariant: the
same seeds give the same report.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from cotide_lab.experiments.like_for_like import TUNING_SEEDS, Interval, reported
from cotide_lab.experiments.phases.knobs import RuleKnob, chosen, late, weight_of
from cotide_lab.phases.mixes import mix
from cotide_lab.phases.rules import PHASES, RULES, SAME_ORDER, TASK
from cotide_lab.phases.swim_model import HALF, drawn_hours, facebook_day
from cotide_lab.phases.workload import Workload
from cotide_lab.phases.world import Outcome, bound, refused
from cotide_sim.traces.mapreduce.swim import FILES, SwimLog, read_swim

MULTIPLES: Final = (2, 4, 6, 8, 10)
TUNING_MULTIPLES: Final = (3, 9)
"""Jobs of each benchmark when knobs are chosen."""
TUNING_HOURS: Final = 2
"""Of a log, for each tuning seed (chosen: the log of 2010 takes seconds an hour)."""
BAR: Final = 0.76
"""Job time over whole tasks: the paper's best is 24 % less."""
FASTER_BAR: Final = 1.3
MISSTATED: Final = 0.5
MISSTATED_BAR: Final = 1.02
LATE_BAR: Final = 1.0
"""p95 and p99 of job time over whole tasks."""
REFUSE_ALL: Final = "refuse all"
RIVAL: Final = SAME_ORDER[PHASES]
ProgressReport = Callable[[str, float], object]


@dataclass(frozen=True, slots=True)
class Row:
    """A rule on a workload; seconds.

    Attributes
    ----------
    job_time, job_p95, job_p99 : of all jobs.
    over_task : mean job time over that of task level as YARN orders it.
    over_rival : mean, p95 and p99 of job time over those of whole tasks in the order of ours.
    over_same_order : the same over whole tasks in the rule's own order; None where there is no such rule.
    slowed : share of jobs that took over a tenth longer than with a fair share of the machines.
    wait, wait_p95, wait_p99 : to the first start.
    longest_pause : the longest over all seeds.
    size : the most cpu that a task holds, of its largest need; weight : the knob of the order, where it has one.
    """

    rule: str
    job_time: Interval
    job_p95: Interval
    job_p99: Interval
    over_task: Interval
    over_rival: tuple[Interval, Interval, Interval]
    over_same_order: tuple[Interval, Interval, Interval] | None
    utilisation_cpu: Interval
    utilisation_memory: Interval
    slowed: Interval
    wait: Interval
    wait_p95: Interval
    wait_p99: Interval
    pause: Interval
    longest_pause: float
    makespan: Interval
    size: float
    weight: str


@dataclass(frozen=True, slots=True)
class Setting:
    """A workload: its family (``puma``, ``gridmix`` or a log), multiple (0 for logs) and rows."""

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
    """The measurements, and the missed bars in words.

    ``puma_same_order``: of the mean over multiples, seed by seed, against whole tasks in the same order;
    ``puma_over_task``: against task level as YARN orders it. ``inactive``: bars missed by each contender that does
    nothing, or nothing new.
    """

    seeds: tuple[int, ...]
    settings: tuple[Setting, ...]
    puma_same_order: Interval
    puma_over_task: Interval
    inactive: dict[str, int]
    missed: tuple[str, ...]


def run_experiment(
    seeds: Sequence[int],
    *,
    multiples: Sequence[int] = MULTIPLES,
    data: Path | None = None,
    hours: int = HALF,
    rules: Sequence[str] = RULES,
    progress: ProgressReport = lambda _what, _share: None,
) -> Report:
    """Choose the knobs, and run the rules on all workloads.

    Parameters
    ----------
    seeds : none of `TUNING_SEEDS`.
    rules : of `RULES`; ours, whole tasks in its order, and task level run in any case.
    data : directory of SWIM's logs; without it only the mixes run.
    hours : that each seed draws of a log.

    Raises
    ------
    InputError
        When a log is missing or broken, or a seed is a tuning seed.
    """
    seeds = reported(seeds)
    rules = [rule for rule in RULES if rule in {*rules, PHASES, RIVAL, TASK, *(SAME_ORDER.get(text) for text in rules)}]
    logs = {} if data is None else {name: read_swim(_found(data, file), name) for name, file in FILES.items()}
    drawn = _Drawn(logs, hours)
    families = ("puma", "gridmix", *logs)
    settings: list[Setting] = []
    over: dict[str, list[list[float]]] = {RIVAL: [], TASK: []}
    for done, family in enumerate(families):

        def note(what: str, family: str = family, share: float = done / len(families)) -> None:
            progress(f"{family}: {what}", share)

        knobs = chosen(drawn.tuning(family), rules, lambda rule: note(f"settings of {rule}"))
        for multiple, wrong in drawn.kinds(family, multiples):
            note(f"{multiple or ''} {f'stated {wrong:.0%} wrong' if wrong else ''}")
            workloads = [drawn.workload(family, multiple, seed, wrong) for seed in seeds]
            outcomes = [{rule: knobs[rule].play(workload, rule) for rule in rules} for workload in workloads]
            settings.append(_setting(family, multiple, wrong, workloads, outcomes, knobs))
            if family == "puma" and not wrong:
                for rival, ratios in over.items():
                    ratios.append([_ratios(outcome[PHASES], outcome[rival])[0] for outcome in outcomes])
    inactive = {contender: len(misses_of(settings, contender)) for contender in (RIVAL, REFUSE_ALL)}
    missed = misses_of(settings, PHASES)
    missed += [f"{contender} misses no bar: the bars are too low" for contender, many in inactive.items() if not many]
    same_order, task = (Interval.of(np.mean(over[rival], axis=0).tolist()) for rival in (RIVAL, TASK))
    return Report(seeds, tuple(settings), same_order, task, inactive, tuple(missed))


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The workloads by family and seed."""

    logs: dict[str, SwimLog]
    hours: int

    def kinds(self, family: str, multiples: Sequence[int]) -> list[tuple[int, float]]:
        """Return multiples and the relative errors of stated needs."""
        if family in self.logs:
            return [(0, 0.0)]
        return [(multiple, wrong) for wrong in (0.0, MISSTATED) for multiple in multiples]

    def workload(self, family: str, multiple: int, seed: int, wrong: float) -> Workload:
        """Return the workloads of a report."""
        if family in self.logs:
            return facebook_day(drawn_hours(self.logs[family], seed, self.hours), seed)
        drawn = mix(family, multiple, seed)
        return drawn.misstated(wrong, seed) if wrong else drawn

    def tuning(self, family: str) -> list[Workload]:
        """Return the workloads that choose the knobs."""
        if family in self.logs:
            log = self.logs[family]
            return [facebook_day(drawn_hours(log, seed, TUNING_HOURS, tuning=True), seed) for seed in TUNING_SEEDS]
        return [mix(family, multiple, seed) for seed in TUNING_SEEDS for multiple in TUNING_MULTIPLES]


def _found(data: Path, file: str) -> Path:
    below = data / "mapreduce" / file
    return below if below.is_file() else data / file


def _ratios(own: Outcome, other: Outcome) -> list[float]:
    """Return mean, p95 and p99 of job time over another rule's."""
    ratios: list[float] = (late(own.job_seconds) / late(other.job_seconds)).tolist()
    return ratios


def _setting(
    family: str,
    multiple: int,
    wrong: float,
    workloads: Sequence[Workload],
    outcomes: Sequence[dict[str, Outcome]],
    knobs: dict[str, RuleKnob],
) -> Setting:
    name, last = (f"{family} {multiple}x" if multiple else family), workloads[-1]
    with_refused = [{**outcome, REFUSE_ALL: refused(work)} for outcome, work in zip(outcomes, workloads, strict=True)]
    return Setting(
        workload=f"{name}, stated {wrong:.0%} wrong" if wrong else name,
        family=family,
        multiple=multiple,
        misstated=wrong,
        jobs=len(last.submitted),
        tasks=last.tasks,
        nodes=len(last.capacity),
        rows=tuple(_row(rule, with_refused, knobs.get(rule, RuleKnob())) for rule in with_refused[0]),
        bound=Interval.of([bound(work) for work in workloads]),
    )


def _row(rule: str, outcomes: Sequence[dict[str, Outcome]], knob: RuleKnob) -> Row:
    own = [outcome[rule] for outcome in outcomes]

    def over(rival: str) -> tuple[Interval, Interval, Interval]:
        mean, p95, p99 = zip(*(_ratios(outcome[rule], outcome[rival]) for outcome in outcomes), strict=True)
        return Interval.of(mean), Interval.of(p95), Interval.of(p99)

    times = [late(outcome.job_seconds) for outcome in own]
    waits = [late(outcome.wait_seconds) for outcome in own]
    return Row(
        rule=rule,
        job_time=Interval.of([seed_times[0] for seed_times in times]),
        job_p95=Interval.of([seed_times[1] for seed_times in times]),
        job_p99=Interval.of([seed_times[2] for seed_times in times]),
        over_task=over(TASK)[0],
        over_rival=over(RIVAL),
        over_same_order=over(SAME_ORDER[rule]) if rule in SAME_ORDER else None,
        utilisation_cpu=Interval.of([float(outcome.utilisation[0]) for outcome in own]),
        utilisation_memory=Interval.of([float(outcome.utilisation[1]) for outcome in own]),
        slowed=Interval.of([outcome.slowed for outcome in own]),
        wait=Interval.of([wait[0] for wait in waits]),
        wait_p95=Interval.of([wait[1] for wait in waits]),
        wait_p99=Interval.of([wait[2] for wait in waits]),
        pause=Interval.of([float(outcome.paused_seconds.mean()) for outcome in own]),
        longest_pause=max(outcome.longest_pause_seconds for outcome in own),
        makespan=Interval.of([outcome.makespan_seconds for outcome in own]),
        size=knob.size,
        weight=weight_of(rule, knob),
    )


def row_of(setting: Setting, rule: str) -> Row:
    """Return a rule's row."""
    return next(row for row in setting.rows if row.rule == rule)


def misses_of(settings: Sequence[Setting], contender: str) -> list[str]:
    """Return the bars that a contender misses in the place of ours, in words."""
    missed = []
    of_puma = [row_of(setting, contender) for setting in settings if setting.family == "puma" and not setting.misstated]
    mean = float(np.mean([row.over_rival[0].mean for row in of_puma]))
    if mean > BAR:
        missed.append(f"job time on the PUMA-like mixes is {mean:.3f} of whole tasks in the same order, above {BAR}")
    if 1 / mean < FASTER_BAR:
        missed.append(f"jobs of the PUMA-like mixes are {1 / mean:.2f} times as fast, below {FASTER_BAR}")
    for setting in settings:
        row, rival = row_of(setting, contender), row_of(setting, RIVAL)
        bar = MISSTATED_BAR if setting.misstated else LATE_BAR
        for what, ratio in zip(("mean", "p95", "p99"), row.over_rival, strict=True):
            if ratio.mean > bar and (setting.misstated == 0 or what == "mean"):
                missed.append(f"{setting.workload}: {what} of job time is {ratio.mean:.3f} of {RIVAL}'s, above {bar}")
        if not setting.misstated and setting.multiple and row.utilisation_cpu.mean < rival.utilisation_cpu.mean:
            missed.append(
                f"{setting.workload}: cpu in use is {row.utilisation_cpu.mean:.3f},"
                f" {rival.utilisation_cpu.mean:.3f} under {RIVAL}"
            )
    return missed
