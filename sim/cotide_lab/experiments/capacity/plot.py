"""The plot of the capacity experiment: machines over time and delays, compared with Zhang and Boutaba 2014, Figs 3 to
6.

Called by `cotide experiment capacity`. The paper's figures have no numbers to compare with; the titles describe them.
Invariant: shows measurements, computes nothing; the same numbers write the same file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from cotide_lab.experiments.capacity.contenders import BASELINE, OWN
from cotide_lab.experiments.capacity.experiment import GoalReport, Report
from cotide_lab.experiments.capacity.run import CDF_POINTS
from cotide_lab.experiments.figure_file import figure_file

TITLES: Final = {BASELINE: "Fig. 3: machines, baseline", OWN: "Fig. 4: machines, CBP"}


def draw(report: Report, path: Path) -> None:
    """Write a row for each trace: machines under the baseline and under ours by type, and the delays of all.

    Of the first goal. Raises
    ------
    InputError
        When the name ends otherwise or the file can't be written.
    """
    with figure_file(path, (15, 4 * len(report.traces))) as figure:
        panels = figure.subplots(len(report.traces), 3, squeeze=False)
        for row, trace in zip(panels, report.traces, strict=True):
            first = trace.goals[0]
            _machines(row[0], first, BASELINE, trace.trace, trace.types)
            _machines(row[1], first, OWN, trace.trace, trace.types)
            _delays(row[2], first, trace.trace)


def _machines(axes: Any, report: GoalReport, policy: str, trace: str, types: tuple[str, ...]) -> None:
    table = np.array(report.shown[policy])
    axes.stackplot(np.arange(len(table)), table.T, labels=types)
    axes.set(title=f"{TITLES[policy]}, {trace}", xlabel="step of five minutes", ylabel="machines on")
    top = max(np.array(table).sum(axis=1).max() for table in report.shown.values())
    axes.set_ylim(0, 1.1 * top + 1)
    axes.legend(fontsize="x-small")


def _delays(axes: Any, report: GoalReport, trace: str) -> None:
    for row in report.rows:
        style = "-" if row.policy in (OWN, BASELINE) else ":"
        axes.plot(np.array(CDF_POINTS) + 1.0, row.delay_cdf, style, marker=".", label=row.policy)
    axes.set(title=f"Figs 5, 6: delays, {trace}", xlabel="1 + seconds to start", ylabel="share of tasks")
    axes.set_xscale("log")
    axes.legend(fontsize="x-small")
