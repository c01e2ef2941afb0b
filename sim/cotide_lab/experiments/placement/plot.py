"""The plot of the placement experiment: servers by data centre, compared with Zhang and Boutaba 2014, Figs 1 and 2.

Called by `cotide experiment placement`. The paper's figures show servers that follow demand under predictive control
(Fig. 1) and whole moves with every change of price under the greedy placement (Fig. 2). Invariant: shows measurements,
computes nothing; the same numbers write the same file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from cotide_lab.experiments.figure_file import figure_file
from cotide_lab.experiments.placement.contenders import GREEDY, OWN
from cotide_lab.experiments.placement.experiment import PlacementReport

TITLES: Final = {OWN: "Fig. 1: predictive control", GREEDY: "Fig. 2: greedy"}


def draw(report: PlacementReport, path: Path) -> None:
    """Write a row for each week: servers under ours, under greedy, and requests with prices.

    Raises
    ------
    InputError
        When the name ends otherwise or the file can't be written.
    """
    with figure_file(path, (16, 3.5 * len(report.weeks))) as figure:
        panels = figure.subplots(len(report.weeks), 3, squeeze=False)
        for row, week in zip(panels, report.weeks, strict=True):
            hours = np.arange(len(week.demand)) / 4.0
            for axes, policy in zip(row, (OWN, GREEDY), strict=False):
                axes.stackplot(hours, np.array(week.shown[policy]).T, labels=week.centres)
                axes.set(title=f"{TITLES[policy]}, {week.week}, x{week.reconfiguration:g}", ylabel="servers")
                axes.legend(fontsize="x-small")
            row[2].plot(hours, week.demand, color="black", linewidth=0.8)
            row[2].set(title="requests a second, and prices of a server's hour", xlabel="hours")
            prices = row[2].twinx()
            for index, name in enumerate(week.centres):
                prices.plot(hours, np.array(week.prices)[:, index], linewidth=0.8, label=name)
            prices.legend(fontsize="x-small")
