"""`cotide experiment qpsm-waiting`: total waiting under QPSM, FIFO and random order, compared with the paper's Table 4.

Called by `experiment_command`. Trains the models, hands over to `cotide_lab.experiments.qpsm.waiting` and prints.
Invariant: same options and files, same numbers; a missed bar is printed and gives exit code 3.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotide_cli.inputs.checked_types import REPEATS, SEED, DataFolder
from cotide_cli.printing import output_option, print_figures
from cotide_lab.commands.experiments.options import print_report
from cotide_lab.inputs.plot_file import PlotFile

if TYPE_CHECKING:
    from cotide_lab.experiments.qpsm.waiting import Report


@click.command("qpsm-waiting")
@click.option(
    "--data",
    type=DataFolder(),
    help="Directory of the public traces: interference as measured (docs/research/simulation.md); generated "
    "without it.",
)
@click.option("--repeats", type=REPEATS, default=10, show_default=True, help="Orders of arrival at each rate.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of all draws.")
@output_option
@click.option("--plot", type=PlotFile(), help="Write a plot, as .png or .svg.")
def command(data: Path | None, repeats: int, seed: int, output: str, plot: Path | None) -> int:
    """Deploy 64 batch jobs next to a service at seven request rates, under QPSM, FIFO and random order."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from cotide_lab.experiments.qpsm import plot as qpsm_plot
    from cotide_lab.experiments.qpsm.waiting import run
    from cotide_sim.cluster.comparison import prepare

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("training", total=1.0)
        interference, models = prepare(data, seed)
        report = run(
            interference,
            models,
            seed=seed,
            repeats=repeats,
            progress=lambda what, share: bar.update(task, description=what, completed=share),
        )
    if plot is not None:
        qpsm_plot.draw(report, plot)
    return print_report(report, output, _print, seed=seed, repeats=repeats)


def _print(report: Report) -> None:
    lines = [["requests/s", "strategy", "waiting s", "+-", "paper s", "deployed", "over the limit", "cpu"]]
    lines += [
        [
            f"{row.rate:,}",
            row.strategy,
            f"{row.waiting_seconds:,.0f}",
            f"{row.deviation:,.0f}",
            "-" if row.paper_seconds is None else f"{row.paper_seconds:,.0f}",
            f"{row.deployed:g}",
            f"{row.violations:.2%}",
            f"{row.utilisation:.1%}",
        ]
        for row in report.rows
    ]
    print_figures(lines, names=2, left=(1,), indent="")
    for misjudged in report.misjudged:
        wrong = (
            f"{misjudged.broke_though_accepted} break though accepted, "
            f"{misjudged.held_though_refused} hold though refused"
        )
        click.echo(f"{misjudged.model}: of {misjudged.verdicts} verdicts on one job next to the service {wrong}")
    for gain in report.gains:
        means = f"{gain.ours:.1%} less than {gain.rival} on average over rates, {gain.paper:.1%} in the paper"
        click.echo(f"qpsm waits {means}")
    for name, count in report.inactive.items():
        click.echo(f"{name} in the place of qpsm misses {count} bar(s)")
    for rate in report.unjudged:
        click.echo(f"at {rate:,} requests/s no job may be deployed next to the service: not judged")
    bars = "at each rate less waiting, no fewer deployments and no more time over the limit than fifo and random, on"
    bars += " average the paper's shares"
    click.echo(f"every stated bar was reached: {bars}" if not report.missed else "\n".join(["missed:", *report.missed]))
