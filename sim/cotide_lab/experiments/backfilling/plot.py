"""The plots of experiments reliable-share and forecast-accuracy.

Called by `experiment_command`. Invariant: shows measurements, computes nothing; the same numbers write the same file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cotide_lab.experiments.backfilling import forecast_accuracy as forecast_accuracy_experiment
from cotide_lab.experiments.backfilling import reliable_share as reliable_share_experiment
from cotide_lab.experiments.figure_file import figure_file

PANELS: Final = (
    ("wait_seconds", "Fig. 4.10: mean wait, s"),
    ("bounded_slowdown", "Fig. 4.11: mean bounded slowdown"),
    ("utilisation", "Fig. 4.12: utilisation"),
)
SHOWN: Final = (
    ("easy", "request"),
    ("easy-sjbf", "learned"),
    ("easy-svbf", "learned"),
    ("sjf", "learned"),
    ("svf", "learned"),
    ("hybrid", "learned"),
    ("easy-sjbf", "clairvoyant"),
)
"""Bars of reliable-share: policy and source of run times."""


def draw_platform(report: reliable_share_experiment.Report, path: Path) -> None:
    """Write three panels of bars, a group for each log; wait and slowdown on a logarithmic axis.

    Raises
    ------
    InputError
        When the name ends otherwise or the file can't be written.
    """

    with figure_file(path, (16, 5)) as figure:
        for axes, (measure, title) in zip(figure.subplots(1, 3), PANELS, strict=True):
            for index, (policy, source) in enumerate(SHOWN):
                rows = [
                    next(row for row in log.rows if (row.policy, row.source) == (policy, source)) for log in report.logs
                ]
                across = [at + (index - len(SHOWN) / 2) / (len(SHOWN) + 1) for at in range(len(rows))]
                heights = [getattr(row, measure) for row in rows]
                axes.bar(across, heights, 1 / (len(SHOWN) + 1), label=f"{policy}, {source}")
            axes.set_xticks(range(len(report.logs)), [log.trace.split("-")[0] for log in report.logs])
            axes.set(title=title)
            if measure != "utilisation":
                axes.set_yscale("log")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(SHOWN), fontsize="small")


def draw_sensitivity(report: forecast_accuracy_experiment.Report, path: Path) -> None:
    """Write a panel for each log: mean wait by accuracy, a line for each policy, logarithmic.

    Raises
    ------
    InputError
        When the name ends otherwise or the file can't be written.
    """

    with figure_file(path, (4 * len(report.logs) + 2, 4.5)) as figure:
        panels = figure.subplots(1, len(report.logs), squeeze=False)[0]
        for axes, log in zip(panels, report.logs, strict=True):
            for policy, name in forecast_accuracy_experiment.CURVES.items():
                points = [point for point in log.points if point.policy == policy]
                across = [point.accuracy for point in points]
                axes.plot(across, [point.wait_seconds for point in points], marker=".", label=name)
            axes.set(title=f"Fig. 4.3: {log.trace.split('-')[0]}", xlabel="accuracy, %", yscale="log")
        panels[0].set_ylabel("mean wait, s")
        panels[0].legend(fontsize="x-small")
