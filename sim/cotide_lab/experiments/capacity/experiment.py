"""The capacity experiment: every contender on every trace and seed, at settings chosen on other seeds, and the bars.

Called by `cotide experiment capacity`. For each trace and goal of delay, each contender runs at its cheapest setting
that keeps the goal on the tuning seeds (`like_for_like`); each halves the step of its knob three times. Figures are
those of the reported seeds. Invariant: the same data and seeds give the same report, except the seconds of decisions; a
rival that wins is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from cotide_lab.experiments.capacity.contenders import (
    BASELINE,
    DEFAULT,
    GOALS,
    LEVEL,
    ORACLE,
    OWN,
    Goal,
    contenders,
    stabilized,
)
from cotide_lab.experiments.capacity.energy_floor import energy_floor
from cotide_lab.experiments.capacity.integral import IntegralGap, integral_gap
from cotide_lab.experiments.capacity.learned import learn
from cotide_lab.experiments.capacity.run import Outcome, run_controller
from cotide_lab.experiments.capacity.scenarios import scenario
from cotide_lab.experiments.like_for_like import REFINEMENTS, TUNING_SEEDS, Ratio, Spread, chosen, halfway, reported

ENERGY_BAR: Final = 0.8
ORACLE_BAR: Final = 1.1
SAME_DELAY: Final = 1.05
"""Delays that differ by no more than this factor and a second count as equal (chosen)."""
SHOWN_RUNS: Final = (OWN, BASELINE)
"""Contenders with machines recorded step by step, for Figs 3 and 4."""

Settings = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class TuningRow:
    """A contender at one setting on the tuning seeds: means."""

    policy: str
    knob: str
    setting: float
    energy_kwh: float
    money_per_core_hour: float
    delay_mean: float
    delay_p95: float
    delay_p99: float


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A contender on the reported seeds, at the setting that was chosen for a goal.

    ``tuned``: whether it kept the goal on the tuning seeds; ``kept``: the number of reported seeds that keep it.
    ``own_money_over_it``, ``own_energy_over_it``: ours over its, by seed, ours per core-hour.
    """

    policy: str
    knob: str
    setting: float
    tuned: bool
    kept: int
    energy_kwh: Spread
    money_per_core_hour: Spread
    switches: Spread
    delay_mean: Spread
    delay_p95: Spread
    delay_p99: Spread
    machines: Spread
    in_use: Spread
    without_turns: Spread
    step_seconds: Spread
    own_money_over_it: Ratio
    own_energy_over_it: Ratio
    delay_cdf: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class GoalReport:
    """A goal on one trace.

    ``floor_over_baseline``: the least energy for tasks that start on arrival, over the baseline's; it bounds every rule
    without waiting tasks. ``oracle_over_baseline``: the same for our program with the future known.
    """

    goal: Goal
    rows: tuple[PolicyRow, ...]
    floor_over_baseline: Ratio
    oracle_over_baseline: Ratio
    shown: dict[str, tuple[tuple[float, ...], ...]]
    """Contender to (steps, M) machines on, of the first seed."""

    def row(self, policy: str) -> PolicyRow:
        """Return the row of a contender."""
        return next(row for row in self.rows if row.policy == policy)


@dataclass(frozen=True, slots=True)
class TraceReport:
    """One trace."""

    trace: str
    reading: str
    tasks: tuple[int, ...]
    classes: tuple[int, ...]
    types: tuple[str, ...]
    tuning: tuple[TuningRow, ...]
    goals: tuple[GoalReport, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """All traces, the price of rounding up on small instances, and the missed bars.

    ``service_level`` is that of ours at the default; machines of all contenders stay for ``stabilization_seconds``
    after they were wanted.
    """

    seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]
    service_level: float
    stabilization_seconds: float
    traces: tuple[TraceReport, ...]
    integral: IntegralGap
    missed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Cell:
    """One trace and seed, and the settings of each contender that run on it."""

    trace: str
    data: Path | None
    seed: int
    hours: float | None
    service_level: float
    window: float
    settings: Settings


@dataclass(frozen=True, slots=True)
class _Run:
    reading: str
    tasks: int
    classes: int
    types: tuple[str, ...]
    floor_kwh: float
    outcomes: dict[tuple[str, float], Outcome]


