"""`cotide lab` as a user runs it: a data set of the wrong kind."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from cotide_lab.commands.lab_command import command


def test_data_of_another_kind_is_told_once_and_not_for_each_predictor_and_seed(tmp_path: Path) -> None:
    (tmp_path / "loads.swf").write_text("0.5 0.25\n", encoding="utf-8")
    asked = ["run", "--task", "run-time", "--data", f"{tmp_path}/loads.swf", "--predictor", "user-estimate,last-two"]
    asked += ["--seeds", "0-2", "--workers", "1", "--journal", f"{tmp_path}/j"]
    result = CliRunner().invoke(command, asked, standalone_mode=False)
    assert result.return_value == 1
    causes = [line for line in result.stderr.splitlines() if line.startswith("failed: ")]
    assert len(causes) == 1
    assert causes[0].startswith("failed: loads.swf user-estimate seed 0 and 5 other cells: ")
    assert "6 failed" in result.stderr
