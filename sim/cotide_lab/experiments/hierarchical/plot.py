"""The plot of experiment hierarchical: overloads, kills and evictions, and delays of each run, with the paper's.

Called by `experiment_command`. Invariant: shows what `hierarchical.schedule` measured, computes nothing.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cotide_lab.experiments.figure_file import figure_file
from cotide_lab.experiments.hierarchical.schedule import Report


def draw(report: Report, path: Path) -> None:
    """Write the plot as PNG or SVG, by the file's name.

    Raises
    ------
    InputError
        When the name ends otherwise or the file can't be written.
    """
    rows = report.rows
    with figure_file(path, (13, 0.45 * len(rows) + 1.5)) as figure:
        counts, delays = figure.subplots(1, 2, sharey=True)
        bars = np.arange(len(rows))
        for offset, name in ((-0.25, "overloads"), (0.0, "kills"), (0.25, "evictions")):
            values = [getattr(row, name) or 0 for row in rows]
            counts.barh(bars + offset, values, height=0.22, label=name)
        counts.set(yticks=bars, yticklabels=[f"{row.name}, {row.slot_seconds:.0f} s ({row.source})" for row in rows])
        counts.invert_yaxis()
        counts.set(xlabel="in one day; none where the paper gives no figure")
        counts.legend(fontsize="small")
        delays.barh(bars, [row.mean_delay for row in rows], height=0.5, color="gray")
        delays.set(xlabel="mean scheduling delay, s")
