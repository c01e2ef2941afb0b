"""The `cotide` command: parses arguments and hands over; each command lives in a module of its own.

Data goes to stdout, progress and logs to stderr. Exit codes: 0 ok, 1 failed, 2 usage, 3 a stated objective was missed.
A `CotideError` or an error of the system becomes one line on stderr, never a traceback.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from cotide_cli.command_registry import declared, load, missing_package, registered
from cotide_cli.parent_watch import watch_parent
from cotide_cli.stopping import StoppedError, leave
from cotide_core.errors import CotideError, InputError


class LazyGroup(click.Group):
    """Loads a command's module only when it is called: `cotide --help` must not import kopf and xgboost."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order of the help."""
        del ctx
        return [name for commands in declared().values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command.

        Raises
        ------
        InputError
            When one of its packages is not installed.
        """
        names = registered()
        if cmd_name not in names:
            from difflib import get_close_matches

            if not ctx.resilient_parsing and (near := get_close_matches(cmd_name, names, n=1)):
                raise click.UsageError(f"No such command {cmd_name!r}, did you mean {near[0]!r}?", ctx)
            return None
        try:
            return load(cmd_name)
        except InputError:
            if ctx.resilient_parsing:  # a completion prints no errors
                return None
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command.

        Raises
        ------
        InputError
            When a package that it imports on the way is not installed.
        """
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            raise missing_package(ctx.invoked_subcommand or "", error) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer commands from their summaries: a shell that waits for a list must not load kopf and numpy."""
        options = super(click.Group, self).shell_complete(ctx, incomplete)
        summaries = {name: text for commands in declared().values() for name, text in commands.items()}
        found = [CompletionItem(name, help=text) for name, text in summaries.items() if name.startswith(incomplete)]
        return found + options

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from their summaries, without importing any."""
        del ctx
        for heading, commands in declared().items():
            with formatter.section(heading):
                formatter.write_dl(list(commands.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="cotide")
def cotide() -> None:
    """Fill the slack of a Kubernetes cluster, and predict before you bind."""


def _called() -> str:
    """Return the command as the user typed it: kubectl calls ``kubectl-cotide`` as a plugin."""
    return "kubectl cotide" if Path(sys.argv[0]).name.startswith("kubectl-") else "cotide"


def _print_anything() -> None:
    """Let stdout accept characters outside its encoding, as stderr does, such as a file name in other bytes."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def main() -> None:
    """Run the command line; the only place where an error becomes an exit code."""
    watch_parent()
    _print_anything()
    try:
        outcome = cotide.main(prog_name=_called(), standalone_mode=False)
    except click.ClickException as error:
        error.show()
        leave(2 if isinstance(error, click.UsageError) else 1)
    except click.Abort:
        click.echo("cotide: interrupted", err=True)
        leave(130)
    except StoppedError as stopped:
        click.echo("cotide: interrupted", err=True)
        leave(stopped.exit_code)
    except InputError as error:
        click.echo(f"cotide: {error}", err=True)
        leave(2)
    except CotideError as error:
        click.echo(f"cotide: {error}", err=True)
        leave(1)
    except OSError as error:  # a full disk or a name that is too long: an error of the system, not of the program
        if error.strerror is None or isinstance(error, (ConnectionError, TimeoutError)):
            raise  # the client reports network errors in its own words: this one is a programming error
        click.echo(f"cotide: {f'{error.filename}: ' if error.filename else ''}{error.strerror}", err=True)
        leave(1)
    leave(outcome if isinstance(outcome, int) else 0)
