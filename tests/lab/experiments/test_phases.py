"""The phases experiment: what it says, and its exit code."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure

from cotide_core.errors import InputError
from cotide_lab.commands.experiments.phases import command
from cotide_lab.experiments.phases import experiment as phases_experiment
from cotide_lab.experiments.phases.experiment import REFUSE_ALL, Report, misses_of, row_of, run_experiment
from cotide_lab.experiments.phases.knobs import KNOBS, RuleKnob, chosen
from cotide_lab.experiments.phases.plot import draw_panels
from cotide_lab.phases.mixes import mix
from cotide_lab.phases.rules import RULES, SAME_ORDER


@pytest.fixture(autouse=True)
def small_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Knobs are chosen on one job of each benchmark: a second in place of minutes."""
    monkeypatch.setattr(phases_experiment, "TUNING_MULTIPLES", (1,))


@pytest.fixture(scope="module")
def report() -> Report:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(phases_experiment, "TUNING_MULTIPLES", (1,))
        return run_experiment([1], multiples=(1,))


def test_each_rule_chooses_from_as_many_settings_as_any_other() -> None:
    assert {rule: len(set(KNOBS[rule])) for rule in RULES} == dict.fromkeys(RULES, 16)


def test_the_chosen_setting_of_task_level_is_the_best_of_its_sizes_on_the_tuning_workload() -> None:
    small = mix("puma", 1, 101)
    knob = chosen([small], ["task"], lambda _: None)["task"]
    by_size = {one.size: one.play(small, "task").job_seconds for one in KNOBS["task"]}
    scores = {
        size: times.mean() * np.quantile(times, 0.95) * np.quantile(times, 0.99) for size, times in by_size.items()
    }
    assert knob == RuleKnob(size=min(scores, key=lambda size: scores[size]))


def test_a_seed_on_which_settings_are_chosen_is_not_reported() -> None:
    with pytest.raises(InputError, match="settings are chosen on seed 101"):
        run_experiment([100, 101], multiples=(1,))


def test_phases_are_judged_against_whole_tasks_in_the_same_order(report: Report) -> None:
    for setting in report.settings:
        for rule, rival in SAME_ORDER.items():
            own, other = row_of(setting, rule), row_of(setting, rival)
            assert own.over_same_order is not None
            assert own.over_same_order[0].mean == pytest.approx(own.job_time.mean / other.job_time.mean)
    puma = row_of(report.settings[0], "phases")
    assert report.puma_same_order.mean == puma.over_rival[0].mean != puma.over_task.mean


@pytest.mark.parametrize("contender", ["task-utility", REFUSE_ALL])
def test_a_contender_that_changes_nothing_or_starts_nothing_misses_bars(report: Report, contender: str) -> None:
    missed = misses_of(report.settings, contender)
    assert len(missed) == report.inactive[contender]
    assert missed[0].startswith("job time on the PUMA-like mixes is")


def test_each_mix_runs_under_each_rule_true_and_misstated(report: Report) -> None:
    assert [(one.family, one.misstated) for one in report.settings] == [
        ("puma", 0.0), ("puma", 0.5), ("gridmix", 0.0), ("gridmix", 0.5),
    ]  # fmt: skip
    for setting in report.settings:
        assert [row.rule for row in setting.rows] == [*RULES, REFUSE_ALL]
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


def test_some_rules_alone_have_the_figures_that_they_have_among_all(report: Report) -> None:
    whole, some = report, run_experiment([1], multiples=(1,), rules=["drf"])
    for all_rows, rows in (
        (setting.rows, other.rows) for setting, other in zip(whole.settings, some.settings, strict=True)
    ):
        assert rows == tuple(
            row for row in all_rows if row.rule in ("phases", "drf", "task", "task-utility", REFUSE_ALL)
        )
    figure = Figure()
    draw_panels(some, figure)
    assert [line.get_label() for line in figure.axes[3].lines] == ["phases", "drf", "task", "task-utility"]


def test_a_rule_that_there_is_not_is_refused_with_those_there_are() -> None:
    run = CliRunner().invoke(command, ["--rule", "yarn"], standalone_mode=False)
    assert "there is no 'yarn'; there are phases, printed, drf" in str(run.exception)


@pytest.mark.parametrize("text", ["", "2,x", "0", "101"])
def test_multiples_that_are_none_are_refused(text: str) -> None:
    run = CliRunner().invoke(command, ["--multiples", text], standalone_mode=False)
    assert "--multiples" in str(run.exception.field if hasattr(run.exception, "field") else run.exception)
