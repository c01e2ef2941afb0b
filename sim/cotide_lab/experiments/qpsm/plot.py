"""The plot of experiment qpsm-waiting: total waiting by request rate, the paper's and ours.

Called by `experiment_command`. Invariant: shows what `qpsm.waiting` measured, computes nothing.
"""

from __future__ import annotations

from pathlib import Path

from cotide_lab.experiments.figure_file import figure_file
from cotide_lab.experiments.qpsm.waiting import POLICIES, Report


def draw(report: Report, path: Path) -> None:
    """Write the plot as PNG or SVG, by the file's name.

    Raises
    ------
    InputError
        When the name ends otherwise or the file can't be written.
    """
    with figure_file(path, (13, 5)) as figure:
        paper, ours, deployed = figure.subplots(1, 3)
        for strategy in POLICIES:
            rows = [row for row in report.rows if row.strategy == strategy]
            rates = [row.rate for row in rows]
            paper.plot(rates, [row.paper_seconds for row in rows], marker="o", label=strategy)
            waits, spread = [row.waiting_seconds for row in rows], [row.deviation for row in rows]
            ours.errorbar(rates, waits, yerr=spread, marker="o", capsize=3, label=strategy)
            deployed.plot(rates, [row.deployed for row in rows], marker="o", label=strategy)
        for axes, title in ((paper, "Table 4 of the paper"), (ours, "here")):
            axes.set(title=title, xscale="log", yscale="log", xlabel="requests/s", ylabel="total waiting, s")
            axes.legend(fontsize="small")
        deployed.set(title="jobs deployed here", xscale="log", xlabel="requests/s", ylim=(0, 68))
