"""`cotide experiment phases`: phase-level scheduling compared with task level and slots (Zhang and Boutaba 2014, sec.
IV).

Called by `experiment_command`. Hands over to `cotide_lab.experiments.phases` and prints. Invariant: the same seeds give
the same figures; a missed bar is printed and gives exit code 3.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotide_cli.inputs.checked_types import SEED, DataFolder
from cotide_cli.printing import print_figures, progress_bar
from cotide_core.errors import InputError
from cotide_lab.commands.experiments.options import print_report
from cotide_lab.inputs.plot_file import PlotFile

if TYPE_CHECKING:
    from cotide_lab.experiments.like_for_like import Interval
    from cotide_lab.experiments.phases.experiment import Report


@click.command("phases")
@click.option("--data", type=DataFolder(), help="Directory of SWIM's Facebook logs (docs/design/phases.md).")
@click.option("--seed", type=SEED, default=0, show_default=True, help="The first seed.")
@click.option("--seeds", type=click.IntRange(1, 100), default=5, show_default=True, help="How many seeds from it on.")
@click.option("--multiples", default="2,4,6,8,10", show_default=True, help="Jobs of each benchmark, by commas.")
@click.option(
    "--hours", type=click.IntRange(1, 24), default=12, show_default=True, help="Hours that a seed draws of a log."
)
@click.option(
    "--rule", "rules", multiple=True, metavar="NAME",
    help="Only these, in addition to phases, task-utility and task, which always run; may be given again.",
)  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
@click.option("--plot", type=PlotFile(), help="Write a plot, as .png or .svg.")
def command(
    data: Path | None,
    seed: int,
    seeds: int,
    multiples: str,
    hours: int,
    rules: tuple[str, ...],
    output: str,
    plot: Path | None,
) -> int:
    """Schedule jobs by the phases of their tasks, and by the data that other schedulers use.

    Each rule runs with the setting that is best on seeds of its own. The mixes take minutes, and so does each log.
    """
    from cotide_lab.experiments.phases import plot as phases_plot
    from cotide_lab.experiments.phases.experiment import run_experiment

    with progress_bar() as progress:
        report = run_experiment(
            range(seed, seed + seeds),
            multiples=_multiples(multiples),
            data=data,
            hours=hours,
            rules=_rules(rules),
            progress=progress,
        )
    if plot is not None:
        phases_plot.draw(report, plot)
    return print_report(report, output, _print)


def _multiples(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 1 <= int(part) <= 100 for part in parts):
        raise InputError("holds whole numbers from 1 to 100, by commas", field="--multiples")
    return tuple(sorted({int(part) for part in parts}))


def _rules(named: tuple[str, ...]) -> tuple[str, ...]:
    from cotide_lab.phases.rules import RULES

    unknown = [rule for rule in named if rule not in RULES]
    if unknown:
        raise InputError(f"there is no {unknown[0]!r}; there are {', '.join(RULES)}", field="--rule")
    return named or RULES


def _print(report: Report) -> None:
    from cotide_lab.experiments.phases.experiment import RIVAL

    for setting in report.settings:
        click.echo(f"{setting.workload}: {setting.jobs:,} jobs, {setting.tasks:,} tasks, {setting.nodes:,} nodes")
        lines = [["rule", "job time s", "p95 s", "p99 s", "over task", f"over {RIVAL}", "same order: mean, p95, p99"]]
        lines[0] += ["cpu", "memory", "slowed", "wait s", "p95 s", "p99 s", "pause s", "longest s", "size", "weight"]
        for row in setting.rows:
            cells = [
                row.rule,
                _interval_text(row.job_time, ".0f"),
                f"{row.job_p95.mean:.0f}",
                f"{row.job_p99.mean:.0f}",
            ]
            cells += [_interval_text(row.over_task, ".3f"), _interval_text(row.over_rival[0], ".3f")]
            cells += [", ".join(f"{interval.mean:.3f}" for interval in row.over_same_order or ())]
            cells += [f"{row.utilisation_cpu.mean:.3f}", f"{row.utilisation_memory.mean:.3f}", f"{row.slowed.mean:.2f}"]
            cells += [f"{interval.mean:.1f}" for interval in (row.wait, row.wait_p95, row.wait_p99, row.pause)]
            lines.append([*cells, f"{row.longest_pause:.0f}", f"{row.size:g}", row.weight])
        lines.append(["no scheduler below", _interval_text(setting.bound, ".0f")] + [""] * (len(lines[0]) - 2))
        print_figures(lines)
    click.echo(
        f"phases over whole tasks in the same order on the PUMA-like mixes:"
        f" {_interval_text(report.puma_same_order, '.3f')} (paper: up to 24 % less, 0.76);"
        f" over task level in the order of YARN: {_interval_text(report.puma_over_task, '.3f')}"
    )
    click.echo(
        f"means over {len(report.seeds)} seed(s), in brackets their 95 % interval; slowed: see docs/design/phases.md"
    )
    for contender, bars in report.inactive.items():
        click.echo(f"{contender} in the place of phases misses {bars} bar(s)")
    click.echo("every stated bar was reached" if not report.missed else "\n".join(["missed:", *report.missed]))


def _interval_text(value: Interval, form: str) -> str:
    return f"{value.mean:{form}} ({value.low:{form}}-{value.high:{form}})"
