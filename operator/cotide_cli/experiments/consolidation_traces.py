"""`cotide experiment consolidation-traces`: consolidation over days of recorded loads, rule beside rule.

Called by `experiment_command`. Hands over to `cotide_sim.experiments.consolidation.traces` and prints what comes back.
Invariant: same files, same options, same numbers; exit code 3 where a stated bar is missed.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotide_cli.experiments.options import plot_option
from cotide_cli.inputs.checked_types import DataFolder
from cotide_cli.printing import as_text, output_option, print_figures, progress_bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cotide_sim.experiments.consolidation.traces import TraceRow

SETS = ("planetlab", "azure", "openb", "alibaba2017")


@click.command("consolidation-traces")
@click.option("--data", type=DataFolder(), required=True, help="Directory of the public traces.")
@click.option("--set", "sets", type=click.Choice(SETS), multiple=True, help="Only these sets; may be given again.")
@click.option("--seed", type=click.IntRange(0, 10**6), default=0, show_default=True, help="The first seed.")
@click.option(
    "--seeds",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="Days or weeks, each with the seed after.",
)
@output_option
@plot_option
def command(data: Path, sets: tuple[str, ...], seed: int, seeds: int, output: str, plot: Path | None) -> int:
    """Count hosts, moves and overloads of consolidation rules on recorded loads."""
    from cotide_sim.experiments.consolidation.recorded_loads import read_recorded
    from cotide_sim.experiments.consolidation.traces import missed_in_traces, run_traces

    rows: list[TraceRow] = []
    missed: list[str] = []
    notes: dict[str, list[str]] = {}
    with progress_bar() as progress:
        for name in sets or SETS:
            loads = [read_recorded(name, data, one) for one in range(seed, seed + seeds)]
            notes[name] = sorted({load.note for load in loads})
            found = run_traces(loads, progress)
            rows += found
            missed += missed_in_traces(found)
    if plot is not None:
        from cotide_sim.experiments.consolidation.plot import draw_traces

        draw_traces(rows, plot)
    if output == "table":
        _print(rows, notes)
        click.echo("every stated bar was reached" if not missed else "\n".join(["missed:", *missed]))
    else:
        data_out = {"seed": seed, "seeds": seeds, "notes": notes, "rows": [asdict(row) for row in rows]}
        click.echo(as_text({**data_out, "missed": missed}, output))
    return 3 if missed else 0


def _print(rows: Sequence[TraceRow], notes: dict[str, list[str]]) -> None:
    lines = [["set", "rule", "node-hours", "range", "saved", "moves", "range", "overloads", "range", "kWh"]]
    for row in rows:
        hours, moves, over = row.node_hours_range, row.moves_range, row.violations_range
        lines.append(
            [
                row.load,
                row.rule,
                f"{row.node_hours:.0f}",
                f"{hours[0]:.0f} to {hours[1]:.0f}",
                f"{row.saved:.1%}",
                f"{row.moves:.0f}",
                f"{moves[0]:.0f} to {moves[1]:.0f}",
                f"{row.violations:.3%}",
                f"{over[0]:.3%} to {over[1]:.3%}",
                f"{row.kilowatt_hours:.0f}",
            ]
        )
    print_figures(lines, names=2)
    for name, found in notes.items():
        click.echo(f"{name}: {', '.join(found)}")
    click.echo("saved: node-hours below those of DMNS on requests; overloads: host-slots above capacity, as measured")
