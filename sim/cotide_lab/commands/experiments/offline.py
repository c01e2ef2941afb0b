"""`cotide experiment offline`: total completion time of the approximation algorithms, compared with the paper's
figures.

Called by `experiment_command`. Reads a log if one is named, hands over to `cotide_lab.experiments.offline.completion`
and prints. Invariant: same options, same numbers, except the run times; a statement of the paper that the run does not
confirm is printed and gives exit code 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cotide_cli.inputs.checked_types import REPEATS, SEED
from cotide_cli.printing import as_text, output_option, print_table
from cotide_lab.inputs.plot_file import PlotFile

if TYPE_CHECKING:
    from rich.table import Table

    from cotide_core.kernels.array_types import Integers
    from cotide_lab.experiments.offline.completion import Report, Row


MACHINES = click.IntRange(2, 10_000)
"""At most the machines of a large data centre (chosen)."""


@click.command("offline")
@click.option(
    "--trace",
    type=click.Path(path_type=Path, dir_okay=False),
    help="SWF log that Fig. 3.5 samples, the paper's is HPC2N; without one that figure is left out.",
)
@click.option("--repeats", type=REPEATS, default=10, show_default=True, help="Instances at each point, as printed.")
@click.option(
    "--most-jobs",
    type=click.IntRange(min=1000, max=100_000),
    default=16_000,
    show_default=True,
    help="Largest instance of Figs. 3.3, 3.4 and 3.6; they start at 3,000, or at 1,000 if this is less.",
)
@click.option("--machines", type=MACHINES, default=50, show_default=True, help="Machines of these figures.")
@click.option("--log-machines", type=MACHINES, default=2, show_default=True, help="Machines of Fig. 3.5 (chosen).")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of all draws.")
@output_option
@click.option("--plot", type=PlotFile(), help="Write the figures, as .png or .svg.")
def command(
    trace: Path | None,
    repeats: int,
    most_jobs: int,
    machines: int,
    log_machines: int,
    seed: int,
    output: str,
    plot: Path | None,
) -> int:
    """Schedule SYNTH1, SYNTH2 and samples of a log with every algorithm of Naghshnejad 2019, chapter 3."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from cotide_lab.experiments.offline import plot as offline_plot
    from cotide_lab.experiments.offline.completion import Settings, run

    first = 3000 if most_jobs >= 3000 else 1000
    counts = tuple(range(first, most_jobs + 1, 1000))
    settings = Settings(counts=counts, machines=machines, repeats=repeats, log_machines=log_machines, seed=seed)
    log = None if trace is None else log_sizes(trace)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        report = run(settings, log, lambda what, share: bar.update(task, description=what, completed=share))
    if plot is not None:
        offline_plot.draw(report, plot)
    if output == "table":
        for table in _tables(report):
            print_table(table)
        click.echo("every statement was reproduced" if not report.missed else "\n".join(["missed:", *report.missed]))
    else:
        click.echo(as_text({**asdict(report), "missed": report.missed}, output))
    return 3 if report.missed else 0


def log_sizes(trace: Path) -> tuple[Integers, Integers]:
    """Return (n,) run seconds and processors of a log's jobs: a size is the resources that a job took, whatever it
    requested."""
    from cotide_sim.traces.jobs.swf import read_swf
    from cotide_sim.traces.jobs.swf_cleaning import Cleaning, clean

    jobs, cleaning = clean(read_swf(trace), Cleaning(overrun="raise"))
    for sentence in cleaning.sentences():
        click.echo(sentence, err=True)
    return jobs.run, jobs.demand


def _tables(report: Report) -> Iterable[Table]:
    from cotide_lab.experiments.offline.claims import TABLE_3_2, table_distance

    log = f"{report.settings.log_jobs} jobs of the log"
    titles = {
        "3.3": "Fig. 3.3: mean completion time, slots, SYNTH1",
        "3.4": "Fig. 3.4: mean completion time, slots, SYNTH2",
        "3.5": f"Fig. 3.5: mean completion time, s, {log} ({report.log_jobs_too_large} too large for one machine)",
        "3.6": "Fig. 3.6: mean completion time, slots, SYNTH2",
        "3.7": f"Fig. 3.7: mean completion time by machines, slots, {report.settings.machine_jobs:,} jobs of SYNTH2",
    }
    for name in sorted(report.figures):
        yield _figure(titles[name], report.figures[name], ",.0f")
    for name, rows in report.seconds.items():
        yield _figure(f"Fig. {name}: run time, s, SYNTH2 on {report.settings.machines} machines", rows, ".4f")
    stretch = _table(
        "Table 3.2: stretch", "workload", "algorithm", "average", "paper", "largest", "paper", "sd", "paper"
    )
    for line in report.stretch:
        printed = TABLE_3_2[line.algorithm]
        pairs = zip((line.average, line.largest, line.deviation), printed, strict=True)
        cells = [text for ours, paper in pairs for text in (f"{ours:,.2f}", f"{paper:,.2f}")]
        stretch.add_row(line.workload, line.algorithm, *cells)
    for workload in dict.fromkeys(line.workload for line in report.stretch):
        averages = {line.algorithm: line.average for line in report.stretch if line.workload == workload}
        stretch.add_row(workload, "all: off by a factor of", f"{table_distance(averages):,.2f}")
    yield stretch
    worst = _table(
        "Table 3.1: worst cases, cost over the paper's better schedule", "order", "jobs", "ratio", "at least"
    )
    for case in report.worst:
        worst.add_row(case.order, f"{case.jobs:,}", f"{case.ratio:,.2f}", f"{case.least_ratio:,.2f}")
    yield worst
    bounds = _table("Bounds (cost over promise, 1 = at the bound)", "theorem", "instances", "above", "closest")
    for check in report.bounds:
        bounds.add_row(check.theorem, str(check.instances), str(check.broken), f"{check.closest:.3f}")
    yield bounds
    claims = _table("Statements of the text", "statement", "paper", "here", "")
    for claim in report.claims:
        claims.add_row(claim.text, claim.paper, claim.ours, "yes" if claim.held else "NO")
    yield claims


def _figure(title: str, rows: list[Row], form: str) -> Table:
    positions = sorted({row.at for row in rows})
    found: dict[tuple[str, int], Any] = {(row.algorithm, row.at): row for row in rows}
    table = _table(title, "algorithm", *(f"{position:,}" for position in positions))
    for name in dict.fromkeys(row.algorithm for row in rows):
        shown = [found.get((name, position)) for position in positions]
        table.add_row(name, *("" if row is None else f"{row.mean:{form}}" for row in shown))
    return table


def _table(title: str, *columns: str) -> Table:
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", min_width=len(title), box=None, padding=(0, 1, 0, 0), header_style="bold"
    )
    for index, column in enumerate(columns):
        is_number = index > 0 and title.startswith(("Fig", "Table 3.2"))
        table.add_column(column, justify="right" if is_number and column not in ("algorithm",) else "left")
    return table
