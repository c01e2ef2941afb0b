"""`cotide experiment easy-variants`: EASY under the readings that simulators differ in, compared with published
figures.

Called by `experiment_command`. Reads logs, hands over to `cotide_lab.experiments.backfilling.easy_variants` and prints.
Invariant: same logs, same figures; a published figure that its own reading misses is printed and gives exit code 3.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cotide_cli.inputs.checked_types import DataFolder
from cotide_cli.printing import as_text, output_option, print_figures, progress_bar
from cotide_core.errors import InputError

if TYPE_CHECKING:
    from cotide_lab.experiments.backfilling.easy_differences import Difference
    from cotide_lab.experiments.backfilling.easy_variants import Report

LOGS: Final = ("KTH-SP2", "CTC-SP2", "SDSC-BLUE")
"""The logs with published figures."""


@click.command("easy-variants")
@click.argument("logs", nargs=-1, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--data",
    type=DataFolder(),
    help=f"Directory that holds the logs with published figures ({', '.join(LOGS)}), itself or under swf.",
)
@output_option
def command(logs: tuple[Path, ...], data: Path | None, output: str) -> int:
    """Replay SWF logs under EASY in each way that simulators differ in, and name the jobs that make the difference."""
    from cotide_lab.experiments.backfilling.easy_variants import run
    from cotide_sim.traces.jobs.swf import read_swf

    paths = [*logs, *([] if data is None else _found(data))]
    if not paths:
        raise InputError("names no log; give files, or --data DIRECTORY", field="LOGS")
    with progress_bar() as progress:
        reports = [run(read_swf(path), progress) for path in paths]
    missed = [text for report in reports for text in report.missed]
    if output == "table":
        for report in reports:
            _print_report(report)
        click.echo("every published figure was met" if not missed else "\n".join(["missed:", *missed]))
    else:
        click.echo(as_text({"logs": [asdict(report) for report in reports], "missed": missed}, output))
    return 3 if missed else 0


def _found(data: Path) -> list[Path]:
    folders = [data, data / "swf"]
    found = [path for folder in folders for name in LOGS for path in sorted(folder.glob(f"{name}*.swf*"))]
    if not found:
        raise InputError(f"holds no log named {', '.join(LOGS)}", file=str(data), field="--data")
    return found


def _print_report(report: Report) -> None:
    from cotide_lab.experiments.backfilling.easy_variants import DEFAULT, PUBLISHED_VARIANT

    click.echo(f"{report.log}: EASY, average bounded slowdown")
    if report.published is not None:
        known, easy = report.published, report.published.easy
        less = f"; of them the cleaned log lacks {known.job_numbers_missing}" if known.job_numbers_missing else ""
        click.echo(
            f"  published: {easy.mean:.6f} over {known.jobs:,} jobs, largest {easy.largest:,.2f}, root mean square"
            f" {easy.root_mean_square:.4f}{less}"
        )
    lines = [["", "reading", "jobs", "average", "published", "largest", "rms", "other start", "ten jobs", "of all"]]
    for row in report.rows:
        off = "" if row.against_published is None else f"{row.against_published:+.2%}"
        moved = "" if row.name == DEFAULT else f"{row.difference.moved:,}"
        shares = [_share(row.difference.top_share), _share(row.difference.top_of_all)]
        figures = [f"{row.jobs:,}", f"{row.mean:.4f}", off, f"{row.largest:,.1f}", f"{row.root_mean_square:.3f}"]
        lines.append([row.group, row.name, *figures, moved, *shares])
    print_figures(lines, names=2)
    click.echo(
        "  other start: jobs that start at another second than in the default; ten jobs: the share of the change that"
        " the ten jobs carry\n  which change most; of all: their share of all changes, taken absolutely; readings with"
        " shortest-job backfill\n  are held against its own published figures"
    )
    for row in report.rows:
        if row.name == PUBLISHED_VARIANT:
            _print_difference(row.name, row.difference)
    click.echo("")


def _print_difference(name: str, difference: Difference) -> None:
    click.echo(
        f"  default and {name!r}: {difference.moved:,} of {difference.common:,} jobs start at another second; the sum"
        f" of slowdowns changes by {difference.change:+,.0f}"
    )
    first = difference.first
    if first is not None:
        neighbours = [
            f"{what} {', '.join(str(number) for number in numbers)}"
            for what, numbers in (
                ("submitted", first.submitted),
                ("ended", first.ended),
                ("planned to end", first.planned),
            )
            if numbers
        ]
        click.echo(
            f"  they part at second {first.second:,}: job {first.job.number} starts at {first.job.start_before:,} or"
            f" {first.job.start_after:,}; at that second, {'; '.join(neighbours) or 'nothing else'}"
        )
    if not difference.top:
        return
    lines = [["job", "processors", "run s", "submitted", "start", "start", "slowdown", "slowdown", "change"]]
    for job in difference.top:
        times = [f"{job.submit:,}", f"{job.start_before:,}", f"{job.start_after:,}"]
        slowdowns = [f"{job.slowdown_before:,.1f}", f"{job.slowdown_after:,.1f}", f"{job.change:+,.1f}"]
        lines.append([str(job.number), str(job.processors), f"{job.run:,}", *times, *slowdowns])
    print_figures(lines)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
