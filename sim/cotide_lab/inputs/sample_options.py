"""Options that name the samples a predictor is trained on or scored with.

Used by `cotide train` and `cotide evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from cotide_cli.option_groups import grouped, option_group
from cotide_core.limits import MAX_LATENCY_MILLISECONDS

F = TypeVar("F", bound=Callable[..., Any])
TABLE_LIMITS: Final[dict[str, tuple[float, ...]]] = {
    "grid": (0.5, 1.0, 2.5, 5.0),
    "grid-once": (0.2, 0.5, 1.0, 2.5),
    "antagonists": (1.0, 1.5, 2.0, 2.5),
    "parsec": (0.6, 0.7, 0.8),
    "all": (0.5, 1.0, 2.0, 5.0),
}
"""Limits in ms where both kinds of rows occur in each measured table (chosen from the latencies' quantiles)."""


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """Where samples come from, and what of them counts.

    Attributes
    ----------
    data, samples, ledger : one of the three is named.
    """

    data: Path | None
    samples: Path | None
    ledger: Path | None
    table: str
    limits: tuple[float, ...] | None

    def checked(self) -> SampleOptions:
        """Return the options with one source named; a file given as --data holds samples.

        Raises
        ------
        click.UsageError
            When none or several were named.
        """
        if sum(source is not None for source in (self.data, self.samples, self.ledger)) != 1:
            raise click.UsageError("give exactly one of --data, --samples and --ledger")
        if self.data is not None and self.data.is_file():
            return replace(self, data=None, samples=self.data)
        return self


def parse_limits(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[float, ...] | None:
    """Return limits in milliseconds, sorted, as a user writes them: ``0.5,1,2``."""
    if value is None:
        return None
    try:
        limits = tuple(sorted({float(part) for part in value.split(",")}))
    except ValueError:
        message = f"{value!r} is not a list of milliseconds such as 0.5,1,2"
        raise click.BadParameter(message, ctx, param) from None
    if not all(0 < limit <= MAX_LATENCY_MILLISECONDS for limit in limits):
        most = f"{MAX_LATENCY_MILLISECONDS:,.0f}"
        raise click.BadParameter(f"every limit must be a number of milliseconds above 0, up to {most}", ctx, param)
    return limits


def sample_options(tables: str, limits: str) -> Callable[[F], F]:
    """Return the group of options, as the argument ``source``.

    Parameters
    ----------
    tables, limits : help texts of --table and --limits.
    """
    return option_group(
        "Samples",
        "source",
        SampleOptions,
        grouped("--data", type=click.Path(path_type=Path), help="Directory of the measured co-location tables."),
        grouped("--samples", type=click.Path(path_type=Path), help="CSV file of samples (docs/guide/predictions.md)."),
        grouped("--ledger", type=click.Path(path_type=Path), help="Directory of a recorded ledger."),
        grouped("--table", type=click.Choice(list(TABLE_LIMITS)), default="all", show_default=True, help=tables),
        grouped("--limit-ms", "--limits", "limits", callback=parse_limits, metavar="MS,MS,...", help=limits),
    )
