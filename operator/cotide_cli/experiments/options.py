"""What experiments over seeds have in common on the command line: seeds, processes, output, where the plot goes, and
how the report is printed.

Called by the commands beside it. Invariant: a path that can't be used is told before the run begins.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from cotide_cli.inputs.checked_types import SEED, WORKERS, PlotFile
from cotide_cli.printing import as_text, output_option

Command = TypeVar("Command", bound=Callable[..., Any])
journal_option = click.option(
    "--journal",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keeps each run that ended; the same command goes on there. Begin another one after a change of the code.",
)
"""Of every experiment with such a journal, as `journal`."""
plot_option = click.option("--plot", type=PlotFile(), help="Write a plot, as .png or .svg.")
"""Of every experiment with figures, as `plot`."""


def seed_options(command: Command) -> Command:
    """Add ``--seed`` and ``--seeds``."""
    first = click.option("--seed", type=SEED, default=0, show_default=True, help="The first seed.")
    many = click.option(
        "--seeds", type=click.IntRange(1, 100), default=3, show_default=True, help="How many seeds from it on."
    )
    return first(many(command))


def run_options(command: Command) -> Command:
    """Add ``--workers``, ``--output`` and ``--plot``."""
    workers = click.option("--workers", type=WORKERS, default=os.cpu_count() or 1, help="Processes.")
    return workers(output_option(plot_option(command)))


def print_report(report: Any, output: str, table: Callable[[Any], None], **beside: Any) -> int:
    """Print what an experiment found; return the exit code: 3 where it missed a stated bar.

    Parameters
    ----------
    report : a dataclass with ``missed``.
    table : prints it for people.
    beside : what else stands in the document, before the report.
    """
    if output == "table":
        table(report)
    else:
        click.echo(as_text({**beside, **asdict(report)}, output))
    return 3 if report.missed else 0
