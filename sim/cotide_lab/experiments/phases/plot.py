"""The plot of the phases experiment: job times by multiple, compared with Zhang and Boutaba 2014, Figs 7 and 8.

Called by `cotide experiment phases`. The paper's figures have no legible numbers. Its sentence (up to 24 % less than
task level) is drawn as a line below whole tasks in the order of ours. Invariant: shows only measurements; the same
numbers write the same file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cotide_lab.experiments.figure_file import figure_file
from cotide_lab.experiments.phases.experiment import BAR, RIVAL, Report, Setting, row_of
from cotide_lab.phases.rules import RULES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES: Final = {"puma": "Fig. 7: PUMA-like mix", "gridmix": "Fig. 8: Gridmix-like mix"}
BARS: Final = 0.8
"""Width of the bars of one multiple together, where multiples stand 1 apart: room is left between them."""
RATIOS: Final = ("phases", "drf", "fifo")
"""Rules of the drawn ratios to whole tasks in the same order: holding only the need of a phase, in three orders."""


def draw(report: Report, path: Path) -> None:
    """Write the plot as PNG or SVG, by the file's name.

    Raises
    ------
    InputError
        When the name ends otherwise or the file can't be written.
    """
    with figure_file(path, (14, 8)) as figure:
        draw_panels(report, figure)


def draw_panels(report: Report, figure: Figure) -> None:
    """Draw job times of both families, their ratio to task level, and cpu in use, on an empty figure."""
    panels = figure.subplots(2, 2)
    for axes, family in zip(panels[0], TITLES, strict=True):
        _times(
            axes,
            [setting for setting in report.settings if setting.family == family and not setting.misstated],
            TITLES[family],
        )
    _ratios(panels[1][0], [setting for setting in report.settings if setting.family == "puma"])
    _use(panels[1][1], [setting for setting in report.settings if setting.family == "puma" and not setting.misstated])


def _times(axes: Any, settings: list[Setting], title: str) -> None:
    positions = np.arange(len(settings))
    rules = _rules_of(settings)
    for number, rule in enumerate(rules):
        rows = [row_of(setting, rule) for setting in settings]
        means = np.array([row.job_time.mean for row in rows])
        ends = np.array([[row.job_time.mean - row.job_time.low, row.job_time.high - row.job_time.mean] for row in rows])
        beside = BARS * (number + 0.5 - len(rules) / 2) / len(rules)
        axes.bar(positions + beside, means, 0.9 * BARS / len(rules), yerr=ends.T, label=rule, capsize=2)
    whole = np.array([row_of(setting, RIVAL).job_time.mean for setting in settings])
    axes.hlines(BAR * whole, positions - BARS / 2, positions + BARS / 2, "k", label=f"24 % below {RIVAL}")
    axes.set(title=title, ylabel="mean job time, s", xticks=positions)
    axes.set_xticklabels([f"{setting.multiple}x" for setting in settings])
    axes.legend(fontsize="x-small")


def _ratios(axes: Any, settings: list[Setting]) -> None:
    for wrong, style in ((0.0, "-"), (max((setting.misstated for setting in settings), default=0.0), ":")):
        for rule in [rule for rule in RATIOS if rule in _rules_of(settings)]:
            chosen = [setting for setting in settings if setting.misstated == wrong]
            axes.plot(
                [setting.multiple for setting in chosen],
                [same[0].mean for setting in chosen if (same := row_of(setting, rule).over_same_order) is not None],
                style,
                marker=".",
                label=f"{rule}, needs {wrong:.0%} wrong" if wrong else rule,
            )
    axes.axhline(1.0, color="gray", linewidth=0.5)
    axes.set(title="PUMA-like mix: job time over whole tasks in the same order", xlabel="jobs of each benchmark")
    axes.legend(fontsize="x-small")


def _use(axes: Any, settings: list[Setting]) -> None:
    for rule in _rules_of(settings):
        rows = [row_of(setting, rule) for setting in settings]
        axes.plot(
            [setting.multiple for setting in settings],
            [row.utilisation_cpu.mean for row in rows],
            marker=".",
            label=rule,
        )
    axes.set(title="PUMA-like mix: cpu in use until the last end", xlabel="jobs of each benchmark", ylim=(0, 1))
    axes.legend(fontsize="x-small")


def _rules_of(settings: list[Setting]) -> list[str]:
    """Return the rules that ran, in the order of `RULES`."""
    ran = {row.rule for setting in settings for row in setting.rows}
    return [rule for rule in RULES if rule in ran]
