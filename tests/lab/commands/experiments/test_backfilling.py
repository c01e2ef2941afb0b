"""`cotide experiment reliable-share` and `forecast-accuracy` from a user's chair."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from cotide_core.errors import InputError
from cotide_lab.commands.experiment_command import command


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Sixty jobs on eight processors in the Standard Workload Format."""
    rng = np.random.default_rng(4)
    lines = ["; MaxProcs: 8"]
    submit = 0
    for number in range(1, 61):
        submit += int(rng.integers(0, 300))
        run = int(rng.integers(1, 900))
        size = int(rng.integers(1, 7))
        lines.append(f"{number} {submit} 0 {run} {size} -1 -1 {size} {3 * run} -1 1 {number % 3} 1 1 1 1 -1 -1")
    path = tmp_path / "small.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


def run(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)


def test_the_platform_is_shown_beside_its_rivals_and_a_missed_bar_is_exit_code_3(log, tmp_path):
    done = run("reliable-share", log, "--plot", tmp_path / "platform.svg")
    assert done.return_value in (0, 3)
    assert (done.return_value == 3) == ("missed:" in done.stdout)
    assert "hybrid" in done.stdout
    assert "the seed: more than 50%" in done.stdout
    assert (tmp_path / "platform.svg").read_text().startswith("<?xml")
    again = run("reliable-share", log, "-o", "json", "--workers", 2)
    document = json.loads(again.stdout)
    assert document["logs"][0]["trace"] == "small.swf"
    assert document["paper"]["table_4_3"]["SDSC"]["platform"] == 25.0
    assert bool(document["missed"]) == (again.return_value == 3)


def test_waits_and_slowdowns_are_told_by_class_of_user_and_width(log):
    shown = [re.split(r"\s{2,}", line.strip()) for line in run("reliable-share", log).stdout.splitlines()]
    rows = json.loads(run("reliable-share", log, "-o", "json").stdout)["logs"][0]["rows"]
    (ours,) = (row["classes"] for row in rows if (row["policy"], row["source"]) == ("hybrid", "learned"))
    for name, tail in ours.items():
        waits, slowdowns = (line for line in shown if line[0] == name)
        hours = [tail[f"wait_{one}"] / 3600 for one in ("mean", "p99", "longest")]
        assert waits[2] == " / ".join(f"{hour:,.1f}" for hour in hours)
        assert slowdowns[2] == " / ".join(f"{tail[f'slowdown_{one}']:,.1f}" for one in ("mean", "p99", "largest"))


def test_sensitivity_prints_a_column_for_each_accuracy(log, tmp_path):
    done = run("forecast-accuracy", log, "--plot", tmp_path / "sensitivity.png", "--workers", 1)
    assert "Online-SVF" in done.stdout
    assert all(f"{percent} %" in done.stdout for percent in (20, 40, 60, 80, 100))
    assert (tmp_path / "sensitivity.png").stat().st_size > 1000
    document = json.loads(run("forecast-accuracy", log, "-o", "json").stdout)
    assert len(document["logs"][0]["points"]) == 25


@pytest.mark.parametrize("name", ["reliable-share", "forecast-accuracy"])
def test_mistakes_are_told_in_one_line(name, log, tmp_path):
    missing = run(name, tmp_path / "none.swf")
    assert isinstance(missing.exception, InputError)
    assert "none.swf" in str(missing.exception)
    plot = run(name, log, "--plot", tmp_path / "plot.pdf")
    assert "plot.pdf ends in neither of .png, .svg" in str(plot.exception)
