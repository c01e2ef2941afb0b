"""Commands by name: packages register them, and help lists them without loading any.

Called by `main`. A package registers a command as an entry point of the group ``cotide.commands``. The entry point
names a `Command` in a module that imports nothing else, such as `command_table`::

    [project.entry-points."cotide.commands"]
    mine = "my_package.command_table:MINE"

Invariants: a command's own module is imported only when the command is called; a command of Cotide can't be replaced.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
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
def registered() -> dict[str, EntryPoint]:
    """Return the entry points of all commands, in alphabetical order of their names."""
    found: dict[str, EntryPoint] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        if entry.name not in found or _package(entry) in INSTALLED_BY:
            found[entry.name] = entry
    return found


def declared() -> dict[str, dict[str, str]]:
    """Return the summaries of the commands by heading and name; a missing package's commands are left out."""
    found: dict[str, dict[str, str]] = {heading: {} for heading in HEADINGS}
    for name, entry in registered().items():
        try:
            command = _declaration(entry)
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
        loaded = getattr(importlib.import_module(_declaration(registered()[name]).module), "command", None)
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


def _declaration(entry: EntryPoint) -> Command:
    found = getattr(importlib.import_module(entry.module), entry.attr, None)
    if not isinstance(found, Command):
        raise InputError(f"{entry.value} declares no command", field=entry.name)
    return found


def _package(entry: EntryPoint) -> str:
    return entry.module.partition(".")[0]
