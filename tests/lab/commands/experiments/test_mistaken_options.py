"""Options of all experiments that can't work: one sentence that names the option, exit code 2, before any work."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from cotide_cli import main
from cotide_lab.commands.experiment_command import EXPERIMENTS, command
from cotide_sim.traces.load import google_load

HUGE = "1" + "0" * 30
NUMBERS = ("-1", "nan", "inf", "1e308", "many", "")
PATHS = {"plot": ("/no/folder/x.png", "/proc/x.png", "/x.txt", "/"), "data": ("/no/folder", "/dev/null", "a" * 300)}
UNBOUNDED = {"--hosts"}
"""At most so many: however large it is, no more are there."""


def options() -> Iterator[tuple[str, str, str]]:
    """Yield an experiment, an option of it, and a value that can't work."""
    context = click.Context(command)
    for name in EXPERIMENTS:
        found = command.get_command(context, name)  # type: ignore[attr-defined]  # it is a group
        for option in found.params:
            if not isinstance(option, click.Option) or option.is_flag:
                continue
            spelled = max(option.opts, key=len)
            is_number = isinstance(option.type, click.IntRange | click.FloatRange)
            values = NUMBERS if is_number else PATHS.get(spelled.removeprefix("--"), ())
            values += (HUGE,) if is_number and spelled not in UNBOUNDED else ()
            values += ("nonsense",) if isinstance(option.type, click.Choice) else ()
            for value in values:
                yield name, spelled, value


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["cotide", "experiment", *arguments])
    with pytest.raises(SystemExit) as caught:
        main.main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A log for experiments that must have one; its only job could be run."""
    path = tmp_path / "log.swf"
    path.write_text("; MaxProcs: 4\n1 0 5 60 1 -1 -1 1 600 -1 1 1 1 -1 1 -1 -1 -1\n")
    return str(path)


@pytest.mark.parametrize(("name", "option", "value"), list(options()))
def test_an_option_that_can_not_work_is_named_before_any_work(
    name: str, option: str, value: str, log: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found: Any = command.get_command(click.Context(command), name)  # type: ignore[attr-defined]
    monkeypatch.setattr(found, "callback", lambda **_: pytest.fail("it began to work"))
    logs = [log] if any(isinstance(param, click.Argument) for param in found.params) else []
    assert ended(monkeypatch, name, f"{option}={value}", *logs) == 2
    said = capfd.readouterr().err
    assert option in said.splitlines()[-1]
    assert len(said) < 1000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("hierarchical", "--slots", ""), "--slots: '' is not a multiple of"),
        (("hierarchical", "--slots", "nan"), "--slots: 'nan' is not a multiple of"),
        (("phases", "--multiples", ""), "--multiples"),
        (("phases", "--multiples", HUGE), "--multiples"),
        (("phases", "--rule", "x"), "--rule"),
        (("joint", "--only", "x"), "--only: 'x' is none of"),
    ],
)
def test_lists_and_names_that_can_not_work_are_named(
    arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, *arguments) == 2
    assert words in capfd.readouterr().err


@pytest.mark.parametrize("name", ["host-load", "hierarchical", "qpsm-waiting", "services", "capacity", "placement"])
def test_a_folder_without_the_traces_is_named_with_its_option_and_the_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, name, "--data", str(tmp_path)) == 2
    said = [line for line in capfd.readouterr().err.splitlines() if line]
    assert said[-1].startswith(f"cotide: {tmp_path}/")
    assert ": --data: " in said[-1]


def test_a_file_that_is_broken_in_the_folder_of_traces_is_named_with_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / google_load.FILE_2011
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no gzip")
    assert ended(monkeypatch, "hierarchical", "--data", str(tmp_path)) == 2
    assert f"cotide: {path}: --data: " in capfd.readouterr().err


def test_a_plot_that_can_be_written_is_not_there_before_it_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ended(monkeypatch, "joint", "--only", "x", "--journal", "/dev/null") == 2
    plot = tmp_path / "plot.png"
    assert ended(monkeypatch, "phases", "--plot", str(plot), "--rule", "x") == 2
    assert list(tmp_path.iterdir()) == []
    plot.write_bytes(b"an earlier one")
    assert ended(monkeypatch, "phases", "--plot", str(plot), "--rule", "x") == 2
    assert plot.read_bytes() == b"an earlier one"
