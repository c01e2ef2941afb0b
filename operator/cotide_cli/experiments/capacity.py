"""`cotide experiment capacity`: container-based provisioning beside its rivals (Zhang and Boutaba 2014, sec. III).

Called by `experiment_command`. Hands over to `cotide_sim.experiments.capacity` and prints. Invariant: the same data and
seeds, the same figures, but for the seconds that decisions took; what was missed is said and is exit code 3.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotide_cli.experiments.options import print_report, run_options, seed_options
from cotide_cli.inputs.checked_types import DataFolder
from cotide_cli.inputs.finite_range import FiniteRange
from cotide_cli.printing import print_figures, progress_bar
from cotide_core.errors import InputError

if TYPE_CHECKING:
    from cotide_sim.experiments.capacity.experiment import Report, Spread, TraceReport


@click.command("capacity")
@click.option("--data", type=DataFolder(), help="Directory of the public traces (docs/capacity.md).")
@click.option(
    "--trace", "traces", type=click.Choice(["google2011", "alibaba2017", "openb"]), multiple=True, help="Only these."
)
@seed_options
@click.option("--hours", type=FiniteRange(0.5, 72), help="Hours that count, at most; for a first look.")
@click.option(
    "--service-level", type=FiniteRange(0, 1, min_open=True, max_open=True), default=0.25, show_default=True,
    help="Of our plans: share of the demand's distribution that is worth serving before it comes.",
)  # fmt: skip
@click.option(
    "--stabilization-seconds", type=FiniteRange(0, 3600), default=0.0, show_default=True,
    help="Our machines go when they were not wanted for so long.",
)  # fmt: skip
@run_options
def command(
    data: Path | None,
    traces: tuple[str, ...],
    seed: int,
    seeds: int,
    hours: float | None,
    service_level: float,
    stabilization_seconds: float,
    workers: int,
    output: str,
    plot: Path | None,
) -> int:
    """Provision machines by container-based provisioning and by its rivals; compare energy, money and delays.

    A trace and seed take two minutes. Without --data on generated tasks, which take seconds.
    """
    from cotide_sim.experiments.capacity import plot as capacity_plot
    from cotide_sim.experiments.capacity.experiment import run
    from cotide_sim.experiments.capacity.scenarios import TRACES

    if traces and data is None:
        raise InputError("names a trace of --data, which is not given", field="--trace")
    with progress_bar() as progress:
        report = run(
            traces or TRACES,
            range(seed, seed + seeds),
            data=data,
            workers=workers,
            score_hours=hours,
            service_level=service_level,
            stabilization_seconds=stabilization_seconds,
            progress=progress,
        )
    if plot is not None:
        capacity_plot.draw(report, plot)
    return print_report(report, output, _print)


def _print(report: Report) -> None:
    from cotide_sim.experiments.capacity.experiment import ENERGY_BAR, ORACLE_BAR

    for trace in report.traces:
        click.echo(f"{trace.trace}: {trace.reading}; {_numbers(trace.tasks)} tasks, {_numbers(trace.classes)} classes")
        _print_rows(trace)
        click.echo(f"  machines of the first seed: {'; '.join(trace.types)}")
        click.echo(
            "  energy over the heterogeneity-blind baseline at 80 % in use:"
            f" {_spread(trace.energy_over_baseline, '.3f')} (bar {ENERGY_BAR}); money over the oracle at an equal"
            f" delay: {_spread(trace.money_over_oracle, '.3f')} (bar {ORACLE_BAR})"
        )
        click.echo(
            f"  of the baseline's energy the oracle needs {_spread(trace.oracle_over_baseline, '.3f')}, and nobody who"
            f" lets no task wait less than {_spread(trace.floor_over_baseline, '.3f')}"
        )
        click.echo("  our money per core-hour over each rival's cheapest setting with as good a 95 % delay:")
        for rivalry in trace.rivalries:
            spread = _spread(rivalry.ratio, ".3f") if rivalry.seeds else "reaches no such delay"
            click.echo(f"    {rivalry.rival}: {spread} ({rivalry.seeds} of {len(report.seeds)} seeds)")
        click.echo("")
    gap = report.integral
    click.echo(
        f"rounding up on {gap.instances} small instances: {gap.rounded_mean:.3f} of the integral optimum's idle energy"
        f" ({gap.rounded_low:.3f} to {gap.rounded_high:.3f});"
        f" in fractions the plan costs {gap.fractions_mean:.3f} of it"
    )
    click.echo(
        f"means over {len(report.seeds)} seed(s), in brackets the least and the most; our service level"
        f" {report.service_level:g}, machines stay for {report.stabilization_seconds:g} s after they were wanted"
    )
    click.echo("every stated bar was reached" if not report.missed else "\n".join(["missed:", *report.missed]))


def _print_rows(trace: TraceReport) -> None:
    lines = [["policy", "reserve", "energy kWh", "money", "money/core-h", "switched on", "machines", "mean delay s"]]
    lines[0] += ["p95 s", "p99 s", "decision s"]
    for row in trace.rows:
        cells = [row.policy, f"{row.reserve:g}", _spread(row.energy_kwh, ".0f"), _spread(row.money, ".2f")]
        cells += [_spread(row.money_per_core_hour, ".4f"), f"{row.switches.mean:.0f}", f"{row.machines.mean:.0f}"]
        cells += [f"{row.delay_mean.mean:.1f}", _spread(row.delay_p95, ".0f"), _spread(row.delay_p99, ".0f")]
        lines.append([*cells, f"{row.step_seconds.mean:.3f}"])
    print_figures(lines, names=2)


def _spread(spread: Spread, form: str) -> str:
    return f"{spread.mean:{form}} ({spread.low:{form}}-{spread.high:{form}})"


def _numbers(counts: tuple[int, ...]) -> str:
    return f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,}-{max(counts):,}"
