"""The plot of experiment offline: a panel for each figure of the paper.

Called by `experiment_command`. Invariant: shows what `offline.completion` measured, computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cotide_lab.experiments.figure_file import figure_file
from cotide_lab.experiments.offline.completion import Report, Row

PANELS: Final = (
    ("3.3", "SYNTH1: mean completion", "jobs"),
    ("3.4", "SYNTH2: mean completion", "jobs"),
    ("3.5", "sample of a log: mean completion", ""),
    ("3.6", "with guarantees: mean completion", "jobs"),
    ("3.7", "with guarantees: mean completion", "machines"),
    ("3.8", "run time, s", "jobs"),
)


def draw(report: Report, path: Path) -> None:
    """Write the plot as PNG or SVG, by the file's name.

    Raises
    ------
    InputError
        When the name ends otherwise or the file can't be written.
    """
    with figure_file(path, (16, 9)) as figure:
        for axes, (name, title, across) in zip(figure.subplots(2, 3).flat, PANELS, strict=True):
            rows = report.figures.get(name) or report.seconds.get(name)
            if not rows:
                axes.set_axis_off()
                continue
            (_bars if name == "3.5" else _lines)(axes, rows)
            axes.set(title=f"Fig. {name}: {title}", xlabel=across)
            if name == "3.8":
                axes.set_yscale("log")


def _lines(axes: Any, rows: Sequence[Row]) -> None:
    for name in dict.fromkeys(row.algorithm for row in rows):
        line = sorted((row.at, row.mean, row.deviation) for row in rows if row.algorithm == name)
        at, mean, deviation = zip(*line, strict=True)
        axes.errorbar(at, mean, yerr=deviation, label=name, marker=".", linewidth=0.9, capsize=2)
    axes.legend(fontsize="x-small", ncols=2)


def _bars(axes: Any, rows: Sequence[Row]) -> None:
    names = [row.algorithm for row in rows]
    axes.barh(names, [row.mean for row in rows], xerr=[row.deviation for row in rows])
    axes.invert_yaxis()
