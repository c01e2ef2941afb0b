"""`cotide experiment offline-readings`: HYBRID as its text can be read, against SVF-EF placed in the same way.

Called by `experiment_command`. Reads a log if one is named, hands over to `cotide_lab.experiments.offline.readings` and
prints. Invariant: same options, same numbers; exit code 3 where no reading shows the order that the paper states.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cotide_cli.inputs.checked_types import SEED
from cotide_cli.printing import as_text, output_option, print_figures, progress_bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cotide_lab.experiments.offline.readings import ReadingRow, Report


@click.command("offline-readings")
@click.option(
    "--trace", type=click.Path(path_type=Path, dir_okay=False), help="SWF log to sample, the paper's is HPC2N."
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of all draws.")
@click.option("--quick", is_flag=True, help="Small instances only: a second instead of a minute.")
@output_option
def command(trace: Path | None, seed: int, quick: bool, output: str) -> int:
    """Try every reading of Naghshnejad 2019's HYBRID for the order of its Figs. 3.6 and 3.7."""
    from cotide_lab.commands.experiments.offline import log_sizes
    from cotide_lab.experiments.offline.readings import Settings, run

    settings = Settings(seed=seed, points=((400, 10), (400, 2)), stretch_jobs=400) if quick else Settings(seed=seed)
    log = None if trace is None else log_sizes(trace)
    with progress_bar() as progress:
        report = run(settings, log, progress)
    if output == "table":
        _print(report)
    else:
        data: dict[str, Any] = {**asdict(report), "reproduced": report.reproduced, "ruled_out": report.ruled_out}
        click.echo(as_text(data, output))
    return 0 if report.reproduced else 3


def _print(report: Report) -> None:
    click.echo("lists: SJF-EF over SVF-EF placed in the same way, and SVF-EF over SVF-EF with every hole filled")
    lines = [["lists", "SJF-EF over SVF-EF", "SVF-EF over ours", "SVF-EF is the better list"]]
    lines += [[w.way, _span(w.sjf), _span(w.svf), "yes" if w.svf_is_best else "no"] for w in report.ways]
    print_figures(lines)
    click.echo("total completion time of HYBRID over SVF-EF and RANDOM-RANDOM, all placed in the same way")
    _print_rows(report.readings)
    click.echo("Block-Scheduling, and HYBRID relisted, which are what they are, over the same two")
    _print_rows(report.others)
    click.echo("over SVF-EF with holes filled: what no schedule can beat, and none that keeps the two sets apart")
    lines = [["instance", "any schedule", "printed split", "best split", "its high machines"]]
    for row in report.floors:
        ratios = [f"{value:.3f}" for value in (row.any_schedule, row.printed, row.best)]
        lines.append([row.instance.name, *ratios, str(row.best_high_machines)])
    print_figures(lines)
    _print_stretch(report)
    below = "; ".join(f"{row.reading}, lists: {row.way}" for row in report.below_in_figures)
    click.echo(f"below SVF-EF on all instances of Figs. 3.6 and 3.7: {below or 'no reading of HYBRID'}")
    both = "; ".join(report.reproduced)
    click.echo(f"and SVF-EF the better list on all instances, as in Figs. 3.3 to 3.5: {both or 'no reading of HYBRID'}")
    if report.ruled_out:
        click.echo(
            "nothing that keeps the sets apart in the printed shares can be below SVF-EF there: its floor is above it"
        )


def _print_stretch(report: Report) -> None:
    from cotide_lab.experiments.offline.claims import TABLE_3_2

    click.echo("average stretch next to Table 3.2, and the factor between: of all nine lists, of the six in order")
    lines = [["workload", "lists", *TABLE_3_2, "off", "in order"]]
    lines.append(["", "the paper", *(f"{printed[0]:.1f}" for printed in TABLE_3_2.values()), "", ""])
    for row in report.stretch:
        averages = [f"{row.averages[name]:.1f}" for name in TABLE_3_2]
        lines.append([row.workload, row.way, *averages, f"{row.distance:.2f}", f"{row.distance_in_order:.2f}"])
    print_figures(lines, names=2)


def _print_rows(rows: Sequence[ReadingRow]) -> None:
    lines = [["lists", "reading", "over SVF-EF", "in the figures", "over RANDOM", "below SVF-EF", "on machines"]]
    for row in rows:
        spans = [_span(span) for span in (row.svf, row.figures, row.random)]
        lines.append([row.way, row.reading, *spans, f"{row.below} of {row.instances}"])
        lines[-1].append(", ".join(str(machines) for machines in row.below_on))
    print_figures(lines, names=2)


def _span(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"{ends[0]:.3f} to {ends[1]:.3f}"
