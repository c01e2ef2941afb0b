"""`cotide experiment run-times` on a small log."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from cotide_core.errors import InputError
from cotide_lab.commands.experiment_command import command
from cotide_lab.experiments.backfilling import run_times
from cotide_lab.experiments.backfilling.run_time_parts import LogUnderTest, PartFigures
from cotide_predictors.run_time.scores import Score


@pytest.fixture
def small_log(tmp_path: Path) -> Path:
    """400 jobs in four days; each of three users has a habit. One row has no run time."""
    generator = np.random.default_rng(4)
    submit = np.sort(generator.integers(0, 4 * 86_400, 400))
    user = generator.integers(1, 4, 400)
    run = np.exp(generator.normal(2 * user, 0.3)).round().astype(int)
    run[17] = -1
    rows = [
        f"{number} {at} 5 {length} 4 -1 -1 4 2000 -1 1 {who} 1 -1 1 -1 -1 -1"
        for number, (at, length, who) in enumerate(zip(submit, run, user, strict=True), start=1)
    ]
    path = tmp_path / "small.swf"
    path.write_text("; MaxProcs: 16\n" + "\n".join(rows) + "\n")
    return path


def test_it_scores_every_forecast_on_the_last_four_fifths(small_log: Path) -> None:
    found = CliRunner().invoke(command, ["run-times", str(small_log), "-o", "json"], catch_exceptions=False)
    (report,) = json.loads(found.stdout)
    assert (report["jobs"], report["counted"]) == (399, 320)
    scores = report["forecasts"]
    assert set(scores) == {
        *("user-estimate", "last-two-runs", "maximum-of-five", "online-regression"),
        *("trees-most-accurate", "trees-median", "trees-mean", "replay-mixture", "replay-trees"),
    }
    assert scores["last-two-runs"]["accuracy"] > scores["user-estimate"]["accuracy"]
    assert [one["level"] for one in report["coverage"]] == [0.8, 0.95]
    replays = {"replay-mixture", "replay-mixture, rated by trees", "replay-trees"}
    assert set(report["reliability"]) == {"trees-most-accurate", "online-regression"} | replays
    assert set(report["rules"]["correlations"]) == {"gradient boosting", "decision tree", "cnk"}
    assert max(report["rules"]["importances"].values()) == 100.0


def test_it_prints_tables(small_log: Path) -> None:
    found = CliRunner().invoke(command, ["run-times", str(small_log)], catch_exceptions=False)
    for text in ("320 of 399 jobs counted", "maximum-of-five", "p95", "estimated accuracy", "Table 4.2", "Fig. 4.9"):
        assert text in found.stdout


def test_a_log_without_any_run_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "empty.swf"
    path.write_text("1 0 5 -1 4 -1 -1 4 2000 -1 1 1 1 -1 1 -1 -1 -1\n")
    with pytest.raises(InputError, match=r"empty\.swf: no row has a run time"):
        CliRunner().invoke(command, ["run-times", str(path)], catch_exceptions=False)


class Parts:
    """Two parts that need no time: the first finds that all forecasts are right, the second stops where it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run: list[str] = []
        self.stops = False
        parts = {name: partial(self._part, name) for name in ("heuristics", "trees")}
        monkeypatch.setattr(run_times, "PARTS", parts)

    def _part(self, name: str, of: LogUnderTest, progress: object) -> PartFigures:
        if name == "trees" and self.stops:
            raise KeyboardInterrupt
        self.run.append(name)
        return PartFigures({name: Score(320, 1.0, 0.0, 0.0, float(len(self.run)))}, importances={"last": 100.0})


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Parts:
    return Parts(monkeypatch)


def with_journal(log: Path, *arguments: str) -> Result:
    journal = log.with_name("journal")
    return CliRunner().invoke(
        command, ["run-times", str(log), "-o", "json", "--journal", str(journal), *arguments],
        catch_exceptions=False, standalone_mode=False,
    )  # fmt: skip


def test_a_run_that_was_stopped_goes_on_with_the_parts_that_its_journal_lacks(small_log: Path, parts: Parts) -> None:
    parts.stops = True
    with pytest.raises(click.Abort):
        with_journal(small_log)
    parts.stops = False
    found = with_journal(small_log)
    assert parts.run == ["heuristics", "trees"]
    assert found.stderr.split("\n")[0] == "small.swf: trees, 0 s"
    (report,) = json.loads(found.stdout)
    assert {name: one["under_seconds"] for name, one in report["forecasts"].items()} == {"heuristics": 1, "trees": 2}
    assert with_journal(small_log).stdout == found.stdout
    assert parts.run == ["heuristics", "trees"]


def test_a_journal_of_another_rebuild_or_another_log_of_that_name_is_refused(small_log: Path, parts: Parts) -> None:
    with_journal(small_log)
    with pytest.raises(InputError, match=r"small\.swf with a rebuild every 1 day, now 10; choose another journal"):
        with_journal(small_log, "--rebuild-days", "10")
    small_log.write_text(small_log.read_text() + "401 400000 5 60 4 -1 -1 4 2000 -1 1 1 1 -1 1 -1 -1 -1\n")
    with pytest.raises(InputError, match=r"another small\.swf than the journal's \(sha256 .*, now sha256 "):
        with_journal(small_log)
    assert parts.run == ["heuristics", "trees"]
