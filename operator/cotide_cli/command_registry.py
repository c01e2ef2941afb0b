"""Commands by name: packages register them, and help lists them without loading any.

Called by `main`. A package registers a command as an entry point of the group ``cotide.commands``. The entry point
names a `Command` in a module that imports nothing else, such as `command_table`::

    [project.entry-points."cotide.commands"]
    mine = "my_package.command_table:MINE"

Invariants: a command's own module is imported only when the command is called; a command of Cotide can't be replaced.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import click

from cotide_core.errors import InputError

GROUP: Final = "cotide.commands"
INSTALLED_BY: Final = {"cotide_cli": "cotide", "cotide_sim": "'cotide[sim]'", "cotide_lab": "'cotide[lab]'"}
"""Packages of Cotide that have commands, and what pip installs for the dependencies of each."""
ON_A_CLUSTER: Final = "On a cluster"
ON_THIS_MACHINE: Final = "On this machine"
RESEARCH: Final = "Research"
OTHER: Final = "Other"
HEADINGS: Final = (ON_A_CLUSTER, ON_THIS_MACHINE, RESEARCH, OTHER)


@dataclass(frozen=True, slots=True)
class Command:
    """A command as its package declares it.

    Attributes
    ----------
    module : holds a click command named ``command``.
    summary : one line of help.
    heading : one of `HEADINGS`; any other counts as `OTHER`.
    """

    module: str
    summary: str
    heading: str = OTHER


@cache
def registered() -> dict[str, str]:
    """Return the declaration of each command, as ``module:name``, in alphabetical order of the commands."""
    found: dict[str, str] = {}
    for name, declaration in _entry_points():
        if name not in found or _package(declaration) in INSTALLED_BY:
            found[name] = declaration
    return dict(sorted(found.items()))


def _entry_points() -> Iterator[tuple[str, str]]:
    """Yield name and value of each entry point of the group.

    Reads the files of installed packages itself (packaging.python.org, "Entry points specification"):
    `importlib.metadata` takes half as long to load as all of the help. The first package on the path comes first.
    """
    for folder in sys.path:
        for file in sorted(Path(folder or ".").glob("*.dist-info/entry_points.txt")):
            with suppress(OSError):
                yield from _of_the_group(file.read_text(encoding="utf-8", errors="replace"))


def _of_the_group(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of the group's lines."""
    _, _, after = f"\n{text}".partition(f"\n[{GROUP}]")
    for line in after.partition("\n[")[0].splitlines():
        name, equals, value = line.partition("=")
        if equals and not name.lstrip().startswith(("#", ";")):
            yield name.strip(), value.partition("[")[0].strip()


def declared() -> dict[str, dict[str, str]]:
    """Return the summaries of the commands by heading and name; a missing package's commands are left out."""
    found: dict[str, dict[str, str]] = {heading: {} for heading in HEADINGS}
    for name in registered():
        try:
            command = _declaration(name)
        except (ImportError, InputError):
            continue
        found.get(command.heading, found[OTHER])[name] = command.summary
    return {heading: commands for heading, commands in found.items() if commands}


def load(name: str) -> click.Command:
    """Import and return a registered command.

    Raises
    ------
    InputError
        When a package is not installed, or the entry point names no command.
    """
    try:
        loaded = getattr(importlib.import_module(_declaration(name).module), "command", None)
    except ModuleNotFoundError as error:
        raise missing_package(name, error) from error
    if not isinstance(loaded, click.Command):
        raise InputError(f"{name} is registered, but is no command")
    return loaded


def missing_package(name: str, error: ModuleNotFoundError) -> Exception:
    """Return one line about a package that a command needs and that is not installed.

    A missing module of an installed package is a programming error, which is returned unchanged.
    """
    if error.name is None or "." in error.name:
        return error
    message = f"{name} needs the package {error.name}, which is not installed"
    wanted = INSTALLED_BY.get(_package(registered()[name]))
    return InputError(message if wanted is None else f"{message}: pip install {wanted}")


def _declaration(name: str) -> Command:
    module, _, attribute = registered()[name].partition(":")
    found = getattr(importlib.import_module(module), attribute, None)
    if not isinstance(found, Command):
        raise InputError(f"{module}:{attribute} declares no command", field=name)
    return found


def _package(declaration: str) -> str:
    return declaration.partition(":")[0].partition(".")[0]
