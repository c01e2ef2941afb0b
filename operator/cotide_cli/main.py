"""The `cotide` command: parses arguments and hands over; each command lives in a module of its own.

Data goes to stdout, progress and logs to stderr. Exit codes: 0 ok, 1 failed, 2 usage, 3 a stated objective was missed.
A `CotideError` or an error of the system becomes one line on stderr, never a traceback.
"""

from __future__ import annotations

import importlib
import sys
from difflib import get_close_matches
from io import TextIOWrapper
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

from cotide_cli.parent_watch import watch_parent
from cotide_cli.stopping import StoppedError, leave
from cotide_core.errors import CotideError, InputError

COMMANDS: Final[dict[str, str]] = {
    "demo": "Run the whole system on this machine and compare policies.",
    "operator": "Run the operator, in or out of a cluster.",
    "node-agent": "Hold batch pods of one node back while services need its cpu.",
    "apiserver": "Run the embedded Kubernetes API server.",
    "nodes": "Run fake nodes on any API server.",
    "train": "Train a predictor from files.",
    "evaluate": "Score a predictor on held-out samples, compared with its baselines.",
    "profile": "Measure one service next to batch work: samples, a model, a page.",
    "experiment": "Run an experiment of a paper, its figures next to Cotide's.",
    "capacity": "Plan how many machines of which type are needed in the next hours.",
    "place": "Plan the replicas of a service over several clusters, and set them.",
    "explain": "Explain why a pod or a Job is where it is, or why it waits.",
    "consolidate": "Plan which nodes can go with the fewest moves, and carry it out on request.",
    "whatif": "Show what would happen without a node, with more nodes, more load or another policy.",
    "simulate": "Replay a batch log under scheduling policies, side by side.",
    "sweep": "Replay many logs, policies and seeds in parallel, into one file.",
    "lab": "Put every predictor on one fair track, and show the value of each.",
    "replay": "Run a recorded ledger through the engine and compare.",
    "report": "Report what shadow mode observed, and what Cotide would have done.",
    "completion": "Print the script that makes a shell complete this command.",
    "version": "Print the versions of Cotide and of its libraries.",
}
"""Command name to one line of help; the module ``cotide_cli.commands.<name>_command`` holds a click command
``command``, with ``_`` for ``-``."""

FOLDERS: Final = {
    "evaluate": "evaluation",
    "capacity": "provisioning",
    "place": "provisioning",
    "lab": "lab",
    "profile": "profile",
    "replay": "ledgers",
    "report": "ledgers",
}
"""Commands with a module in another folder of ``cotide_cli`` than ``commands``."""


class LazyGroup(click.Group):
    """Loads a command's module only when it is called: `cotide --help` must not import kopf and xgboost."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in the order of the README."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in COMMANDS:
            if not ctx.resilient_parsing and (near := get_close_matches(cmd_name, COMMANDS, n=1)):
                raise click.UsageError(f"No such command {cmd_name!r}, did you mean {near[0]!r}?", ctx)
            return None
        folder = FOLDERS.get(cmd_name, "commands")
        module = importlib.import_module(f"cotide_cli.{folder}.{cmd_name.replace('-', '_')}_command")
        command: click.Command = module.command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer commands from their one-liners: a shell that waits for a list must not load kopf and numpy."""
        options = super(click.Group, self).shell_complete(ctx, incomplete)
        found = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return found + options

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from their one-liners, without importing any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


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
