"""Output of commands: data as JSON or YAML text, plain columns, a bar during long work.

Called by the commands. Invariant: both forms of data hold the same document; the bar goes to stderr.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click
import yaml

if TYPE_CHECKING:
    from rich.table import Table


LINE_SECONDS: Final = 30.0
"""Seconds between two lines of progress in a log; chosen: a run of hours has some hundred, and does not seem dead."""
PIPE_WIDTH: Final = 160
"""Columns of tables that are written to a file or a pipe, so that no cell is folded (chosen)."""
output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="A table for people, or the same as JSON or YAML.",
)
"""Option of every command that prints data, as `output`."""


def as_text(data: Any, output: str) -> str:
    """Return a document as indented JSON, or as YAML when `output` is ``yaml``; without a line break at the end.

    A figure that is not defined (nan, as an interval of one seed) or infinite is null: JSON knows neither.
    """
    text = json.dumps(_finite(data), indent=2, ensure_ascii=False, allow_nan=False)
    if output != "yaml":
        return text
    # Through JSON: tuples become lists and string-like enumerations plain text, so that no Python tag appears.
    return yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True).rstrip("\n")


def camel_cased(one: Any) -> dict[str, Any]:
    """Return a dataclass, and those inside, by field: ``memory_bytes`` is ``memoryBytes``.

    Commands on a cluster print like the API server. Commands that measure and replay print names with ``_``, like the
    columns of their files.
    """
    return asdict(one, dict_factory=lambda pairs: {_camel(name): value for name, value in pairs})


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(one) for key, one in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(one) for one in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def print_lines(lines: Sequence[Sequence[str]]) -> None:
    """Print rows in columns of the same width."""
    widths = [max(len(line[index]) for line in lines) for index in range(len(lines[0]))]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        click.echo("  " + "  ".join(cells).rstrip())


def screen_columns() -> int | None:
    """Return the number of columns of the screen; None without a screen, where lines have any length."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_figures(
    lines: Sequence[Sequence[str]], *, names: int = 1, left: Collection[int] | None = None, indent: str = "  "
) -> None:
    """Print rows of figures in columns of the same width; columns without room on the screen go below, with the names
    repeated.

    No cell is cut, however narrow the screen is: half a figure is a wrong one.

    Parameters
    ----------
    names : number of columns, from the left, that identify a row.
    left : columns that are aligned to the left; others are aligned to the right. None for all.
    """
    widths = [max(len(line[index]) for line in lines) for index in range(len(lines[0]))]
    for shown in _fitting(widths, names, screen_columns(), len(indent)):
        for line in lines:
            cells = [
                line[at].ljust(widths[at]) if left is None or at in left else line[at].rjust(widths[at]) for at in shown
            ]
            click.echo((indent + "  ".join(cells)).rstrip())


def _fitting(widths: Sequence[int], names: int, room: int | None, indent: int) -> Iterator[list[int]]:
    """Yield the columns that are shown next to each other: the names, and as many others as fit, at least one."""
    head, others = list(range(names)), list(range(names, len(widths)))
    while True:
        shown, used = list(head), indent + sum(widths[at] + 2 for at in head)
        while others and (len(shown) == names or room is None or used + widths[others[0]] <= room):
            used += widths[others[0]] + 2
            shown.append(others.pop(0))
        yield shown
        if not others:
            return


def print_table(table: Table) -> None:
    """Print a table of rich unchanged if it fits on the screen, otherwise its columns as `print_figures` does.

    When names take half of the screen, as sentences do, cells are folded.
    """
    from rich.console import Console
    from rich.measure import Measurement

    room = screen_columns()
    console = Console(highlight=False, width=PIPE_WIDTH if room is None else room)
    needed = Measurement.get(console, console.options.update(max_width=PIPE_WIDTH), table).maximum
    lines = [[str(column.header) for column in table.columns]]
    lines += [list(row) for row in zip(*(map(str, column.cells) for column in table.columns), strict=True)]
    if room is None or needed <= room or max(len(line[0]) for line in lines) > room // 2:
        console.print(table)
        return
    are_left = [column.justify == "left" for column in table.columns]
    # Columns at the left identify a row; when none is marked as such, the first one does.
    names = 1 if all(are_left) else max(are_left.index(False), 1)
    click.echo(str(table.title))
    print_figures(lines, names=names, left=range(names), indent="")


@contextmanager
def progress_bar() -> Iterator[Callable[[str, float], object]]:
    """Show a bar on stderr, or a line from time to time when stderr is not a terminal.

    Yields a function that takes the task and the finished share.
    """
    if not sys.stderr.isatty():
        said = [time.monotonic()]

        def line(what: str, share: float) -> None:
            if time.monotonic() - said[0] >= LINE_SECONDS:
                said[0] = time.monotonic()
                click.echo(f"{share:.0%}: {what}", err=True)

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)
