"""What commands print: data as JSON or YAML text, plain columns, a bar while something long runs.

Called by the commands. Invariant: both forms of data hold the same document; the bar goes to stderr.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

if TYPE_CHECKING:
    from cotide_sim.pages.page import Made


output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="A table for people, or the same as JSON or YAML.",
)
"""Of every command that prints data, as `output`."""


def as_text(data: Any, output: str) -> str:
    """Return a document as indented JSON, or as YAML when `output` is ``yaml``; without a line break at the end.

    A figure that is not defined (nan, as an interval of one seed) or infinite is null: JSON knows neither.
    """
    text = json.dumps(_finite(data), indent=2, ensure_ascii=False, allow_nan=False)
    if output != "yaml":
        return text
    # By way of JSON: tuples become lists and string-like enumerations plain text, so that no Python tag appears.
    return yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True).rstrip("\n")


def camel_cased(one: Any) -> dict[str, Any]:
    """Return a dataclass, and those inside, by field: ``memory_bytes`` is ``memoryBytes``.

    So commands on a cluster print, as the API server does. Commands that measure and replay print names with ``_``, as
    the columns of their files are called.
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


def made() -> Made:
    """Return how a page is made: the command as typed, the version, and the date.

    The date is ``SOURCE_DATE_EPOCH`` where that is set (reproducible-builds.org), so that a page can be made again.
    """
    from cotide_sim.pages.page import Made

    seconds = float(os.environ.get("SOURCE_DATE_EPOCH", "") or time.time())
    command = shlex.join([Path(sys.argv[0]).name.replace("__main__.py", "cotide"), *sys.argv[1:]])
    return Made(command, version("cotide"), f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC")


@contextmanager
def progress_bar() -> Iterator[Callable[[str, float], object]]:
    """Show a bar on stderr; yields what is told of the task and the share that is done."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)
