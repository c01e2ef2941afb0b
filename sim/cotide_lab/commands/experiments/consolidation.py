"""`cotide experiment consolidation`: Tables I and II and Figs. 5 to 10 of Wen et al., the paper's figures next to
Cotide's.

Called by `experiment_command`. Hands over to `cotide_lab.experiments.consolidation` and prints the results. Invariant:
same options, same numbers; exit code 3 when a stated bar is missed.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotide_cli.printing import as_text, output_option, print_figures, progress_bar
from cotide_lab.commands.experiments.options import plot_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cotide_lab.experiments.consolidation.hierarchy import HierarchyRow
    from cotide_lab.experiments.consolidation.tables import Cell, CurvePoint

EACH = 4
"""Of the points of a curve, one is printed (chosen: five lines a curve)."""


@click.command("consolidation")
@click.option("--seed", type=click.IntRange(0, 10**6), default=0, show_default=True, help="The first seed.")
@click.option("--seeds", type=click.IntRange(1, 100), default=5, show_default=True, help="Seeds, each after the other.")
@click.option(
    "--instances", type=click.IntRange(2, 1000), default=100, show_default=True, help="Instances of a seed, as printed."
)
@click.option("--quick", is_flag=True, help="Few instances and 1,024 nodes: seconds instead of minutes.")
@output_option
@plot_option
def command(seed: int, seeds: int, instances: int, quick: bool, output: str, plot: Path | None) -> int:
    """Consolidate generated nodes with KMNS, DMNS, DMAS, BFD, FFD, HSA and our plan."""
    from cotide_lab.experiments.consolidation import hierarchy, tables
    from cotide_lab.experiments.consolidation.highs_once import Highs

    drawn = range(seed, seed + seeds)
    with progress_bar() as progress:
        cells = tables.run_tables(drawn, Highs(), instances=10 if quick else instances, progress=progress)
        curves = tables.run_curves(seed, instances=5 if quick else 20)
        rows = hierarchy.run_hierarchy(drawn, nodes=1024 if quick else hierarchy.NODES, progress=progress)
    missed = [
        *tables.missed_in_tables(cells), *tables.missed_in_curves(curves), *hierarchy.missed_in_hierarchy(rows),
    ]  # fmt: skip
    if plot is not None:
        from cotide_lab.experiments.consolidation.plot import draw

        draw(cells, curves, rows, plot)
    if output == "table":
        _print_cells(cells)
        _print_curves(curves)
        _print_rows(rows)
        click.echo("every stated bar was reached" if not missed else "\n".join(["missed:", *missed]))
    else:
        data = {
            "seed": seed,
            "seeds": seeds,
            "tables": [asdict(cell) for cell in cells],
            "curves": [asdict(point) for point in curves],
            "hierarchy": [asdict(row) for row in rows],
            "missed": missed,
        }
        click.echo(as_text(data, output))
    return 3 if missed else 0


def _print_cells(cells: Sequence[Cell]) -> None:
    click.echo("Tables I and II: means, and the range of the means of each seed")
    lines = [["input", "N", "method", "nodes", "printed", "transfer", "range", "printed", "above the least", "fewest"]]
    for cell in cells:
        low, high = cell.transfer_range
        lines.append(
            [
                cell.kind,
                str(cell.nodes_given),
                cell.method,
                f"{cell.nodes:.2f}",
                "" if cell.printed_nodes is None else f"{cell.printed_nodes:.2f}",
                f"{cell.transfer:.1f}",
                f"{low:.0f} to {high:.0f}",
                "" if cell.printed_transfer is None else f"{cell.printed_transfer:.1f}",
                f"{cell.above_transfer:.2%}",
                f"{cell.at_fewest:.0%}",
            ]
        )
    print_figures(lines, names=3)
    click.echo("above the least: transfer over the lower bound for as few nodes; fewest: instances with as few as any")


def _print_curves(curves: Sequence[CurvePoint]) -> None:
    click.echo(f"Figs. 5 and 7: KMNS by K, each {EACH}th of the points that are in the JSON")
    lines = [["N", "K", "RoNU", "RoDT", "RoDTE", "fewest / N"]]
    for size in sorted({point.nodes_given for point in curves}):
        for point in [point for point in curves if point.nodes_given == size][::EACH]:
            shares = (point.ronu, point.rodt, point.rodte, point.fewest)
            lines.append([str(size), str(point.drained), *(f"{share:.3f}" for share in shares)])
    print_figures(lines, names=2)


def _print_rows(rows: Sequence[HierarchyRow]) -> None:
    click.echo("Figs. 9 and 10: HSA, transfers as shares of all applications")
    lines = [["input", "ports", "method", "nodes", "bound", "level 1", "above", "RoLDT", "range", "watts saved"]]
    for row in rows:
        low, high = row.roldt_range
        lines.append(
            [
                row.kind,
                str(row.ports),
                row.method,
                f"{row.nodes:.1f}",
                f"{row.fewest:.1f}",
                f"{row.first_level:.4f}",
                f"{row.upper_levels:.4f}",
                f"{row.roldt:.4f}",
                f"{low:.4f} to {high:.4f}",
                f"{row.watts_saved:.1%}",
            ]
        )
    print_figures(lines, names=3)
