"""`cotide experiment hierarchical`: scheduling with and without prediction, compared with the figures of Jiang et al.

Called by `experiment_command`. Invariant: same files and seed, same numbers; a missed bar is printed and gives exit
code 3.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotide_cli.inputs.checked_types import SEED, WORKERS, DataFolder
from cotide_cli.inputs.finite_range import FiniteRange
from cotide_cli.printing import output_option, print_figures
from cotide_core.errors import InputError
from cotide_lab.commands.experiments.options import print_report
from cotide_lab.inputs.plot_file import PlotFile

if TYPE_CHECKING:
    from cotide_lab.experiments.hierarchical.schedule import Report


@click.command("hierarchical")
@click.option("--data", type=DataFolder(), help="Directory of the public traces: production as in Google's.")
@click.option("--slots", default="100,200,300,400,500", show_default=True, help="Slot sizes in seconds, by commas.")
@click.option("--load", type=FiniteRange(min=0.1, max=10.0), help="Scales what tasks ask for.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the first day.")
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=10, show_default=True, help="Days, each with the seed after."
)
@click.option("--workers", type=WORKERS, default=os.cpu_count() or 1, help="Processes; default: one for each core.")
@output_option
@click.option("--plot", type=PlotFile(), help="Write a plot, as .png or .svg.")
def command(
    data: Path | None,
    slots: str,
    load: float | None,
    seed: int,
    seeds: int,
    workers: int,
    output: str,
    plot: Path | None,
) -> int:
    """Schedule days of tasks on the paper's machines, with and without prediction; figures are means over the days.

    A day takes seconds in each way; settings are chosen on two more days; --seeds 1 for a first look. Without --data
    production usage is generated; the tasks always are, since the paper's were never published.
    """
    from cotide_lab.experiments.hierarchical import plot as schedule_plot
    from cotide_lab.experiments.hierarchical.schedule import DEFAULT_LOAD, run
    from cotide_sim.traces.load import google_load

    series = None
    if data is not None:
        series = google_load.read_google2011_load(data)
    report = run(
        seeds=range(seed, seed + seeds),
        series=series,
        slot_sizes=_slot_sizes(slots),
        load=DEFAULT_LOAD if load is None else load,
        workers=workers,
        progress=lambda text: click.echo(text, err=True),
    )
    if plot is not None:
        schedule_plot.draw(report, plot)
    return print_report(report, output, _print_schedule, seed=seed)


def _slot_sizes(text: str) -> tuple[float, ...]:
    from cotide_lab.experiments.hierarchical.data_center import SAMPLE_SECONDS

    sizes = []
    for part in text.split(","):
        if not part.strip().isdigit() or int(part) < 3 * SAMPLE_SECONDS or int(part) % SAMPLE_SECONDS:
            raise InputError(
                f"{part!r} is not a multiple of {SAMPLE_SECONDS:g} s, from {3 * SAMPLE_SECONDS:g} up", field="--slots"
            )
        sizes.append(float(part))
    return tuple(sizes)


def _print_schedule(report: Report) -> None:
    from cotide_lab.experiments.hierarchical.schedule import WITHOUT, change

    lines = [["run", "by", "slot s", "overloads", "kills", "evictions", "undelayed", "mean delay s", "p95 s", "p99 s"]]
    lines[0] += ["max delay s", "batch s", "gratis s", "first s", "lost s", "against none"]
    before = {row.source: row for row in report.rows if row.name == WITHOUT}
    for row in report.rows:
        counts = ["-" if count is None else f"{count:.0f}" for count in (row.overloads, row.kills, row.evictions)]
        delays = [f"{row.undelayed:.0f}", f"{row.mean_delay:.0f}"]
        delays += ["-" if late is None else f"{late:.0f}" for late in (row.delay_p95, row.delay_p99)]
        delays.append(f"{row.max_delay:.0f}")
        parts = (row.batch_delay, row.gratis_delay, row.first_delay, row.lost)
        split = ["-" if part is None else f"{part:.0f}" for part in parts]
        changes = "-"
        if row.overloads is not None and row is not before[row.source]:
            changes = " / ".join(f"{part:+.0%}" for part in change(before[row.source], row))
        lines.append([row.name, row.source, f"{row.slot_seconds:.0f}", *counts, *delays, *split, changes])
    print_figures(lines, names=2, left=(0, 1), indent="")
    click.echo(
        "mean delay by class, to the first start, and of it run time thrown away by kills and evictions;"
        " against none: overloads / kills and evictions / mean delay"
    )
    click.echo(
        f"means of {report.days} day(s) of {report.tasks} tasks (what Table II adds up to), 2017 in the paper's text"
    )
    for one in report.changes:
        click.echo(
            f"{one.name}, {one.slot_seconds:.0f} s: mean delay {one.of_means:+.0%} against no prediction with the same"
            f" victims; by day {one.by_day.median:+.0%} in the median, {one.by_day.mean:+.0%}"
            f" ({one.by_day.low:+.0%} to {one.by_day.high:+.0%}); without the worst day {one.without_worst:+.0%}"
        )
    click.echo(
        f"chosen on other days: reserves of {report.reserves[0]:.1%} and {report.reserves[1]:.1%},"
        f" and {' and '.join(report.quantiles)} for ours"
    )
    for name, bars in report.inactive.items():
        click.echo(f"{name!r} in the place of ours misses {bars} bar(s)")
    if report.reserves_that_pass:
        click.echo(f"without any forecast every bar is reached, too, by: {', '.join(report.reserves_that_pass)}")
    click.echo("every stated bar was reached" if not report.missed else "\n".join(["missed:", *report.missed]))
