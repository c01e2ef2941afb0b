"""`cotide experiment run-times LOG...`: the quality of run-time forecasts on logs of batch systems.

Called by `experiment_command`. Reads SWF logs, hands them to `cotide_lab.experiments.backfilling.run_times` and prints
the figures. Invariant: same log, same figures, except the measured seconds; data on stdout, progress on stderr.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotide_cli.printing import as_text, output_option, print_table
from cotide_lab.commands.experiments.options import journal_option

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@click.command("run-times")
@click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--rebuild-days",
    type=click.IntRange(1, 36_500),
    default=1,
    show_default=True,
    help="Days of the log between two rebuilds of the trees; the thesis has one.",
)
@journal_option
@output_option
def command(logs: tuple[Path, ...], rebuild_days: int, journal: Path | None, output: str) -> int:
    """Forecast the run time of every job of SWF logs at its submission, and score the last 80 %."""
    from rich.console import Console
    from rich.progress import Progress

    from cotide_lab.experiments.backfilling.run_times import run, tables
    from cotide_lab.sweeps.kept_figures import KeptFigures

    reports = []
    with ExitStack() as opened:
        kept = None
        if journal is not None:
            kept = opened.enter_context(KeptFigures(journal, "run-times", ("log", "part"), {}))
            for remark in kept.remarks:
                _print_to_stderr(remark)
        bar = opened.enter_context(Progress(console=Console(stderr=True), transient=True))
        for path in logs:
            steps: dict[str, TaskID] = {}
            report_step = partial(_report_step, bar, steps, path.name)
            reports.append(run(path, rebuild_days=rebuild_days, kept=kept, progress=report_step, emit=_print_to_stderr))
    if output != "table":
        click.echo(as_text([asdict(report) for report in reports], output))
        return 0
    for report in reports:
        for table in tables(report):
            print_table(table)
    return 0


def _print_to_stderr(text: str) -> None:
    click.echo(text, err=True)


def _report_step(bar: Progress, steps: dict[str, TaskID], name: str, step: str, share: float) -> None:
    if step not in steps:
        steps[step] = bar.add_task(f"{name} {step}", total=1.0)
    bar.update(steps[step], completed=share)
