"""`cotide experiment consolidation-traces`: consolidation over days of recorded loads, rules side by side.

Called by `experiment_command`. Hands over to `cotide_lab.experiments.consolidation.traces` and prints the results.
Invariant: same files, same options, same numbers; exit code 3 when a stated bar is missed.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotide_cli.inputs.checked_types import DataFolder
from cotide_cli.printing import as_text, output_option, print_figures, progress_bar
from cotide_lab.commands.experiments.options import plot_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cotide_lab.experiments.consolidation.traces import TraceRow

SETS = ("planetlab", "azure", "openb", "alibaba2017")


@click.command("consolidation-traces")
@click.option("--data", type=DataFolder(), required=True, help="Directory of the public traces.")
@click.option("--set", "sets", type=click.Choice(SETS), multiple=True, help="Only these sets; may be given again.")
@click.option("--seed", type=click.IntRange(0, 99), default=0, show_default=True, help="The first seed.")
@click.option(
    "--seeds",
    type=click.IntRange(1, 100),
    default=4,
    show_default=True,
    help="Days, each with the seed after.",
)
@output_option
@plot_option
def command(data: Path, sets: tuple[str, ...], seed: int, seeds: int, output: str, plot: Path | None) -> int:
    """Count hosts, moves and overloads of consolidation rules on recorded loads."""
    from cotide_lab.experiments.consolidation.recorded_loads import read_recorded
    from cotide_lab.experiments.consolidation.traces import missed_in_traces, run_traces
    from cotide_lab.experiments.like_for_like import TUNING_SEEDS

    rows: list[TraceRow] = []
    missed: list[str] = []
    notes: dict[str, list[str]] = {}
    with progress_bar() as progress:
        for name in sets or SETS:
            loads = [read_recorded(name, data, number) for number in range(seed, seed + seeds)]
            notes[name] = sorted({load.note for load in loads})
            found = run_traces([read_recorded(name, data, number) for number in TUNING_SEEDS], loads, progress)
            rows += found
            missed += missed_in_traces(found)
    if plot is not None:
        from cotide_lab.experiments.consolidation.plot import draw_traces

        draw_traces(rows, plot)
    if output == "table":
        _print(rows, notes)
        click.echo("every stated bar was reached" if not missed else "\n".join(["missed:", *missed]))
    else:
        data_out = {"seed": seed, "seeds": seeds, "notes": notes, "rows": [asdict(row) for row in rows]}
        click.echo(as_text({**data_out, "missed": missed}, output))
    return 3 if missed else 0


def _print(rows: Sequence[TraceRow], notes: dict[str, list[str]]) -> None:
    lines = [["set", "goal", "rule", "setting", "kept", "node-hours", "range", "saved", "ours / it", "95 %", "moves"]]
    lines[0] += ["overloads", "range", "kWh"]
    for row in rows:
        hours, over, ratio = row.node_hours, row.violations, row.own_hours_over_it
        lines.append(
            [
                row.load,
                "" if row.rule == "optimum" else f"{row.goal:.1%}",
                row.rule,
                row.setting,
                f"{'' if row.tuned else 'not tuned, '}{row.kept}",
                f"{hours.mean:.0f}",
                f"{hours.low:.0f} to {hours.high:.0f}",
                f"{row.saved:.1%}",
                f"{ratio.mean:.3f}",
                f"{ratio.low:.3f} to {ratio.high:.3f}",
                f"{row.moves.mean:.0f}",
                f"{over.mean:.3%}",
                f"{over.low:.3%} to {over.high:.3%}",
                f"{row.kilowatt_hours:.0f}",
            ]
        )
    print_figures(lines, names=4)
    for name, found in notes.items():
        click.echo(f"{name}: {', '.join(found)}")
    click.echo("saved: node-hours below those of DMNS on requests; overloads: host-slots above capacity, as measured")
    click.echo("goal: overloads that a setting keeps on the tuning seeds, of other days; kept: seeds that keep it")