def run(
    traces: Sequence[str],
    seeds: Sequence[int],
    *,
    data: Path | None,
    tuning_seeds: Sequence[int] = TUNING_SEEDS,
    workers: int = 1,
    score_hours: float | None = None,
    service_level: float = LEVEL,
    stabilization_seconds: float = 0.0,
    progress: Callable[[str, float], object] = lambda _what, _share: None,
) -> Report:
    """Run the experiment; without ``data`` on generated tasks.

    It takes many arguments, because each is an option of the command.

    Raises
    ------
    InputError
        When the data are missing or broken, or a seed is a tuning seed.
    """
    seeds = reported(seeds, tuning_seeds)
    names = list(traces) if data is not None else ["generated"]
    known = contenders(service_level)
    every = {name: contender.settings for name, contender in known.items()}

    def played(settings: Mapping[str, Settings], on: Sequence[int], first: float) -> dict[tuple[str, int], _Run]:
        cells = [
            _Cell(trace, data, seed, score_hours, service_level, stabilization_seconds, settings[trace])
            for trace in names
            for seed in on
            if any(settings[trace].values())
        ]
        return _play(cells, workers, lambda what, share: progress(what, first + share / 2.0))

    tuned = played(dict.fromkeys(names, every), tuning_seeds, 0.0)
    for _ in range(REFINEMENTS):
        finer = {trace: _finer([tuned[(trace, seed)] for seed in tuning_seeds]) for trace in names}
        for key, run in played(finer, tuning_seeds, 0.25).items():
            tuned[key] = replace(tuned[key], outcomes={**tuned[key].outcomes, **run.outcomes})
    choices = {trace: _choices([tuned[(trace, seed)] for seed in tuning_seeds]) for trace in names}
    used = {
        trace: {name: tuple(sorted({by_goal[name] for by_goal in choices[trace]})) for name in known} for trace in names
    }
    judged = played(used, seeds, 0.5)
    reports = tuple(
        _trace_report(
            trace, [tuned[(trace, seed)] for seed in tuning_seeds], [judged[(trace, seed)] for seed in seeds],
            choices[trace], {name: contender.knob for name, contender in known.items()},
        )
        for trace in names
    )  # fmt: skip
    missed = [sentence for report in reports for goal in report.goals for sentence in _missed(report.trace, goal)]
    return Report(
        tuple(seeds), tuple(tuning_seeds), service_level, stabilization_seconds, reports, integral_gap(seeds),
        tuple(missed),
    )  # fmt: skip


def _play(
    cells: Sequence[_Cell], workers: int, progress: Callable[[str, float], object]
) -> dict[tuple[str, int], _Run]:
    done = {}
    with ProcessPoolExecutor(workers) as pool:
        answers = pool.map(_one, cells) if workers > 1 else map(_one, cells)
        for index, (cell, answer) in enumerate(zip(cells, answers, strict=True), start=1):
            done[(cell.trace, cell.seed)] = answer
            progress(f"{cell.trace}, seed {cell.seed}", index / len(cells))
    return done


def _one(cell: _Cell) -> _Run:
    scene = scenario(cell.trace, cell.data, cell.seed, score_hours=cell.hours)
    known = learn(scene, cell.seed)
    outcomes = {}
    for name, contender in contenders(cell.service_level).items():
        made = stabilized(contender, cell.window)
        for setting in cell.settings[name]:
            controller = made.make(scene, known, setting)
            outcomes[(name, setting)] = run_controller(scene, known, controller, name, setting)
    types = tuple(f"{kind.name} x{kind.count}" for kind in scene.machines)
    return _Run(scene.reading, len(scene.run), len(known.demand.labels_), types, energy_floor(scene), outcomes)


def _choices(runs: Sequence[_Run]) -> list[dict[str, float]]:
    """Return for each goal the setting of each contender."""
    return [{name: chosen(*_judged(goal, name, runs)) for name in _names(runs)} for goal in GOALS]


def _finer(runs: Sequence[_Run]) -> Settings:
    """Return the settings to try next: one of each contender and goal at most."""
    return {
        name: tuple(sorted({finer for goal in GOALS if (finer := halfway(*_judged(goal, name, runs))) is not None}))
        for name in _names(runs)
    }


def _names(runs: Sequence[_Run]) -> list[str]:
    return list(dict.fromkeys(name for name, _ in runs[0].outcomes))


def _judged(goal: Goal, name: str, runs: Sequence[_Run]) -> tuple[dict[float, float], dict[float, float]]:
    """Return cost and excess above the goal of each tried setting of a contender."""
    tried = [setting for tried_name, setting in runs[0].outcomes if tried_name == name]
    outcomes = {setting: [run.outcomes[(name, setting)] for run in runs] for setting in tried}
    cost = {key: float(np.mean([outcome.money_per_core_hour for outcome in of])) for key, of in outcomes.items()}
    return cost, {key: goal.excess(of) for key, of in outcomes.items()}


def _trace_report(
    trace: str, tuned: Sequence[_Run], runs: Sequence[_Run], choices: Sequence[dict[str, float]], knobs: dict[str, str]
) -> TraceReport:
    tuning = [
        _tuning_row(knobs[name], [run.outcomes[(name, setting)] for run in tuned])
        for name, setting in tuned[0].outcomes
    ]
    goals = [_goal_report(goal, tuned, runs, by_goal, knobs) for goal, by_goal in zip(GOALS, choices, strict=True)]
    return TraceReport(
        trace, runs[0].reading, tuple(run.tasks for run in runs), tuple(run.classes for run in runs), runs[0].types,
        tuple(tuning), tuple(goals),
    )  # fmt: skip


