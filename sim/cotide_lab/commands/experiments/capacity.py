"""`cotide experiment capacity`: container-based provisioning compared with its baselines (Zhang and Boutaba 2014, sec.
III).

Called by `experiment_command`. Hands over to `cotide_lab.experiments.capacity` and prints. Invariant: the same data and
seeds, the same figures, except the seconds of decisions; a missed bar is printed and gives exit code 3.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotide_cli.inputs.checked_types import DataFolder
from cotide_cli.inputs.finite_range import FiniteRange
from cotide_cli.printing import print_figures, progress_bar
from cotide_core.errors import InputError
from cotide_lab.commands.experiments.options import print_report, run_options, seed_options

if TYPE_CHECKING:
    from cotide_lab.experiments.capacity.experiment import GoalReport, Report, TraceReport
    from cotide_lab.experiments.like_for_like import Ratio, Spread

DEFAULT_LEVEL = 0.25
"""The operator's default service level."""


@click.command("capacity")
@click.option("--data", type=DataFolder(), help="Directory of the public traces (docs/research/experiments.md).")
@click.option(
    "--trace", "traces", type=click.Choice(["google2011", "alibaba2017", "openb"]), multiple=True, help="Only these."
)
@seed_options
@click.option("--hours", type=FiniteRange(0.5, 72), help="Hours that count, at most; for a first look.")
@click.option(
    "--tuning-seeds", type=click.IntRange(1, 20), default=2, show_default=True,
    help="Seeds from 101 on, used to choose each contender's setting.",
)  # fmt: skip
@click.option(
    "--service-level", type=FiniteRange(0, 1, min_open=True, max_open=True), default=DEFAULT_LEVEL, show_default=True,
    help="Quantile of demand for which Cotide's default starts machines in advance.",
)  # fmt: skip
@click.option(
    "--stabilization-seconds", type=FiniteRange(0, 3600), default=0.0, show_default=True,
    help="Seconds without need after which machines of every contender stop.",
)  # fmt: skip
@run_options
def command(
    data: Path | None,
    traces: tuple[str, ...],
    seed: int,
    seeds: int,
    hours: float | None,
    tuning_seeds: int,
    service_level: float,
    stabilization_seconds: float,
    workers: int,
    output: str,
    plot: Path | None,
) -> int:
    """Provision machines by container-based provisioning and by its baselines; compare energy, money and delays.

    Each contender runs at the setting that is cheapest on the tuning seeds among those that keep a goal of delay. A
    trace with five seeds takes ten minutes. Without --data on generated tasks, which take seconds.
    """
    from cotide_lab.experiments.capacity import plot as capacity_plot
    from cotide_lab.experiments.capacity.experiment import run
    from cotide_lab.experiments.capacity.scenarios import TRACES
    from cotide_lab.experiments.like_for_like import TUNING_SEEDS

    if traces and data is None:
        raise InputError("names a trace of --data, which is not given", field="--trace")
    with progress_bar() as progress:
        report = run(
            traces or TRACES,
            range(seed, seed + seeds),
            data=data,
            workers=workers,
            tuning_seeds=range(TUNING_SEEDS[0], TUNING_SEEDS[0] + tuning_seeds),
            score_hours=hours,
            service_level=service_level,
            stabilization_seconds=stabilization_seconds,
            progress=progress,
        )
    if plot is not None:
        capacity_plot.draw(report, plot)
    return print_report(report, output, _print)


def _print(report: Report) -> None:
    for trace in report.traces:
        click.echo(f"{trace.trace}: {trace.reading}; {_numbers(trace.tasks)} tasks, {_numbers(trace.classes)} classes")
        click.echo(f"  machines of the first seed: {'; '.join(trace.types)}")
        _print_tuning(trace)
        for goal in trace.goals:
            _print_goal(goal, len(report.seeds))
        click.echo("")
    gap = report.integral
    click.echo(
        f"rounding up on {gap.instances} small instances: {gap.rounded_mean:.3f} of the integral optimum's idle energy"
        f" ({gap.rounded_low:.3f} to {gap.rounded_high:.3f});"
        f" in fractions the plan costs {gap.fractions_mean:.3f} of it"
    )
    click.echo(
        f"means over {len(report.seeds)} seed(s), in brackets the least and the most, of ratios the 95 % interval;"
        f" settings chosen on seeds {', '.join(map(str, report.tuning_seeds))}; machines stay for"
        f" {report.stabilization_seconds:g} s after they were wanted"
    )
    click.echo("every stated bar was reached" if not report.missed else "\n".join(["missed:", *report.missed]))


def _print_tuning(trace: TraceReport) -> None:
    lines = [["on the tuning seeds", "setting", "energy kWh", "money/core-h", "mean s", "p95 s", "p99 s"]]
    for row in trace.tuning:
        cells = [row.policy, f"{row.knob} {row.setting:g}", f"{row.energy_kwh:.1f}", f"{row.money_per_core_hour:.4f}"]
        lines.append([*cells, f"{row.delay_mean:.1f}", f"{row.delay_p95:.0f}", f"{row.delay_p99:.0f}"])
    print_figures(lines, names=2)


def _print_goal(report: GoalReport, seeds: int) -> None:
    from cotide_lab.experiments.capacity.experiment import ENERGY_BAR, ORACLE_BAR

    goal = report.goal
    click.echo(
        f"{goal.name}: delays of at most {goal.mean:g} s in the mean, {goal.p95:g} s at p95, {goal.p99:g} at p99"
    )
    lines = [
        ["policy", "setting", "kept", "energy kWh", "money/core-h", "ours / it", "95 %", "mean s", "p95 s", "p99 s"]
    ]
    lines[0] += ["in use", "no turn", "decision s"]
    for row in report.rows:
        ratio = row.own_money_over_it
        cells = [row.policy, f"{row.knob} {row.setting:g}", f"{'' if row.tuned else 'not tuned, '}{row.kept}/{seeds}"]
        cells += [_spread(row.energy_kwh, ".0f"), _spread(row.money_per_core_hour, ".4f"), f"{ratio.mean:.3f}"]
        cells += [f"{ratio.low:.3f}-{ratio.high:.3f}", f"{row.delay_mean.mean:.1f}", _spread(row.delay_p95, ".0f")]
        cells += [_spread(row.delay_p99, ".0f"), f"{row.in_use.mean:.2f}", f"{row.without_turns.mean:.2f}"]
        lines.append([*cells, f"{row.step_seconds.mean:.3f}"])
    print_figures(lines, names=3)
    energy, oracle = report.row("oblivious").own_energy_over_it, report.row("oracle").own_money_over_it
    click.echo(
        f"  energy over the heterogeneity-blind baseline: {_spread(energy, '.3f')} (bar {ENERGY_BAR}); money over the"
        f" oracle: {_spread(oracle, '.3f')} (bar {ORACLE_BAR})"
    )
    click.echo(
        f"  of the baseline's energy the oracle needs {_spread(report.oracle_over_baseline, '.3f')}, and a rule under"
        f" which no task waits no less than {_spread(report.floor_over_baseline, '.3f')}"
    )


def _spread(spread: Spread | Ratio, form: str) -> str:
    return f"{spread.mean:{form}} ({spread.low:{form}}-{spread.high:{form}})"


def _numbers(counts: tuple[int, ...]) -> str:
    return f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,}-{max(counts):,}"
