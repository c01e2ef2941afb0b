"""The plots of the consolidation experiments: Figs. 5 to 10 of Wen et al., and the rules on recorded loads.

Called by `cotide experiment consolidation` and `cotide experiment consolidation-traces`. The paper's figures are
pictures without numbers; the figures of its tables are drawn as crosses. Invariant: shows measurements, computes
nothing; the same numbers write the same file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cotide_lab.consolidation.switch_tree import SwitchTree
from cotide_lab.experiments.consolidation.hierarchy import HierarchyRow
from cotide_lab.experiments.consolidation.tables import Cell, CurvePoint
from cotide_lab.experiments.consolidation.traces import OPTIMUM, TraceRow
from cotide_lab.experiments.figure_file import figure_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INPUTS: Final = {"normal": "normal input", "uniform": "uniform input"}
BARS: Final = 0.8
"""Width of the bars of one group together, where groups stand 1 apart."""
SHOWN_NODES: Final = 32
SHOWN_PORTS: Final = 4
"""Tree of the weights drawn as Fig. 6; the paper's figure has no numbers (chosen: three levels, and legible)."""


def draw(cells: Sequence[Cell], curves: Sequence[CurvePoint], rows: Sequence[HierarchyRow], path: Path) -> None:
    """Write Figs. 5 to 10 as PNG or SVG, by the file's name.

    Raises
    ------
    InputError
        When the name ends otherwise or the file can't be written.
    """
    with figure_file(path, (20, 9)) as figure:
        draw_panels(cells, curves, rows, figure)


def draw_panels(
    cells: Sequence[Cell], curves: Sequence[CurvePoint], rows: Sequence[HierarchyRow], figure: Figure
) -> None:
    """Draw a panel for each figure, two where it has two kinds of input, on an empty figure."""
    upper, lower = figure.subplots(2, 4)
    _drained(upper[0], curves)
    _sizes(upper[1], curves)
    _weights(figure, upper[2])
    for axes, kind in zip((upper[3], lower[0]), INPUTS, strict=True):
        _transfers(axes, [cell for cell in cells if cell.kind == kind], INPUTS[kind])
    for axes, kind in zip(lower[1:3], INPUTS, strict=True):
        _levels(axes, [row for row in rows if row.kind == kind], INPUTS[kind])
    _stability(lower[3], rows)


def _drained(axes: Any, curves: Sequence[CurvePoint]) -> None:
    least = min(point.nodes_given for point in curves)
    shown = [point for point in curves if point.nodes_given == least]
    drained = [point.drained for point in shown]
    axes.plot(drained, [point.ronu for point in shown], marker=".", label="RoNU")
    axes.plot(drained, [point.rodt for point in shown], marker=".", label="RoDT")
    axes.plot(drained, [point.rodte for point in shown], ":", label="RoDTE")
    axes.plot(drained, [point.fewest for point in shown], color="gray", linewidth=0.8, label="fewest nodes / N")
    axes.set(title=f"Fig. 5: KMNS, {least} nodes", xlabel="K, nodes that are emptied")
    axes.legend(fontsize="x-small")


def _sizes(axes: Any, curves: Sequence[CurvePoint]) -> None:
    for number, size in enumerate(sorted({point.nodes_given for point in curves})):
        shown = [point for point in curves if point.nodes_given == size]
        share = [point.drained / size for point in shown]
        axes.plot(share, [point.ronu for point in shown], color=f"C{number}", label=f"RoNU, {size} nodes")
        axes.plot(share, [point.rodt for point in shown], ":", color=f"C{number}", label=f"RoDT, {size} nodes")
    axes.set(title="Fig. 7: KMNS by number of nodes", xlabel="K / N")
    axes.legend(fontsize="x-small")


def _weights(figure: Figure, axes: Any) -> None:
    tree = SwitchTree.of_ports(SHOWN_NODES, SHOWN_PORTS)
    at = np.arange(SHOWN_NODES)
    image = axes.imshow(tree.distance(*np.meshgrid(at, at)), origin="lower")
    figure.colorbar(image, ax=axes, label="level of the lowest switch over both")
    axes.set(title=f"Fig. 6: weights, {SHOWN_NODES} nodes, {SHOWN_PORTS} ports", xlabel="to node", ylabel="from node")


