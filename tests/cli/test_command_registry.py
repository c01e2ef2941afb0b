"""Commands that packages register: help lists them without loading any, and a missing package is one line."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from cotide_cli import main
from cotide_cli.command_registry import GROUP, HEADINGS, OTHER, declared, registered

PROGRAM = """
import click
from cotide_cli.command_registry import Command

MINE = Command("their_commands.mine", "Do what I do.")

@click.command()
def command():
    {body}
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Install a package of a third party that registers a command."""

    def installed(
        name: str = "mine", body: str = "click.echo('done')", value: str = "their_commands.mine:MINE"
    ) -> None:
        metadata = tmp_path / "their_commands-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: their-commands\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(
            f"[a]\nb = c:d\n\n[{GROUP}]\n# mine\n{name} = {value} [extra]\n\n[e]\nf=g:h\n"
        )
        package = tmp_path / "their_commands"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "mine.py").write_text(PROGRAM.format(body=body))
        monkeypatch.syspath_prepend(tmp_path)
        registered.cache_clear()

    yield installed
    registered.cache_clear()
    for name in [name for name in sys.modules if name.startswith("their_commands")]:
        del sys.modules[name]


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["cotide", *arguments])
    with pytest.raises(SystemExit) as caught:
        main.main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_each_command_of_cotide_has_a_module_a_summary_and_a_heading() -> None:
    shown = declared()
    assert tuple(shown) == HEADINGS[:-1]
    assert sorted(name for commands in shown.values() for name in commands) == sorted(registered())
    for name, declaration in registered().items():
        module, _, attribute = declaration.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert importlib.util.find_spec(command.module), name
        assert command.summary.endswith("."), name


def test_commands_are_those_that_the_standard_library_finds() -> None:
    assert registered() == {entry.name: entry.value for entry in sorted(entry_points(group=GROUP))}


def test_help_loads_no_command_and_none_of_their_libraries() -> None:
    program = (
        "import sys; sys.argv = ['cotide', '--help']; from cotide_cli.main import cotide\n"
        "cotide.main(standalone_mode=False); print(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert [f"{heading}:" in done.stdout for heading in HEADINGS] == [True, True, True, False]
    assert "cotide_lab.command_table" in done.stderr
    assert [name for name in ("_command'", "'numpy'", "'kopf'", "'yaml'") if name in done.stderr] == []


def test_a_command_of_another_package_is_listed_apart_and_runs(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    install()
    assert declared()[OTHER] == {"mine": "Do what I do."}
    assert ended(monkeypatch, "mine") == 0
    assert capfd.readouterr() == ("done\n", "")


def test_another_package_can_t_replace_a_command_of_cotide(install: Callable[..., None]) -> None:
    before = registered()["version"]
    install(name="version")
    assert registered()["version"] == before


@pytest.mark.parametrize(
    ("installed", "message"),
    [
        ({"body": "import not_there"}, "mine needs the package not_there, which is not installed"),
        ({"value": "not_there:MINE"}, "mine needs the package not_there, which is not installed"),
        ({"value": "their_commands.mine:OTHER"}, "mine: their_commands.mine:OTHER declares no command"),
        ({"value": "their_commands.mine:click"}, "mine: their_commands.mine:click declares no command"),
    ],
)
def test_a_command_that_can_t_be_loaded_is_one_line(
    installed: dict[str, str],
    message: str,
    install: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    install(**installed)
    assert ended(monkeypatch, "mine") == 2
    assert capfd.readouterr() == ("", f"cotide: {message}\n")


def test_a_missing_dependency_of_a_satellite_names_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "joblib", None)
    assert (
        ended(monkeypatch, "sweep", "--generate", "synth1", "--policy", "fcfs", "--results", str(tmp_path / "x.csv"))
        == 2
    )
    wanted = "cotide: sweep needs the package joblib, which is not installed: pip install 'cotide[lab]'\n"
    assert capfd.readouterr() == ("", wanted)


def test_a_missing_module_of_an_installed_package_is_a_programming_error(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(body="import their_commands.missing")
    monkeypatch.setattr(sys, "argv", ["cotide", "mine"])
    with pytest.raises(ModuleNotFoundError):
        main.main()
