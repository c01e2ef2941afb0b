"""The lab runs each cell once, keeps what is finished, takes a user's file, and says who wins."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from cotide_cli.main import cotide
from cotide_core.errors import InputError
from cotide_lab.predictor_lab.cell_run import run_cell
from cotide_lab.predictor_lab.journal import LabJournal
from cotide_lab.predictor_lab.plan import cells_of, source_of
from cotide_lab.predictor_lab.report import ranks_of, tables_of
from cotide_lab.predictor_lab.track import run_lab
from cotide_lab.sweeps.pool import Pool

CHEAP = ["user-estimate", "last-two", "fmkf"]
OWN = '''
class Predictor:
    """Says what the user's last job took."""

    def __init__(self):
        self.last = {}

    def submitted(self, job):
        return self.last.get(job.user, 3600.0)

    def finished(self, job, run_seconds):
        self.last[job.user] = run_seconds
'''


def tasks(predictors: list[str] = CHEAP, seeds: tuple[int, ...] = (0, 1)):
    return cells_of("run-time", [source_of(None, limit=300)], predictors, seeds)


def figures(path: Path) -> dict[str, dict[str, float]]:
    with LabJournal(path) as journal:
        return {key: outcome.figures for key, outcome in journal.outcomes.items()}


def test_a_finished_cell_is_never_run_again_and_workers_change_no_figure(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    first = run_lab(tasks(seeds=(0,)), one, Pool(1))
    second = run_lab(tasks(), one, Pool(1))
    assert [(report.kept, report.ran, report.failures) for report in (first, second)] == [(0, 3, ()), (3, 3, ())]
    run_lab(tasks()[::-1], two, Pool(2))
    assert figures(one) == figures(two)


def test_a_predictor_of_the_users_own_joins(tmp_path: Path) -> None:
    own = tmp_path / "last_run.py"
    own.write_text(OWN)
    run_lab(tasks([str(own), "last-two"], (0,)), tmp_path / "journal", Pool(1))
    with LabJournal(tmp_path / "journal") as journal:
        (table,) = tables_of(journal.outcomes.values())
    assert {row.predictor for row in table.rows} == {"last_run", "last-two"}


def test_a_changed_file_under_a_known_name_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "last_run.py"
    own.write_text(OWN)
    run_lab(tasks([str(own)], (0,)), tmp_path / "journal", Pool(1))
    own.write_text(OWN + "\n")
    with pytest.raises(InputError, match="its file was changed"):
        run_lab(tasks([str(own)], (0,)), tmp_path / "journal", Pool(1))


def test_what_goes_wrong_in_a_users_file_is_that_cells_reason(tmp_path: Path) -> None:
    own = tmp_path / "broken.py"
    own.write_text("class Predictor:\n    def submitted(self, job):\n        return 1 / 0\n")
    report = run_lab(tasks([str(own), "last-two"], (0,)), tmp_path / "journal", Pool(1))
    (failure,) = report.failures
    assert failure.cell.predictor == "broken"
    assert "broken.py" in (failure.error or "")
    assert "ZeroDivisionError" in (failure.error or "")


def test_an_unknown_predictor_is_refused_with_those_there_are() -> None:
    with pytest.raises(InputError, match="there is no 'lst-two' for run-time; there are user-estimate"):
        tasks(["lst-two"])


def test_the_report_orders_by_the_first_figure_and_ranks(tmp_path: Path) -> None:
    run_lab(tasks(), tmp_path / "journal", Pool(1))
    with LabJournal(tmp_path / "journal") as journal:
        tables = tables_of(journal.outcomes.values())
    (table,) = tables
    accuracies = [row.figures["accuracy"] for row in table.rows]
    assert accuracies == sorted(accuracies, reverse=True)
    assert table.rows[0].seeds == 2
    assert table.sentence.startswith(f"generated: {table.rows[0].predictor} is best by accuracy")
    assert sorted(ranks_of(tables)[0].ranks.values()) == [1.0, 2.0, 3.0]


def test_the_command_runs_reports_and_writes_a_page(tmp_path: Path) -> None:
    journal, page = str(tmp_path / "journal"), tmp_path / "page.html"
    asked = ["lab", "run", "--task", "host-peak", "--hosts", "4", "--predictor", "last-value,host-load"]
    ran = CliRunner().invoke(cotide, [*asked, "--journal", journal, "--workers", "1"], standalone_mode=False)
    assert (ran.exception, ran.return_value) == (None, 0)
    result = CliRunner().invoke(
        cotide, ["lab", "report", "--journal", journal, "--page", str(page), "-o", "json"], standalone_mode=False
    )
    document = json.loads(result.stdout)
    assert {row["predictor"] for row in document["tables"][0]["rows"]} == {"last-value", "host-load"}
    assert {rank["figure"] for rank in document["ranks"]} == {"pinball_99", "slack_at_violations"}
    assert "<svg" in page.read_text()


def test_the_command_lists_what_there_is() -> None:
    result = CliRunner().invoke(cotide, ["lab", "list", "-o", "json"], standalone_mode=False)
    assert {"run-time", "usage-path", "host-peak", "service-rate"} == {row["task"] for row in json.loads(result.stdout)}


def test_who_leaves_a_hard_case_out_has_no_figures(tmp_path: Path) -> None:
    own = tmp_path / "silent.py"
    own.write_text(
        "class Predictor:\n    def forecast(self, history):\n        return [[float('nan')] * 12 for _ in history]\n"
    )
    chosen = cells_of("usage-path", [source_of(None, hosts=2)], [str(own)], [0])
    (failure,) = run_lab(chosen, tmp_path / "journal", Pool(1)).failures
    assert "not a number at slot 1008" in (failure.error or "")


def test_networks_train_for_as_many_steps_as_told_and_the_settings_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from cotide_lab.predictors.usage_path import training
    from cotide_lab.predictors.usage_path.path_network import PathNetwork

    result = []

    def untrained(history: np.ndarray, variant: str, *, seed: int, steps: int) -> PathNetwork:
        result.append(steps)
        generator = np.random.default_rng(seed)
        return PathNetwork(variant, training.initial_parameters(variant, generator))  # type: ignore[arg-type]  # of the literal

    monkeypatch.setattr(training, "trained", untrained)
    for steps in (7, None):
        (task,) = cells_of("usage-path", [source_of(None, hosts=3, steps=steps)], ["ann"], [0])
        assert ("training steps: 7" in task[0].settings) == (steps == 7)
        assert run_cell(*task).error is None
    assert result == [7, training.STEPS]


def test_training_steps_are_for_paths_only(tmp_path: Path) -> None:
    found = CliRunner().invoke(
        cotide, ["lab", "run", "--task", "run-time", "--training-steps", "9", "--journal", str(tmp_path / "j")]
    )
    assert isinstance(found.exception, InputError)
    assert "--training-steps" in str(found.exception)
