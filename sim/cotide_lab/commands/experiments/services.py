"""`cotide experiment services`: the latency guard with unlike services that appear over time, service by service.

Called by `experiment_command`. Hands over to `cotide_lab.experiments.services` and prints. Invariant: same options and
files, same numbers; a missed bar is printed and gives exit code 3.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotide_cli.inputs.checked_types import SEED, WORKERS, DataFolder
from cotide_cli.printing import output_option, print_figures
from cotide_lab.commands.experiments.options import print_report
from cotide_lab.inputs.training_data import colocation_directory

if TYPE_CHECKING:
    from cotide_lab.experiments.services.judgement import Report


@click.command("services")
@click.option(
    "--data",
    type=DataFolder(),
    help="Directory of the measured co-location tables (or the one above it); generated tables without it.",
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the services.")
@click.option(
    "--seeds", type=click.IntRange(2, 1000), default=5, show_default=True, help="Draws of samples, each the seed after."
)
@click.option("--services", type=click.IntRange(4, 200), default=12, show_default=True, help="Services, in two waves.")
@click.option("--workers", type=WORKERS, default=1, show_default=True, help="Processes, one seed each.")
@output_option
def command(data: Path | None, seed: int, seeds: int, services: int, workers: int, output: str) -> int:
    """Judge the latency guard by service, from the first sample to the thousandth, compared with its baselines.

    A seed takes about three minutes of processor time.
    """
    from cotide_lab.experiments.services.guard_by_service import run

    report = run(
        None if data is None else colocation_directory(data),
        seeds=range(seed, seed + seeds),
        services=services,
        workers=workers,
        progress=lambda text: click.echo(text, err=True),
    )
    return print_report(report, output, _print, seed=seed)


def _print(report: Report) -> None:
    by_age = [
        ["samples", "contender", "precision", "recall", "F1", "+-", "F1 even", "breaks", "refused", "accepted", "Brier"]
    ]
    by_age += [
        [
            str(row.age),
            row.contender,
            f"{row.precision:.3f}",
            f"{row.recall:.3f}",
            f"{row.f1:.3f}",
            f"{row.deviation:.3f}",
            f"{row.f1_even:.3f}",
            f"{row.breaks:.1f}",
            f"{row.refused:.1%}",
            f"{row.accepted:.1%}",
            f"{row.brier:.4f}",
        ]
        for row in report.rows
    ]
    names = list(report.services[0].f1) if report.services else []
    by_service = [
        ["service", "samples", "lone ms", "limit ms", "broken", *(f"F1 {name}" for name in names), "ahead", "of"]
    ]
    by_service += [
        [
            service.service,
            str(service.age),
            f"{service.lone_milliseconds:.3g}",
            f"{service.limit_milliseconds:.3g}",
            f"{service.broken_share:.1%}",
            *(f"{service.f1[name]:.3f}" for name in names),
            f"{service.ahead:+.3f} ({service.ahead_low:+.3f} to {service.ahead_high:+.3f})"
            if service.judged
            else "not judged",
            service.baseline,
        ]
        for service in report.services
    ]
    for lines in (by_age, by_service):
        print_figures(lines, left=(), indent="")
        click.echo("")
    click.echo(
        f"medians over the services that are judged, means over {report.seeds} seeds; refused above"
        f" p = {report.threshold:g};"
        " breaks: accepted and broken, of 1,000; accepted: of the rows that hold;"
        " ahead: our F1 less that of the strongest baseline by service, interval for all comparisons"
    )
    click.echo("every stated bar was reached" if not report.missed else "\n".join(["missed:", *report.missed]))
