"""Commands that the pages show can be given: the program knows the command and every option of it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import click
import pytest
from repository import ROOT

from cotide_cli.main import cotide

PAGES = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
OURS = re.compile(r"(?:(?<=`)|(?<=\$ )|^ *)(?:\$ )?(?:kubectl[ -])?cotide ([a-z][^`\n#]*)", re.MULTILINE)
"""In code: a line of its own, after a prompt, or in backticks; prose about Cotide begins otherwise."""
SCRIPT = re.compile(r"\bpython ((?:-m cotide_[\w.]+)|(?:(?:benchmarks|tests)/[\w/]+\.py))([^`\n#]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


@cache
def command_of(path: tuple[str, ...]) -> click.Command | None:
    """The command of some words, loaded as the program loads it; None where there is none."""
    found: click.Command | None = cotide
    for word in path:
        found = (
            found.get_command(click.Context(found, resilient_parsing=True), word)
            if isinstance(found, click.Group)
            else None
        )
        if found is None:
            return None
    return found


def misgiven(text: str) -> list[str]:
    """What is wrong with the command after ``cotide``: the word or the option that there is not."""
    words = text.replace("\\", " ").split()
    path: list[str] = []
    for word in words:
        if not isinstance(command_of(tuple(path)), click.Group) or not re.fullmatch(r"[a-z][a-z-]*", word):
            break
        path.append(word)
    found = command_of(tuple(path))
    if found is None:
        return [" ".join(path)]
    known = {name for option in found.params for name in (*option.opts, *option.secondary_opts)} | {
        "--help",
        "--version",
    }
    given = re.split(r" [|>&;]", f" {' '.join(words[len(path) :])}")[0]
    return [option for option in OPTION.findall(given) if option not in known]


def scripts_text(named: str) -> str | None:
    """The program of a script or module, with what stands beside it and may hold its options; None where it is not."""
    if named.startswith("-m "):
        parts = Path(*named.removeprefix("-m ").split("."))
        files = [
            ROOT / root / part
            for root in ("operator", "predictors", "sim")
            for part in (parts.with_suffix(".py"), parts / "__main__.py")
        ]
    else:
        files = [ROOT / named]
    found = next((file for file in files if file.is_file()), None)
    return None if found is None else "\n".join(file.read_text() for file in found.parent.glob("*.py"))


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("simulate --trace x.swf --policy easy -o json", []),
        ("experiment phases --plot x.png | tail --lines 3", []),
        ("experiment phase", ["experiment phase"]),
        ("whatif --without-nodes n1 --policy easy", ["--without-nodes"]),
    ],
)
def test_a_word_or_an_option_that_there_is_not_is_found(text: str, wrong: list[str]) -> None:
    assert misgiven(text) == wrong


def test_pages_show_commands() -> None:
    assert sum(len(OURS.findall(page.read_text())) for page in PAGES) > 100
    assert sum(len(SCRIPT.findall(page.read_text())) for page in PAGES) > 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_shows_no_command_or_option_that_there_is_not(page: Path) -> None:
    text = page.read_text()
    assert {shown: wrong for shown in OURS.findall(text) if (wrong := misgiven(shown))} == {}
    for named, options in SCRIPT.findall(text):
        program = scripts_text(named)
        assert program is not None, named
        assert [option for option in OPTION.findall(options) if f'"{option}"' not in program] == [], named
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = re.findall(r"(?:`|\$ |^    )make ([a-z-]+)", text, re.MULTILINE)
    assert [target for target in shown if target not in targets] == []
