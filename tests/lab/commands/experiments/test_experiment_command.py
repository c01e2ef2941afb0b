"""`cotide experiment host-load` from a user's chair: output, plot, exit codes and faults."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from cotide_core.errors import InputError
from cotide_lab.commands.experiment_command import EXPERIMENTS, RENAMED, command


def series_file(directory: Path) -> Path:
    generator = np.random.default_rng(1)
    load = np.clip(0.3 + 0.05 * generator.standard_normal((12, 320)), 0, 1)
    lines = [f"h{host},{slot},{value:.4f}" for host, row in enumerate(load) for slot, value in enumerate(row)]
    path = directory / "mine.csv"
    path.write_text("series,slot,load\n" + "\n".join(lines) + "\n")
    return path


def test_json_goes_to_stdout_and_progress_to_stderr(tmp_path: Path) -> None:
    asked = ["host-load", "--series", str(series_file(tmp_path)), "-o", "json"]
    result = CliRunner().invoke(command, asked, standalone_mode=False)
    report = json.loads(result.stdout)
    assert report["sets"][0]["name"] == "mine"
    assert {score["method"] for score in report["sets"][0]["points"]} >= {"ARMA(1,1)", "ARMA(1,1), last state"}
    assert result.return_value == (3 if report["missed"] else 0)
    assert "fitting ARMA" in result.stderr
    again = CliRunner().invoke(command, asked, standalone_mode=False)
    assert json.loads(again.stdout) == report


@pytest.mark.parametrize(("name", "magic"), [("plot.png", b"\x89PNG"), ("plot.svg", b"<?xml")])
def test_a_plot_is_written_in_the_format_of_its_name(tmp_path: Path, name: str, magic: bytes) -> None:
    asked = ["host-load", "--series", str(series_file(tmp_path)), "--hosts", "3", "--plot", str(tmp_path / name)]
    result = CliRunner().invoke(command, asked, standalone_mode=False)
    assert result.exception is None
    assert (tmp_path / name).read_bytes().startswith(magic)
    assert "mine: 3 hosts x 320 slots" in result.stdout
    assert "last state" in result.stdout


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["--plot", "plot.gif"], "ends in neither of .png, .svg"),
        (["--set", "google2011"], "--set: names a set of --data"),
        (["--data", "nowhere"], "no such directory"),
        (["--series", "nowhere.csv"], "can't be read"),
    ],
)
def test_a_users_mistake_is_one_sentence(asked: list[str], words: str) -> None:
    result = CliRunner().invoke(command, ["host-load", *asked], standalone_mode=False)
    assert isinstance(result.exception, InputError)
    assert words in str(result.exception)


@pytest.mark.parametrize(("earlier", "name"), RENAMED.items())
def test_an_earlier_name_is_refused_with_todays(earlier: str, name: str) -> None:
    result = CliRunner().invoke(command, [earlier])
    assert result.exit_code == 2
    assert f"is called {name!r} now" in result.output


def test_every_experiment_of_the_list_can_be_loaded() -> None:
    for name in EXPERIMENTS:
        result = CliRunner().invoke(command, [name, "--help"])
        assert result.exit_code == 0, result.output
