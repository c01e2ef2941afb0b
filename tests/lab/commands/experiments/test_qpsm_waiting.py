"""`cotide experiment qpsm-waiting` from a user's chair: what it prints, its plot, and its refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cotide_core.errors import InputError
from cotide_lab.commands.experiment_command import command
from cotide_lab.experiments.qpsm import waiting as qpsm_waiting_experiment
from cotide_lab.experiments.qpsm.waiting import PAPER, Gain, Report, Row
from cotide_sim.cluster import comparison


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training takes half a minute: tests/sim plays with models that need none."""
    rows = tuple(Row(1_000, name, 1234.5, 6.0, 63.5, 0.01, PAPER[name][0]) for name in PAPER)
    report = Report(rows, (Gain("fifo", 0.1, 0.229),), ("qpsm is below fifo by 10.0% on average, the paper by 22.9%",))
    monkeypatch.setattr(comparison, "prepare", lambda *_: (None, None))
    monkeypatch.setattr(qpsm_waiting_experiment, "run", lambda *_, **__: report)


@pytest.mark.usefixtures("made_up")
def test_a_missed_bar_is_said_and_is_exit_code_3() -> None:
    result = CliRunner().invoke(command, ["qpsm-waiting"], standalone_mode=False)
    assert result.return_value == 3
    assert "missed:\nqpsm is below fifo by 10.0% on average" in result.stdout
    assert "     1,000  qpsm          1,234   6  164,616      63.5           1.00%" in result.stdout


@pytest.mark.usefixtures("made_up")
def test_json_and_a_plot(tmp_path: Path) -> None:
    plot = tmp_path / "s2.svg"
    result = CliRunner().invoke(command, ["qpsm-waiting", "-o", "json", "--plot", str(plot)], standalone_mode=False)
    found = json.loads(result.stdout)
    assert (found["rows"][2]["strategy"], found["rows"][2]["paper_seconds"]) == ("qpsm", 164_616)
    assert plot.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--data", "nowhere"], "nowhere: --data: no such directory"),
        (["--plot", "s2.txt"], "--plot: s2.txt ends in neither of .png, .svg"),
    ],
)
def test_a_mistake_is_one_line(asked: list[str], said: str) -> None:
    with pytest.raises(InputError) as caught:
        CliRunner().invoke(command, ["qpsm-waiting", *asked], standalone_mode=False, catch_exceptions=False)
    assert str(caught.value) == said
