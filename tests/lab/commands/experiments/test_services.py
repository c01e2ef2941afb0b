"""`cotide experiment services` from a user's chair: what it prints, its exit codes, and its refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cotide_core.errors import InputError
from cotide_lab.commands.experiment_command import command
from cotide_lab.experiments.services import guard_by_service
from cotide_lab.experiments.services.judgement import Report, Row, ServiceRow

ROW = Row(200, "ours", 0.9, float("nan"), 0.85, 0.01, 0.8, 2.5, 0.3, 0.95, 0.02)
BY_NAME = {"ours": 0.85}
SERVICE = ServiceRow(
    "shop/a", 200, 20.0, 10.0, 0.4, True, BY_NAME, BY_NAME, BY_NAME, BY_NAME, BY_NAME, "ours", 0.05, 0.01, 0.09
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replace the run by one that returns a made-up report; holds what it was asked."""
    seen: dict[str, Any] = {"missed": ()}

    def run(directory: Path | None, **more: Any) -> Report:
        seen.update(more, directory=directory)
        return Report(0.1, 2, (ROW,), (SERVICE,), seen["missed"])

    monkeypatch.setattr(guard_by_service, "run", run)
    return seen


def test_json_carries_rows_services_and_no_figure_that_is_none(asked: dict[str, Any]) -> None:
    result = CliRunner().invoke(
        command, ["services", "--seeds", "3", "--seed", "4", "-o", "json"], standalone_mode=False
    )
    found = json.loads(result.stdout)
    assert found["rows"][0]["f1"] == 0.85
    assert found["rows"][0]["recall"] is None
    assert found["services"][0]["ahead_low"] == 0.01
    assert list(asked["seeds"]) == [4, 5, 6]
    assert result.return_value == 0


def test_a_missed_bar_is_said_and_is_exit_code_3(asked: dict[str, Any]) -> None:
    asked["missed"] = ("median F1 at 200 samples: 0.1",)
    result = CliRunner().invoke(command, ["services"], standalone_mode=False)
    assert result.return_value == 3
    assert result.stdout.splitlines()[-2:] == ["missed:", "median F1 at 200 samples: 0.1"]


def test_the_table_names_service_and_interval(asked: dict[str, Any]) -> None:
    result = CliRunner().invoke(command, ["services"], standalone_mode=False)
    assert "+0.050 (+0.010 to +0.090)" in result.stdout
    assert result.stdout.splitlines()[-1] == "every stated bar was reached"
    assert asked["directory"] is None


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such directory"):
        CliRunner().invoke(
            command, ["services", "--data", str(tmp_path / "none")], standalone_mode=False, catch_exceptions=False
        )
