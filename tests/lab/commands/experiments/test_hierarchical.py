"""`cotide experiment hierarchical` from a user's chair: what it prints, its plot, and its refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cotide_core.errors import InputError
from cotide_lab.commands.experiment_command import command
from cotide_lab.experiments.hierarchical import schedule as hierarchical_experiment
from cotide_lab.experiments.hierarchical.schedule import PAPER, Report


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The days themselves take a minute each: tests/sim plays parts of them."""
    report = Report(PAPER, 2287, 10, ("mean delay fell by 14% (596 to 511), the bar is 40%",))
    monkeypatch.setattr(hierarchical_experiment, "run", lambda **_: report)


@pytest.mark.usefixtures("made_up")
def test_a_missed_bar_is_said_and_is_exit_code_3() -> None:
    result = CliRunner().invoke(command, ["hierarchical"], standalone_mode=False)
    assert result.return_value == 3
    assert "missed:\nmean delay fell by 14% (596 to 511), the bar is 40%" in result.stdout
    assert "without prediction  paper     300        116    132        404" in result.stdout
    # 14 of 116 overloads, 143 of 536 kills and evictions, 333 of 573 s are left.
    assert "-88% / -73% / -42%" in result.stdout


@pytest.mark.usefixtures("made_up")
def test_json_and_a_plot(tmp_path: Path) -> None:
    plot = tmp_path / "s1.svg"
    asked = ["hierarchical", "-o", "json", "--plot", str(plot)]
    result = CliRunner().invoke(command, asked, standalone_mode=False)
    assert json.loads(result.stdout)["rows"][0]["kills"] == 132
    assert plot.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--slots", "100,90"], "--slots: '90' is not a multiple of 20 s, from 60 up"),
        (["--data", "nowhere"], "nowhere: --data: no such directory"),
        (["--plot", "s1.txt"], "--plot: s1.txt ends in neither of .png, .svg"),
    ],
)
def test_a_mistake_is_one_line(asked: list[str], said: str) -> None:
    with pytest.raises(InputError) as caught:
        CliRunner().invoke(command, ["hierarchical", *asked], standalone_mode=False, catch_exceptions=False)
    assert str(caught.value) == said
