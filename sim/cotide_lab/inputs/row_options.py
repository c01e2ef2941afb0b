"""Options that select the rows of a trace that count, and their meaning.

Used by `cotide simulate` and `cotide sweep`, as the argument ``rows``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from cotide_cli.option_groups import grouped, option_group

if TYPE_CHECKING:
    from cotide_sim.traces.jobs.swf_cleaning import Cleaning


@dataclass(frozen=True, slots=True)
class RowOptions:
    """How rows of a trace become jobs."""

    demand: Any = "requested"
    overrun: Any = "cut"
    no_request: Any = "longest"
    not_run: Any = "completed"
    exclude: tuple[str, ...] = ()
    on_bad: Any = "fail"

    def cleaning(self, processors: int | None) -> Cleaning:
        """Return the cleaning that they ask for.

        Parameters
        ----------
        processors : of the machine; None for the trace's.
        """
        from cotide_sim.traces.jobs.swf_cleaning import Cleaning
        from cotide_sim.traces.jobs.swf_exclusion import parse_exclusion

        strict: Any = "fail" if self.on_bad == "fail" else "drop"
        return Cleaning(
            processors=processors,
            demand=self.demand,
            overrun=self.overrun,
            no_request=self.no_request,
            not_run=self.not_run,
            negative=strict,
            too_large=strict,
            duplicates=strict,
            unsorted="fail" if self.on_bad == "fail" else "sort",
            exclusions=tuple(parse_exclusion(text) for text in self.exclude),
        )


row_options = option_group(
    "Rows of the trace",
    "rows",
    RowOptions,
    grouped(
        "--demand",
        type=click.Choice(["requested", "allocated", "larger"]),
        default="requested",
        show_default=True,
        help="Which processors a job is taken to need.",
    ),
    grouped(
        "--overrun",
        type=click.Choice(["cut", "keep", "raise"]),
        default="cut",
        show_default=True,
        help="A run beyond its request: cut the run, keep both, or raise the request.",
    ),
    grouped(
        "--no-request",
        type=click.Choice(["longest", "run"]),
        default="longest",
        show_default=True,
        help="What a job without a requested time asks for: the log's longest run, or its own (policies then know it).",
    ),
    grouped(
        "--not-run",
        type=click.Choice(["completed", "drop", "one-second"]),
        default="completed",
        show_default=True,
        help="A run time of 0 or below: one second for 0 of a completed job, else dropped; dropped; or one second.",
    ),
    grouped("--exclude", multiple=True, metavar="FILTER", help="Leave rows out: 'user=2 and job>=10'; repeatable."),
    grouped(
        "--on-bad",
        type=click.Choice(["fail", "skip"]),
        default="fail",
        show_default=True,
        help="At a broken row, a cut-off file, a negative run time, a job too large, a job number twice or rows out of "
        "order.",
    ),
)
