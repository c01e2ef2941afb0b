"""The phases experiment: what it says, and its exit code."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure

from cotide_cli.experiments.phases import command
from cotide_sim.experiments.phases.experiment import interval, row_of, run_experiment
from cotide_sim.experiments.phases.plot import draw_panels
from cotide_sim.phases.rules import RULES


def test_an_interval_of_one_seed_is_its_value() -> None:
    assert interval([2.0]) == (one := interval([2.0, 2.0])).__class__(2.0, 2.0, 2.0) == one


def test_an_interval_is_students() -> None:
    # mean 2, standard error 1/sqrt(3) x 1, t(0.975, 2) = 4.303
    assert interval([1.0, 2.0, 3.0]).high == pytest.approx(2 + 4.303 / 3**0.5, abs=1e-3)


def test_each_mix_runs_under_each_rule_true_and_misstated() -> None:
    report = run_experiment([1], multiples=(1,))
    assert [(one.family, one.misstated) for one in report.settings] == [
        ("puma", 0.0), ("puma", 0.5), ("gridmix", 0.0), ("gridmix", 0.5),
    ]  # fmt: skip
    for setting in report.settings:
        assert [row.rule for row in setting.rows] == list(RULES)
        assert row_of(setting, "task").over_task.mean == 1.0
        assert setting.bound.mean <= min(row.job_time.mean for row in setting.rows)


def test_the_command_prints_json_draws_and_says_what_was_missed(tmp_path: Path) -> None:
    plot = tmp_path / "phases.svg"
    run = CliRunner().invoke(
        command, ["--seeds", "1", "--multiples", "1", "-o", "json", "--plot", str(plot)], standalone_mode=False
    )
    document = json.loads(run.stdout)
    assert run.return_value == (3 if document["missed"] else 0)
    assert document["seeds"] == [0]
    assert plot.read_text().startswith("<?xml")


def test_the_bars_of_one_multiple_hide_none_of_the_next() -> None:
    figure = Figure()
    draw_panels(run_experiment([1], multiples=(1, 2)), figure)
    for axes in figure.axes[:2]:
        bars = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches)
        assert len(bars) == 2 * len(RULES)
        assert all(before[1] < after[0] for before, after in pairwise(bars))
        # Each stands nearer to its own multiple, at 0 or 1, than to the other.
        assert [round(sum(bar) / 2) for bar in bars] == [0] * len(RULES) + [1] * len(RULES)


def test_some_rules_alone_have_the_figures_that_they_have_among_all() -> None:
    whole, some = run_experiment([1], multiples=(1,)), run_experiment([1], multiples=(1,), rules=["drf"])
    for all_rows, rows in ((one.rows, other.rows) for one, other in zip(whole.settings, some.settings, strict=True)):
        assert rows == tuple(row for row in all_rows if row.rule in ("phases", "drf", "task"))
    figure = Figure()
    draw_panels(some, figure)
    assert [one.get_label() for one in figure.axes[3].lines] == ["phases", "drf", "task"]


def test_a_rule_that_there_is_not_is_refused_with_those_there_are() -> None:
    run = CliRunner().invoke(command, ["--rule", "yarn"], standalone_mode=False)
    assert "there is no 'yarn'; there are phases, printed, drf" in str(run.exception)


@pytest.mark.parametrize("text", ["", "2,x", "0", "101"])
def test_multiples_that_are_none_are_refused(text: str) -> None:
    run = CliRunner().invoke(command, ["--multiples", text], standalone_mode=False)
    assert "--multiples" in str(run.exception.field if hasattr(run.exception, "field") else run.exception)
