"""The plot of experiment host-load: for each set two days of one host, and slack against violations.

Called by `experiment_command`. Invariant: shows what `host_load.forecasts` measured, computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cotide_lab.experiments.figure_file import figure_file
from cotide_lab.experiments.host_load.forecasts import OURS, SetReport


def draw(reports: Sequence[SetReport], path: Path) -> None:
    """Write the plot as PNG or SVG, by the file's name.

    Raises
    ------
    InputError
        When the name ends otherwise or the file can't be written.
    """
    with figure_file(path, (13, 3 * len(reports))) as figure:
        axes = figure.subplots(len(reports), 2, squeeze=False, width_ratios=(2, 1))
        for (left, right), report in zip(axes, reports, strict=True):
            example = report.example
            slots = np.arange(len(example.load))
            left.fill_between(slots, example.p50, example.p99, alpha=0.3, label="p50 to p99", linewidth=0)
            left.plot(slots, example.load, linewidth=0.8, color="black", label="load")
            left.set(title=f"{report.name}: {example.host}", xlabel="slot", ylabel="share of capacity", ylim=(0, 1.02))
            left.legend(loc="upper left", fontsize="small")
            violations, slack = np.array(sorted(report.curve)).T
            right.plot(100 * violations, 100 * slack, marker=".", label=OURS)
            for score in report.quantiles:
                if score.method != OURS and score.coverage_p99 > 0.9:
                    right.plot(100 * (1 - score.coverage_p99), 100 * score.slack_p99, "x", label=score.method)
            right.set(xlabel="slots above the forecast, %", ylabel="slack offered, %", xscale="log")
            right.legend(fontsize="small")
