"""What the docs name is there: files of code and tests, commands with their options, targets of make."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest
from pages import pages
from repository import ROOT

from cotide_cli.main import cotide

PAGES = pages()
CODE = ("operator", "predictors", "sim", "tests", "benchmarks", "deploy", "examples")
A_FILE = re.compile(r"`([\w./-]+\.(?:py|sh))`")
OF_THE_READER = {"my_policy.py", "./my_policy.py", "./mine.py", "mine.py"}
"""Files that a page tells its reader to write."""
A_TARGET = re.compile(r"(?:`|^\$ |^ +\$ )make ([a-z][a-z-]*)", re.MULTILINE)
A_COMMAND = re.compile(r"(?:`|^\$ |^    )(?:\.venv/bin/)?cotide ((?:[^`\n|;&#<>]|(?<=\\)\n)+)", re.MULTILINE)
WINGS = ("cotide_core", "cotide_operator", "cotide_cli", "cotide_predictors", "cotide_sim", "cotide_lab")


def test_files_that_pages_name_are_there() -> None:
    there = [str(path.relative_to(ROOT)) for root in CODE for path in (ROOT / root).rglob("*") if path.is_file()]
    missing = [
        f"{page}: {name}"
        for page, text in PAGES.items()
        for name in A_FILE.findall(text)
        if name not in OF_THE_READER and not any(f"/{one}".endswith(f"/{name}") for one in there)
    ]
    assert missing == []


def test_the_map_names_every_wing() -> None:
    lines = PAGES["docs/design/architecture.md"].splitlines()
    rows = {package: next(line for line in lines if f"| `{package}` |" in line) for package in WINGS}
    folders = {path.name: path for root in ("operator", "predictors", "sim") for path in (ROOT / root).glob("*/")}
    unnamed = [
        f"{package}: {wing.name}"
        for package, row in rows.items()
        for wing in sorted(folders[package].iterdir())
        if (wing / "__init__.py").exists() and f"`{wing.name}`" not in row
    ]
    assert unnamed == []


def test_targets_of_make_that_pages_name_are_there() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {(page, target) for page, text in PAGES.items() for target in A_TARGET.findall(text)}
    assert sorted((page, target) for page, target in named if target not in targets) == []


def commands() -> Iterator[tuple[str, list[str]]]:
    """Commands that pages show: where, and their words."""
    for page, text in PAGES.items():
        for found in A_COMMAND.findall(text):
            command = found.replace("\\\n", " ")
            try:
                words = shlex.split(command)
            except ValueError:  # a quotation that goes on elsewhere: the options before it count
                words = command.split()
            yield page, words


def unknown(words: list[str]) -> str | None:
    """Return the first word of a command that the program does not know, None where it knows all."""
    command: click.Command = cotide
    rest = list(words)
    while isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z][\w-]*", rest[0]):
        try:
            found = command.get_command(click.Context(command), rest[0])
        except click.UsageError:
            found = None
        if found is None:
            return rest[0]
        command = found
        rest.pop(0)
    known = {"-h", "--help", "--version"}
    for parameter in command.params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    given = [word.partition("=")[0] for word in rest if re.fullmatch(r"--?[a-z][\w-]*(=.*)?", word)]
    return next((word for word in given if word not in known), None)


def test_commands_of_pages_and_their_options_are_there() -> None:
    shown = list(commands())
    assert len(shown) > 100, "the pages' commands were not found"
    wrong = [f"{page}: cotide {' '.join(words)}: {word}" for page, words in shown if (word := unknown(words))]
    assert wrong == []


@pytest.mark.parametrize("words", [["explain", "pods", "--nothing"], ["experiment", "nothing"], ["nothing"]])
def test_a_word_that_no_command_knows_is_found(words: list[str]) -> None:
    assert unknown(words) == words[-1]