def _transfers(axes: Any, cells: Sequence[Cell], title: str) -> None:
    sizes = sorted({cell.nodes_given for cell in cells})
    methods = list(dict.fromkeys(cell.method for cell in cells))
    for number, method in enumerate(methods):
        shown = {cell.nodes_given: cell for cell in cells if cell.method == method}
        at = np.arange(len(sizes)) + _beside(number, len(methods))
        heights = [shown[size].transfer / size for size in sizes]
        axes.bar(at, heights, 0.9 * BARS / len(methods), label=method)
        printed = [shown[size].printed_transfer for size in sizes]
        if None not in printed:
            crosses = np.array(printed, np.float64) / np.array(sizes)
            axes.plot(at, crosses, "kx", markersize=4, label="printed" if number == 0 else None)
    axes.set(title=f"Fig. 8, Tables I and II: {title}", xlabel="nodes", ylabel="transfer / N")
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.legend(fontsize="x-small")


def _levels(axes: Any, rows: Sequence[HierarchyRow], title: str) -> None:
    ports = sorted({row.ports for row in rows})
    methods = list(dict.fromkeys(row.method for row in rows))
    for number, method in enumerate(methods):
        shown = [row for port in ports for row in rows if (row.ports, row.method) == (port, method)]
        at, width = np.arange(len(ports)) + _beside(number, len(methods)), 0.9 * BARS / len(methods)
        first = np.array([row.first_level for row in shown])
        axes.bar(at, first, width, color=f"C{number}", label=method)
        above = "levels above the first" if number == 0 else None
        axes.bar(at, [row.upper_levels for row in shown], width, first, color="black", label=above)
    axes.set(title=f"Fig. 9: HSA, {title}", xlabel="ports of a switch", ylabel="transfer, share of T")
    axes.set_xticks(range(len(ports)), [str(port) for port in ports])
    axes.legend(fontsize="x-small")


def _stability(axes: Any, rows: Sequence[HierarchyRow]) -> None:
    ports = sorted({row.ports for row in rows})
    for style, kind in zip(("-", ":"), INPUTS, strict=True):
        for number, method in enumerate(dict.fromkeys(row.method for row in rows)):
            found = {row.ports: row.roldt for row in rows if (row.kind, row.method) == (kind, method)}
            axes.plot(ports, [found[port] for port in ports], style, color=f"C{number}", marker=".",
                      label=f"{method}, {INPUTS[kind]}")  # fmt: skip
    axes.set(title="Fig. 10: RoLDT, less is more stable", xlabel="ports of a switch", xscale="log")
    axes.set_xticks(ports, [str(port) for port in ports])
    axes.minorticks_off()
    axes.legend(fontsize="x-small")


def draw_traces(rows: Sequence[TraceRow], path: Path) -> None:
    """Write a row for each set: overloads against node-hours, and the moves of each rule, at the first goal.

    Raises
    ------
    InputError
        When the name ends otherwise or the file can't be written.
    """
    sets = list(dict.fromkeys(row.load for row in rows))
    with figure_file(path, (13, 4 * len(sets))) as figure:
        for panels, name in zip(figure.subplots(len(sets), 2, squeeze=False), sets, strict=True):
            first = next(row.goal for row in rows if row.load == name)
            shown = [row for row in rows if row.load == name and (row.goal == first or row.rule == OPTIMUM)]
            for row in shown:
                panels[0].plot(row.node_hours.mean, 100 * row.violations.mean, "o", label=row.rule)
            panels[0].set(title=name, xlabel="node-hours", ylabel="host-slots above capacity, %")
            panels[0].set_yscale("symlog", linthresh=0.01)
            panels[0].set_ylim(bottom=-0.001)
            panels[0].legend(fontsize="x-small")
            panels[1].barh([row.rule for row in shown], [row.moves.mean for row in shown])
            panels[1].set(title="machines moved", xscale="symlog")
            panels[1].invert_yaxis()


def _beside(number: int, of: int) -> float:
    """Return where the bar of one of several stands, from the middle of its group."""
    return BARS * (number + 0.5 - of / 2) / of
