"""Options in groups: `-h` shows each under a heading of its own, and a command gets each as one object.

Used by the commands with many options. Invariant: a group's fields have the names of its options' parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
NO_HEADING: Final = "Options"


class GroupedOption(click.Option):
    """An option of a group.

    Attributes
    ----------
    heading : of its group.
    """

    heading = NO_HEADING


def grouped(*names: str, **more: Any) -> Decorator:
    """Return an option for `option_group`; arguments as for `click.option`."""
    return click.option(*names, cls=GroupedOption, **more)


def option_group(heading: str, argument: str, kind: type[DataclassInstance], *options: Decorator) -> Callable[[F], F]:
    """Return a decorator that adds options to a command.

    Parameters
    ----------
    heading : of the options in the help.
    argument : name of the command's argument that receives their values.
    kind : class of that argument; it has a field for each option.
    """
    names = [field.name for field in fields(kind)]

    def decorate(function: F) -> F:
        @wraps(function)
        def called(*args: Any, **given: Any) -> Any:
            given[argument] = kind(**{name: given.pop(name) for name in names})
            return function(*args, **given)

        command: Any = called
        for option in reversed(options):
            command = option(command)
        for parameter in command.__click_params__[-len(options) :]:
            parameter.heading = heading
        result: F = command
        return result

    return decorate


class GroupedCommand(click.Command):
    """Shows options under the headings of their groups, in the command's order; those without a group come last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups one after another."""
        shown: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if isinstance(parameter, click.Option) and record is not None:
                shown.setdefault(getattr(parameter, "heading", NO_HEADING), []).append(record)
        for heading, records in sorted(shown.items(), key=lambda group: group[0] == NO_HEADING):
            with formatter.section(heading):
                formatter.write_dl(records)
