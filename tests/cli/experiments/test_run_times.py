"""`cotide experiment run-times` on a small log."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from cotide_cli.commands.experiment_command import command
from cotide_core.errors import InputError


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