def _tuning_row(knob: str, found: Sequence[Outcome]) -> TuningRow:
    measures = ("energy_kwh", "money_per_core_hour", "delay_mean", "delay_p95", "delay_p99")
    means = [float(np.mean([getattr(outcome, measure) for outcome in found])) for measure in measures]
    return TuningRow(found[0].policy, knob, found[0].reserve, *means)


def _goal_report(
    goal: Goal, tuned: Sequence[_Run], runs: Sequence[_Run], settings: dict[str, float], knobs: dict[str, str]
) -> GoalReport:
    def of(name: str) -> list[Outcome]:
        return [run.outcomes[(name, settings[name])] for run in runs]

    rows = []
    for name, setting in settings.items():
        tuned_here = goal.excess([run.outcomes[(name, setting)] for run in tuned]) <= 0
        rows.append(_row(goal, knobs[name], of(name), of(OWN), tuned=tuned_here))
    baseline = [outcome.energy_kwh for outcome in of(BASELINE)]
    return GoalReport(
        goal,
        tuple(rows),
        Ratio.of([run.floor_kwh for run in runs], baseline),
        Ratio.of([outcome.energy_kwh for outcome in of(ORACLE)], baseline),
        {name: of(name)[0].by_type for name in SHOWN_RUNS},
    )


def _row(goal: Goal, knob: str, found: Sequence[Outcome], ours: Sequence[Outcome], *, tuned: bool) -> PolicyRow:
    def over(measure: str) -> Spread:
        return Spread.of([getattr(outcome, measure) for outcome in found])

    def ratio(measure: str) -> Ratio:
        return Ratio.of([getattr(our, measure) for our in ours], [getattr(outcome, measure) for outcome in found])

    return PolicyRow(
        policy=found[0].policy,
        knob=knob,
        setting=found[0].reserve,
        tuned=tuned,
        kept=sum(goal.excess([outcome]) <= 0 for outcome in found),
        energy_kwh=over("energy_kwh"),
        money_per_core_hour=over("money_per_core_hour"),
        switches=over("switches"),
        delay_mean=over("delay_mean"),
        delay_p95=over("delay_p95"),
        delay_p99=over("delay_p99"),
        machines=Spread.of([float(np.mean(outcome.machines)) for outcome in found]),
        in_use=over("in_use"),
        without_turns=over("without_turns"),
        step_seconds=over("step_seconds"),
        own_money_over_it=ratio("money_per_core_hour"),
        own_energy_over_it=ratio("energy_kwh"),
        delay_cdf=tuple(np.mean([outcome.delay_cdf for outcome in found], axis=0).tolist()),
    )


def _missed(trace: str, report: GoalReport) -> list[str]:
    ours, where = report.row(OWN), f"{trace}, {report.goal.name}"
    baseline, oracle = report.row(BASELINE), report.row(ORACLE)
    found = []
    if baseline.own_energy_over_it.mean > ENERGY_BAR:
        ratio = baseline.own_energy_over_it.mean
        found.append(f"{where}: energy is {ratio:.2f} of the heterogeneity-blind baseline's; bar {ENERGY_BAR}")
    for measure in ("mean", "p95", "p99"):
        seen = getattr(ours, f"delay_{measure}").mean
        if seen > getattr(report.goal, measure):
            found.append(
                f"{where}: the {measure} delay is {seen:.0f} s; the goal is {getattr(report.goal, measure):g} s"
            )
    if oracle.own_money_over_it.mean > ORACLE_BAR:
        found.append(f"{where}: money is {oracle.own_money_over_it.mean:.2f} of the oracle's; bar {ORACLE_BAR}")
    for row in report.rows:
        if (
            row.policy not in (OWN, DEFAULT, ORACLE)
            and row.own_money_over_it.mean > 1
            and _as_prompt(row, ours, report)
        ):
            noise = "" if row.own_money_over_it.beyond_noise else ", within noise"
            found.append(f"{where}: {row.policy} wins: ours costs {row.own_money_over_it.mean:.3f} of its money{noise}")
    return found


def _as_prompt(row: PolicyRow, ours: PolicyRow, report: GoalReport) -> bool:
    """Whether each mean delay keeps the goal, or is no longer than ours."""
    return all(
        getattr(row, f"delay_{measure}").mean
        <= max(getattr(report.goal, measure), SAME_DELAY * getattr(ours, f"delay_{measure}").mean + 1.0)
        for measure in ("mean", "p95", "p99")
    )
