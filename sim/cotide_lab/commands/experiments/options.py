"""Common options of experiments over seeds: seeds, processes, output, the plot's path, and the printing of the report.

Called by the commands of this folder. Invariant: an invalid path is refused before the run begins.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from cotide_cli.inputs.checked_types import SEED, WORKERS
from cotide_cli.printing import as_text, output_option
from cotide_lab.inputs.plot_file import PlotFile

Command = TypeVar("Command", bound=Callable[..., Any])
journal_option = click.option(
    "--journal",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keeps each ended run; the same command continues there. Use a new one after a change of the code.",
)
"""Option of every experiment with such a journal, as `journal`."""
plot_option = click.option("--plot", type=PlotFile(), help="Write a plot, as .png or .svg.")
"""Option of every experiment with figures, as `plot`."""


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
    """Print the result of an experiment; return the exit code: 3 when it missed a stated bar.

    Parameters
    ----------
    report : a dataclass with ``missed``.
    table : prints it for people.
    beside : further entries of the document, before the report.
    """
    if output == "table":
        table(report)
    else:
        click.echo(as_text({**beside, **asdict(report)}, output))
    return 3 if report.missed else 0
