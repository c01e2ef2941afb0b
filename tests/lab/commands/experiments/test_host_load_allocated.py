"""`cotide experiment host-load --allocated` from a user's chair: both tables; exit code 3 where a rival is better."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from cotide_lab.commands.experiment_command import command
from cotide_lab.experiments.host_load import allocated
from cotide_lab.experiments.host_load.allocated import IN_USE, PointRow, QuantileRow, Report

POINT = PointRow(IN_USE, 0.00326, 0.208, 0.016, 0.0, 0.0, 0.0)
QUANTILES = QuantileRow("held-rise", 14.4, 4.7, 0.862, 0.981, 0.0, 0.0, 0.0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replace the run by one that returns a made-up report; holds what it was asked."""
    seen: dict[str, Any] = {"missed": ()}

    def run(seeds: range, progress: Any) -> Report:
        del progress
        seen["seeds"] = list(seeds)
        return Report(len(seeds), 552, 0.288, (POINT,), (QUANTILES,), seen["missed"])

    monkeypatch.setattr(allocated, "run", run)
    return seen


def test_the_tables_have_points_and_quantiles(asked: dict[str, Any]) -> None:
    arguments = ["host-load", "--allocated", "--seeds", "2", "--seed", "5"]
    result = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert result.return_value == 0
    assert asked["seeds"] == [5, 6]
    assert "held now and the mean rise  0.003260" in result.stdout
    assert "held-rise" in result.stdout
    assert result.stdout.splitlines()[-1] == "no other point forecast is better than that in use"


def test_a_better_rival_is_named_and_is_exit_code_3(asked: dict[str, Any]) -> None:
    asked["missed"] = ("AR(2): MSE 0.003",)
    result = CliRunner().invoke(command, ["host-load", "--allocated", "-o", "json"], standalone_mode=False)
    assert result.return_value == 3
    assert json.loads(result.stdout)["missed"] == ["AR(2): MSE 0.003"]
